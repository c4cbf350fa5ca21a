//! Which path and method leads to which handler. The OpenAPI document is made of the same list.

use std::sync::Arc;

use axum::{Router, extract::DefaultBodyLimit};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Rooms, audit, call::BODY_BYTES_MAX, credentials, explain, guardrails, keys, nodes, openapi, organizations,
    projects, reply::Refused, servers, status, tools,
};

/// Every call of the management API.
pub(super) fn api() -> OpenApiRouter<Arc<Rooms>> {
    OpenApiRouter::with_openapi(openapi::head())
        .routes(routes!(organizations::list, organizations::create))
        .routes(routes!(organizations::get, organizations::patch, organizations::delete))
        .routes(routes!(projects::list, projects::create))
        .routes(routes!(projects::get, projects::patch, projects::delete))
        .routes(routes!(servers::list, servers::create))
        .routes(routes!(servers::get, servers::patch, servers::delete))
        .routes(routes!(servers::discover))
        .routes(routes!(credentials::list))
        .routes(routes!(credentials::put, credentials::delete))
        .routes(routes!(tools::list_all))
        .routes(routes!(tools::list))
        .routes(routes!(tools::get, tools::patch))
        .routes(routes!(tools::approve))
        .routes(routes!(tools::block))
        .routes(routes!(keys::list, keys::create))
        .routes(routes!(keys::get, keys::patch))
        .routes(routes!(keys::rotate))
        .routes(routes!(keys::revoke))
        .routes(routes!(keys::grants))
        .routes(routes!(keys::put_grant, keys::delete_grant))
        .routes(routes!(guardrails::list, guardrails::create))
        .routes(routes!(guardrails::get, guardrails::patch, guardrails::delete))
        .routes(routes!(explain::explain))
        .routes(routes!(audit::list))
        .routes(routes!(nodes::list))
        .routes(routes!(status::status))
        .routes(routes!(status::reload))
        .routes(routes!(status::upgrade))
        .routes(routes!(status::document))
}

/// The service behind both listeners; callers are authenticated before they reach it.
pub(super) fn router(rooms: Arc<Rooms>) -> Router {
    let (router, _) = api().split_for_parts();
    router
        .fallback(async || Refused::not_found("there is no such path"))
        .method_not_allowed_fallback(async || Refused::method())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(rooms)
}
