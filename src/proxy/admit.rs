//! `request_filter`: the request side of the line in the order of contract §2, and the answers that need no server.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method};
use panic_guard::caught;
use pingora::{Error, ErrorType, Result, proxy::Session};

use super::{
    context::{Call, Context, Gateway, Place, Sent},
    edge::{FromEdge, head_of},
    listen::Subscribed,
    respond::{self, Answer, Takes},
    signals::Signals,
};
use crate::{
    call::{
        Admission, Asked, Caller, Charged, Checked, Now, admit, attribution, authenticate, charge,
        listen::Listen,
        route::{self, Endpoint},
        throttle, trace,
    },
    policy::snapshot::{KeyPolicy, Snapshot, ViewServer},
    refusal::{Refusal, Side},
    upstream::legacy,
};

/// How a request that went no further is answered.
enum Early {
    Refused(Refusal),
    Whole(Answer),
}

/// Where a request goes that nothing refused.
enum Way {
    ToServer,
    Listen(Listen, Subscribed),
}

impl From<Refusal> for Early {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Gateway {
    /// The request side. `Ok(true)`: answered; `Ok(false)`: on to the server.
    pub(super) async fn admit(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        let Some(edge) = session.req_header_mut().extensions_mut().remove::<FromEdge>() else {
            return Error::e_explain(ErrorType::InternalError, "a session that did not come through the edge");
        };
        ctx.request_id = edge.request_id;
        ctx.signals = Some(Arc::clone(&edge.signals));
        ctx.snapshot.clone_from(&edge.snapshot);
        let Some(snapshot) = edge.snapshot else {
            return self.answer_early(session, ctx, Refusal::NoPolicy.into()).await;
        };
        // How the caller is answered holds for every answer, also for one that comes before these headers are judged.
        let headers = &session.req_header().headers;
        ctx.takes = Takes::read(headers);
        ctx.origin = origin(headers, &snapshot.settings.allowed_origins).unwrap_or_default();
        match self.decide(session, ctx, (&snapshot, &edge.signals)).await {
            Ok(Way::ToServer) => Ok(false),
            Ok(Way::Listen(listen, place)) => {
                drop(snapshot);
                self.listen(session, ctx, (listen, place)).await.map(|()| true)
            }
            Err(early) => self.answer_early(session, ctx, early).await,
        }
    }

    async fn decide(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        (snapshot, signals): (&Arc<Snapshot>, &Signals),
    ) -> Result<Way, Early> {
        ctx.place = Some(Place::take(&self.0, snapshot.settings.in_flight_max)?);
        let mut begun = Instant::now();
        let (key, now) = self.identify(session, ctx, snapshot)?;
        begun += self.throttle(&key, now).await?;
        let head = session.req_header();
        ctx.attribution = attribution::read(&head.headers, head.uri.query(), &snapshot.settings.attribution_prefix)?;
        let granted = self.route(session, ctx, snapshot, &key)?;
        ctx.own += begun.elapsed();
        let body = super::body::read(session, &snapshot.settings, signals).await.map_err(|end| match end {
            super::body::End::Refused(refusal) => Early::Refused(refusal),
            super::body::End::Gone => Early::Whole(gone()),
        })?;
        ctx.bytes_in = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let complete = tokio::time::Instant::now();
        let begun = Instant::now();
        let mut asked = std::mem::take(&mut ctx.asked);
        let caller = Caller { snapshot, key: &key, granted, user: ctx.attribution.user() };
        let admission = caught(|| admit(&caller, &session.req_header().headers, &body, &mut asked));
        ctx.asked = asked;
        ctx.asked.trace = ctx.asked.trace.take().or_else(|| self.0.traces.begin());
        ctx.notes.append(&mut ctx.asked.notes);
        let admission = match admission {
            Some(admission) => admission,
            None => {
                self.note_panic();
                Err(Refusal::Internal)
            }
        };
        ctx.own += begun.elapsed();
        match admission? {
            Admission::Accepted => Err(Early::Whole(respond::accepted())),
            Admission::Answered(result) => Err(Early::Whole(respond::result(&result, &ctx.asked, ctx.takes))),
            Admission::Listen(_) if ctx.takes == Takes::Json => {
                Err(Refusal::InvalidParams("a subscription needs `Accept: text/event-stream`").into())
            }
            Admission::Listen(listen) => Ok(Way::Listen(listen, Subscribed::take(&self.0, &key.used)?)),
            Admission::Call(checked) => {
                let sent = self.send(ctx, (snapshot, signals), *checked, complete).await;
                sent.map(|()| Way::ToServer).map_err(Early::Refused)
            }
        }
    }

    /// Rows 2 to 10 of contract §2, but for the path's own: who calls, from where, in what standing.
    fn identify(
        &self,
        session: &Session,
        ctx: &mut Context,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(Arc<KeyPolicy>, Now), Early> {
        let settings = &snapshot.settings;
        let head = session.req_header();
        if let Some(resource) = settings.resource.as_ref().filter(|_| route::is_metadata(&head.method, head.uri.path()))
        {
            return Err(Early::Whole(respond::metadata(resource)));
        }
        let endpoint = route::endpoint(head.uri.path(), &settings.base_path)?;
        ctx.endpoint = endpoint.label();
        origin(&head.headers, &settings.allowed_origins)?;
        if head.method == Method::OPTIONS && ctx.origin.is_some() {
            let asked = head.headers.get("access-control-request-headers").and_then(|v| v.to_str().ok());
            return Err(Early::Whole(respond::preflight(asked)));
        }
        if head.method != Method::POST {
            return Err(Refusal::MethodNotAllowed.into());
        }
        let now = self.now();
        let peer = session.client_addr().and_then(|a| a.as_inet()).map_or(IpAddr::from([127, 0, 0, 1]), |a| a.ip());
        let client = authenticate::client_address(&head.headers, peer, &settings.trusted_proxies);
        ctx.client_ip = Some(client);
        ctx.asked.trace = trace::of_head(&head.headers, peer, &settings.trusted_proxies);
        let proof = authenticate::proof(snapshot, &head.headers, now);
        let token = match proof.clone().and_then(|proof| authenticate::holder(snapshot, &proof, now)) {
            Ok(token) => token,
            Err(refusal) => {
                return Err(self.failed_attempt(client, settings.failed_auth, now).unwrap_or(refusal).into());
            }
        };
        let key = &token.key;
        ctx.key = Some(Arc::clone(key));
        ctx.proof = proof.ok();
        authenticate::standing(key, client)?;
        Ok((Arc::clone(key), now))
    }

    /// Row 11: a token of the key. Waits only where a fleet shares the limit and this node has no token in hand; tells how long.
    async fn throttle(&self, key: &KeyPolicy, now: Now) -> Result<Duration, Early> {
        let taken = match throttle::key(key, now) {
            Ok(None) => Ok(Duration::ZERO),
            Ok(Some(limit)) => {
                let begun = Instant::now();
                throttle::key_answer(limit.ask().await).map(|()| begun.elapsed())
            }
            Err(refusal) => Err(refusal),
        };
        taken.inspect_err(|_| self.0.metrics.rate_limited("key")).map_err(Early::Refused)
    }

    /// Row 13, and what the head says of the body.
    fn route<'s>(
        &self,
        session: &Session,
        ctx: &mut Context,
        snapshot: &Snapshot,
        key: &'s KeyPolicy,
    ) -> Result<Option<&'s ViewServer>, Early> {
        let head = session.req_header();
        let granted = match route::endpoint(head.uri.path(), &snapshot.settings.base_path)? {
            Endpoint::Aggregated => None,
            Endpoint::Server(slug) => Some(route::server(&key.view, &slug)?),
        };
        ctx.server_slug = granted.map(|granted| Arc::clone(&granted.server.slug));
        super::body::judge_head(&head.headers, snapshot.settings.body_bytes_max)?;
        Ok(granted)
    }

    fn failed_attempt(&self, client: IpAddr, limit: Option<crate::model::units::Rate>, now: Now) -> Option<Refusal> {
        let retry_after = self.0.failures.note(client, limit?, now.nanos)?;
        self.0.metrics.rate_limited("address");
        Some(Refusal::TooManyFailures { retry_after })
    }

    /// The last checks, and the body that goes to the server.
    async fn send(
        &self,
        ctx: &mut Context,
        (snapshot, signals): (&Arc<Snapshot>, &Signals),
        checked: Checked,
        complete: tokio::time::Instant,
    ) -> Result<(), Refusal> {
        ctx.notes.extend(checked.screened.notes.iter().cloned());
        for rule in &checked.screened.failures {
            tracing::warn!(%rule, server = %checked.server.slug, "a guardrail's detector failed and the rule allows that");
        }
        let deadline = complete + checked.server.timeout;
        if !checked.screened.asking.is_empty() {
            let left = signals.left(deadline);
            let about = (&checked.server, checked.subject.title());
            let asked = self.ask_engines(ctx, about, &checked.screened.asking, (Side::Input, left));
            let verdict = signals.within(deadline, asked).await;
            if tokio::time::Instant::now() >= deadline {
                return Err(Refusal::UpstreamTimeout { sent: false });
            }
            verdict.unwrap_or(Err(Refusal::Stopping { sent: false }))?;
        }
        let mut begun = Instant::now();
        let charged = match charge(checked, &snapshot.settings, self.now()) {
            Ok(Charged::Unpaid(unpaid)) => {
                ctx.own += begun.elapsed();
                let paid = unpaid.pay().await;
                begun = Instant::now();
                paid
            }
            Ok(Charged::Admitted(admitted)) => Ok(admitted),
            Err(refusal) => Err(refusal),
        };
        let admitted = charged.inspect_err(|refusal| {
            if matches!(refusal, Refusal::ServerRateLimited { .. }) {
                self.0.metrics.rate_limited("server");
            }
        })?;
        let our_id = legacy::next_id();
        let span_id = rand::random();
        signals.set_deadline(deadline);
        ctx.call = Call::Sent(Box::new(Sent {
            our_id,
            our_id_text: our_id.to_string(),
            nonce: rand::random(),
            span_id,
            trace: ctx.asked.trace.as_ref().map(|trace| trace.below(span_id)),
            body: bytes::Bytes::new(),
            spoken: None,
            renewed: false,
            sent: false,
            sent_at: None,
            answered_at: None,
            relay: None,
            refused: None,
            pending: None,
            streams: false,
            answered: false,
            deadline,
            admitted,
        }));
        ctx.own += begun.elapsed();
        Ok(())
    }

    async fn answer_early(&self, session: &mut Session, ctx: &mut Context, early: Early) -> Result<bool> {
        let answer = match early {
            Early::Whole(answer) => {
                ctx.call = Call::Done(if answer.status == GONE { "http_499".to_owned() } else { "ok".to_owned() });
                answer
            }
            Early::Refused(refusal) => {
                let begun = Instant::now();
                let answer = self.render(&refusal, ctx);
                ctx.own += begun.elapsed();
                ctx.call = Call::Done(refusal.outcome());
                self.count_refusal(&refusal, ctx);
                answer
            }
        };
        self.write(session, ctx, answer).await?;
        Ok(true)
    }

    /// A refusal in the form that the caller takes.
    pub(super) fn render(&self, refusal: &Refusal, ctx: &Context) -> Answer {
        match &ctx.snapshot {
            Some(snapshot) => respond::refusal(refusal, &ctx.asked, &snapshot.settings, &ctx.request_id, ctx.takes),
            None => respond::refusal(refusal, &Asked::default(), &self.settings(), &ctx.request_id, Takes::Json),
        }
    }

    pub(super) fn count_refusal(&self, refusal: &Refusal, ctx: &Context) {
        let server = ctx.asked.server.as_ref().map(|server| &*server.slug).or(ctx.server_slug.as_deref());
        self.0.metrics.refused(&refusal.outcome(), server.unwrap_or(""));
    }

    /// Writes a whole answer.
    pub(super) async fn write(&self, session: &mut Session, ctx: &mut Context, answer: Answer) -> Result<()> {
        ctx.status = answer.status;
        ctx.leave();
        if answer.status == GONE {
            if let Some(signals) = &ctx.signals {
                signals.spoil();
            }
            return Ok(());
        }
        if answer.close
            && let Some(signals) = &ctx.signals
        {
            signals.spoil();
        }
        let head = head_of(&answer, &ctx.request_id, ctx.origin.as_deref())?;
        ctx.bytes_out = u64::try_from(answer.body.len()).unwrap_or(u64::MAX);
        let empty = answer.body.is_empty();
        session.write_response_header(Box::new(head), empty).await?;
        session.write_response_body(Some(answer.body.into()), true).await
    }
}

/// The status by which the record knows that the client went away; never written.
pub(super) const GONE: u16 = 499;

fn gone() -> Answer {
    Answer { status: GONE, content_type: None, headers: Vec::new(), body: Vec::new(), close: true }
}

/// The allowed `Origin` to echo; none if none was sent (contract §2 row 3).
fn origin(headers: &HeaderMap, allowed: &[String]) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all(http::header::ORIGIN).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().map_err(|_| Refusal::OriginNotAllowed)?;
    if values.next().is_some() || !allowed.iter().any(|origin| origin == text) {
        return Err(Refusal::OriginNotAllowed);
    }
    Ok(Some(text.to_owned()))
}

/// Turns a panic of our own code into a value.
mod panic_guard {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Runs `work`; none if it panicked.
    pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(work)).ok()
    }
}
