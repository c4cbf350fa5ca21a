//! `/v1/projects`.

use std::sync::Arc;

use axum::extract::State;

use super::{
    Rooms,
    call::{At, Body, Call},
    objects,
    reply::Outcome,
    shapes,
};
use crate::{
    control::change::{Change, Kind},
    model::records::Project,
};

/// Lists the projects.
#[utoipa::path(
    get, path = "/v1/projects", tag = "projects", params(shapes::Home, shapes::Paging),
    responses((status = 200, body = shapes::Projects))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    objects::list::<Project>(&rooms, &call, ("/v1/projects", "projects"), |_, owned| objects::shown(owned))
}

/// Makes a project.
#[utoipa::path(
    post, path = "/v1/projects", tag = "projects", params(shapes::Home, shapes::Changing), request_body = shapes::Project,
    responses((status = 201, body = shapes::ShownProject))
)]
pub(super) async fn create(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    objects::create(&rooms, &call, &body, Change::CreateProject).await
}

/// Shows a project.
#[utoipa::path(
    get, path = "/v1/projects/{id}", tag = "projects",
    params(("id" = String, Path, description = "Its id."), shapes::Home, ),
    responses((status = 200, body = shapes::ShownProject))
)]
pub(super) async fn get(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>) -> Outcome {
    objects::get::<Project>(&rooms, &call, &id)
}

/// Changes members of a project; one that is left out stays.
#[utoipa::path(
    patch, path = "/v1/projects/{id}", tag = "projects",
    params(("id" = String, Path, description = "Its id."), shapes::Home, shapes::Changing),
    request_body = shapes::PatchProject,
    responses((status = 200, body = shapes::ShownProject))
)]
pub(super) async fn patch(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    let target = objects::target(&call, Kind::Project, id);
    objects::patch::<Project>(&rooms, &call, &body, target).await
}

/// Deletes a project that nothing refers to.
#[utoipa::path(
    delete, path = "/v1/projects/{id}", tag = "projects",
    params(("id" = String, Path, description = "Its id."), shapes::Home, shapes::Changing),
    responses((status = 200, body = shapes::Deleted))
)]
pub(super) async fn delete(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    let target = objects::target(&call, Kind::Project, id);
    objects::delete(&rooms, &call, &body, target).await
}
