//! `/v1/guardrails`.

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
    model::records::Guardrail,
};

/// Lists the guardrails.
#[utoipa::path(
    get, path = "/v1/guardrails", tag = "guardrails", params(shapes::Home, shapes::Paging),
    responses((status = 200, body = shapes::Guardrails))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    objects::list::<Guardrail>(&rooms, &call, ("/v1/guardrails", "guardrails"), |_, owned| objects::shown(owned))
}

/// Makes a guardrail.
#[utoipa::path(
    post, path = "/v1/guardrails", tag = "guardrails", params(shapes::Home, shapes::Changing), request_body = shapes::Guardrail,
    responses((status = 201, body = shapes::ShownGuardrail))
)]
pub(super) async fn create(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    objects::create(&rooms, &call, &body, Change::CreateGuardrail).await
}

/// Shows a guardrail.
#[utoipa::path(
    get, path = "/v1/guardrails/{name}", tag = "guardrails",
    params(("name" = String, Path, description = "Its name."), shapes::Home, ),
    responses((status = 200, body = shapes::ShownGuardrail))
)]
pub(super) async fn get(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>) -> Outcome {
    objects::get::<Guardrail>(&rooms, &call, &id)
}

/// Changes members of a guardrail; one that is left out stays.
#[utoipa::path(
    patch, path = "/v1/guardrails/{name}", tag = "guardrails",
    params(("name" = String, Path, description = "Its name."), shapes::Home, shapes::Changing),
    request_body = shapes::PatchGuardrail,
    responses((status = 200, body = shapes::ShownGuardrail))
)]
pub(super) async fn patch(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    let target = objects::target(&call, Kind::Guardrail, id);
    objects::patch::<Guardrail>(&rooms, &call, &body, target).await
}

/// Deletes a guardrail that nothing refers to.
#[utoipa::path(
    delete, path = "/v1/guardrails/{name}", tag = "guardrails",
    params(("name" = String, Path, description = "Its name."), shapes::Home, shapes::Changing),
    responses((status = 200, body = shapes::Deleted))
)]
pub(super) async fn delete(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    let target = objects::target(&call, Kind::Guardrail, id);
    objects::delete(&rooms, &call, &body, target).await
}
