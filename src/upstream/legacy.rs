//! Servers of 2025-03-26 to 2025-11-25: `initialize`, and what is said on a session beside calls.
//!
//! Knows nothing of which session a call uses; that is `sessions.rs`.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::{
    client::{Client, Limits},
    envelope::{Headers, INITIALIZED_BODY, OurId, answer_body, cancelled_body, initialize_body},
    exchange::{AskError, Question, ask, judge_status, legacy_revision},
    target::Target,
};
use crate::model::{jsonrpc::Document, mcp::Revision};

/// The most bytes that are read of an answer to `initialize`.
pub const INITIALIZE_BYTES_MAX: usize = 256 * 1024;
/// How long a message that nobody waits for may take: an answer to a server, a cancellation, a `DELETE`.
pub const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);

/// What `initialize` settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// `Mcp-Session-Id`; none: the server is stateless.
    pub id: Option<String>,
    /// The negotiated revision.
    pub revision: Revision,
}

/// A session as a message names it.
#[derive(Clone, Copy, Debug)]
pub struct SessionRef<'s> {
    /// The negotiated revision.
    pub revision: Revision,
    /// Its id; none: the server is stateless.
    pub id: Option<&'s str>,
}

/// The next id for a request of our own making; no two requests of this process share one.
#[must_use]
pub fn next_id() -> OurId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    OurId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Opens a session: `initialize` with `offer`, then `notifications/initialized`.
///
/// Any legacy revision in the answer is accepted. The session id counts from this answer only: some servers send a fresh one with
/// every refusal.
///
/// # Errors
/// [`AskError`]; a 400, 404 or 405 without an MCP answer is [`AskError::OldTransport`].
pub async fn initialize(client: &Client, target: &Target, offer: Revision) -> Result<Opened, AskError> {
    let id = next_id();
    let headers = Headers {
        revision: None,
        method: "initialize",
        name: None,
        params: &[],
        session: None,
        credential: target.credential.headers(),
    };
    let limits = Limits { body_bytes_max: INITIALIZE_BYTES_MAX, timeout: target.timeout };
    let question = Question { id, headers, body: initialize_body(id, offer), limits };
    let mut answer = ask(client, target, question).await?;
    let session_id = answer.session_id.take();
    let result = match answer.into_result() {
        Err(AskError::Status { status: 400 | 404 | 405 }) => return Err(AskError::OldTransport),
        other => other?,
    };
    let mut scratch = Vec::new();
    let settled = Document::parse(&result, &mut scratch).ok().and_then(|document| {
        document.root().get("protocolVersion").and_then(|version| version.as_str()).map(legacy_revision)
    });
    let revision = settled.ok_or(AskError::NotMcp)?.ok_or(AskError::Revision)?;
    let opened = Opened { id: session_id, revision };
    let session = SessionRef { revision, id: opened.id.as_deref() };
    let status = tell(client, target, session, INITIALIZED_BODY.to_vec()).await?;
    judge_status(status)?;
    Ok(opened)
}

/// Answers a server's own request, `(id as raw JSON, method)`: `{}` to `ping`, else `-32601`. Whether it arrives does not matter.
pub async fn answer_server_request(
    client: &Client,
    target: &Target,
    session: SessionRef<'_>,
    (their_id, method): (&[u8], &str),
) {
    let _ = tell(client, target, session, answer_body(their_id, method)).await;
}

/// Tells a server that nobody waits for call `id` any more. Whether it arrives does not matter.
pub async fn cancel(client: &Client, target: &Target, session: SessionRef<'_>, (id, reason): (OurId, &str)) {
    let _ = tell(client, target, session, cancelled_body(id, reason)).await;
}

/// Ends a session with `DELETE`; 405 is legal, and so is silence. A stateless server is not asked.
pub async fn end(client: &Client, target: &Target, session: SessionRef<'_>) {
    if session.id.is_some() {
        let _ = client.delete(target, &headers(target, session), ASIDE_LIMITS).await;
    }
}

const ASIDE_LIMITS: Limits = Limits { body_bytes_max: 64 * 1024, timeout: ASIDE_TIMEOUT };

fn headers<'h>(target: &'h Target, session: SessionRef<'h>) -> Headers<'h> {
    Headers {
        revision: Some(session.revision),
        method: "",
        name: None,
        params: &[],
        session: session.id,
        credential: target.credential.headers(),
    }
}

async fn tell(
    client: &Client,
    target: &Target,
    session: SessionRef<'_>,
    body: Vec<u8>,
) -> Result<u16, super::client::ClientError> {
    Ok(client.post(target, &headers(target, session), body, ASIDE_LIMITS).await?.status)
}
