//! `subscriptions/listen`: what a client hears of on a stream of its own (2026-07-28, `basic/patterns/subscriptions`).
//!
//! One kind of change is served: that the list of tools of the key changed with a new snapshot. Knows no stream and no time.

use std::sync::Arc;

use super::{Asked, hello, list, parse::Request};
use crate::{
    model::{
        jsonrpc::{Kind, write_string},
        mcp::{META_SERVER_INFO, META_SUBSCRIPTION_ID, Revision},
    },
    policy::snapshot::{KeyPolicy, Settings, Snapshot},
    refusal::Refusal,
};

/// A subscription that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// It wants to hear that the list of tools changed.
    pub tools: bool,
}

/// Reads what is subscribed to. What is not served is left out of the acknowledgement.
///
/// # Refuses
/// - [`Refusal::InvalidParams`]: `notifications` is not an object, or `toolsListChanged` is no boolean.
pub fn accept(request: &Request<'_>) -> Result<Listen, Refusal> {
    let filter = request.param("notifications").filter(|filter| filter.node.kind() == Kind::Object);
    let Some(filter) = filter else { return Err(Refusal::InvalidParams("`notifications` must be an object")) };
    match filter.node.get("toolsListChanged") {
        None => Ok(Listen { tools: false }),
        Some(wanted) => match wanted.as_bool() {
            Some(tools) => Ok(Listen { tools }),
            None => Err(Refusal::InvalidParams("`toolsListChanged` must be a boolean")),
        },
    }
}

/// The list of tools that a key sees at an endpoint, `slug` none on the aggregated one; none: the endpoint is not there for it.
#[must_use]
pub fn tools(snapshot: &Snapshot, key: &KeyPolicy, slug: Option<&str>) -> Option<Arc<str>> {
    let granted = match slug {
        None => None,
        Some(slug) => Some(key.view.servers.get(slug)?),
    };
    Some(list::tools(snapshot, &key.view, granted, Revision::MODERN))
}

/// The first message on the stream: what of the filter is served.
#[must_use]
pub fn acknowledged(listen: Listen, asked: &Asked) -> Vec<u8> {
    let mut out = notification("notifications/subscriptions/acknowledged", asked);
    out.extend_from_slice(b",\"notifications\":{");
    if listen.tools {
        out.extend_from_slice(b"\"toolsListChanged\":true");
    }
    out.extend_from_slice(b"}}}");
    out
}

/// The list of tools changed.
#[must_use]
pub fn changed(asked: &Asked) -> Vec<u8> {
    let mut out = notification("notifications/tools/list_changed", asked);
    out.extend_from_slice(b"}}");
    out
}

/// The result that ends a subscription in good order.
#[must_use]
pub fn ended(asked: &Asked, settings: &Settings) -> Vec<u8> {
    let mut out = b"{\"resultType\":\"complete\",\"_meta\":{".to_vec();
    write_string(&mut out, META_SERVER_INFO);
    out.push(b':');
    out.extend_from_slice(&hello::server_info(settings));
    out.push(b',');
    subscription_id(&mut out, asked);
    out.extend_from_slice(b"}}");
    out
}

/// `{"jsonrpc":"2.0","method":…,"params":{"_meta":{…}`
fn notification(method: &str, asked: &Asked) -> Vec<u8> {
    let mut out = b"{\"jsonrpc\":\"2.0\",\"method\":".to_vec();
    write_string(&mut out, method);
    out.extend_from_slice(b",\"params\":{\"_meta\":{");
    subscription_id(&mut out, asked);
    out.push(b'}');
    out
}

/// The id of the request, as written.
fn subscription_id(out: &mut Vec<u8>, asked: &Asked) {
    write_string(out, META_SUBSCRIPTION_ID);
    out.push(b':');
    out.extend_from_slice(asked.id.as_deref().unwrap_or(b"null"));
}
