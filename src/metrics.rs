//! Every series that Toolgate exports (contract §11): name, help and labels in one table, and the counting of them.
//!
//! Floor 2; the only file that names `prometheus`. Knows nothing of requests or policies: it is told label values that come from closed
//! sets or from the policy, never from a request. Counters and histograms are pushed by whoever counts; gauges are pulled:
//! [`Metrics::render`] hands out a [`Scrape`] for its caller to fill, so that a deleted server leaves no gauge behind.
//!
//! **Locks.** Counting takes none: a series is found in an insert-only table by one hash and one atomic load, and counted by atomics. The
//! first sight of a label set allocates and goes through a `OnceLock`. `prometheus` itself locks a histogram only while it is being
//! scraped, and only against other scrapes.
//!
//! **Invariant.** A metric never has more than [`SERIES_MAX`] series with own names; what comes later is counted under `_other`, and
//! counted as folded (`tests::names_past_the_cap_are_folded`).

mod totals;

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, TextEncoder,
    proto::{Counter as CounterValue, Gauge as GaugeValue, LabelPair, Metric, MetricFamily, MetricType},
};

use crate::model::mcp::Era;

/// The most series of one metric with names of the policy; a histogram counts as one.
pub const SERIES_MAX: usize = 5000;
/// The label value of whatever has no name of its own: unknown, none, or past [`SERIES_MAX`].
pub const OTHER: &str = "_other";
/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// Seconds; our own time is microseconds.
const OWN_BUCKETS: &[f64] = &[
    0.000_005, 0.000_01, 0.000_02, 0.000_03, 0.000_045, 0.000_06, 0.000_08, 0.000_1, 0.000_15, 0.000_2, 0.000_3,
    0.000_5, 0.001, 0.002_5, 0.005, 0.01,
];
/// Seconds; a call is milliseconds to a minute.
const CALL_BUCKETS: &[f64] =
    &[0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// What a series is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    /// With its buckets, in seconds.
    Histogram(&'static [f64]),
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    /// The label whose values are names of the policy, so that their number is capped.
    open: Option<&'static str>,
    help: &'static str,
}

macro_rules! table {
    ($($id:ident = $name:literal $kind:expr, [$($label:literal),*] $(open $open:literal)?, $help:literal;)*) => {
        $(static $id: Row = Row {
            name: $name,
            kind: $kind,
            labels: &[$($label),*],
            open: table!(@open $($open)?),
            help: $help,
        };)*
        static TABLE: &[&Row] = &[$(&$id),*];
    };
    (@open) => { None };
    (@open $open:literal) => { Some($open) };
}

table! {
    REQUESTS = "toolgate_requests_total" Kind::Counter, ["endpoint", "method", "era", "outcome"],
        "Requests answered, by endpoint (aggregated, server, other), JSON-RPC method, era (modern, legacy, none) and outcome: ok, a refusal code, rpc_<code>, or http_<status> where there is no code; http_499 where the client went away.";
    CALLS = "toolgate_call_duration_seconds" Kind::Histogram(CALL_BUCKETS), ["server"] open "server",
        "From the request's first byte to the answer's last, of calls that were sent to a server.";
    UPSTREAM = "toolgate_upstream_duration_seconds" Kind::Histogram(CALL_BUCKETS), ["server"] open "server",
        "From the moment a call went out to the server to the end of its answer.";
    OVERHEAD = "toolgate_overhead_seconds" Kind::Histogram(OWN_BUCKETS), [],
        "The gateway's own time in a request: wall time inside its checks, without waiting for bytes.";
    REFUSALS = "toolgate_refusals_total" Kind::Counter, ["code", "server"] open "server",
        "Requests refused by the gateway, by code (as outcome in toolgate_requests_total) and server; _other where no server was settled.";
    GUARDRAILS = "toolgate_guardrail_matches_total" Kind::Counter, ["rule", "action", "stage"] open "rule",
        "Guardrail rules that matched, by rule, action (block, redact, observe) and stage (input, output).";
    IN_FLIGHT = "toolgate_in_flight" Kind::Gauge, ["server"] open "server",
        "Calls at the server now.";
    SESSIONS = "toolgate_upstream_sessions" Kind::Gauge, ["server"] open "server",
        "Legacy sessions that are held with the server.";
    BREAKER = "toolgate_breaker_open" Kind::Gauge, ["server"] open "server",
        "1 while the server's breaker is open: calls are refused without being sent.";
    REQUESTS_NOW = "toolgate_requests_in_flight" Kind::Gauge, [],
        "Requests being served now, on every endpoint.";
    REQUESTS_MAX = "toolgate_requests_in_flight_limit" Kind::Gauge, [],
        "limits.in_flight: past it requests are refused as overloaded.";
    SUBSCRIPTIONS = "toolgate_subscriptions" Kind::Gauge, [],
        "Streams of subscriptions/listen that are open now; they are no requests in flight.";
    REVISION = "toolgate_snapshot_revision" Kind::Gauge, [],
        "Revision of the published policy.";
    AGE = "toolgate_snapshot_age_seconds" Kind::Gauge, [],
        "Since the published policy was compiled.";
    SWAPS = "toolgate_snapshot_swaps_total" Kind::Counter, ["result"],
        "Policies that were compiled to be published, after a reload, a change or a discovery, by result (applied, rejected); after a rejected one the policy before stays.";
    TOOLS = "toolgate_tools" Kind::Gauge, ["server", "state"] open "server",
        "Tools by server and state (pending, approved, changed, removed, blocked).";
    RATE_LIMITED = "toolgate_rate_limit_rejections_total" Kind::Counter, ["scope"],
        "Requests refused by a rate limit, by scope: key, server, or address (failed authentications).";
    RATE_STORE = "toolgate_rate_limit_store_up" Kind::Gauge, [],
        "1 while the store of fleet-wide rate limits answers; 0 while this node goes on with its share. Absent without rate_limits.url.";
    POLICY_STORE = "toolgate_policy_store_up" Kind::Gauge, [],
        "1 while PostgreSQL answers; 0 while this node serves its last good policy. Absent with SQLite.";
    POLICY_STORE_SILENCE = "toolgate_policy_store_silence_seconds" Kind::Gauge, [],
        "Since PostgreSQL answered last, while it does not; else 0. Absent with SQLite.";
    DISCOVERY = "toolgate_discovery_total" Kind::Counter, ["server", "result"] open "server",
        "Servers asked for their tools, by result (ok, failed).";
    DISCOVERY_AGE = "toolgate_discovery_age_seconds" Kind::Gauge, ["server"] open "server",
        "Since the server's tools were last listed in full; past discovery.max_age its calls are refused.";
    ISSUER_KEYS = "toolgate_issuer_keys" Kind::Gauge, ["issuer"] open "issuer",
        "Public keys that are held of an issuer of tokens; at 0 its tokens are refused. Absent without auth.issuers.";
    ENTRIES_DROPPED = "toolgate_discovery_entries_dropped_total" Kind::Counter, ["server"] open "server",
        "Entries of a server's listing that were dropped because they have no name.";
    PROGRESS_DROPPED = "toolgate_progress_dropped_total" Kind::Counter, [],
        "Progress notifications not passed on because an engine rule holds the tool's results.";
    PATTERN_OVERRUNS = "toolgate_pattern_overruns_total" Kind::Counter, [],
        "Schema checks that ran over their limit of work, such as a pattern's steps; each was a failed check.";
    LOG_DROPPED = "toolgate_access_log_dropped_total" Kind::Counter, [],
        "Access-log lines lost: the queue was full or the write failed.";
    CERTIFICATE = "toolgate_certificate_expiry_timestamp_seconds" Kind::Gauge, ["certificate"],
        "When a listener's certificate expires, in seconds since 1970, by its file.";
    PANICS = "toolgate_panics_total" Kind::Counter, [],
        "Panics caught while serving a request; each was answered as an internal error.";
    FOLDED = "toolgate_metrics_series_dropped_total" Kind::Counter, [],
        "Values counted under _other because a metric had 5000 series.";
    BUILD = "toolgate_build_info" Kind::Gauge, ["version", "rustc", "features"],
        "Always 1; the labels name the build.";
    PROCESS_CPU = "process_cpu_seconds_total" Kind::Counter, [],
        "Processor time of the process, user and system.";
    PROCESS_MEMORY = "process_resident_memory_bytes" Kind::Gauge, [],
        "Resident memory.";
    PROCESS_FDS = "process_open_fds" Kind::Gauge, [],
        "Open file descriptors.";
    PROCESS_FDS_MAX = "process_max_fds" Kind::Gauge, [],
        "The most file descriptors that the process may open.";
    PROCESS_THREADS = "process_threads" Kind::Gauge, [],
        "Threads.";
    PROCESS_START = "process_start_time_seconds" Kind::Gauge, [],
        "When the process started, in seconds since 1970.";
}

/// Every series of the process. Share it in an `Arc`.
pub struct Metrics {
    requests: Family<AtomicU64, 4>,
    calls: Family<Histogram, 1>,
    upstream: Family<Histogram, 1>,
    overhead: Family<Histogram, 0>,
    refusals: Family<AtomicU64, 2>,
    guardrails: Family<AtomicU64, 3>,
    swaps: Family<AtomicU64, 1>,
    rate_limited: Family<AtomicU64, 1>,
    discovery: Family<AtomicU64, 2>,
    entries_dropped: Family<AtomicU64, 1>,
    folded: Counter,
    /// Published policies that are counted already.
    published: AtomicU64,
    /// What the process before this one had counted: when it let go, and at its end.
    inherited: [OnceLock<String>; 2],
    /// Panics caught while serving a request.
    pub panics: Counter,
    /// Progress notifications not passed on (contract §7).
    pub progress_dropped: Counter,
}

/// A counter without labels.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Counts `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// What was counted so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// No series counted yet; those of closed sets that alerts compare stand at 0.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            requests: Family::new(&REQUESTS),
            calls: Family::new(&CALLS),
            upstream: Family::new(&UPSTREAM),
            overhead: Family::new(&OVERHEAD),
            refusals: Family::new(&REFUSALS),
            guardrails: Family::new(&GUARDRAILS),
            swaps: Family::new(&SWAPS),
            rate_limited: Family::new(&RATE_LIMITED),
            discovery: Family::new(&DISCOVERY),
            entries_dropped: Family::new(&ENTRIES_DROPPED),
            folded: Counter::default(),
            panics: Counter::default(),
            progress_dropped: Counter::default(),
            published: AtomicU64::new(0),
            inherited: [OnceLock::new(), OnceLock::new()],
        };
        for result in ["applied", "rejected"] {
            metrics.add(&metrics.swaps, [result], 0);
        }
        for scope in ["key", "server", "address"] {
            metrics.add(&metrics.rate_limited, [scope], 0);
        }
        metrics
    }

    /// Counts a request at its end. `outcome` as `Refusal::outcome` or `ok`.
    pub fn request(&self, endpoint: &'static str, method: &'static str, era: Option<Era>, outcome: &str) {
        self.add(&self.requests, [endpoint, method, era.map_or("none", Era::as_str), outcome], 1);
    }

    /// A call that was sent to `server` (a slug of the policy): its whole time, and the server's part of it.
    pub fn call(&self, server: &str, total: Duration, upstream: Option<Duration>) {
        self.observe(&self.calls, [server], total);
        if let Some(upstream) = upstream {
            self.observe(&self.upstream, [server], upstream);
        }
    }

    /// The gateway's own time in a request.
    pub fn overhead(&self, own: Duration) {
        self.observe(&self.overhead, [], own);
    }

    /// A guardrail rule matched.
    pub fn guardrail(&self, rule: &str, action: &'static str, stage: &'static str) {
        self.add(&self.guardrails, [rule, action, stage], 1);
    }

    /// A request was refused; `server` is empty where none was settled.
    pub fn refused(&self, code: &str, server: &str) {
        self.add(&self.refusals, [code, if server.is_empty() { OTHER } else { server }], 1);
    }

    /// A rate limit refused a request: `key`, `server` or `address`.
    pub fn rate_limited(&self, scope: &'static str) {
        self.add(&self.rate_limited, [scope], 1);
    }

    /// How many policies were published so far, whatever changed them.
    pub fn published(&self, total: u64) {
        let counted = self.published.fetch_max(total, Ordering::Relaxed);
        self.add(&self.swaps, ["applied"], total.saturating_sub(counted));
    }

    /// A policy was rejected; the one before stays.
    pub fn rejected(&self) {
        self.add(&self.swaps, ["rejected"], 1);
    }

    /// A server was asked for its tools.
    pub fn discovered(&self, server: &str, ok: bool) {
        self.add(&self.discovery, [server, if ok { "ok" } else { "failed" }], 1);
    }

    /// Entries of a server's listing that were dropped (contract §6).
    pub fn entries_dropped(&self, server: &str, count: u64) {
        self.add(&self.entries_dropped, [server], count);
    }

    /// Takes over what the process before this one had counted, as it rendered it: when it let go, and once more at its end.
    pub fn inherit(&self, rendered: &[u8]) {
        let mut text = String::from_utf8_lossy(rendered).into_owned();
        for place in &self.inherited {
            match place.set(text) {
                Ok(()) => return,
                Err(back) => text = back,
            }
        }
    }

    /// Everything in Prometheus' text format, version 0.0.4 ([`CONTENT_TYPE`]); `fill` says what the gauges are now.
    #[must_use]
    pub fn render(&self, fill: impl FnOnce(&mut Scrape)) -> Vec<u8> {
        let mut scrape = Scrape::default();
        scrape.put(&BUILD, &[env!("CARGO_PKG_VERSION"), RUSTC, FEATURES], 1.0, Fold::Most);
        fill(&mut scrape);
        self.folded.add(scrape.folded);
        let mut families = scrape.families();
        families.extend([
            self.requests.family(),
            self.refusals.family(),
            self.guardrails.family(),
            self.swaps.family(),
        ]);
        families.extend([self.rate_limited.family(), self.discovery.family(), self.entries_dropped.family()]);
        families.extend([self.calls.family(), self.upstream.family(), self.overhead.family()]);
        for (row, counter) in
            [(&PANICS, &self.panics), (&PROGRESS_DROPPED, &self.progress_dropped), (&FOLDED, &self.folded)]
        {
            families.push(family(row, vec![counter.0.metric()]));
        }
        families.retain(|family| !family.get_metric().is_empty());
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut out = Vec::with_capacity(64 * 1024);
        if let Err(error) = TextEncoder::new().encode(&families, &mut out) {
            tracing::error!(%error, "the metrics could not be written");
        }
        match self.inherited.iter().rev().find_map(OnceLock::get) {
            Some(before) => totals::add(&String::from_utf8_lossy(&out), before).into_bytes(),
            None => out,
        }
    }

    /// The table as Markdown, for the docs.
    #[must_use]
    pub fn reference() -> String {
        let mut out = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for row in TABLE {
            let kind = match row.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let help = row.help.replace('<', "\\<");
            let _ = writeln!(out, "| `{}` | {kind} | {} | {help} |", row.name, labels.join(", "));
        }
        out
    }

    fn add<const N: usize>(&self, family: &Family<AtomicU64, N>, labels: [&str; N], n: u64) {
        if let Some(counter) = family.obtain(labels, &self.folded) {
            counter.fetch_add(n, Ordering::Relaxed);
        }
    }

    fn observe<const N: usize>(&self, family: &Family<Histogram, N>, labels: [&str; N], time: Duration) {
        if let Some(histogram) = family.obtain(labels, &self.folded) {
            histogram.observe(time.as_secs_f64());
        }
    }
}

/// What this was compiled with; the build may name it exactly.
const RUSTC: &str = match option_env!("TOOLGATE_RUSTC") {
    Some(exact) => exact,
    None => concat!(">=", env!("CARGO_PKG_RUST_VERSION")),
};
/// Cargo features of this build, by name.
const FEATURES: &str = if cfg!(feature = "otlp") { "default,otlp" } else { "default" };

/// The gauges of one scrape. Values of the same labels are joined: servers of two organizations may bear one slug.
#[derive(Debug, Default)]
pub struct Scrape {
    gauges: Vec<(&'static Row, HashMap<Vec<String>, f64>)>,
    folded: u64,
}

/// What the system says of the process; none: it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// User and system time.
    pub cpu_seconds: Option<f64>,
    /// Resident memory.
    pub resident_bytes: Option<f64>,
    /// Open file descriptors.
    pub open_fds: Option<f64>,
    /// The limit on them.
    pub max_fds: Option<f64>,
    /// Threads.
    pub threads: Option<f64>,
    /// Its start, in seconds since 1970.
    pub started_unix: Option<f64>,
}

/// How two values of the same labels become one.
#[derive(Clone, Copy)]
enum Fold {
    Sum,
    Most,
}

impl Scrape {
    /// The published policy.
    pub fn snapshot(&mut self, revision: u64, age: Duration) {
        self.put(&REVISION, &[], float(revision), Fold::Most);
        self.put(&AGE, &[], age.as_secs_f64(), Fold::Most);
    }

    /// How many tools of a server are in a state (`ToolState` as the API writes it).
    pub fn tools(&mut self, server: &str, state: &'static str, count: u64) {
        self.put(&TOOLS, &[server, state], float(count), Fold::Sum);
    }

    /// Calls at a server now.
    pub fn in_flight(&mut self, server: &str, calls: u64) {
        self.put(&IN_FLIGHT, &[server], float(calls), Fold::Sum);
    }

    /// Legacy sessions held with a server.
    pub fn sessions(&mut self, server: &str, count: u64) {
        self.put(&SESSIONS, &[server], float(count), Fold::Sum);
    }

    /// Whether a server's breaker is open.
    pub fn breaker(&mut self, server: &str, open: bool) {
        self.put(&BREAKER, &[server], f64::from(u8::from(open)), Fold::Most);
    }

    /// Since a server's tools were last listed.
    pub fn discovery_age(&mut self, server: &str, age: Duration) {
        self.put(&DISCOVERY_AGE, &[server], age.as_secs_f64(), Fold::Most);
    }

    /// Requests being served, and `limits.in_flight`.
    pub fn requests(&mut self, now: u64, max: u64) {
        self.put(&REQUESTS_NOW, &[], float(now), Fold::Most);
        self.put(&REQUESTS_MAX, &[], float(max), Fold::Most);
    }

    /// Keys that are held of an issuer of tokens.
    pub fn issuer_keys(&mut self, issuer: &str, keys: usize) {
        self.put(&ISSUER_KEYS, &[issuer], float(u64::try_from(keys).unwrap_or(u64::MAX)), Fold::Most);
    }

    /// Subscriptions being served.
    pub fn subscriptions(&mut self, now: u64) {
        self.put(&SUBSCRIPTIONS, &[], float(now), Fold::Most);
    }

    /// Schema checks that were given up (contract §6).
    pub fn pattern_overruns(&mut self, checks: u64) {
        self.put(&PATTERN_OVERRUNS, &[], float(checks), Fold::Sum);
    }

    /// `AccessLog::dropped`.
    pub fn access_log_dropped(&mut self, lines: u64) {
        self.put(&LOG_DROPPED, &[], float(lines), Fold::Sum);
    }

    /// When a listener's certificate expires, in seconds since 1970; `certificate` as the conf names it.
    pub fn certificate(&mut self, certificate: &str, expires: i64) {
        let seconds = u64::try_from(expires).map_or(0.0, float);
        self.put(&CERTIFICATE, &[certificate], seconds, Fold::Most);
    }

    /// Whether the store of fleet-wide rate limits answers.
    pub fn rate_limit_store(&mut self, up: bool) {
        self.put(&RATE_STORE, &[], f64::from(u8::from(up)), Fold::Most);
    }

    /// How long PostgreSQL has not answered; none: it does.
    pub fn policy_store(&mut self, silence: Option<Duration>) {
        self.put(&POLICY_STORE, &[], f64::from(u8::from(silence.is_none())), Fold::Most);
        self.put(&POLICY_STORE_SILENCE, &[], silence.unwrap_or_default().as_secs_f64(), Fold::Most);
    }

    /// What the system says of the process.
    pub fn process(&mut self, process: &Process) {
        for (row, value) in [
            (&PROCESS_CPU, process.cpu_seconds),
            (&PROCESS_MEMORY, process.resident_bytes),
            (&PROCESS_FDS, process.open_fds),
            (&PROCESS_FDS_MAX, process.max_fds),
            (&PROCESS_THREADS, process.threads),
            (&PROCESS_START, process.started_unix),
        ] {
            if let Some(value) = value {
                self.put(row, &[], value, Fold::Most);
            }
        }
    }

    fn put(&mut self, row: &'static Row, labels: &[&str], value: f64, fold: Fold) {
        let values = match self.gauges.iter().position(|(known, _)| known.name == row.name) {
            Some(at) => self.gauges.get_mut(at),
            None => {
                self.gauges.push((row, HashMap::new()));
                self.gauges.last_mut()
            }
        };
        let Some((_, values)) = values else { return };
        let full = values.len() >= SERIES_MAX;
        let own: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let key = if full && row.open.is_some() && !values.contains_key(&own) {
            self.folded += 1;
            folded(row, labels).map(str::to_owned).collect()
        } else {
            own
        };
        match values.entry(key) {
            Entry::Vacant(slot) => {
                slot.insert(value);
            }
            Entry::Occupied(mut slot) => {
                let old = slot.get_mut();
                *old = match fold {
                    Fold::Sum => *old + value,
                    Fold::Most => old.max(value),
                };
            }
        }
    }

    fn families(self) -> Vec<MetricFamily> {
        let mut out = Vec::new();
        for (row, values) in self.gauges {
            let values: BTreeMap<_, _> = values.into_iter().collect();
            let metrics = values.iter().map(|(labels, value)| {
                let mut metric = match row.kind {
                    Kind::Counter => {
                        let mut counter = CounterValue::default();
                        counter.set_value(*value);
                        let mut metric = Metric::default();
                        metric.set_counter(counter);
                        metric
                    }
                    Kind::Gauge | Kind::Histogram(_) => {
                        let mut gauge = GaugeValue::default();
                        gauge.set_value(*value);
                        Metric::from_gauge(gauge)
                    }
                };
                metric.set_label(pairs(row, labels.iter().map(String::as_str)));
                metric
            });
            out.push(family(row, metrics.collect()));
        }
        out
    }
}

/// A value that is counted: an atomic or a histogram.
trait Counted: Sized {
    fn make(row: &Row) -> Option<Self>;
    fn metric(&self) -> Metric;
}

impl Counted for AtomicU64 {
    fn make(_: &Row) -> Option<Self> {
        Some(Self::new(0))
    }

    fn metric(&self) -> Metric {
        let mut counter = CounterValue::default();
        counter.set_value(float(self.load(Ordering::Relaxed)));
        let mut metric = Metric::default();
        metric.set_counter(counter);
        metric
    }
}

impl Counted for Histogram {
    fn make(row: &Row) -> Option<Self> {
        let Kind::Histogram(buckets) = row.kind else { return None };
        // Name and help are written from the row: the histogram only counts.
        Self::with_opts(HistogramOpts::new("own", "own").buckets(buckets.to_vec())).ok()
    }

    fn metric(&self) -> Metric {
        prometheus::core::Metric::metric(self)
    }
}

/// The series of one metric with labels: an insert-only hash table that is read without a lock.
struct Family<M, const N: usize> {
    row: &'static Row,
    slots: Box<[OnceLock<Box<Series<M, N>>>]>,
    used: AtomicUsize,
    hasher: ahash::RandomState,
}

struct Series<M, const N: usize> {
    labels: [Box<str>; N],
    counted: M,
}

/// Slots of a table: [`SERIES_MAX`] of them leave two fifths empty, and room for the `_other` of each closed set.
const SLOTS: usize = 8192;

impl<M: Counted, const N: usize> Family<M, N> {
    fn new(row: &'static Row) -> Self {
        let slots = match N {
            0 => 1,
            _ => SLOTS,
        };
        Self {
            row,
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            used: AtomicUsize::new(0),
            hasher: ahash::RandomState::new(),
        }
    }

    /// The series of these labels; past the cap that of `_other`.
    fn obtain(&self, labels: [&str; N], past: &Counter) -> Option<&M> {
        if let Some(found) = self.find(labels, SERIES_MAX) {
            return Some(found);
        }
        past.inc();
        let mut names = folded(self.row, &labels);
        self.find(labels.map(|label| names.next().unwrap_or(label)), self.slots.len())
    }

    /// Finds or makes a series while fewer than `max` are there.
    fn find(&self, labels: [&str; N], max: usize) -> Option<&M> {
        let start = usize::try_from(self.hasher.hash_one(labels) % u64::try_from(self.slots.len()).ok()?).ok()?;
        let (before, after) = self.slots.split_at_checked(start)?;
        let mut made = None;
        for slot in after.iter().chain(before) {
            let series = match slot.get() {
                Some(series) => series,
                None => {
                    let series = match made.take() {
                        Some(series) => series,
                        None => self.make(labels, max)?,
                    };
                    made = slot.set(series).err();
                    slot.get()?
                }
            };
            if series.labels.iter().zip(labels).all(|(own, asked)| **own == *asked) {
                if made.is_some() {
                    self.used.fetch_sub(1, Ordering::Relaxed);
                }
                return Some(&series.counted);
            }
        }
        None
    }

    fn make(&self, labels: [&str; N], max: usize) -> Option<Box<Series<M, N>>> {
        self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| (used < max).then(|| used + 1)).ok()?;
        Some(Box::new(Series { labels: labels.map(Box::from), counted: M::make(self.row)? }))
    }

    fn family(&self) -> MetricFamily {
        let mut all: Vec<&Series<M, N>> = self.slots.iter().filter_map(OnceLock::get).map(AsRef::as_ref).collect();
        all.sort_by(|a, b| a.labels.cmp(&b.labels));
        let metrics = all.into_iter().map(|series| {
            let mut metric = series.counted.metric();
            metric.set_label(pairs(self.row, series.labels.iter().map(AsRef::as_ref)));
            metric
        });
        family(self.row, metrics.collect())
    }
}

/// The labels with the policy's names replaced by `_other`.
fn folded<'l>(row: &Row, labels: &'l [&str]) -> impl Iterator<Item = &'l str> {
    let open = row.open;
    row.labels.iter().zip(labels).map(move |(name, value)| if open == Some(*name) { OTHER } else { *value })
}

fn pairs<'l>(row: &Row, values: impl Iterator<Item = &'l str>) -> Vec<LabelPair> {
    let pair = |(name, value): (&&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(value.to_owned());
        pair
    };
    row.labels.iter().zip(values).map(pair).collect()
}

fn family(row: &Row, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(row.name.to_owned());
    family.set_help(row.help.to_owned());
    family.set_field_type(match row.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
        Kind::Histogram(_) => MetricType::HISTOGRAM,
    });
    family.set_metric(metrics);
    family
}

/// As Prometheus counts: exact up to 2^53.
#[allow(clippy::cast_precision_loss)]
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// The samples of a rendering, by their name and labels as written.
    fn samples(metrics: &Metrics, fill: impl FnOnce(&mut Scrape)) -> BTreeMap<String, f64> {
        let text = String::from_utf8(metrics.render(fill)).unwrap();
        let mut out = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(out.insert(name.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
        }
        out
    }

    fn everything(metrics: &Metrics) -> BTreeMap<String, f64> {
        metrics.request("aggregated", "tools/call", Some(Era::Modern), "ok");
        metrics.call("github", Duration::from_millis(3), Some(Duration::from_millis(2)));
        metrics.overhead(Duration::from_micros(40));
        metrics.refused("tool_not_allowed", "github");
        metrics.guardrail("no-secrets", "redact", "output");
        metrics.rate_limited("key");
        metrics.published(1);
        metrics.discovered("github", true);
        metrics.entries_dropped("github", 2);
        samples(metrics, |scrape| {
            scrape.snapshot(7, Duration::from_secs(30));
            scrape.tools("github", "pending", 3);
            scrape.in_flight("github", 4);
            scrape.sessions("github", 1);
            scrape.breaker("github", true);
            scrape.discovery_age("github", Duration::from_secs(12));
            scrape.requests(5, 10_000);
            scrape.subscriptions(3);
            scrape.issuer_keys("https://login.example.com", 2);
            scrape.access_log_dropped(6);
            scrape.pattern_overruns(2);
            scrape.certificate("cert.pem", 1_900_000_000);
            scrape.rate_limit_store(true);
            scrape.policy_store(None);
            let some = Some(1.0);
            scrape.process(&Process {
                cpu_seconds: some,
                resident_bytes: some,
                open_fds: some,
                max_fds: some,
                threads: some,
                started_unix: some,
            });
        })
    }

    #[test]
    fn every_row_of_the_table_is_exported_with_its_labels() {
        let samples = everything(&Metrics::new());
        for row in TABLE {
            let name = if matches!(row.kind, Kind::Histogram(_)) {
                format!("{}_count", row.name)
            } else {
                row.name.to_owned()
            };
            let found =
                samples.keys().find(|key| key.split('{').next() == Some(&name)).unwrap_or_else(|| panic!("{name}"));
            let labels: Vec<&str> = match found.split_once('{') {
                Some((_, inside)) => {
                    inside.trim_end_matches('}').split("\",").map(|pair| pair.split('=').next().unwrap()).collect()
                }
                None => Vec::new(),
            };
            assert_eq!(labels, row.labels, "{name}");
        }
        let names: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
        for key in samples.keys() {
            let name = key.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
            assert!(
                names.contains(name) || base.is_some_and(|base| names.contains(base)),
                "{name} is not in the table"
            );
        }
    }

    #[test]
    fn names_and_units_are_the_conventional_ones() {
        for row in TABLE {
            assert!(row.name.starts_with("toolgate_") || row.name.starts_with("process_"), "{}", row.name);
            assert_eq!(row.kind == Kind::Counter, row.name.ends_with("_total"), "{}", row.name);
            assert!(row.help.ends_with('.') && row.open.is_none_or(|open| row.labels.contains(&open)), "{}", row.name);
            if let Kind::Histogram(buckets) = row.kind {
                assert!(row.name.ends_with("_seconds") && buckets.is_sorted_by(|a, b| a < b), "{}", row.name);
            }
        }
        assert_eq!((OWN_BUCKETS[0], OWN_BUCKETS.last(), OWN_BUCKETS.len()), (5e-6, Some(&0.01), 16));
        assert_eq!((CALL_BUCKETS[0], CALL_BUCKETS.last(), CALL_BUCKETS.len()), (5e-4, Some(&60.0), 16));
    }

    #[test]
    fn values_are_what_was_counted() {
        let metrics = Metrics::new();
        everything(&metrics);
        let samples = everything(&metrics);
        for (name, value) in [
            (
                "toolgate_requests_total{endpoint=\"aggregated\",method=\"tools/call\",era=\"modern\",outcome=\"ok\"}",
                2.0,
            ),
            ("toolgate_refusals_total{code=\"tool_not_allowed\",server=\"github\"}", 2.0),
            ("toolgate_call_duration_seconds_bucket{server=\"github\",le=\"0.0025\"}", 0.0),
            ("toolgate_call_duration_seconds_bucket{server=\"github\",le=\"0.005\"}", 2.0),
            ("toolgate_upstream_duration_seconds_bucket{server=\"github\",le=\"0.0025\"}", 2.0),
            ("toolgate_overhead_seconds_count", 2.0),
            ("toolgate_snapshot_swaps_total{result=\"applied\"}", 1.0),
            ("toolgate_snapshot_swaps_total{result=\"rejected\"}", 0.0),
            ("toolgate_rate_limit_rejections_total{scope=\"address\"}", 0.0),
            ("toolgate_discovery_entries_dropped_total{server=\"github\"}", 4.0),
            ("toolgate_snapshot_revision", 7.0),
            ("toolgate_tools{server=\"github\",state=\"pending\"}", 3.0),
            ("toolgate_access_log_dropped_total", 6.0),
            ("toolgate_panics_total", 0.0),
        ] {
            assert_eq!(samples.get(name), Some(&value), "{name}");
        }
        metrics.refused("not_found", "");
        assert!(
            samples_of(&metrics, "toolgate_refusals_total")
                .contains("toolgate_refusals_total{code=\"not_found\",server=\"_other\"}")
        );
    }

    fn samples_of(metrics: &Metrics, name: &str) -> BTreeSet<String> {
        samples(metrics, |_| {}).into_keys().filter(|key| key.split('{').next() == Some(name)).collect()
    }

    #[test]
    fn names_past_the_cap_are_folded() {
        let metrics = Metrics::new();
        for n in 0..SERIES_MAX {
            metrics.call(&format!("s{n}"), Duration::ZERO, None);
        }
        assert_eq!(
            (samples_of(&metrics, "toolgate_call_duration_seconds_count").len(), metrics.folded.get()),
            (SERIES_MAX, 0)
        );
        for n in 0..20 {
            metrics.call(&format!("late{n}"), Duration::ZERO, None);
            metrics.call("s0", Duration::ZERO, None);
        }
        let samples = samples(&metrics, |_| {});
        assert_eq!(samples.get("toolgate_call_duration_seconds_count{server=\"_other\"}"), Some(&20.0));
        assert_eq!(samples.get("toolgate_call_duration_seconds_count{server=\"s0\"}"), Some(&21.0));
        assert_eq!(samples.get("toolgate_metrics_series_dropped_total"), Some(&20.0));
        assert_eq!(samples_of(&metrics, "toolgate_call_duration_seconds_count").len(), SERIES_MAX + 1);
    }

    #[test]
    fn only_the_names_of_the_policy_are_folded() {
        let metrics = Metrics::new();
        for n in 0..=SERIES_MAX {
            metrics.guardrail(&format!("r{n}"), "block", "input");
        }
        metrics.guardrail("r0", "observe", "output");
        let series = samples_of(&metrics, "toolgate_guardrail_matches_total");
        for labels in [("_other", "block", "input"), ("_other", "observe", "output"), ("r0", "block", "input")] {
            let (rule, action, stage) = labels;
            let key =
                format!("toolgate_guardrail_matches_total{{rule=\"{rule}\",action=\"{action}\",stage=\"{stage}\"}}");
            assert!(series.contains(&key), "{key}");
        }
    }

    #[test]
    fn gauges_past_the_cap_are_folded_into_a_sum() {
        let metrics = Metrics::new();
        let samples = samples(&metrics, |scrape| {
            for n in 0..SERIES_MAX + 7 {
                scrape.in_flight(&format!("s{n}"), 2);
            }
        });
        assert_eq!(samples.get("toolgate_in_flight{server=\"_other\"}"), Some(&14.0));
        assert_eq!(samples.get("toolgate_metrics_series_dropped_total"), Some(&7.0));
    }

    #[test]
    fn servers_of_one_slug_are_joined_and_deleted_ones_leave_nothing() {
        let metrics = Metrics::new();
        let both = samples(&metrics, |scrape| {
            for (calls, age, open) in [(2, 50, false), (3, 20, true)] {
                scrape.in_flight("crm", calls);
                scrape.discovery_age("crm", Duration::from_secs(age));
                scrape.breaker("crm", open);
            }
        });
        assert_eq!(both.get("toolgate_in_flight{server=\"crm\"}"), Some(&5.0));
        assert_eq!(both.get("toolgate_discovery_age_seconds{server=\"crm\"}"), Some(&50.0));
        assert_eq!(both.get("toolgate_breaker_open{server=\"crm\"}"), Some(&1.0));
        assert!(samples_of(&metrics, "toolgate_in_flight").is_empty());
    }

    #[test]
    fn labels_that_join_to_the_same_text_stay_apart() {
        let metrics = Metrics::new();
        metrics.refused("a", "bc");
        metrics.refused("ab", "c");
        assert_eq!(samples_of(&metrics, "toolgate_refusals_total").len(), 2);
    }

    #[test]
    fn no_count_is_lost_between_threads() {
        let metrics = Metrics::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..2000 {
                        metrics.refused("c", &format!("s{}", n % 500));
                    }
                });
            }
        });
        let samples = samples(&metrics, |_| {});
        let counts: Vec<f64> = samples
            .iter()
            .filter(|(key, _)| key.starts_with("toolgate_refusals_total"))
            .map(|(_, value)| *value)
            .collect();
        assert_eq!((counts.len(), counts.iter().all(|count| *count == 16.0)), (500, true));
        assert_eq!(metrics.refusals.used.load(Ordering::Relaxed), 500);
    }

    #[test]
    fn the_reference_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, Metrics::reference()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), Metrics::reference(), "run once with UPDATE=1");
    }

    fn shipped(file: &str) -> String {
        std::fs::read_to_string(format!("{}/conf/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    #[test]
    fn dashboard_and_alerts_name_only_what_is_exported_and_the_dashboard_all_of_it() {
        let name = regex::Regex::new(r"\b(?:toolgate|process)_[a-z_]+\b").unwrap();
        let exported = |name: &str| {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            TABLE.iter().find(|row| match row.kind {
                Kind::Histogram(_) => base == Some(row.name),
                Kind::Counter | Kind::Gauge => name == row.name,
            })
        };
        let mut shown = BTreeSet::new();
        for file in ["grafana/toolgate.json", "prometheus/toolgate.rules.yml", "prometheus/toolgate.rules.test.yml"] {
            let text = shipped(file);
            for found in name.find_iter(&text).map(|found| found.as_str()) {
                let row = exported(found).unwrap_or_else(|| panic!("{file}: {found} is not exported"));
                if file.starts_with("grafana") {
                    shown.insert(row.name);
                }
            }
        }
        for row in TABLE {
            assert!(shown.contains(row.name), "{} is on no panel", row.name);
        }
        serde_json::from_str::<serde_json::Value>(&shipped("grafana/toolgate.json")).unwrap();
    }

    #[test]
    fn every_alert_has_a_test_and_says_what_to_do() {
        let (rules, tests) = (shipped("prometheus/toolgate.rules.yml"), shipped("prometheus/toolgate.rules.test.yml"));
        let alerts: Vec<&str> = rules.split("- alert: ").skip(1).collect();
        assert!(alerts.len() > 20);
        for alert in alerts {
            let name = alert.lines().next().unwrap();
            assert!(tests.contains(&format!("{{alertname=\"{name}\"")), "{name} fires in no test");
            for part in ["severity: ", "summary: \"", "runbook: \""] {
                assert_eq!(alert.matches(part).count(), 1, "{name}: {part}");
            }
        }
    }
}
