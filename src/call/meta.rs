//! What a call says besides name and arguments: an allow-list of `_meta`, and the members of a multi-round trip.

use super::{line::Caller, parse::Request, seal, subject::Subject};
use crate::{
    model::{
        jsonrpc::Kind,
        mcp::{Era, META_CLIENT_CAPABILITIES},
    },
    policy::snapshot::ServerPolicy,
    refusal::Refusal,
};

/// What a call says besides name and arguments; JSON as written.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// `_meta.progressToken`
    pub progress_token: Option<Vec<u8>>,
    /// The caller's capabilities, a modern caller's only.
    pub capabilities: Option<Vec<u8>>,
    /// `requestState`, opened.
    pub request_state: Option<Vec<u8>>,
    /// `inputResponses`
    pub input_responses: Option<Vec<u8>>,
}

impl Meta {
    /// Whether this is a multi-round-trip retry.
    #[must_use]
    pub const fn is_retry(&self) -> bool {
        self.request_state.is_some() || self.input_responses.is_some()
    }
}

/// What is forwarded of `_meta`: an allow-list (`mcp.md` A.2), and the multi-round-trip members.
///
/// # Refuses
/// - [`Refusal::InvalidParams`]
pub(super) fn meta(
    caller: &Caller<'_>,
    subject: &Subject,
    (server, request): (&ServerPolicy, &Request<'_>),
    arguments: &[u8],
) -> Result<Meta, Refusal> {
    let mut meta = Meta::default();
    if let Some(sent) = &request.meta {
        if let Some(token) = sent.get("progressToken") {
            let integer = token.node.kind() == Kind::Number && !token.raw().iter().any(|c| b".eE".contains(c));
            if token.node.kind() != Kind::String && !integer {
                return Err(Refusal::InvalidParams("`progressToken` must be a string or an integer"));
            }
            meta.progress_token = Some(token.raw().to_vec());
        }
        if request.era == Era::Modern {
            meta.capabilities = sent.get(META_CLIENT_CAPABILITIES).map(|c| c.raw().to_vec());
        }
    }
    if request.era == Era::Modern && subject.is_multi_round() {
        if let Some(state) = request.param("requestState") {
            let state = state.node.as_str().ok_or(Refusal::InvalidParams("`requestState` must be a string"))?;
            let user = server.users.as_ref().and(caller.user);
            let call = seal::Call { key_id: &caller.key.id, user, server, subject, arguments };
            let opened = seal::open(&caller.snapshot.settings.state_key, state, &call)?;
            meta.request_state = Some(opened);
        }
        if let Some(responses) = request.param("inputResponses") {
            if responses.node.kind() != Kind::Object {
                return Err(Refusal::InvalidParams("`inputResponses` must be an object"));
            }
            meta.input_responses = Some(responses.raw().to_vec());
        }
    }
    Ok(meta)
}
