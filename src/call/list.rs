//! `tools/list`: exactly the approved, unchanged tools that the key may call, sorted by exposed name (contract §6).
//!
//! Joined from fragments that were compiled with the snapshot, and kept for each distinct view up to `limits.list_cache`.

use std::sync::{Arc, OnceLock, atomic::Ordering};

use super::{hello, parse::Request};
use crate::{
    model::{
        jsonrpc::Kind,
        mcp::{Era, Revision},
    },
    policy::{
        approval::ToolState,
        snapshot::{Snapshot, View, ViewServer},
    },
    refusal::Refusal,
};

/// The result of `tools/list` on the aggregated endpoint (`granted` none) or on a server's own.
///
/// # Refuses
/// - [`Refusal::InvalidParams`]: a cursor; the list is one page, so none was ever given out.
pub fn result(
    snapshot: &Snapshot,
    view: &View,
    granted: Option<&ViewServer>,
    request: &Request<'_>,
) -> Result<Vec<u8>, Refusal> {
    if request.param("cursor").is_some_and(|cursor| cursor.node.kind() != Kind::Null) {
        return Err(Refusal::InvalidParams("unknown cursor"));
    }
    let tools = tools(snapshot, view, granted, request.revision);
    let mut out = Vec::with_capacity(tools.len() + 256);
    if request.era == Era::Modern {
        out.extend_from_slice(b"{\"resultType\":\"complete\",\"tools\":");
        out.extend_from_slice(tools.as_bytes());
        out.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\",");
        out.extend_from_slice(&hello::server_meta(&snapshot.settings));
    } else {
        out.extend_from_slice(b"{\"tools\":");
        out.extend_from_slice(tools.as_bytes());
    }
    out.push(b'}');
    Ok(out)
}

/// The listed tools, a JSON array.
#[must_use]
pub fn tools(snapshot: &Snapshot, view: &View, granted: Option<&ViewServer>, revision: Revision) -> Arc<str> {
    match granted {
        None => cached(snapshot, view.aggregated.get(revision.index()), || aggregated(view, revision)),
        Some(server) => cached(snapshot, server.lists.get(revision.index()), || own(server, revision)),
    }
}

/// Takes the joined list from its slot, or joins it and keeps it while the cache has room.
fn cached(snapshot: &Snapshot, slot: Option<&OnceLock<Arc<str>>>, join: impl FnOnce() -> String) -> Arc<str> {
    if let Some(list) = slot.and_then(OnceLock::get) {
        return Arc::clone(list);
    }
    let list: Arc<str> = join().into();
    let size = u64::try_from(list.len()).unwrap_or(u64::MAX);
    if let Some(slot) = slot {
        let before = snapshot.list_cache_bytes.fetch_add(size, Ordering::Relaxed);
        let kept = before.saturating_add(size) <= snapshot.settings.list_cache_bytes_max
            && slot.set(Arc::clone(&list)).is_ok();
        if !kept {
            snapshot.list_cache_bytes.fetch_sub(size, Ordering::Relaxed);
        }
    }
    list
}

fn aggregated(view: &View, revision: Revision) -> String {
    let mut tools: Vec<(&str, &str)> = Vec::new();
    for granted in view.servers.values() {
        for tool in granted.server.tools.values() {
            if tool.state == ToolState::Approved && granted.access.covers(tool) {
                tools.extend(tool.listed.as_ref().map(|listed| (&*tool.exposed, listed.exposed(revision))));
            }
        }
    }
    join(tools)
}

fn own(granted: &ViewServer, revision: Revision) -> String {
    let mut tools: Vec<(&str, &str)> = Vec::new();
    for tool in granted.server.tools.values() {
        if tool.state == ToolState::Approved && granted.access.covers(tool) {
            tools.extend(tool.listed.as_ref().map(|listed| (&*tool.exposed, listed.own(revision))));
        }
    }
    join(tools)
}

fn join(mut tools: Vec<(&str, &str)>) -> String {
    tools.sort_unstable();
    let mut out = String::with_capacity(2 + tools.iter().map(|(_, json)| json.len() + 1).sum::<usize>());
    out.push('[');
    for (i, (_, json)) in tools.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(json);
    }
    out.push(']');
    out
}
