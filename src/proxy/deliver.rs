//! The way back: the server's head and body through the relay, and the one place where a call ends, however it ends.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use pingora::{Error, ErrorType, Result, http::ResponseHeader};

use super::{
    context::{Call, Context, Gateway},
    edge::dress,
    relay::{Relay, ServerHead, Step},
    respond::{self, JSON, SSE, Takes},
    to_server::REFUSED,
};
use crate::{
    call::{input::Asking, output::Exchange},
    model::mcp::Era,
    refusal::{Refusal, Surface},
    upstream::legacy::{self, SessionRef},
};

/// A legacy server lost our session and refused the call unread: once more, with a new one.
pub(super) const RENEW: ErrorType = ErrorType::Custom("renew");
/// The result waits for external engines: the proxy loop ends, and `fail` is its finisher.
const PENDING: ErrorType = ErrorType::Custom("pending");

fn is_identity(coding: &[u8]) -> bool {
    coding.trim_ascii().eq_ignore_ascii_case(b"identity")
}

/// Whether something that the server wrote goes out with the verdict.
const fn passes_words_on(verdict: &Result<Vec<u8>, Refusal>) -> bool {
    matches!(
        verdict,
        Ok(_) | Err(Refusal::UpstreamRejected(_) | Refusal::Relayed { .. } | Refusal::MissingCapability { .. })
    )
}

impl Gateway {
    /// Judges the server's head and puts ours in its place. The held session keeps it until something is released.
    pub(super) fn receive_head(&self, response: &mut ResponseHeader, ctx: &mut Context) -> Result<()> {
        if response.status.is_informational() {
            return Ok(());
        }
        let Context { call: Call::Sent(sent), request_id, origin, takes, .. } = ctx else {
            return Error::e_explain(ErrorType::InternalError, "a response to nothing");
        };
        sent.answered_at = Some(Instant::now());
        sent.admitted.answered();
        let text = |name: &str| response.headers.get(name).and_then(|value| value.to_str().ok());
        let head = ServerHead {
            status: response.status.as_u16(),
            content_type: text("content-type"),
            is_coded: response.headers.get_all("content-encoding").iter().any(|coding| !is_identity(coding.as_bytes())),
            content_length: text("content-length").and_then(|length| length.parse().ok()),
        };
        let checked = &sent.admitted.checked;
        let progress = *takes != Takes::Json && checked.meta.progress_token.is_some();
        let relay = match Relay::start(&head, checked.server.result_bytes_max, progress) {
            Ok(relay) => relay,
            Err(refusal) => {
                sent.refused = Some(refusal);
                return Error::e_explain(REFUSED, "a verdict of ours");
            }
        };
        sent.streams = match *takes {
            Takes::Json => false,
            Takes::Sse => true,
            Takes::Both => relay.is_stream(),
        };
        let mut ours = ResponseHeader::build(200, Some(8))?;
        ours.insert_header("content-type", if sent.streams { SSE } else { JSON })?;
        if sent.streams {
            ours.insert_header("cache-control", "no-cache")?;
            ours.insert_header("x-accel-buffering", "no")?;
        }
        ours.insert_header("transfer-encoding", "chunked")?;
        dress(&mut ours, request_id, origin.as_deref())?;
        sent.relay = Some(relay);
        *response = ours;
        Ok(())
    }

    /// Takes a piece of the server's body; what of it may pass is put in its place.
    pub(super) fn receive_body(&self, body: &mut Option<Bytes>, end: bool, ctx: &mut Context) -> Result<()> {
        let chunk = body.take().unwrap_or_default();
        if let Some(signals) = &ctx.signals {
            signals.note_piece();
        }
        *body = Some(Bytes::new());
        let Some(step) = self.step(&chunk, end, ctx)? else { return Ok(()) };
        let mut out = Vec::new();
        for message in &step.progress {
            out.extend_from_slice(&respond::event(message));
        }
        self.answer_aside(&step, ctx);
        let Some(verdict) = step.verdict else {
            ctx.bytes_out += u64::try_from(out.len()).unwrap_or(u64::MAX);
            *body = Some(out.into());
            return Ok(());
        };
        let message = self.settle(verdict, end, ctx)?;
        let streams = ctx.sent_mut().is_some_and(|sent| sent.streams);
        if streams {
            out.extend_from_slice(&respond::event(&message));
        } else {
            out = message;
        }
        ctx.bytes_out += u64::try_from(out.len()).unwrap_or(u64::MAX);
        ctx.status = 200;
        if let Some(signals) = &ctx.signals {
            signals.set_answered();
        }
        ctx.leave();
        *body = Some(out.into());
        Ok(())
    }

    /// Hands a piece to the relay. None: the answer is already out, and nothing more is read.
    fn step(&self, chunk: &[u8], end: bool, ctx: &mut Context) -> Result<Option<Step>> {
        let begun = Instant::now();
        let (Some(snapshot), Some(key)) = (ctx.snapshot.clone(), ctx.key.clone()) else {
            return Error::e_explain(ErrorType::InternalError, "a call without a policy");
        };
        let Context { call: Call::Sent(sent), asked, notes, own, .. } = ctx else {
            return Error::e_explain(ErrorType::InternalError, "a body to nothing");
        };
        if sent.answered {
            // Never interpreted. The held session cuts off a server that goes on.
            return Ok(None);
        }
        let Some(mut relay) = sent.relay.take() else {
            return Error::e_explain(ErrorType::InternalError, "a body without a head");
        };
        let mut exchange = Exchange {
            call: &sent.admitted,
            asked,
            key: &key,
            settings: &snapshot.settings,
            our_id: &sent.our_id_text,
            nonce: sent.nonce,
            notes: Vec::new(),
            asking: Asking::default(),
            progress_dropped: 0,
        };
        let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| relay.push(chunk, end, &mut exchange)));
        notes.append(&mut exchange.notes);
        self.0.metrics.progress_dropped.add(exchange.progress_dropped);
        let asking = std::mem::take(&mut exchange.asking);
        let step = step.unwrap_or_else(|_| {
            self.note_panic();
            Step { verdict: Some(Err(Refusal::Internal)), ..Step::default() }
        });
        sent.relay = Some(relay);
        let lost = step.verdict.is_some() && !sent.renewed && sent.lost_session();
        *own += begun.elapsed();
        if lost {
            let mut error = Error::explain(RENEW, "the server lost our session");
            error.set_retry(true);
            return Err(error);
        }
        match step.verdict {
            Some(verdict) if !asking.is_empty() && passes_words_on(&verdict) => {
                sent.pending = Some((verdict, asking));
                Error::e_explain(PENDING, "engines are to be asked")
            }
            verdict => Ok(Some(Step { verdict, ..step })),
        }
    }

    /// The message of a verdict, if it can go out under the held header; else the call ends as an error and `fail` writes it.
    fn settle(&self, verdict: Result<Vec<u8>, Refusal>, end: bool, ctx: &mut Context) -> Result<Vec<u8>> {
        match verdict {
            Ok(result) => {
                let message = respond::result_message(&result, &ctx.asked);
                if let Some(sent) = ctx.sent_mut() {
                    sent.answered = true;
                }
                Ok(message)
            }
            Err(refusal) => {
                let in_place = end && matches!(refusal.row().surface, Surface::ToolResult);
                let message = ctx
                    .snapshot
                    .as_ref()
                    .map(|snapshot| respond::message_of(&refusal, &ctx.asked, &snapshot.settings, &ctx.request_id));
                let Some(sent) = ctx.sent_mut() else {
                    return Error::e_explain(ErrorType::InternalError, "a verdict on nothing");
                };
                sent.refused = Some(refusal);
                match message {
                    Some(message) if in_place => {
                        sent.answered = true;
                        Ok(message)
                    }
                    _ => Error::e_explain(REFUSED, "a verdict of ours"),
                }
            }
        }
    }

    /// Answers a legacy server's own requests, and has its tools listed again when it says that they changed.
    fn answer_aside(&self, step: &Step, ctx: &mut Context) {
        let Some(sent) = ctx.sent_mut() else { return };
        let server = Arc::clone(&sent.admitted.checked.server);
        if step.list_changed {
            (self.0.rediscover)(&server.organization, &server.slug);
        }
        let Some(spoken) = sent.spoken.as_ref().filter(|spoken| spoken.revision.era() == Era::Legacy) else { return };
        for (id, method) in &step.asked {
            let (id, method) = (id.clone(), method.clone());
            let (client, target) = (Arc::clone(&self.0.client), Arc::clone(sent.admitted.checked.target()));
            let (revision, session) = (spoken.revision, spoken.session().map(str::to_owned));
            tokio::spawn(async move {
                let session = SessionRef { revision, id: session.as_deref() };
                legacy::answer_server_request(&client, &target, session, (&id, &method)).await;
            });
        }
    }
}
