//! Stage `route`: which endpoint is meant, and does the key see the server it names? (contract §1, §2 rows 2 and 13)
//!
//! **Invariant.** The one 404 of the per-server path is the same for an unknown, disabled, foreign or ungranted slug,
//! and costs one look-up in the key's own view in every case.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::{
    policy::snapshot::{View, ViewServer, WELL_KNOWN},
    refusal::Refusal,
};

/// An endpoint of the gateway listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint<'p> {
    /// `{base_path}/mcp`
    Aggregated,
    /// `{base_path}/{slug}/mcp`; the slug as written.
    Server(Cow<'p, str>),
}

impl Endpoint<'_> {
    /// The `endpoint` label of contract §11.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Aggregated => "aggregated",
            Self::Server(_) => "server",
        }
    }
}

/// Reads the endpoint off a request path.
///
/// A path that only decodes to a per-server endpoint (`%2F`) names no server: it keeps its undecoded text, which is no slug.
///
/// # Refuses
/// - [`Refusal::NotFound`]: any path but the endpoints.
pub fn endpoint<'p>(path: &'p str, base_path: &str) -> Result<Endpoint<'p>, Refusal> {
    let rest = path.strip_prefix(base_path).and_then(|rest| rest.strip_prefix('/')).ok_or(Refusal::NotFound)?;
    if rest == "mcp" {
        return Ok(Endpoint::Aggregated);
    }
    if let Some(slug) = rest.strip_suffix("/mcp").filter(|slug| !slug.is_empty() && !slug.contains('/')) {
        return Ok(Endpoint::Server(Cow::Borrowed(slug)));
    }
    if !rest.contains('%') {
        return Err(Refusal::NotFound);
    }
    let decoded = percent_decode_str(rest).decode_utf8().map_err(|_| Refusal::NotFound)?;
    match decoded.strip_suffix("/mcp") {
        Some(slug) if !slug.is_empty() && !slug.contains('/') => Ok(Endpoint::Server(Cow::Borrowed(rest))),
        _ => Err(Refusal::NotFound),
    }
}

/// Whether a request asks for what clients are told of OAuth: at its own place, or at that of any path of the gateway.
#[must_use]
pub fn is_metadata(method: &Method, path: &str) -> bool {
    let rest = path.strip_prefix(WELL_KNOWN);
    *method == Method::GET && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The granted, reachable server of that slug.
///
/// # Refuses
/// - [`Refusal::ServerNotFound`]: the key's view has none.
pub fn server<'s>(view: &'s View, slug: &str) -> Result<&'s ViewServer, Refusal> {
    view.servers.get(slug).ok_or(Refusal::ServerNotFound)
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, endpoint};

    #[test]
    fn only_the_two_shapes_are_endpoints() {
        let base = "/gateway";
        assert_eq!(endpoint("/gateway/mcp", base), Ok(Endpoint::Aggregated));
        for (path, slug) in [("/gateway/gh/mcp", "gh"), ("/gateway/GH/mcp", "GH"), ("/gateway/gh%2Fmcp", "gh%2Fmcp")] {
            assert_eq!(endpoint(path, base), Ok(Endpoint::Server(slug.into())), "{path}");
        }
        for path in [
            "/",
            "/mcp",
            "/gateway",
            "/gateway/",
            "/gateway/mcp/",
            "/gateway//mcp",
            "/gateway/a/b/mcp",
            "/gatewayx/mcp",
            "/v1/servers",
            "/gateway/a%2Fb%2Fmcp",
        ] {
            assert!(endpoint(path, base).is_err(), "{path}");
        }
    }
}
