//! What each change of an object does to the state to be. Judges what the object's owner, name and history forbid; whether the
//! objects fit together is judged when the whole is resolved and compiled.

use serde_json::{Map, Value as Json, json};

use super::{
    catalog::{Catalog, missing},
    change::{Asker, Change, Heard, Kind, Target},
    error::ChangeError,
    kept::Kept,
    next::{Next, REVOKED},
};
use crate::{
    model::{
        id::KeyDigest,
        records::{Grant, Guardrail, Key, Organization, Origin, Owned, Project, Server},
        units::shown,
    },
    store::Write,
};

/// Does `change` to the state to be.
///
/// # Errors
/// [`ChangeError`]; the state to be is spoilt then, and must be dropped.
pub(super) fn plan(next: &mut Next, catalog: &Catalog, change: &Change, asker: &Asker) -> Result<(), ChangeError> {
    match change {
        Change::CreateOrganization(organization) => create(next, catalog, organization, asker),
        Change::CreateProject(project) => create(next, catalog, project, asker),
        Change::CreateGuardrail(guardrail) => create(next, catalog, guardrail, asker),
        Change::CreateKey(key) => create_key(next, catalog, key, asker),
        Change::Register { server, heard } => register(next, catalog, (server, heard), asker),
        Change::ReplaceServer { before, after, heard } => {
            replace_server(next, catalog, (before, after, heard.as_ref()), asker)
        }
        Change::Patch { target, members } => match target.kind {
            Kind::Organization => patch::<Organization>(next, catalog, (target, members, &["id"]), asker),
            Kind::Project => patch::<Project>(next, catalog, (target, members, &["id", "organization"]), asker),
            Kind::Guardrail => patch::<Guardrail>(next, catalog, (target, members, &["name", "organization"]), asker),
            Kind::Key => patch::<Key>(next, catalog, (target, members, &FIXED_OF_KEYS), asker),
            Kind::Server => Err(ChangeError::Invalid("a server is replaced, not patched".to_owned())),
        },
        Change::Delete(target) => match target.kind {
            Kind::Organization => delete::<Organization>(next, catalog, target, asker),
            Kind::Project => delete::<Project>(next, catalog, target, asker),
            Kind::Guardrail => delete::<Guardrail>(next, catalog, target, asker),
            Kind::Server => delete_server(next, catalog, target, asker),
            Kind::Key => Err(ChangeError::Invalid("a key is revoked, not deleted".to_owned())),
        },
        Change::Rotate { key, sha256, previous_expires } => {
            rotate(next, catalog, (key, *sha256, *previous_expires), asker)
        }
        Change::Revoke { key } => revoke(next, catalog, key, asker),
        Change::Grant(grant) => put_grant(next, catalog, grant, asker),
        Change::Ungrant { key, server } => delete_grant(next, catalog, (key, server), asker),
        Change::PutCredential { server, user, headers } => {
            super::users::put(next, catalog, (server, user, headers), asker)
        }
        Change::DeleteCredential { server, user } => super::users::delete(next, catalog, (server, user), asker),
        Change::Approve { .. } | Change::Block(_) | Change::SetTerms { .. } => {
            super::decide::plan(next, catalog, change, asker)
        }
    }
}

/// What of a key a PATCH leaves alone: the token is rotated, the key revoked.
const FIXED_OF_KEYS: [&str; 6] = ["id", "organization", "sha256", "previous_sha256", "previous_expires", "revoked"];

fn create<T: Kept>(next: &mut Next, catalog: &Catalog, object: &T, asker: &Asker) -> Result<(), ChangeError> {
    let (home, name) = (object.home(), object.name());
    let bears = |owned: &Owned<T>| owned.value.name() == name && (T::IS_GLOBAL || owned.value.home() == home);
    if T::list(&catalog.records).iter().any(bears) || T::list(&next.api).iter().any(bears) {
        return Err(ChangeError::Invalid(format!("there is a {} `{}` already", T::KIND, shown(&name))));
    }
    T::list_mut(&mut next.api).push(Owned { value: object.clone(), origin: Origin::Api });
    next.writes.push(Write::PutObject(object.stored()));
    next.note(&asker.who, &format!("{}.create", T::KIND), (home, &name), (None, Some(object.write())));
    Ok(())
}

/// Puts `after` in the place of the object of the same name.
fn replace<T: Kept>(next: &mut Next, after: &T, (who, what): (&str, &str)) -> Result<(), ChangeError> {
    let (home, name) = (after.home().to_owned(), after.name());
    let slot = slot::<T>(next, &home, &name)?;
    let before = std::mem::replace(&mut slot.value, after.clone());
    if before == *after {
        return Ok(());
    }
    next.writes.push(Write::PutObject(after.stored()));
    next.note(who, &format!("{}.{what}", T::KIND), (&home, &name), (Some(before.write()), Some(after.write())));
    Ok(())
}

fn slot<'n, T: Kept>(next: &'n mut Next, home: &str, name: &str) -> Result<&'n mut Owned<T>, ChangeError> {
    let list = T::list_mut(&mut next.api);
    let found = list.iter_mut().find(|owned| owned.value.name() == name && owned.value.home() == home);
    found.ok_or_else(|| missing(T::KIND, name))
}

/// The object of that name, if the API may change it.
fn changeable<'c, T: Kept>(catalog: &'c Catalog, target: &Target) -> Result<&'c T, ChangeError> {
    let owned = catalog.find::<T>(target.organization.as_deref(), &target.id)?;
    match owned.origin {
        Origin::Api => Ok(&owned.value),
        Origin::File { .. } => Err(ChangeError::ManagedByFile(title::<T>(&target.id))),
    }
}

fn title<T: Kept>(name: &str) -> String {
    format!("{} `{}`", T::KIND, shown(name))
}

fn patch<T: Kept>(
    next: &mut Next,
    catalog: &Catalog,
    (target, members, fixed): (&Target, &Map<String, Json>, &[&str]),
    asker: &Asker,
) -> Result<(), ChangeError> {
    let before: &T = changeable(catalog, target)?;
    let after = merged(before, members, fixed)?;
    replace(next, &after, (&asker.who, "change"))
}

/// The object with these members in the place of its own; `null` takes one back to its default.
///
/// # Errors
/// [`ChangeError::Invalid`]: a member that is fixed, unknown or wrong.
pub fn merged<T: Kept>(before: &T, members: &Map<String, Json>, fixed: &[&str]) -> Result<T, ChangeError> {
    let mut json = before.write();
    let Some(object) = json.as_object_mut() else { return Err(ChangeError::Invalid(String::new())) };
    for (name, value) in members {
        if fixed.contains(&name.as_str()) {
            if object.get(name).unwrap_or(&Json::Null) != value {
                return Err(ChangeError::Invalid(format!("`{name}` of a {} cannot be changed here", T::KIND)));
            }
            continue;
        }
        if value.is_null() && object.contains_key(name) {
            object.remove(name);
        } else {
            object.insert(name.clone(), value.clone());
        }
    }
    T::read(&json).map_err(|faults| ChangeError::of_faults(&faults))
}

fn delete<T: Kept>(next: &mut Next, catalog: &Catalog, target: &Target, asker: &Asker) -> Result<(), ChangeError> {
    let object = match changeable::<T>(catalog, target) {
        Ok(object) => object.clone(),
        // One that is left out because what it names is gone can be deleted all the same.
        Err(ChangeError::NotFound(why)) => {
            let mut left = T::list(&next.api).iter().filter(|owned| {
                owned.value.name() == target.id
                    && target.organization.as_deref().is_none_or(|home| owned.value.home() == home)
            });
            match (left.next(), left.next()) {
                (Some(one), None) => one.value.clone(),
                _ => return Err(ChangeError::NotFound(why)),
            }
        }
        Err(other) => return Err(other),
    };
    remove(next, &object, &asker.who);
    Ok(())
}

fn remove<T: Kept>(next: &mut Next, object: &T, who: &str) {
    let (home, name) = (object.home().to_owned(), object.name());
    T::list_mut(&mut next.api).retain(|owned| owned.value.name() != name || owned.value.home() != home);
    let stored = object.stored();
    next.writes.push(Write::DeleteObject { kind: stored.kind, organization: stored.organization, id: stored.id });
    next.note(who, &format!("{}.delete", T::KIND), (&home, &name), (Some(object.write()), None));
}

fn create_key(next: &mut Next, catalog: &Catalog, key: &Key, asker: &Asker) -> Result<(), ChangeError> {
    if next.overrides.revoked.contains(&key.id) {
        return Err(ChangeError::Invalid(format!("key `{}` was revoked; choose another id", shown(&key.id))));
    }
    create(next, catalog, key, asker)
}

fn rotate(
    next: &mut Next,
    catalog: &Catalog,
    (id, sha256, previous_expires): (&str, KeyDigest, i64),
    asker: &Asker,
) -> Result<(), ChangeError> {
    let target = Target { kind: Kind::Key, organization: None, id: id.to_owned() };
    let before: &Key = changeable(catalog, &target)?;
    if before.revoked {
        return Err(ChangeError::KeyRevoked(shown(id)));
    }
    let mut after = before.clone();
    (after.previous_sha256, after.previous_expires) = (Some(before.sha256), Some(previous_expires));
    after.sha256 = sha256;
    replace(next, &after, (&asker.who, "rotate"))
}

/// Revoking narrows, so it works on what files own as well, and is kept on top.
fn revoke(next: &mut Next, catalog: &Catalog, id: &str, asker: &Asker) -> Result<(), ChangeError> {
    let key = catalog.find::<Key>(None, id)?;
    if key.value.revoked && (key.origin == Origin::Api || next.overrides.revoked.contains(id)) {
        return Ok(());
    }
    if key.origin == Origin::Api {
        let after = Key { revoked: true, ..key.value.clone() };
        return replace(next, &after, (&asker.who, "revoke"));
    }
    next.overrides.revoked.insert(id.to_owned());
    next.put_override(REVOKED, id, &json!({ "revoked": true }));
    let change = (Some(json!({ "revoked": key.value.revoked })), Some(json!({ "revoked": true })));
    next.note(&asker.who, "key.revoke", (&key.value.organization, id), change);
    Ok(())
}

fn register(
    next: &mut Next,
    catalog: &Catalog,
    (server, heard): (&Server, &Heard),
    asker: &Asker,
) -> Result<(), ChangeError> {
    check_slug_is_free(catalog, server)?;
    create(next, catalog, server, asker)?;
    super::listing::take_heard(next, catalog, server, heard)
}

/// Whether no other server of the organization has the slug.
///
/// # Errors
/// [`ChangeError::SlugTaken`]
pub fn check_slug_is_free(catalog: &Catalog, server: &Server) -> Result<(), ChangeError> {
    let Server { organization, slug, .. } = server;
    match catalog.find::<Server>(Some(organization), slug) {
        Ok(_) => Err(ChangeError::SlugTaken { organization: organization.clone(), slug: slug.clone() }),
        Err(_) => Ok(()),
    }
}

fn replace_server(
    next: &mut Next,
    catalog: &Catalog,
    (before, after, heard): (&Server, &Server, Option<&Heard>),
    asker: &Asker,
) -> Result<(), ChangeError> {
    let (organization, id) = (Some(before.organization.clone()), before.slug.clone());
    let current: &Server = changeable(catalog, &Target { kind: Kind::Server, organization, id })?;
    if current != before {
        return Err(ChangeError::Moved(title::<Server>(&before.slug)));
    }
    replace(next, after, (&asker.who, "change"))?;
    heard.map_or(Ok(()), |heard| super::listing::take_heard(next, catalog, after, heard))
}

fn delete_server(next: &mut Next, catalog: &Catalog, target: &Target, asker: &Asker) -> Result<(), ChangeError> {
    let before = next.api.servers.len();
    let gone: Vec<Server> = {
        let known = catalog.find::<Server>(target.organization.as_deref(), &target.id);
        known.iter().map(|owned| owned.value.clone()).collect()
    };
    delete::<Server>(next, catalog, target, asker)?;
    debug_assert!(next.api.servers.len() < before);
    for server in gone {
        let Server { organization, slug, .. } = &server;
        let home = |key: &str| catalog.find::<Key>(None, key).map(|key| key.value.organization == *organization);
        let grants: Vec<Grant> = next.api.grants.iter().map(|owned| owned.value.clone()).collect();
        for grant in grants.iter().filter(|grant| grant.server == *slug && home(&grant.key).unwrap_or(false)) {
            remove(next, grant, &asker.who);
        }
        super::users::delete_all(next, &server, asker);
        let of_it = |home: &str, name: &str| home == organization.as_str() && name == slug.as_str();
        next.tools.retain(|tool| !of_it(&tool.organization, &tool.server));
        next.discoveries.retain(|known| !of_it(&known.organization, &known.server));
        let (organization, server) = (organization.clone(), slug.clone());
        next.writes.push(Write::DeleteTools { organization: organization.clone(), server: server.clone() });
        next.writes.push(Write::DeleteDiscovery { organization, server });
    }
    Ok(())
}

fn put_grant(next: &mut Next, catalog: &Catalog, grant: &Grant, asker: &Asker) -> Result<(), ChangeError> {
    let key = catalog.find::<Key>(None, &grant.key)?;
    let server = catalog.find::<Server>(Some(&key.value.organization), &grant.server)?;
    if let Ok(owned) = catalog.find::<Grant>(None, &grant.name()) {
        if owned.origin != Origin::Api {
            return Err(ChangeError::ManagedByFile(title_of_grant(&grant.key, &grant.server)));
        }
        if key.value.revoked {
            return Err(ChangeError::KeyRevoked(shown(&grant.key)));
        }
        return replace(next, grant, (&asker.who, "change"));
    }
    if key.value.revoked {
        return Err(ChangeError::KeyRevoked(shown(&grant.key)));
    }
    debug_assert_eq!(server.value.slug, grant.server);
    create(next, catalog, grant, asker)
}

fn delete_grant(
    next: &mut Next,
    catalog: &Catalog,
    (key, server): (&str, &str),
    asker: &Asker,
) -> Result<(), ChangeError> {
    catalog.find::<Key>(None, key)?;
    let name = format!("{server}/{key}");
    let owned = catalog
        .find::<Grant>(None, &name)
        .map_err(|_| ChangeError::NotFound(format!("there is no {}", title_of_grant(key, server))))?;
    if owned.origin != Origin::Api {
        return Err(ChangeError::ManagedByFile(title_of_grant(key, server)));
    }
    remove(next, &owned.value, &asker.who);
    Ok(())
}

fn title_of_grant(key: &str, server: &str) -> String {
    format!("grant of server `{}` to key `{}`", shown(server), shown(key))
}
