//! The store of a fleet's rate limits: one Redis or Valkey, told and asked by every node (contract §8, `docs/fleet.md`).
//!
//! A background task tells it what this node used of each limit and takes the next leases, all limits in one pipeline; only a call
//! that has no token in hand asks by itself, and waits at most [`ASK_MAX`]. A store that does not answer is left alone until a
//! probe is answered; meanwhile each limit goes on with this node's share.
//!
//! **Invariant.** After a loss the task first tells what was spent meanwhile, a batch at a time, and only then do calls ask.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{
    Client, Pipeline, RedisError, Script,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};

use super::{
    clock_nanos,
    lease::{Answer, Booking, Lease, Standing},
};
use crate::model::units::Rate;

/// The longest that a call waits for the store.
pub const ASK_MAX: Duration = Duration::from_millis(20);
/// So many calls in a row whose question got no answer are a store that is lost.
const FAILURES_MAX: u32 = 3;
/// Calls that ask at one time; the others go on with the share.
const ASKS_MAX: usize = 256;
/// The longest that the background task waits for an answer.
const TELL_MAX: Duration = Duration::from_millis(250);
/// Limits told in one pipeline.
const BATCH_MAX: usize = 256;
/// How often the task looks around when nothing wakes it.
const TICK: Duration = Duration::from_millis(10);
/// How often a node says that it is there.
const BEAT: Duration = Duration::from_secs(1);
/// A node that was not heard of for so long is gone.
const NODE_GONE_MS: u64 = 5000;
/// A lease that nobody used for so long is given back.
const QUIET: Duration = Duration::from_secs(1);
/// How often a lost store is tried, on average.
const PROBE: Duration = Duration::from_millis(500);
/// The set of nodes: its members' scores are when they were heard of last.
const NODES: &str = "toolgate:{nodes}";
const HEARTBEAT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])";

/// This node's link to the store.
pub struct Fleet {
    standing: Arc<Standing>,
    connection: ConnectionManager,
    bucket: Script,
    heartbeat: Script,
    node: String,
    failures: AtomicU32,
    /// Questions of calls that got no answer since the last beat.
    unanswered: AtomicU32,
    asks: Semaphore,
    started: Instant,
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("node", &self.node).field("standing", &self.standing).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Starts the background task on the current runtime; it lives as long as the process. Waits for the first answer of
    /// the store, but not longer than a probe takes. `started` is where [`clock_nanos`] counts from.
    ///
    /// # Errors
    /// The URL cannot be used; in words without the URL.
    pub async fn start(url: &str, started: Instant) -> Result<Arc<Self>, String> {
        let client = Client::open(url).map_err(|why| why.to_string())?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(TELL_MAX))
            .set_response_timeout(Some(TELL_MAX));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(|why| why.to_string())?;
        let (queue, told) = mpsc::unbounded_channel();
        let standing = Standing { nodes: AtomicU32::new(1), up: AtomicBool::new(false), queue };
        let fleet = Arc::new(Self {
            standing: Arc::new(standing),
            connection,
            bucket: Script::new(include_str!("../../conf/fleet/bucket.lua")),
            heartbeat: Script::new(HEARTBEAT),
            node: format!("{:032x}", rand::random::<u128>()),
            failures: AtomicU32::new(0),
            unanswered: AtomicU32::new(0),
            asks: Semaphore::new(ASKS_MAX),
            started,
        });
        let mut task = Task { fleet: Arc::clone(&fleet), told, pending: HashMap::new(), kept: HashMap::new() };
        task.probe().await;
        if !fleet.is_up() {
            tracing::warn!("the store of rate limits does not answer: this node starts with its share of each limit");
        }
        tokio::spawn(task.run());
        Ok(fleet)
    }

    /// Whether the store answers; for `toolgate_rate_limit_store_up`.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.standing.up.load(Ordering::Acquire)
    }

    /// A limit whose bucket has that key in the store.
    pub(super) fn lease(&self, name: String) -> Lease {
        Lease::new(Arc::clone(&self.standing), name)
    }

    /// Takes one token for a call that has none in hand.
    ///
    /// # Errors
    /// There is none: the whole seconds to the next one.
    pub(super) async fn ask(&self, lease: &Arc<Lease>, rate: Rate) -> Result<(), u64> {
        let answer = match self.asks.try_acquire() {
            Ok(_place) => self.ask_store(lease, rate).await,
            Err(_) => None,
        };
        let now_ns = clock_nanos(self.started);
        match answer {
            Some(answer) => lease.asked(rate, answer, now_ns),
            None => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(bucket = lease.name(), "a call asked the store of rate limits in vain");
                lease.charge_share(rate, now_ns)
            }
        }
    }

    async fn ask_store(&self, lease: &Lease, rate: Rate) -> Option<Answer> {
        let mut connection = self.connection.clone();
        let mut pipeline = Pipeline::new();
        self.add(&mut pipeline, lease, lease.ask(rate));
        match timeout(ASK_MAX, pipeline.query_async::<(Triple,)>(&mut connection)).await {
            Ok(Ok((answer,))) => {
                self.failures.store(0, Ordering::Relaxed);
                Some(answer.into())
            }
            Ok(Err(why)) if !why.is_io_error() => {
                tracing::warn!(bucket = lease.name(), "rate limits: {why}");
                None
            }
            failed => {
                if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
                    self.lose(&failed.err().map_or_else(|| "the connection broke".to_owned(), |_| slow(ASK_MAX)));
                }
                None
            }
        }
    }

    /// Calls go on with the share from here on.
    fn lose(&self, why: &str) {
        if self.standing.up.swap(false, Ordering::AcqRel) {
            let nodes = self.standing.nodes.load(Ordering::Relaxed);
            tracing::warn!(
                nodes,
                "the store of rate limits is lost: this node goes on with its share of each limit: {why}"
            );
        }
    }

    fn add(&self, pipeline: &mut Pipeline, lease: &Lease, booking: Booking) {
        let Booking { rate, want, back, owed, spent, .. } = booking;
        let unit_ms = u64::try_from(rate.per.length().as_millis()).unwrap_or(u64::MAX);
        let mut call = self.bucket.key(lease.name());
        call.arg(rate.count).arg(unit_ms).arg(want).arg(back).arg(owed).arg(spent);
        pipeline.load_script(&self.bucket).ignore().invoke_script(&call);
    }
}

/// `taken`, `level`, microseconds to wait.
type Triple = (u64, i64, u64);

impl From<Triple> for Answer {
    fn from((taken, level, wait_us): Triple) -> Self {
        Self { taken, level, wait_ns: wait_us.saturating_mul(1000) }
    }
}

fn slow(limit: Duration) -> String {
    format!("no answer within {} ms", limit.as_millis())
}

/// What the background task knows of a limit that is in use.
struct Kept {
    lease: Arc<Lease>,
    /// The tokens in hand when it looked last, and since when they are so many.
    in_hand: u64,
    since_ns: u64,
}

struct Task {
    fleet: Arc<Fleet>,
    told: mpsc::UnboundedReceiver<Arc<Lease>>,
    /// To be told in the next round; whether because nobody uses them any more.
    pending: HashMap<String, (Arc<Lease>, bool)>,
    /// In use, by name.
    kept: HashMap<String, Kept>,
}

impl Task {
    async fn run(mut self) {
        let mut next_beat = Instant::now() + BEAT;
        loop {
            let idle = next_beat.saturating_duration_since(Instant::now());
            let nap = if self.kept.is_empty() { idle } else { TICK };
            match timeout(nap, self.told.recv()).await {
                Ok(None) => return,
                Ok(Some(lease)) => self.take_in(lease),
                Err(_) => {}
            }
            if self.fleet.is_up() {
                self.look_around();
                self.tell().await;
                if Instant::now() >= next_beat {
                    next_beat = Instant::now() + BEAT;
                    if let Err(why) = self.beat().await {
                        self.fleet.lose(&why);
                    }
                }
            } else {
                // Every node tries at its own times.
                tokio::time::sleep(PROBE.mul_f64(rand::random_range(0.5..1.5))).await;
                self.probe().await;
            }
        }
    }

    fn take_in(&mut self, lease: Arc<Lease>) {
        let since_ns = clock_nanos(self.fleet.started);
        let kept = Kept { lease: Arc::clone(&lease), in_hand: lease.in_hand(), since_ns };
        self.kept.insert(lease.name().to_owned(), kept);
        self.pending.insert(lease.name().to_owned(), (lease, false));
    }

    /// Finds limits whose bucket has tokens again for calls that were refused, and those that nobody uses any more.
    fn look_around(&mut self) {
        let now_ns = clock_nanos(self.fleet.started);
        let quiet_ns = u64::try_from(QUIET.as_nanos()).unwrap_or(u64::MAX);
        let pending = &mut self.pending;
        self.kept.retain(|name, kept| {
            let in_hand = kept.lease.in_hand();
            if in_hand != kept.in_hand || kept.lease.is_wanted() {
                (kept.in_hand, kept.since_ns) = (in_hand, now_ns);
            }
            let is_quiet = now_ns.saturating_sub(kept.since_ns) >= quiet_ns;
            if is_quiet || kept.lease.is_due(now_ns) {
                pending.entry(name.clone()).or_insert_with(|| (Arc::clone(&kept.lease), is_quiet));
            }
            !is_quiet
        });
    }

    /// Tells all that is pending, a batch at a time.
    async fn tell(&mut self) {
        while let Ok(lease) = self.told.try_recv() {
            self.take_in(lease);
        }
        let mut pending = std::mem::take(&mut self.pending).into_values();
        loop {
            let batch: Vec<(Arc<Lease>, bool)> = pending.by_ref().take(BATCH_MAX).collect();
            if batch.is_empty() {
                return;
            }
            let bookings: Vec<(Arc<Lease>, Booking)> =
                batch.into_iter().map(|(lease, quiet)| (Arc::clone(&lease), lease.book(quiet))).collect();
            let Err(why) = self.tell_batch(&bookings).await else { continue };
            self.fleet.lose(&why);
            for (lease, booking) in bookings {
                lease.lost(booking);
                self.pending.insert(lease.name().to_owned(), (lease, false));
            }
            self.pending.extend(pending.map(|(lease, quiet)| (lease.name().to_owned(), (lease, quiet))));
            return;
        }
    }

    async fn tell_batch(&mut self, bookings: &[(Arc<Lease>, Booking)]) -> Result<(), String> {
        let mut pipeline = Pipeline::new();
        pipeline.ignore_errors();
        for (lease, booking) in bookings {
            self.fleet.add(&mut pipeline, lease, *booking);
        }
        let mut connection = self.fleet.connection.clone();
        let asked = timeout(TELL_MAX, pipeline.query_async::<Vec<Result<Triple, RedisError>>>(&mut connection));
        let answers = asked.await.map_err(|_| slow(TELL_MAX))?.map_err(|why| why.to_string())?;
        let now_ns = clock_nanos(self.fleet.started);
        for ((lease, booking), answer) in bookings.iter().zip(answers) {
            match answer {
                Ok(answer) => lease.settle(*booking, answer.into(), now_ns),
                Err(why) => {
                    lease.lost(*booking);
                    tracing::warn!(bucket = lease.name(), "rate limits: {why}");
                }
            }
        }
        Ok(())
    }

    /// Says that this node is there, and counts the nodes.
    async fn beat(&mut self) -> Result<(), String> {
        let mut connection = self.fleet.connection.clone();
        let mut pipeline = Pipeline::new();
        let mut call = self.fleet.heartbeat.key(NODES);
        call.arg(&self.fleet.node).arg(NODE_GONE_MS);
        pipeline.load_script(&self.fleet.heartbeat).ignore().invoke_script(&call);
        let asked = timeout(TELL_MAX, pipeline.query_async::<(u32,)>(&mut connection));
        let (nodes,) = asked.await.map_err(|_| slow(TELL_MAX))?.map_err(|why| why.to_string())?;
        if self.fleet.standing.nodes.swap(nodes.max(1), Ordering::Relaxed) != nodes {
            tracing::info!(nodes, "the nodes that share rate limits");
        }
        let calls = self.fleet.unanswered.swap(0, Ordering::Relaxed);
        if calls > 0 {
            tracing::warn!(calls, "the store of rate limits is slow: calls went on with this node's share");
        }
        Ok(())
    }

    /// Tries a store that was lost; tells it what was spent meanwhile before any call asks it.
    async fn probe(&mut self) {
        if let Err(why) = self.beat().await {
            tracing::debug!("the store of rate limits does not answer: {why}");
            return;
        }
        self.tell().await;
        if self.pending.is_empty() {
            self.fleet.failures.store(0, Ordering::Relaxed);
            self.fleet.standing.up.store(true, Ordering::Release);
            tracing::info!(
                nodes = self.fleet.standing.nodes.load(Ordering::Relaxed),
                "the store of rate limits answers"
            );
        }
    }
}
