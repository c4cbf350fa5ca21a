//! `/v1/nodes`: the nodes that share the store, what each serves, and who is behind.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use serde_json::{Value as Json, json};

use super::{
    Rooms,
    call::Call,
    reply::{Outcome, Refused, Reply},
    shapes,
};
use crate::{conf::Role, control::LIVE_MAX, model::units::Span, store::NodeSeen};

/// The longest that a call waits for other nodes.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Lists the nodes that share the store, this one included.
#[utoipa::path(get, path = "/v1/nodes", tag = "gateway", responses((status = 200, body = shapes::Nodes)))]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    call.allow(Role::Viewer, &[])?;
    let nodes = rooms.control.nodes().await?;
    let own = rooms.control.node().node;
    let shown: Vec<Json> = nodes.iter().map(|seen| show(seen, &own)).collect();
    Ok(Reply::ok(json!({ "nodes": shown })).at(rooms.control.catalog().revision))
}

/// How long `?wait=` says to wait for other nodes; none: not at all.
///
/// # Errors
/// 400: not a time, or too long.
pub(super) fn limit(call: &Call) -> Result<Option<Duration>, Refused> {
    let Some(text) = call.param("wait") else { return Ok(None) };
    let span: Span = text.parse().map_err(|why: String| Refused::invalid(format!("`wait` is wrong: {why}")))?;
    if span.0 > WAIT_MAX {
        return Err(Refused::invalid(format!("`wait` must be at most `{}s`", WAIT_MAX.as_secs())));
    }
    Ok(Some(span.0))
}

/// Waits until every node serves the revision; the names of those that do not when the time is over.
///
/// # Errors
/// 503: the store cannot be asked.
pub(super) async fn behind(rooms: &Rooms, limit: Duration, revision: u64) -> Result<Vec<String>, Refused> {
    let behind = rooms.control.wait_for(revision, limit).await?;
    Ok(behind.into_iter().map(|seen| seen.node.name).collect())
}

fn show(seen: &NodeSeen, own: &str) -> Json {
    let node = &seen.node;
    let live = u128::from(seen.silent_ms) < LIVE_MAX.as_millis();
    json!({
        "name": node.name,
        "node": node.node,
        "this": node.node == own,
        "live": live,
        "silent_seconds": seen.silent_ms / 1000,
        "revision": node.revision,
        "rejected": (node.rejected > 0).then_some(node.rejected),
        "why": node.why,
        "files": node.files,
        "version": node.version,
    })
}
