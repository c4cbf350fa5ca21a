//! What the gateway answers of itself: `initialize`, `ping`, `server/discover` (contract §3, `mcp.md` A.2, A.3, B).

use super::{parse::Request, pass};
use crate::{
    model::{
        jsonrpc::{Node, write_string},
        mcp::{Era, META_SERVER_INFO, Revision},
    },
    policy::snapshot::{Settings, ViewServer},
    refusal::Refusal,
};

/// The gateway's own name and version, as `serverInfo`.
#[must_use]
pub fn server_info(settings: &Settings) -> Vec<u8> {
    let mut out = b"{\"name\":".to_vec();
    write_string(&mut out, &settings.product);
    out.extend_from_slice(b",\"version\":");
    write_string(&mut out, env!("CARGO_PKG_VERSION"));
    out.push(b'}');
    out
}

/// `,"_meta":{"io.modelcontextprotocol/serverInfo":…}` for modern results.
#[must_use]
pub fn server_meta(settings: &Settings) -> Vec<u8> {
    let mut out = b"\"_meta\":{".to_vec();
    write_string(&mut out, META_SERVER_INFO);
    out.push(b':');
    out.extend_from_slice(&server_info(settings));
    out.push(b'}');
    out
}

/// The result of `initialize`: the asked revision if it is a legacy one that is served, else the newest legacy one.
/// No session id is minted (contract §3 "Eras").
///
/// # Refuses
/// - [`Refusal::InvalidParams`]: `protocolVersion` is missing or not a string.
pub fn initialize(
    settings: &Settings,
    granted: Option<&ViewServer>,
    request: &Request<'_>,
) -> Result<Vec<u8>, Refusal> {
    let asked = request.param("protocolVersion").map(|version| version.node);
    let Some(asked) = asked.and_then(Node::as_str) else {
        return Err(Refusal::InvalidParams("`protocolVersion` must be a string"));
    };
    let revision = Revision::parse(asked).filter(|r| r.era() == Era::Legacy).unwrap_or(Revision::LATEST_LEGACY);
    let mut out = format!("{{\"protocolVersion\":\"{revision}\",\"capabilities\":").into_bytes();
    out.extend_from_slice(&capabilities("", granted));
    out.extend_from_slice(b",\"serverInfo\":");
    out.extend_from_slice(&server_info(settings));
    out.push(b'}');
    Ok(out)
}

/// The result of `server/discover`; private, since a server's own endpoint is there only for keys that it is granted to.
#[must_use]
pub fn discover(settings: &Settings, granted: Option<&ViewServer>) -> Vec<u8> {
    let mut out =
        format!("{{\"resultType\":\"complete\",\"supportedVersions\":[\"{}\"],\"capabilities\":", Revision::MODERN)
            .into_bytes();
    out.extend_from_slice(&capabilities("\"listChanged\":true", granted));
    out.extend_from_slice(b",\"ttlMs\":0,\"cacheScope\":\"private\",");
    out.extend_from_slice(&server_meta(settings));
    out.push(b'}');
    out
}

/// What an endpoint serves: tools, and on a server's own what that one passes through. Changes are told on a subscription, which
/// the older revisions do not have.
fn capabilities(tools: &str, granted: Option<&ViewServer>) -> Vec<u8> {
    let beside = granted.map(|granted| pass::capabilities(&granted.server)).unwrap_or_default();
    format!("{{\"tools\":{{{tools}}}{beside}}}").into_bytes()
}

/// The result of `ping`, legacy only.
#[must_use]
pub fn ping() -> Vec<u8> {
    b"{}".to_vec()
}
