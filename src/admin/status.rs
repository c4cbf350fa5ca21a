//! `/v1/status`, `/v1/reload`, `/v1/upgrade`, `/v1/openapi.json`.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use serde_json::{Value as Json, json};

use super::{
    Rooms,
    call::{Body, Call},
    openapi,
    reply::{Outcome, Refused, Reply},
    shapes,
};
use crate::{conf::Role, policy::approval::ToolState};

/// What runs, and how much of what there is.
#[utoipa::path(get, path = "/v1/status", tag = "gateway", responses((status = 200, body = shapes::Status)))]
pub(super) async fn status(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    call.allow(Role::Viewer, &[])?;
    let catalog = rooms.control.catalog();
    let records = &catalog.records;
    let mut tools: BTreeMap<&str, u64> = ToolState::ALL.map(|state| (state.as_str(), 0)).into();
    for ((_, state), count) in rooms.control.tool_counts() {
        *tools.entry(state.as_str()).or_default() += count;
    }
    Ok(Reply::ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "revision": catalog.revision,
        "uptime_seconds": rooms.control.started().elapsed().as_secs(),
        "store": rooms.control.store_place(),
        "organizations": records.organizations.len(),
        "projects": records.projects.len(),
        "servers": records.servers.len(),
        "keys": records.keys.len(),
        "grants": records.grants.len(),
        "guardrails": records.guardrails.len(),
        "tools": tools,
        "trifecta_keys": catalog.closed,
        "warnings": lines(&catalog.warnings),
    }))
    .at(catalog.revision))
}

/// Reads conf and policy files again, all or nothing.
#[utoipa::path(post, path = "/v1/reload", tag = "gateway", responses((status = 200, body = shapes::Reloaded)))]
pub(super) async fn reload(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    call.allow(Role::Admin, &[])?;
    body.none()?;
    let done = (rooms.reload)().await?;
    Ok(Reply::ok(json!({
        "revision": done.revision,
        "warnings": lines(&done.warnings),
        "restart_required": done.restart_required,
    }))
    .at(done.revision))
}

/// Hands the gateway over to a new process of the program as it is now, without losing a call; answers once that one serves.
#[utoipa::path(post, path = "/v1/upgrade", tag = "gateway", responses((status = 200, body = shapes::Upgraded)))]
pub(super) async fn upgrade(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    call.allow(Role::Admin, &[])?;
    body.none()?;
    let done = (rooms.upgrade)().await.map_err(Refused::invalid)?;
    Ok(Reply::ok(json!({ "pid": done.pid, "version": done.version })))
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "gateway", responses((status = 200, body = Json)))]
pub(super) async fn document(call: Call) -> Outcome {
    call.allow(Role::Viewer, &[])?;
    Ok(Reply::ok(openapi::document()))
}

/// The first line of each warning: `path:line:col: warning: …`.
fn lines(rendered: &str) -> Vec<&str> {
    rendered.lines().filter(|line| line.contains("warning: ")).collect()
}
