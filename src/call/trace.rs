//! Stage `trace`: which trace does the caller say that it is on? (`mcp.md` A.2)
//!
//! Refuses nothing: what is malformed, or comes from somebody who is not trusted with it, is as if it were not there. What `_meta` says
//! wins, also where it is malformed: two accounts of one call never mix.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

use super::{authenticate::is_trusted, parse::Request};
use crate::model::trace::TraceContext;

/// What the head says of the trace, which counts only from a trusted proxy.
#[must_use]
pub fn of_head(headers: &HeaderMap, peer: IpAddr, trusted_proxies: &[IpNet]) -> Option<TraceContext> {
    if !is_trusted(peer, trusted_proxies) {
        return None;
    }
    let mut parents = headers.get_all("traceparent").iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    let states = headers.get_all("tracestate").iter().map(|line| line.to_str());
    let states: Vec<&str> = states.collect::<Result<_, _>>().unwrap_or_default();
    TraceContext::read(parent.to_str().ok()?, Some(&states.join(",")))
}

/// What the message says of the trace; where it says nothing, what the head said.
pub(super) fn of_message(request: &Request<'_>, of_head: Option<TraceContext>) -> Option<TraceContext> {
    let Some(meta) = &request.meta else { return of_head };
    let text = |name: &str| meta.node.get(name).map(|node| node.as_str());
    match text("traceparent") {
        None => of_head,
        Some(parent) => TraceContext::read(parent?, text("tracestate").flatten()),
    }
}
