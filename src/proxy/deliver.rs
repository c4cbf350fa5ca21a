//! The way back: the server's head and body through the relay, and the one place where a call ends, however it ends.

use std::{borrow::Cow, sync::Arc, time::Instant};

use bytes::Bytes;
use pingora::{
    Error, ErrorSource, ErrorType, Result,
    http::ResponseHeader,
    proxy::{FailToProxy, Session},
};

use super::{
    context::{Call, Context, Gateway, Sent},
    edge::dress,
    held::{DEADLINE, UNFINISHED},
    relay::{Relay, ServerHead, Step},
    respond::{self, JSON, SSE, Takes},
    to_server::REFUSED,
};
use crate::{
    call::output::Exchange,
    model::mcp::Era,
    refusal::{Refusal, Surface, Unavailable},
    upstream::legacy::{self, SessionRef},
};

/// A legacy server lost our session and refused the call unread: once more, with a new one.
pub(super) const RENEW: ErrorType = ErrorType::Custom("renew");

impl Gateway {
    /// Judges the server's head and puts ours in its place. The held session keeps it until something is released.
    pub(super) fn receive_head(&self, response: &mut ResponseHeader, ctx: &mut Context) -> Result<()> {
        if response.status.is_informational() {
            return Ok(());
        }
        let (request_id, origin, takes) = (ctx.request_id.clone(), ctx.origin.clone(), ctx.takes);
        let Some(sent) = ctx.sent_mut() else {
            return Error::e_explain(ErrorType::InternalError, "a response to nothing");
        };
        sent.answered_at = Some(Instant::now());
        sent.admitted.permit.answered();
        let text = |name: &str| response.headers.get(name).and_then(|value| value.to_str().ok());
        let head = ServerHead {
            status: response.status.as_u16(),
            content_type: text("content-type"),
            content_encoding: text("content-encoding"),
            content_length: text("content-length").and_then(|length| length.parse().ok()),
        };
        let checked = &sent.admitted.checked;
        let progress = takes != Takes::Json && checked.meta.progress_token.is_some();
        let relay = match Relay::start(&head, checked.server.result_bytes_max, progress) {
            Ok(relay) => relay,
            Err(refusal) => {
                sent.refused = Some(refusal);
                return Error::e_explain(REFUSED, "a verdict of ours");
            }
        };
        sent.streams = match takes {
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
        dress(&mut ours, &request_id, origin.as_deref())?;
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
            if let Some(sent) = ctx.sent_mut() {
                sent.begun |= !out.is_empty();
            }
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
        *body = Some(out.into());
        Ok(())
    }

    /// Hands a piece to the relay. None: the answer is already out, and nothing more is read.
    fn step(&self, chunk: &[u8], end: bool, ctx: &mut Context) -> Result<Option<Step>> {
        let begun = Instant::now();
        let (Some(snapshot), Some(key)) = (ctx.snapshot.clone(), ctx.key.clone()) else {
            return Error::e_explain(ErrorType::InternalError, "a call without a policy");
        };
        let Context { call: Call::Sent(sent), asked, notes, own, signals, .. } = ctx else {
            return Error::e_explain(ErrorType::InternalError, "a body to nothing");
        };
        if sent.answered {
            // The answer may be filtered but not written yet: an error here would lose it.
            if let Some(signals) = signals.as_ref().filter(|_| !chunk.is_empty()) {
                signals.set_goes_on();
            }
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
        };
        let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| relay.push(chunk, end, &mut exchange)));
        notes.append(&mut exchange.notes);
        let step = step.unwrap_or_else(|_| {
            self.note_panic();
            Step { verdict: Some(Err(Refusal::Internal)), ..Step::default() }
        });
        let session_sent = sent.spoken.as_ref().is_some_and(|spoken| spoken.session().is_some());
        let lost = step.verdict.is_some() && session_sent && relay.lost_session(&sent.our_id_text);
        sent.relay = Some(relay);
        *own += begun.elapsed();
        if lost && !sent.renewed {
            let mut error = Error::explain(RENEW, "the server lost our session");
            error.set_retry(true);
            return Err(error);
        }
        Ok(Some(step))
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
        for (id, method) in step.asked.iter().cloned() {
            let (client, target) = (Arc::clone(&self.0.client), Arc::clone(&server.upstream.target));
            let (revision, session) = (spoken.revision, spoken.session().map(str::to_owned));
            tokio::spawn(async move {
                let session = SessionRef { revision, id: session.as_deref() };
                legacy::answer_server_request(&client, &target, session, (&id, &method)).await;
            });
        }
    }

    /// Every way in which a call ends without a released answer; writes what the caller gets, unless it has it or is gone.
    pub(super) async fn fail(&self, session: &mut Session, error: &Error, ctx: &mut Context) -> FailToProxy {
        let end = FailToProxy { error_code: 0, can_reuse_downstream: true };
        let now_ms = self.nanos() / 1_000_000;
        let Some(sent) = ctx.sent_mut() else {
            if let Some(signals) = &ctx.signals {
                signals.spoil();
            }
            return end;
        };
        if sent.answered {
            return end;
        }
        let refusal = match sent.refused.take() {
            Some(refusal) => refusal,
            None => match self.cause(error, sent, now_ms) {
                Some(refusal) => refusal,
                None => {
                    self.cancel(sent);
                    ctx.call = Call::Done("http_499".to_owned());
                    ctx.status = super::admit::GONE;
                    if let Some(signals) = &ctx.signals {
                        signals.spoil();
                    }
                    return end;
                }
            },
        };
        if matches!(refusal, Refusal::UpstreamTimeout { sent: true }) {
            self.cancel(sent);
        }
        let begun = sent.begun;
        sent.refused = Some(refusal.clone());
        sent.answered = true;
        self.finish(session, ctx, &refusal, begun).await;
        end
    }

    /// What an error of the proxy loop means for the call; none: the client is gone.
    fn cause(&self, error: &Error, sent: &Sent, now_ms: u64) -> Option<Refusal> {
        let passed = tokio::time::Instant::now() >= sent.deadline;
        let unavailable = |cause| Some(Refusal::UpstreamUnavailable(cause));
        let timed_out = || {
            if sent.sent {
                sent.admitted.permit.failed(now_ms);
            }
            Some(Refusal::UpstreamTimeout { sent: sent.sent })
        };
        match error.etype() {
            kind if *kind == DEADLINE => timed_out(),
            kind if *kind == UNFINISHED => unavailable(match &sent.relay {
                Some(relay) => relay.unfinished(),
                None => Unavailable::NotMcp,
            }),
            ErrorType::ConnectTimedout
            | ErrorType::TLSHandshakeTimedout
            | ErrorType::ConnectRefused
            | ErrorType::ConnectNoRoute
            | ErrorType::TLSHandshakeFailure
            | ErrorType::TLSWantX509Lookup
            | ErrorType::InvalidCert
            | ErrorType::HandshakeError
            | ErrorType::ConnectError
            | ErrorType::BindError
            | ErrorType::SocketError
            | ErrorType::ConnectProxyFailure
                if *error.esource() != ErrorSource::Downstream =>
            {
                if passed {
                    timed_out()
                } else {
                    unavailable(Unavailable::Connect)
                }
            }
            _ if *error.esource() == ErrorSource::Downstream => None,
            ErrorType::ReadTimedout | ErrorType::WriteTimedout if passed => timed_out(),
            ErrorType::InvalidHTTPHeader => unavailable(Unavailable::NotMcp),
            ErrorType::InternalError if !sent.sent => Some(Refusal::Internal),
            _ => unavailable(Unavailable::Broken),
        }
    }

    async fn finish(&self, session: &mut Session, ctx: &mut Context, refusal: &Refusal, begun: bool) {
        if !begun {
            let answer = match refusal.row().surface {
                Surface::ToolResult if ctx.sent_mut().is_some_and(|sent| sent.streams) => {
                    let message = ctx
                        .snapshot
                        .as_ref()
                        .map(|snapshot| respond::message_of(refusal, &ctx.asked, &snapshot.settings, &ctx.request_id));
                    respond::framed(200, message.unwrap_or_default(), Takes::Sse)
                }
                _ => self.render(refusal, ctx),
            };
            if self.write(session, ctx, answer).await.is_err()
                && let Some(signals) = &ctx.signals
            {
                signals.spoil();
            }
            return;
        }
        let Some(snapshot) = &ctx.snapshot else { return };
        let message = respond::message_of(refusal, &ctx.asked, &snapshot.settings, &ctx.request_id);
        let event = respond::event(&message);
        ctx.status = 200;
        ctx.bytes_out += u64::try_from(event.len()).unwrap_or(u64::MAX);
        if session.write_response_body(Some(event.into()), true).await.is_err()
            && let Some(signals) = &ctx.signals
        {
            signals.spoil();
        }
    }

    /// Tells a legacy server to stop; a modern one sees its connection close.
    fn cancel(&self, sent: &Sent) {
        let legacy = sent.spoken.as_ref().filter(|spoken| spoken.revision.era() == Era::Legacy && sent.sent);
        let Some(spoken) = legacy else { return };
        let (revision, session) = (spoken.revision, spoken.session().map(str::to_owned));
        let (client, target, id) =
            (Arc::clone(&self.0.client), Arc::clone(&sent.admitted.checked.server.upstream.target), sent.our_id);
        tokio::spawn(async move {
            let session = SessionRef { revision, id: session.as_deref() };
            legacy::cancel(&client, &target, session, (id, "the client went away")).await;
        });
    }

    /// Metrics and access log, once a request, at its end.
    pub(super) fn record(&self, session: &mut Session, ctx: &mut Context) {
        let _ = session;
        let outcome: Cow<'static, str> = match &ctx.call {
            Call::Done(outcome) => outcome.clone().into(),
            Call::Reading => "http_499".into(),
            Call::Sent(sent) => match &sent.refused {
                None if sent.answered => "ok".into(),
                None => "http_499".into(),
                Some(refusal) => {
                    self.count_refusal(refusal, ctx);
                    refusal.outcome().into()
                }
            },
        };
        super::record::write(self, ctx, &outcome);
        ctx.place = None;
    }
}
