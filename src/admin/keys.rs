//! `/v1/keys` and the grants of keys. A token is shown once; a revocation holds from the answer on.

use std::sync::Arc;

use axum::extract::State;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};

use super::{
    Rooms,
    call::{At, Body, Call, only, take_confirm},
    nodes,
    objects::{self, settle_home, shown},
    pages,
    reply::{Outcome, Refused, Reply},
    shapes,
    token::Token,
};
use crate::{
    conf::Role,
    control::{
        Catalog,
        change::{Change, Confirm, Kind},
    },
    model::{
        id::encode_hex,
        records::{Grant, Key, Owned},
        units::Span,
    },
};

/// How long the old token stays good after a rotation, unless the call says.
const OVERLAP_SECONDS: i64 = 24 * 3600;
/// How long it may stay good at most.
const OVERLAP_SECONDS_MAX: i64 = 90 * 24 * 3600;

/// Lists the keys.
#[utoipa::path(
    get, path = "/v1/keys", tag = "keys", params(shapes::Home, shapes::Paging),
    responses((status = 200, body = shapes::Keys))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    objects::list::<Key>(&rooms, &call, ("/v1/keys", "keys"), |catalog, owned| show(&rooms, catalog, owned))
}

/// Makes a key. Without `sha256` a token is drawn and shown once, as `token`.
#[utoipa::path(
    post, path = "/v1/keys", tag = "keys", params(shapes::Home, shapes::Changing), request_body = shapes::Key,
    responses((status = 201, body = shapes::ShownKey))
)]
pub(super) async fn create(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let catalog = rooms.control.catalog();
    settle_home(&catalog, &call, &mut members)?;
    let text = |name: &str| members.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let token = match members.get("sha256") {
        None | Some(Json::Null) => {
            let token = Token::draw(&text("environment"), &text("id"));
            members.insert("sha256".to_owned(), Json::from(encode_hex(&token.sha256.0)));
            Some(token)
        }
        Some(_) => None,
    };
    let key = objects::read::<Key>(members)?;
    let id = key.id.clone();
    let done = rooms.control.apply(&Change::CreateKey(key), &call.asker(confirm)?).await?;
    Ok(Reply::created(with_token(show(&rooms, &done, done.find::<Key>(None, &id)?), token)).at(done.revision))
}

/// Shows a key.
#[utoipa::path(
    get, path = "/v1/keys/{id}", tag = "keys", params(("id" = String, Path, description = "Its id.")),
    responses((status = 200, body = shapes::ShownKey))
)]
pub(super) async fn get(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>) -> Outcome {
    call.allow(Role::Viewer, &[])?;
    let catalog = rooms.control.catalog();
    Ok(Reply::ok(show(&rooms, &catalog, catalog.find::<Key>(None, &id)?)).at(catalog.revision))
}

/// Changes members of a key; one that is left out stays. The token is rotated, the key revoked by calls of their own.
#[utoipa::path(
    patch, path = "/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "Its id."), shapes::Changing), request_body = shapes::PatchKey,
    responses((status = 200, body = shapes::ShownKey))
)]
pub(super) async fn patch(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    call.allow(Role::Admin, &[])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let target = objects::target(&call, Kind::Key, id.clone());
    let done = rooms.control.apply(&Change::Patch { target, members }, &call.asker(confirm)?).await?;
    Ok(Reply::ok(show(&rooms, &done, done.find::<Key>(None, &id)?)).at(done.revision))
}

/// Draws a new token, shown once. The old one stays good for `overlap`, a day unless said.
#[utoipa::path(
    post, path = "/v1/keys/{id}/rotate", tag = "keys",
    params(("id" = String, Path, description = "Its id."), shapes::Changing),
    request_body = Option<shapes::Rotate>, responses((status = 200, body = shapes::ShownKey))
)]
pub(super) async fn rotate(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    call.allow(Role::Admin, &[])?;
    let members = body.optional()?;
    only(&members, &["overlap"])?;
    let overlap = overlap(members.get("overlap"))?;
    let catalog = rooms.control.catalog();
    let key = &catalog.find::<Key>(None, &id)?.value;
    let token = Token::draw(&key.environment, &key.id);
    let previous_expires = Timestamp::now().as_second().saturating_add(overlap);
    let change = Change::Rotate { key: id.clone(), sha256: token.sha256, previous_expires };
    let done = rooms.control.apply(&change, &call.asker(Confirm::No)?).await?;
    Ok(Reply::ok(with_token(show(&rooms, &done, done.find::<Key>(None, &id)?), Some(token))).at(done.revision))
}

/// Revokes a key for good; also one that a file owns. From the answer on it opens nothing.
#[utoipa::path(
    post, path = "/v1/keys/{id}/revoke", tag = "keys",
    params(("id" = String, Path, description = "Its id."), shapes::Changing, shapes::Waiting),
    responses((status = 200, body = shapes::ShownKey))
)]
pub(super) async fn revoke(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    call.allow(Role::Admin, &["wait"])?;
    body.none()?;
    let limit = nodes::limit(&call)?;
    let done = rooms.control.apply(&Change::Revoke { key: id.clone() }, &call.asker(Confirm::No)?).await?;
    let mut shown = show(&rooms, &done, done.find::<Key>(None, &id)?);
    if let (Some(members), Some(limit)) = (shown.as_object_mut(), limit) {
        members.insert("behind".to_owned(), json!(nodes::behind(&rooms, limit, done.revision).await?));
    }
    Ok(Reply::ok(shown).at(done.revision))
}

/// Lists the grants of a key.
#[utoipa::path(
    get, path = "/v1/keys/{id}/grants", tag = "grants",
    params(("id" = String, Path, description = "The key's id."), shapes::Paging),
    responses((status = 200, body = shapes::Grants))
)]
pub(super) async fn grants(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>) -> Outcome {
    call.allow(Role::Viewer, &pages::PARAMS)?;
    let catalog = rooms.control.catalog();
    catalog.find::<Key>(None, &id)?;
    let path = format!("/v1/keys/{}/grants", pages::encoded(&id));
    let entries = catalog.grants(&id).map(|owned| {
        let show = move || shown(owned);
        (owned.value.server.clone(), Box::new(show) as Box<dyn FnOnce() -> Json>)
    });
    Ok(pages::page(&call, (&path, "grants"), entries)?.at(catalog.revision))
}

/// Grants a server to a key, or replaces that grant.
#[utoipa::path(
    put, path = "/v1/keys/{id}/grants/{slug}", tag = "grants", params(shapes::GrantPath, shapes::Changing),
    request_body = shapes::GrantBody, responses((status = 200, body = shapes::ShownGrant))
)]
pub(super) async fn put_grant(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At((id, slug)): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Admin, &[])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    for (name, value) in [("key", &id), ("server", &slug)] {
        if members.get(name).is_some_and(|sent| sent.as_str() != Some(value)) {
            return Err(Refused::invalid(format!("`{name}` in the path and in the body differ")));
        }
        members.insert(name.to_owned(), Json::from(value.as_str()));
    }
    let catalog = rooms.control.catalog();
    let key = catalog.find::<Key>(None, &id)?;
    catalog.find::<crate::model::records::Server>(Some(&key.value.organization), &slug)?;
    let mut grant = objects::read::<Grant>(members)?;
    grant.confirm_trifecta = confirm == Confirm::Yes;
    let done = rooms.control.apply(&Change::Grant(grant), &call.asker(confirm)?).await?;
    Ok(Reply::ok(shown(done.find::<Grant>(None, &format!("{slug}/{id}"))?)).at(done.revision))
}

/// Takes a grant away.
#[utoipa::path(
    delete, path = "/v1/keys/{id}/grants/{slug}", tag = "grants", params(shapes::GrantPath, shapes::Changing),
    responses((status = 200, body = shapes::Deleted))
)]
pub(super) async fn delete_grant(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At((id, slug)): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Admin, &[])?;
    body.none()?;
    let change = Change::Ungrant { key: id.clone(), server: slug.clone() };
    let done = rooms.control.apply(&change, &call.asker(Confirm::No)?).await?;
    Ok(objects::deleted("grant", &format!("{slug}/{id}")).at(done.revision))
}

/// A key, when it was used last since the gateway started, and whether it closes the trifecta.
fn show(rooms: &Rooms, catalog: &Catalog, owned: &Owned<Key>) -> Json {
    let mut json = shown(owned);
    let last = rooms.control.live().load().and_then(|snapshot| snapshot.keys.get(&owned.value.sha256)?.key.used.last());
    let last = last.and_then(|unix| Timestamp::from_second(unix).ok()).map(|moment| moment.to_string());
    if let Some(members) = json.as_object_mut() {
        members.insert("last_used".to_owned(), json!(last));
        members.insert("trifecta".to_owned(), json!(catalog.closed.contains(&owned.value.id)));
    }
    json
}

fn with_token(mut json: Json, token: Option<Token>) -> Json {
    if let (Some(members), Some(token)) = (json.as_object_mut(), token) {
        members.insert("token".to_owned(), Json::from(token.text));
    }
    json
}

fn overlap(written: Option<&Json>) -> Result<i64, Refused> {
    let wrong = |why: &str| Refused::invalid(format!("`overlap` {why}"));
    let Some(written) = written.filter(|written| !written.is_null()) else { return Ok(OVERLAP_SECONDS) };
    let text = written.as_str().ok_or_else(|| wrong("must be a string such as `24h`"))?;
    let span: Span = text.parse().map_err(|why: String| wrong(&format!("is wrong: {why}")))?;
    let seconds = SignedDuration::try_from(span.0).map_or(i64::MAX, |span| span.as_secs());
    if seconds > OVERLAP_SECONDS_MAX {
        return Err(wrong("must be at most `2160h`"));
    }
    Ok(seconds)
}
