//! The way to the server: which address, which session, which bytes. Only an admitted call gets here.

use pingora::{
    Error, ErrorType, Result,
    http::RequestHeader,
    upstreams::peer::{HttpPeer, Peer as _},
};

use super::{
    context::{Context, Gateway, Sent},
    held::DEADLINE,
};
use crate::{
    call::Subject,
    refusal::{Refusal, Unavailable},
    upstream::{
        Upstream,
        client::ClientError,
        envelope::{self, CallMeta, Headers},
        exchange::AskError,
        server::Behalf,
    },
};

/// A verdict of ours ended the call; it is kept in the context.
pub(super) const REFUSED: ErrorType = ErrorType::Custom("refused");

impl Gateway {
    /// The peer of an admitted call; a legacy server's session is there before it is called.
    pub(super) async fn peer(&self, ctx: &mut Context) -> Result<Box<HttpPeer>> {
        let key_id = ctx.key.as_ref().map(|key| std::sync::Arc::clone(&key.id));
        let Some(signals) = ctx.signals.clone() else {
            return Error::e_explain(ErrorType::InternalError, "a call that did not come through the edge");
        };
        let Some(sent) = ctx.sent_mut() else {
            return Error::e_explain(ErrorType::InternalError, "a call that was not admitted");
        };
        let server = std::sync::Arc::clone(&sent.admitted.checked.server);
        let now_ms = self.nanos() / 1_000_000;
        let Some(revision) = server.revision else { return refuse(sent, Unavailable::NotListed) };
        if sent.spoken.is_none() || sent.renewed {
            let lost = sent.spoken.take();
            let checked = &sent.admitted.checked;
            let behalf = Behalf { key_id: key_id.as_ref(), user: checked.user_name(), target: checked.target() };
            let speak = server.upstream.speak(revision, (server.session, behalf), lost);
            match signals.within(sent.deadline, speak).await {
                Err(_) => return Error::e_explain(DEADLINE, "the call's time limit"),
                Ok(Err(error)) => {
                    if matches!(error, AskError::Client(_)) {
                        sent.admitted.failed(now_ms);
                    }
                    sent.refused = Some(no_session(error));
                    return Error::e_explain(REFUSED, "a verdict of ours");
                }
                Ok(Ok(spoken)) => sent.spoken = Some(spoken),
            }
            sent.body = body(sent).into();
        }
        let Ok(peer) = server.upstream.peer(signals.left(sent.deadline), sent.admitted.checked.user_name()) else {
            sent.admitted.failed(now_ms);
            return refuse(sent, Unavailable::Connect);
        };
        Ok(Box::new(peer))
    }

    /// Our own head: nothing of the client's goes upstream.
    pub(super) fn write_head(&self, request: &mut RequestHeader, ctx: &mut Context) -> Result<()> {
        let Some(sent) = ctx.sent_mut() else {
            return Error::e_explain(ErrorType::InternalError, "a call that was not admitted");
        };
        let checked = &sent.admitted.checked;
        let upstream: &Upstream = &checked.server.upstream;
        let endpoint = &upstream.target.endpoint;
        let mut head = RequestHeader::build("POST", endpoint.path_and_query.as_bytes(), Some(12))?;
        head.insert_header("host", endpoint.authority())?;
        head.insert_header("content-length", sent.body.len())?;
        let params: Vec<(&str, std::borrow::Cow<'_, str>)> =
            checked.params.iter().map(|(name, text)| (name.as_str(), text.as_str().into())).collect();
        let headers = Headers {
            revision: sent.spoken.as_ref().map(|spoken| spoken.revision),
            method: checked.subject.method(),
            name: checked.subject.name(),
            params: &params,
            session: sent.spoken.as_ref().and_then(|spoken| spoken.session()),
            credential: checked.target().credential.headers(),
        };
        let mut failed = None;
        let mut put = |name: &str, value: &[u8]| {
            if let Err(error) = head.insert_header(name.to_owned(), value) {
                failed = Some(error);
            }
        };
        envelope::put_trace(sent.trace.as_ref(), &mut |name, text| put(name, text.as_bytes()));
        envelope::put_headers(&headers, &mut put);
        if let Some(error) = failed {
            return Err(error);
        }
        head.set_version(request.version);
        if request.version == http::Version::HTTP_2 {
            let uri = endpoint.url();
            head.set_uri(uri.parse().map_err(|_| Error::explain(ErrorType::InternalError, "a URL that is none"))?);
            head.remove_header("host");
        }
        *request = head;
        Ok(())
    }

    /// A connection could not be made: the address is passed over, and the breaker counts.
    pub(super) fn note_unconnected(&self, peer: &HttpPeer, ctx: &mut Context) {
        let now_ms = self.nanos() / 1_000_000;
        if let Some(sent) = ctx.sent_mut() {
            sent.admitted.failed(now_ms);
            if let Some(address) = peer.address().as_inet() {
                sent.admitted.checked.server.upstream.addresses.note(*address, false);
            }
        }
    }
}

fn refuse<T>(sent: &mut Sent, cause: Unavailable) -> Result<T> {
    sent.refused = Some(Refusal::UpstreamUnavailable(cause));
    Error::e_explain(REFUSED, "a verdict of ours")
}

/// The body of the call in the revision that the server is spoken to in.
fn body(sent: &Sent) -> Vec<u8> {
    let checked = &sent.admitted.checked;
    let meta = &checked.meta;
    let Some(spoken) = &sent.spoken else { return Vec::new() };
    let call = CallMeta {
        progress_token: meta.progress_token.as_deref(),
        trace: sent.trace.as_ref(),
        client_capabilities: meta.capabilities.as_deref(),
        request_state: meta.request_state.as_deref(),
        input_responses: meta.input_responses.as_deref(),
    };
    match &checked.subject {
        Subject::Tool(tool) => envelope::call_body(spoken.revision, sent.our_id, &tool.name, &checked.arguments, &call),
        Subject::Passed { method, .. } => {
            envelope::request_body(spoken.revision, sent.our_id, method.name, &checked.arguments, &call)
        }
    }
}

/// What a session that could not be opened means for the call, which was not sent.
fn no_session(error: AskError) -> Refusal {
    Refusal::UpstreamUnavailable(match error {
        AskError::Client(ClientError::TimedOut) => return Refusal::UpstreamTimeout { sent: false },
        AskError::Client(error) if error.is_unsent() => Unavailable::Connect,
        AskError::Credential { .. } => Unavailable::CredentialRefused { called: false },
        AskError::RateLimited => Unavailable::RateLimited { called: false },
        _ => Unavailable::Session,
    })
}
