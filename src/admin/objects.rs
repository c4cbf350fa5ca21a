//! What all objects have in common: how one is shown, how a list of them is, how one is read from a body.

use std::sync::Arc;

use serde_json::{Map, Value as Json};

use super::{
    Rooms,
    call::{Body, Call, take_confirm},
    pages,
    reply::{Outcome, Refused, Reply},
};
use crate::{
    conf::Role,
    control::{
        Catalog, ChangeError, Kept,
        change::{Change, Kind, Target},
    },
    model::records::{Origin, Owned},
};

/// The query of a list that can be narrowed to an organization.
pub(super) const LIST: [&str; 3] = ["organization", pages::PARAMS[0], pages::PARAMS[1]];

/// An object in its written shape, with `managed_by`.
pub(super) fn shown<T: Kept>(owned: &Owned<T>) -> Json {
    let mut json = owned.value.write();
    if let Some(members) = json.as_object_mut() {
        members.insert("managed_by".to_owned(), Json::from(managed_by(&owned.origin)));
    }
    json
}

/// Who owns an object: `file` or `api`.
pub(super) const fn managed_by(origin: &Origin) -> &'static str {
    match origin {
        Origin::File { .. } => "file",
        Origin::Api => "api",
    }
}

/// Lists the objects of a kind.
pub(super) fn list<T: Kept>(
    rooms: &Rooms,
    call: &Call,
    (path, name): (&str, &str),
    show: impl Fn(&Catalog, &Owned<T>) -> Json,
) -> Outcome {
    call.allow(Role::Viewer, &LIST)?;
    let catalog = rooms.control.catalog();
    let wanted = call.organization();
    let (catalog_ref, show) = (&*catalog, &show);
    let entries = T::list(&catalog.records)
        .iter()
        .filter(|owned| wanted.is_none_or(|home| owned.value.home() == home))
        .map(|owned| {
            let key = format!("{}/{}", owned.value.home(), owned.value.name());
            (key, Box::new(move || show(catalog_ref, owned)) as Box<dyn FnOnce() -> Json>)
        });
    Ok(pages::page(call, (path, name), entries)?.at(catalog.revision))
}

/// Shows one object.
pub(super) fn get<T: Kept>(rooms: &Rooms, call: &Call, id: &str) -> Outcome {
    call.allow(Role::Viewer, &["organization"])?;
    let catalog = rooms.control.catalog();
    Ok(Reply::ok(shown(catalog.find::<T>(call.organization(), id)?)).at(catalog.revision))
}

/// Makes an object of the body.
pub(super) async fn create<T: Kept>(
    rooms: &Arc<Rooms>,
    call: &Call,
    body: &Body,
    change: impl FnOnce(T) -> Change,
) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let catalog = rooms.control.catalog();
    if T::KIND != "organization" {
        settle_home(&catalog, call, &mut members)?;
    }
    let object = read::<T>(members)?;
    let name = object.name();
    let home = Some(object.home().to_owned()).filter(|home| !home.is_empty());
    let done = rooms.control.apply(&change(object), &call.asker(confirm)?).await?;
    Ok(Reply::created(shown(done.find::<T>(home.as_deref(), &name)?)).at(done.revision))
}

/// Changes members of an object.
pub(super) async fn patch<T: Kept>(rooms: &Rooms, call: &Call, body: &Body, target: Target) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let (organization, id) = (target.organization.clone(), target.id.clone());
    let done = rooms.control.apply(&Change::Patch { target, members }, &call.asker(confirm)?).await?;
    Ok(Reply::ok(shown(done.find::<T>(organization.as_deref(), &id)?)).at(done.revision))
}

/// Deletes an object.
pub(super) async fn delete(rooms: &Rooms, call: &Call, body: &Body, target: Target) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    body.none()?;
    let (kind, id) = (target.kind, target.id.clone());
    let done = rooms.control.apply(&Change::Delete(target), &call.asker(Default::default())?).await?;
    Ok(deleted(kind_name(kind), &id).at(done.revision))
}

/// The answer to a deletion.
pub(super) fn deleted(kind: &str, id: &str) -> Reply {
    Reply::ok(Json::Object(Map::from_iter([("deleted".to_owned(), Json::from(format!("{kind}/{id}")))])))
}

const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Organization => "organization",
        Kind::Project => "project",
        Kind::Server => "server",
        Kind::Key => "key",
        Kind::Guardrail => "guardrail",
    }
}

/// An object by the name in its path and `?organization=`.
pub(super) fn target(call: &Call, kind: Kind, id: String) -> Target {
    Target { kind, organization: call.organization().map(str::to_owned), id }
}

/// Reads an object in its written shape.
///
/// # Errors
/// 400: every fault.
pub(super) fn read<T: Kept>(members: Map<String, Json>) -> Result<T, Refused> {
    T::read(&Json::Object(members)).map_err(|faults| ChangeError::of_faults(&faults).into())
}

/// Fills `organization` in where it was left out: that of the query, or the only one.
///
/// # Errors
/// 400
pub(super) fn settle_home(catalog: &Catalog, call: &Call, members: &mut Map<String, Json>) -> Result<(), Refused> {
    match (members.get("organization"), call.organization()) {
        (Some(Json::String(written)), Some(asked)) if written != asked => {
            Err(Refused::invalid("`organization` in the query and in the body differ"))
        }
        (None | Some(Json::Null), named) => {
            let home = catalog.organization(named)?;
            members.insert("organization".to_owned(), Json::from(home));
            Ok(())
        }
        (Some(_), _) => Ok(()),
    }
}

/// Who decides on a tool: `file` where a policy file pins it.
pub(super) const fn managed_by_pin(pin: Option<&crate::model::records::Approval>) -> &'static str {
    if pin.is_some() { "file" } else { "api" }
}
