//! `/v1/servers`: register, change, delete, discover. Whatever changes how a server is reached is judged and asked first.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Map, Value as Json, json};

use super::{
    Rooms,
    call::{At, Body, Call, take_confirm},
    objects::{self, managed_by, settle_home, shown},
    reply::{Outcome, Refused, Reply},
    shapes, tools,
};
use crate::{
    conf::Role,
    control::{
        Catalog, ChangeError, Kept as _,
        change::{Change, Heard, Kind},
        check_slug_is_free, merged,
    },
    model::records::{Origin, Owned, Project, Server},
    policy::compile::egress_rules,
    upstream::egress::judge_url,
};

/// Lists the servers.
#[utoipa::path(
    get, path = "/v1/servers", tag = "servers", params(shapes::Home, shapes::Paging),
    responses((status = 200, body = shapes::Servers))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    objects::list::<Server>(&rooms, &call, ("/v1/servers", "servers"), show)
}

/// Registers a server: asks it for its tools first, and records them as pending.
#[utoipa::path(
    post, path = "/v1/servers", tag = "servers", params(shapes::Home, shapes::Changing),
    request_body = shapes::Server, responses((status = 201, body = shapes::ShownServer))
)]
pub(super) async fn create(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let catalog = rooms.control.catalog();
    check_parts(&catalog, &members)?;
    settle_home(&catalog, &call, &mut members)?;
    let server = objects::read::<Server>(members)?;
    catalog.organization(Some(&server.organization))?;
    check_slug_is_free(&catalog, &server)?;
    check_projects(&catalog, &server)?;
    let asker = call.asker(confirm)?;
    let heard = hear(&rooms, &server).await?;
    let (organization, slug) = (server.organization.clone(), server.slug.clone());
    let done = rooms.control.apply(&Change::Register { server, heard }, &asker).await?;
    (rooms.discovery.changed)(format!("{organization}/{slug}")).await;
    let owned = done.find::<Server>(Some(&organization), &slug)?;
    Ok(Reply::created(show(&done, owned)).at(done.revision))
}

/// Shows a server.
#[utoipa::path(
    get, path = "/v1/servers/{slug}", tag = "servers",
    params(("slug" = String, Path, description = "Its slug."), shapes::Home),
    responses((status = 200, body = shapes::ShownServer))
)]
pub(super) async fn get(State(rooms): State<Arc<Rooms>>, call: Call, At(slug): At<String>) -> Outcome {
    call.allow(Role::Viewer, &["organization"])?;
    let catalog = rooms.control.catalog();
    let owned = catalog.find::<Server>(call.organization(), &slug)?;
    Ok(Reply::ok(show(&catalog, owned)).at(catalog.revision))
}

/// Changes members of a server; one that is left out stays. A change of how it is reached asks it for its tools first.
#[utoipa::path(
    patch, path = "/v1/servers/{slug}", tag = "servers",
    params(("slug" = String, Path, description = "Its slug."), shapes::Home, shapes::Changing),
    request_body = shapes::PatchServer, responses((status = 200, body = shapes::ShownServer))
)]
pub(super) async fn patch(State(rooms): State<Arc<Rooms>>, call: Call, At(slug): At<String>, body: Body) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let catalog = rooms.control.catalog();
    let owned = catalog.find::<Server>(call.organization(), &slug)?;
    if owned.origin != Origin::Api {
        return Err(ChangeError::ManagedByFile(format!("server `{slug}`")).into());
    }
    check_parts(&catalog, &members)?;
    let before = owned.value.clone();
    let after = merged(&before, &members, &["slug", "organization"])?;
    check_projects(&catalog, &after)?;
    let asker = call.asker(confirm)?;
    let heard = if is_reached_otherwise(&before, &after) { Some(hear(&rooms, &after).await?) } else { None };
    let organization = before.organization.clone();
    let done = rooms.control.apply(&Change::ReplaceServer { before, after, heard }, &asker).await?;
    (rooms.discovery.changed)(format!("{organization}/{slug}")).await;
    let owned = done.find::<Server>(Some(&organization), &slug)?;
    Ok(Reply::ok(show(&done, owned)).at(done.revision))
}

/// Deletes a server, what is known of its tools, and the grants on it that were made here.
#[utoipa::path(
    delete, path = "/v1/servers/{slug}", tag = "servers",
    params(("slug" = String, Path, description = "Its slug."), shapes::Home, shapes::Changing),
    responses((status = 200, body = shapes::Deleted))
)]
pub(super) async fn delete(State(rooms): State<Arc<Rooms>>, call: Call, At(slug): At<String>, body: Body) -> Outcome {
    call.allow(Role::Admin, &["organization"])?;
    let catalog = rooms.control.catalog();
    let home = catalog.find::<Server>(call.organization(), &slug).map(|owned| owned.value.organization.clone());
    let target = objects::target(&call, Kind::Server, slug.clone());
    let reply = objects::delete(&rooms, &call, &body, target).await?;
    if let Ok(home) = home {
        (rooms.discovery.changed)(format!("{home}/{slug}")).await;
    }
    Ok(reply)
}

/// Asks a server for its tools now.
#[utoipa::path(
    post, path = "/v1/servers/{slug}/discover", tag = "servers",
    params(("slug" = String, Path, description = "Its slug."), shapes::Home),
    responses((status = 200, body = shapes::Tools))
)]
pub(super) async fn discover(State(rooms): State<Arc<Rooms>>, call: Call, At(slug): At<String>, body: Body) -> Outcome {
    call.allow(Role::Approver, &["organization"])?;
    body.none()?;
    let catalog = rooms.control.catalog();
    let server = catalog.find::<Server>(call.organization(), &slug)?.value.clone();
    let name = format!("{}/{}", server.organization, server.slug);
    match (rooms.discovery.ask)(name.clone()).await {
        Some(asked) => asked.map_err(ChangeError::Discovery).map(drop)?,
        None => {
            let heard = hear(&rooms, &server).await?;
            rooms.control.listed(&name, heard.revision, heard.tools).await?;
        }
    }
    let catalog = rooms.control.catalog();
    let server = catalog.find::<Server>(Some(&server.organization), &slug)?;
    tools::list_of(&rooms, &call, &catalog, &server.value)
}

/// A server with what discovery settled.
fn show(catalog: &Catalog, owned: &Owned<Server>) -> Json {
    let mut json = shown(owned);
    let server = &owned.value;
    let of_it =
        |d: &&crate::model::records::DiscoveryRecord| d.server == server.slug && d.organization == server.organization;
    let settled = catalog.records.discoveries.iter().find(of_it).and_then(|d| d.revision);
    if let Some(members) = json.as_object_mut() {
        members.insert("settled_protocol".to_owned(), json!(settled.map(crate::model::mcp::Revision::as_str)));
        debug_assert_eq!(members.get("managed_by"), Some(&Json::from(managed_by(&owned.origin))));
    }
    json
}

/// Judges URL and credential by themselves, before the object as a whole, so that each has its own code.
fn check_parts(catalog: &Catalog, members: &Map<String, Json>) -> Result<(), Refused> {
    let reason = |faults: Vec<crate::conf::Fault>| faults.first().map_or(String::new(), |fault| fault.message.clone());
    if let Some(url) = members.get("url").filter(|url| !url.is_null()) {
        if let Some(text) = url.as_str() {
            judge_url(text, &egress_rules(&catalog.conf)).map_err(|why| ChangeError::Url(why.to_string()))?;
        }
        let probe = json!({ "slug": "probe", "url": url });
        Server::read(&probe).map_err(|faults| ChangeError::Url(reason(faults)))?;
    }
    if let Some(credential) = members.get("credential") {
        let probe = json!({ "slug": "probe", "url": "https://probe.example/", "credential": credential });
        Server::read(&probe).map_err(|faults| ChangeError::Credential(reason(faults)))?;
    }
    Ok(())
}

fn check_projects(catalog: &Catalog, server: &Server) -> Result<(), Refused> {
    for id in &server.projects {
        if catalog.find::<Project>(Some(&server.organization), id).is_err() {
            return Err(Refused::invalid(format!("organization `{}` has no project `{id}`", server.organization)));
        }
    }
    Ok(())
}

/// Whether the server has to be asked again before the change is made.
fn is_reached_otherwise(before: &Server, after: &Server) -> bool {
    let how = |server: &Server| {
        let tls = (server.ca.clone(), server.client_certificate.clone(), server.client_key.clone(), server.http2);
        (server.url.clone(), server.credential.clone(), server.protocol, tls)
    };
    after.enabled && how(before) != how(after)
}

/// Judges where a server is and what we would send it, then asks it for its tools.
async fn hear(rooms: &Rooms, server: &Server) -> Result<Heard, Refused> {
    let target = rooms.control.target(server)?;
    rooms.resolver.resolve(&target.endpoint, &target.rules).await.map_err(|why| ChangeError::Url(why.to_string()))?;
    Ok((rooms.discovery.hear)(Arc::new(target), server.protocol).await.map_err(ChangeError::Discovery)?)
}
