//! `/v1/servers/{slug}/credentials`: the credentials of a server's users (`credential_mode = "per_user"`). A value that was
//! stored is never shown again.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Map, Value as Json};

use super::{
    Rooms,
    call::{At, Body, Call, only},
    named,
    objects::{self, LIST},
    pages,
    reply::{Outcome, Refused, Reply},
    shapes,
};
use crate::{
    call::attribution::VALUE_BYTES_MAX,
    conf::Role,
    control::{
        ChangeError, UserHeaders,
        change::{Change, Confirm, ServerName},
        show_user,
    },
    model::records::{Server, UserCredential},
};

/// Lists the users whose credentials are held, without the credentials.
#[utoipa::path(
    get, path = "/v1/servers/{slug}/credentials", tag = "credentials",
    params(("slug" = String, Path, description = "The server's slug."), shapes::Home, shapes::Paging),
    responses((status = 200, body = shapes::UserCredentials))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call, At(slug): At<String>) -> Outcome {
    call.allow(Role::Viewer, &LIST)?;
    let catalog = rooms.control.catalog();
    let server = named::server(&call, &catalog, &slug)?;
    let of_it =
        catalog.records.users.iter().filter(|one| one.server == server.slug && one.organization == server.organization);
    let entries = of_it.map(|one| {
        let show = move || show_user(one);
        (one.user.clone(), Box::new(show) as Box<dyn FnOnce() -> Json>)
    });
    Ok(pages::page(&call, (&named::list(server, "credentials"), "credentials"), entries)?.at(catalog.revision))
}

/// Stores a user's credential, sealed with `store.key`, or replaces it. The next call for the user goes out with it.
#[utoipa::path(
    put, path = "/v1/servers/{slug}/credentials/{user}", tag = "credentials",
    params(shapes::CredentialPath, shapes::Home, shapes::Changing), request_body = shapes::CredentialBody,
    responses((status = 200, body = shapes::UserCredential))
)]
pub(super) async fn put(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At((slug, user)): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let headers = headers(&body.object()?)?;
    if user.is_empty() || user.len() > VALUE_BYTES_MAX || !user.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Refused::invalid(format!(
            "a user is named as in the attribution header: 1 to {VALUE_BYTES_MAX} visible ASCII characters"
        )));
    }
    let catalog = rooms.control.catalog();
    let Server { organization, slug, .. } = named::server(&call, &catalog, &slug)?;
    let server = ServerName { organization: Some(organization.clone()), slug: slug.clone() };
    let change = Change::PutCredential { server, user: user.clone(), headers };
    let done = rooms.control.apply(&change, &call.asker(Confirm::No)?).await?;
    let is_it = |one: &&UserCredential| one.user == user && one.server == *slug && one.organization == *organization;
    let shown = done.records.users.iter().find(is_it).map(show_user).ok_or_else(Refused::internal)?;
    Ok(Reply::ok(shown).at(done.revision))
}

/// Deletes a user's credential: calls for the user are refused from the answer on.
#[utoipa::path(
    delete, path = "/v1/servers/{slug}/credentials/{user}", tag = "credentials",
    params(shapes::CredentialPath, shapes::Home, shapes::Changing),
    responses((status = 200, body = shapes::Deleted))
)]
pub(super) async fn delete(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At((slug, user)): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    body.none()?;
    let server = named::server_name(&call, &slug);
    let change = Change::DeleteCredential { server, user: user.clone() };
    let done = rooms.control.apply(&change, &call.asker(Confirm::No)?).await?;
    Ok(objects::deleted("credential", &format!("{slug}/{user}")).at(done.revision))
}

/// The one place where a credential itself is taken in. No message repeats it.
fn headers(members: &Map<String, Json>) -> Result<UserHeaders, Refused> {
    only(members, &["headers"])?;
    let wrong = || ChangeError::Credential("`headers` must be an object of header names and their values".to_owned());
    let written = members.get("headers").and_then(Json::as_object).ok_or_else(wrong)?;
    let pair = |(name, value): (&String, &Json)| Some((name.clone(), value.as_str()?.as_bytes().to_vec()));
    Ok(UserHeaders(written.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)?))
}
