//! The state of one request as the proxy loop carries it, and what all requests share.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;

use super::{Shared, drain::Drain, relay::Relay, respond::Takes, signals::Signals};
use crate::{
    access_log::AccessLog,
    budget::{Failures, clock_nanos},
    call::{
        Admitted, Asked, Now,
        attribution::Attribution,
        authenticate::Proof,
        input::{Asking, Note},
    },
    metrics::Metrics,
    model::{id::RequestId, trace::TraceContext},
    policy::{
        live::Live,
        snapshot::{KeyPolicy, Settings, Snapshot},
    },
    refusal::Refusal,
    traces::Traces,
    upstream::{Spoken, client::Client, envelope::OurId},
};

/// The gateway: a handle on what all requests share.
#[derive(Clone)]
pub struct Gateway(pub(super) Shared);

/// Takes an organization's id and a slug; neither waits nor locks.
pub type Rediscover = Box<dyn Fn(&str, &str) + Send + Sync>;

/// What all requests share.
pub struct State {
    /// The published policy.
    pub live: Arc<Live>,
    /// What holds before the first policy.
    pub defaults: Arc<Settings>,
    /// The gateway's own client, for side calls.
    pub client: Arc<Client>,
    /// Every series.
    pub metrics: Arc<Metrics>,
    /// One line a request.
    pub log: AccessLog,
    /// A span a request, if somebody collects them.
    pub traces: Traces,
    /// Failed attempts to authenticate, by address.
    pub failures: Failures,
    /// What is being served.
    pub counts: Counts,
    /// Whether the gateway stops, and what it waits for.
    pub drain: Arc<Drain>,
    /// The zero of [`Now::nanos`].
    pub started: Instant,
    /// Asked when a server says that its tools changed: organization and slug.
    pub rediscover: Rediscover,
}

/// What is being served now.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests.
    pub in_flight: AtomicU64,
    /// Subscriptions.
    pub subscriptions: AtomicU64,
}

impl Gateway {
    /// A gateway over what all requests share.
    #[must_use]
    pub fn new(state: State) -> Self {
        Self(Arc::new(state))
    }

    /// What all requests share.
    #[must_use]
    pub fn shared(&self) -> Arc<State> {
        Arc::clone(&self.0)
    }

    pub(super) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0));
        Now { unix, nanos: self.nanos() }
    }

    /// Nanoseconds since [`State::started`], but never near zero: budgets count backwards from them.
    pub(super) fn nanos(&self) -> u64 {
        clock_nanos(self.0.started)
    }

    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.live.load()
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        self.0.live.load().map_or_else(|| Arc::clone(&self.0.defaults), |snapshot| Arc::clone(&snapshot.settings))
    }

    pub(super) fn new_request_id(&self) -> RequestId {
        RequestId::new(rand::random())
    }

    pub(super) fn note_panic(&self) {
        self.0.metrics.panics.inc();
        tracing::error!("a request ended in a panic; it was answered as an internal error");
    }

    pub(super) fn count_outside(&self, refusal: &Refusal) {
        self.0.metrics.request("other", "_other", None, &refusal.outcome());
    }
}

/// One place among the requests being served; given back when dropped.
pub(super) struct Place(Shared);

impl Place {
    pub(super) fn take(state: &Shared, max: u64) -> Result<Self, Refusal> {
        let before = state.counts.in_flight.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(state));
        if before >= max { Err(Refusal::Overloaded) } else { Ok(place) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.counts.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where a request stands.
pub(super) enum Call {
    /// Not admitted yet.
    Reading,
    /// On its way to the server and back.
    Sent(Box<Sent>),
    /// Answered; the outcome of contract §11.
    Done(String),
}

/// A call that was admitted.
pub(super) struct Sent {
    pub(super) admitted: Admitted,
    pub(super) our_id: OurId,
    pub(super) our_id_text: String,
    pub(super) nonce: [u8; 12],
    /// The span that the server is told to be the parent of its own.
    pub(super) span_id: u64,
    /// Where on the caller's trace, or on one of ours, the server is: below that span.
    pub(super) trace: Option<TraceContext>,
    /// The body that was checked.
    pub(super) body: Bytes,
    /// How the server is spoken to in this call; renewed at most once.
    pub(super) spoken: Option<Spoken>,
    pub(super) renewed: bool,
    /// The request went out.
    pub(super) sent: bool,
    pub(super) sent_at: Option<Instant>,
    pub(super) answered_at: Option<Instant>,
    pub(super) relay: Option<Relay>,
    /// The verdict that ended the call, for the record.
    pub(super) refused: Option<Refusal>,
    /// A verdict that passes on words of the server's, but for external engines that are to be asked first.
    pub(super) pending: Option<(Result<Vec<u8>, Refusal>, Asking)>,
    /// The client gets a stream.
    pub(super) streams: bool,
    pub(super) answered: bool,
    pub(super) deadline: tokio::time::Instant,
}

impl Sent {
    /// Whether what came back so far says that a legacy session which went along is gone.
    pub(super) fn lost_session(&self) -> bool {
        let went_along = self.spoken.as_ref().is_some_and(|spoken| spoken.session().is_some());
        went_along && self.relay.as_ref().is_some_and(|relay| relay.lost_session(&self.our_id_text))
    }
}

/// The state of one request.
pub struct Context {
    /// Made by the edge; empty before `request_filter`.
    pub(super) request_id: String,
    pub(super) started: Instant,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) key: Option<Arc<KeyPolicy>>,
    /// By which the key came.
    pub(super) proof: Option<Proof>,
    pub(super) endpoint: &'static str,
    pub(super) client_ip: Option<IpAddr>,
    pub(super) origin: Option<String>,
    pub(super) takes: Takes,
    pub(super) attribution: Attribution,
    pub(super) asked: Asked,
    pub(super) call: Call,
    pub(super) notes: Vec<Note>,
    pub(super) place: Option<Place>,
    pub(super) signals: Option<Arc<Signals>>,
    pub(super) status: u16,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Wall time inside admit and release (contract §12).
    pub(super) own: std::time::Duration,
    /// The server's slug for the log when the per-server path named one.
    pub(super) server_slug: Option<Arc<str>>,
}

impl Context {
    pub(super) fn new() -> Self {
        Self {
            request_id: String::new(),
            started: Instant::now(),
            snapshot: None,
            key: None,
            proof: None,
            endpoint: "other",
            client_ip: None,
            origin: None,
            takes: Takes::Json,
            attribution: Attribution::default(),
            asked: Asked { method: "_other", ..Asked::default() },
            call: Call::Reading,
            notes: Vec::new(),
            place: None,
            signals: None,
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
            own: std::time::Duration::ZERO,
            server_slug: None,
        }
    }

    pub(super) fn sent_mut(&mut self) -> Option<&mut Sent> {
        match &mut self.call {
            Call::Sent(sent) => Some(sent),
            Call::Reading | Call::Done(_) => None,
        }
    }

    /// Gives back the places at the server and at the gateway, before the caller has its answer and asks for more.
    pub(super) fn leave(&mut self) {
        self.place = None;
        if let Some(sent) = self.sent_mut() {
            sent.admitted.permit = None;
        }
    }

    pub(super) fn upstream_body(&self) -> Bytes {
        match &self.call {
            Call::Sent(sent) => sent.body.clone(),
            Call::Reading | Call::Done(_) => Bytes::new(),
        }
    }

    pub(super) fn note_sent(&mut self) {
        if let Some(sent) = self.sent_mut() {
            sent.sent = true;
            sent.sent_at.get_or_insert_with(Instant::now);
        }
    }

    /// Whether what came back so far says that a legacy session which went along is gone.
    pub(super) fn lost_session(&mut self) -> bool {
        self.sent_mut().is_some_and(|sent| sent.lost_session())
    }

    /// Whether a lost legacy session may still be renewed for this call; says yes once.
    pub(super) fn may_renew(&mut self) -> bool {
        if let Some(signals) = &self.signals {
            signals.begin_again();
        }
        self.sent_mut().is_some_and(|sent| !std::mem::replace(&mut sent.renewed, true))
    }
}
