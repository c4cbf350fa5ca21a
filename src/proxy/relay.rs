//! What comes back, piece by piece: hold, split streams, pass progress on at once, release or refuse the answer.
//!
//! Pure: bytes in, decisions out. `mod.rs` moves the bytes; `call/` decides on content.
//!
//! **Invariant.** No byte of an answer leaves before it was released as a whole; the first response with our id ends the call and
//! later bytes are never read (contract §3).

use std::ops::ControlFlow;

use crate::{
    call::{
        answer::{Heard, IdRule, hear, not_mcp},
        output::{self, Exchange},
    },
    model::{
        jsonrpc::Document,
        sse::{Reader, SseFault},
    },
    refusal::{Refusal, Unavailable},
};

/// What kind of body is coming.
#[derive(Debug)]
enum Mode {
    /// One JSON document.
    Json,
    /// A stream of events.
    Sse(Box<Reader>),
    /// The body of a 4xx: a JSON-RPC error, or nothing for us.
    ClientError,
}

/// The state of one answer.
#[derive(Debug)]
pub(super) struct Relay {
    mode: Mode,
    held: Vec<u8>,
    bytes_max: usize,
    /// HTTP status of the server.
    status: u16,
    /// Progress was asked for by a caller that takes streams.
    progress: bool,
}

/// What a piece of the body led to.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// Messages to pass on now: whole JSON-RPC notifications.
    pub(super) progress: Vec<Vec<u8>>,
    /// The verdict, if there is one: the released `result`, or the refusal.
    pub(super) verdict: Option<Result<Vec<u8>, Refusal>>,
    /// The server's own requests: raw id and method; to be answered on the side.
    pub(super) asked: Vec<(Vec<u8>, String)>,
    /// The server says that its tools changed.
    pub(super) list_changed: bool,
}

/// What the head of the server's response says.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerHead<'a> {
    /// HTTP status.
    pub(super) status: u16,
    /// `Content-Type`, if any.
    pub(super) content_type: Option<&'a str>,
    /// A `Content-Encoding` other than `identity`.
    pub(super) is_coded: bool,
    /// `Content-Length`, if any.
    pub(super) content_length: Option<u64>,
}

impl Relay {
    /// Judges the head (contract §4: status and content type come first).
    ///
    /// # Refuses
    /// - [`Refusal::UpstreamUnavailable`], or [`Refusal::ResultTooLarge`] by a declared length.
    pub(super) fn start(head: &ServerHead<'_>, bytes_max: u64, progress: bool) -> Result<Self, Refusal> {
        let unavailable = |cause| Err(Refusal::UpstreamUnavailable(cause));
        let media = head.content_type.unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
        let mode = match head.status {
            401 | 403 => return unavailable(Unavailable::CredentialRefused { called: true }),
            429 => return unavailable(Unavailable::RateLimited { called: true }),
            300..=399 => return unavailable(Unavailable::Redirect),
            400..=499 => Mode::ClientError,
            500.. => return unavailable(Unavailable::ServerError),
            200 if media == "application/json" => Mode::Json,
            200 if media == "text/event-stream" => {
                let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
                Mode::Sse(Box::new(Reader::new(limit, limit)))
            }
            _ => return unavailable(Unavailable::NotMcp),
        };
        if head.is_coded {
            return unavailable(Unavailable::NotMcp);
        }
        if matches!(mode, Mode::Json) && head.content_length.is_some_and(|length| length > bytes_max) {
            return Err(Refusal::ResultTooLarge { limit: bytes_max });
        }
        Ok(Self {
            mode,
            held: Vec::new(),
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            status: head.status,
            progress,
        })
    }

    /// Whether the server streams.
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self.mode, Mode::Sse(_))
    }

    /// Why an answer that ended without a body is none.
    pub(super) const fn unfinished(&self) -> Unavailable {
        match self.mode {
            Mode::Json => Unavailable::NotMcp,
            Mode::Sse(_) => Unavailable::Broken,
            Mode::ClientError => Unavailable::ClientError,
        }
    }

    /// Takes the next piece of the body; `end` with the last one.
    pub(super) fn push(&mut self, chunk: &[u8], end: bool, exchange: &mut Exchange<'_>) -> Step {
        match &mut self.mode {
            Mode::Sse(reader) => {
                let mut step = Step::default();
                let read = reader.push(chunk, |data| {
                    event(data, self.progress, exchange, &mut step);
                    if step.verdict.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                if let Err(SseFault::EventTooLarge { .. } | SseFault::StreamTooLarge { .. }) = read {
                    step.verdict = Some(Err(self.too_large()));
                }
                if end && step.verdict.is_none() {
                    step.verdict = Some(Err(Refusal::UpstreamUnavailable(Unavailable::Broken)));
                }
                step
            }
            Mode::Json | Mode::ClientError => self.hold(chunk, end, exchange),
        }
    }

    fn hold(&mut self, chunk: &[u8], end: bool, exchange: &mut Exchange<'_>) -> Step {
        let verdict = if self.held.len().saturating_add(chunk.len()) > self.bytes_max {
            Some(Err(match self.mode {
                Mode::ClientError => Refusal::UpstreamUnavailable(Unavailable::ClientError),
                _ => self.too_large(),
            }))
        } else {
            self.held.extend_from_slice(chunk);
            end.then(|| match self.mode {
                Mode::ClientError => client_error(&self.held, exchange),
                _ => whole(&self.held, exchange),
            })
        };
        Step { verdict, ..Step::default() }
    }

    fn too_large(&self) -> Refusal {
        Refusal::ResultTooLarge { limit: u64::try_from(self.bytes_max).unwrap_or(u64::MAX) }
    }

    /// Whether this answer says that a legacy session is gone: 404 or 400 without a JSON-RPC message with our id (contract §3).
    pub(super) fn lost_session(&self, our_id: &str) -> bool {
        if !matches!(self.status, 404 | 400) {
            return false;
        }
        let mut scratch = Vec::new();
        match Document::parse(&self.held, &mut scratch) {
            Err(_) => true,
            Ok(document) => document.root().get("id").and_then(|id| id.as_str()) != Some(our_id),
        }
    }
}

/// One event of a stream.
fn event(data: &[u8], progress: bool, exchange: &mut Exchange<'_>, step: &mut Step) {
    let mut scratch = Vec::new();
    let Ok(document) = Document::parse(data, &mut scratch) else {
        step.verdict = Some(Err(not_mcp()));
        return;
    };
    match hear(&document, exchange.our_id, IdRule::Ours) {
        Err(refusal) => step.verdict = Some(Err(refusal)),
        Ok(Heard::Result(result)) => step.verdict = Some(output::release(exchange, &document, &result)),
        Ok(Heard::Error { code, message, data }) => {
            step.verdict = Some(Err(output::rejected(exchange, code, message, data.as_ref())));
        }
        Ok(Heard::ServerRequest { id, method }) => step.asked.push((id.to_vec(), method.to_owned())),
        Ok(Heard::Notification { method: "notifications/progress", params: Some(params) }) if progress => {
            step.progress.extend(output::progress(exchange, &document, &params));
        }
        Ok(Heard::Notification { method, .. }) => step.list_changed |= method == "notifications/tools/list_changed",
    }
}

/// A whole JSON body.
fn whole(body: &[u8], exchange: &mut Exchange<'_>) -> Result<Vec<u8>, Refusal> {
    let mut scratch = Vec::new();
    let document = Document::parse(body, &mut scratch).map_err(|_| not_mcp())?;
    match hear(&document, exchange.our_id, IdRule::Ours)? {
        Heard::Result(result) => output::release(exchange, &document, &result),
        Heard::Error { code, message, data } => Err(output::rejected(exchange, code, message, data.as_ref())),
        Heard::ServerRequest { .. } | Heard::Notification { .. } => Err(not_mcp()),
    }
}

/// The body of a 4xx.
fn client_error(body: &[u8], exchange: &mut Exchange<'_>) -> Result<Vec<u8>, Refusal> {
    let nothing = || Refusal::UpstreamUnavailable(Unavailable::ClientError);
    let mut scratch = Vec::new();
    let document = Document::parse(body, &mut scratch).map_err(|_| nothing())?;
    match hear(&document, exchange.our_id, IdRule::OursOrNone) {
        Ok(Heard::Error { code, message, data }) => Err(output::rejected(exchange, code, message, data.as_ref())),
        _ => Err(nothing()),
    }
}
