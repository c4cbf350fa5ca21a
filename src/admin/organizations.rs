//! `/v1/organizations`.

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
    model::records::Organization,
};

/// Lists the organizations.
#[utoipa::path(
    get, path = "/v1/organizations", tag = "organizations", params(shapes::Paging),
    responses((status = 200, body = shapes::Organizations))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    objects::list::<Organization>(&rooms, &call, ("/v1/organizations", "organizations"), |_, owned| {
        objects::shown(owned)
    })
}

/// Makes an organization.
#[utoipa::path(
    post, path = "/v1/organizations", tag = "organizations", params(shapes::Changing), request_body = shapes::Organization,
    responses((status = 201, body = shapes::ShownOrganization))
)]
pub(super) async fn create(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    objects::create(&rooms, &call, &body, Change::CreateOrganization).await
}

/// Shows an organization.
#[utoipa::path(
    get, path = "/v1/organizations/{id}", tag = "organizations",
    params(("id" = String, Path, description = "Its id."), ),
    responses((status = 200, body = shapes::ShownOrganization))
)]
pub(super) async fn get(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>) -> Outcome {
    objects::get::<Organization>(&rooms, &call, &id)
}

/// Changes members of an organization; one that is left out stays.
#[utoipa::path(
    patch, path = "/v1/organizations/{id}", tag = "organizations",
    params(("id" = String, Path, description = "Its id."), shapes::Changing),
    request_body = shapes::PatchOrganization,
    responses((status = 200, body = shapes::ShownOrganization))
)]
pub(super) async fn patch(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    let target = objects::target(&call, Kind::Organization, id);
    objects::patch::<Organization>(&rooms, &call, &body, target).await
}

/// Deletes an organization that nothing refers to.
#[utoipa::path(
    delete, path = "/v1/organizations/{id}", tag = "organizations",
    params(("id" = String, Path, description = "Its id."), shapes::Changing),
    responses((status = 200, body = shapes::Deleted))
)]
pub(super) async fn delete(State(rooms): State<Arc<Rooms>>, call: Call, At(id): At<String>, body: Body) -> Outcome {
    let target = objects::target(&call, Kind::Organization, id);
    objects::delete(&rooms, &call, &body, target).await
}
