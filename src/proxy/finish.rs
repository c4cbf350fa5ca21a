//! The one place where a call ends without a released answer, however it ends; and what is written down of every request.

use std::{borrow::Cow, sync::Arc};

use pingora::{
    Error, ErrorSource, ErrorType,
    proxy::{FailToProxy, Session},
};

use super::{
    context::{Call, Context, Gateway, Sent},
    held::{DEADLINE, UNFINISHED},
    respond::{self, Takes},
};
use crate::{
    call::input::Asking,
    model::mcp::Era,
    refusal::{Refusal, Side, Surface, Unavailable},
    upstream::legacy::{self, SessionRef},
};

impl Gateway {
    /// Every way in which a call ends without a released answer; writes what the caller gets, unless it has it or is gone.
    pub(super) async fn fail(&self, session: &mut Session, error: &Error, ctx: &mut Context) -> FailToProxy {
        let end = FailToProxy { error_code: 0, can_reuse_downstream: true };
        let now_ms = self.nanos() / 1_000_000;
        let drained = ctx.signals.as_ref().is_some_and(|signals| signals.is_drained());
        let Some(sent) = ctx.sent_mut() else {
            if let Some(signals) = &ctx.signals {
                signals.spoil();
            }
            return end;
        };
        if sent.answered {
            return end;
        }
        if let Some((verdict, asking)) = sent.pending.take() {
            self.finish_asked(session, ctx, (verdict, asking)).await;
            return end;
        }
        let refusal = match sent.refused.take() {
            Some(refusal) => refusal,
            None => match self.cause(error, sent, (now_ms, drained)) {
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
        if matches!(refusal, Refusal::UpstreamTimeout { sent: true } | Refusal::Stopping { sent: true }) {
            self.cancel(sent);
        }
        sent.refused = Some(refusal.clone());
        sent.answered = true;
        self.finish(session, ctx, &refusal).await;
        end
    }

    /// Asks the engines about what passed everything else, and answers.
    async fn finish_asked(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        (released, asking): (Result<Vec<u8>, Refusal>, Asking),
    ) {
        let Some(sent) = ctx.sent_mut() else { return };
        let (server, subject) = (Arc::clone(&sent.admitted.checked.server), sent.admitted.checked.subject.clone());
        let (deadline, streams) = (sent.deadline, sent.streams);
        let Some(signals) = ctx.signals.clone() else { return };
        let asked = self.ask_engines(ctx, (&server, subject.title()), &asking, (Side::Output, signals.left(deadline)));
        let verdict = signals.within(deadline, asked).await.map(|asked| asked.and(released));
        let mut verdict = verdict.unwrap_or(Err(Refusal::Stopping { sent: true }));
        if tokio::time::Instant::now() >= deadline {
            verdict = Err(Refusal::UpstreamTimeout { sent: true });
        }
        if let Some(sent) = ctx.sent_mut() {
            sent.answered = true;
            sent.refused = verdict.as_ref().err().cloned();
        }
        match verdict {
            Err(refusal) => self.finish(session, ctx, &refusal).await,
            Ok(result) => {
                let written = if session.response_written().is_some() {
                    // A comment went ahead: the stream has its head.
                    let event = respond::event(&respond::result_message(&result, &ctx.asked));
                    ctx.status = 200;
                    ctx.bytes_out += u64::try_from(event.len()).unwrap_or(u64::MAX);
                    ctx.leave();
                    session.write_response_body(Some(event.into()), true).await
                } else {
                    let takes = if streams { Takes::Sse } else { Takes::Json };
                    self.write(session, ctx, respond::result(&result, &ctx.asked, takes)).await
                };
                if written.is_err()
                    && let Some(signals) = &ctx.signals
                {
                    signals.spoil();
                }
            }
        }
    }

    /// What an error of the proxy loop means for the call; none: the client is gone.
    fn cause(&self, error: &Error, sent: &Sent, (now_ms, drained): (u64, bool)) -> Option<Refusal> {
        let passed = tokio::time::Instant::now() >= sent.deadline;
        let unavailable = |cause| Some(Refusal::UpstreamUnavailable(cause));
        let timed_out = || {
            if !passed {
                // The gateway's own end, which says nothing of the server.
                return Some(Refusal::Stopping { sent: sent.sent });
            }
            if sent.sent {
                sent.admitted.failed(now_ms);
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
                if passed || drained {
                    timed_out()
                } else {
                    unavailable(Unavailable::Connect)
                }
            }
            _ if *error.esource() == ErrorSource::Downstream => None,
            ErrorType::ReadTimedout | ErrorType::WriteTimedout if passed || drained => timed_out(),
            ErrorType::InvalidHTTPHeader => unavailable(Unavailable::NotMcp),
            ErrorType::InternalError if !sent.sent => Some(Refusal::Internal),
            _ => unavailable(Unavailable::Broken),
        }
    }

    async fn finish(&self, session: &mut Session, ctx: &mut Context, refusal: &Refusal) {
        ctx.leave();
        if session.response_written().is_none() {
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
            (Arc::clone(&self.0.client), Arc::clone(sent.admitted.checked.target()), sent.our_id);
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
