//! The load generator: calls at a constant rate (open loop) or as fast as they are answered (closed loop), every reply verified.
//!
//! Open loop: latency counts from the moment at which a call was due, whether or not a connection was free then, so that a
//! stall of the target shows in every call that it held up (no coordinated omission). How late the generator itself was is
//! reported beside it. A reply counts only if its status, JSON-RPC id and content are those of its own call.
//!
//! Prints a summary as JSON. Knows nothing of the gateway: it is one to any MCP server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::Parser;
use hdrhistogram::Histogram;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpStream, unix::pipe},
    sync::Notify,
    task::LocalSet,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The revisions of the protocol that are spoken.
const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-06-18";

/// One run.
#[derive(Parser)]
struct Run {
    /// `IP:port/path` of the endpoint.
    #[arg(long)]
    target: String,
    /// A file with a token a line; calls take them in turn.
    #[arg(long)]
    keys: Option<std::path::PathBuf>,
    /// The tool's name at the endpoint; `{n}` is replaced by a number below `--spread`.
    #[arg(long, default_value = "work")]
    tool: String,
    /// How many different tools are called in turn.
    #[arg(long, default_value_t = 1)]
    spread: u64,
    /// Connections; each has one call at a time.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Calls a second; without it each connection calls again as soon as it was answered.
    #[arg(long)]
    rate: Option<f64>,
    /// Seconds that count.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before them that do not.
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Bytes of a request's body.
    #[arg(long, default_value_t = 1024)]
    request: usize,
    /// Bytes of the text of an answer.
    #[arg(long, default_value_t = 512)]
    answer: usize,
    /// `Accept`.
    #[arg(long, default_value = "application/json, text/event-stream")]
    accept: String,
    /// `ok`, `refusal:CODE` for a tool result of that code, or `http:STATUS`; several of the kind with `|` between them.
    #[arg(long, default_value = "ok")]
    expect: String,
    /// Arguments that break the schema.
    #[arg(long)]
    broken: bool,
    /// Speaks the legacy era (2025-06-18): each connection begins with `initialize` and names its session, if it got one.
    #[arg(long)]
    legacy: bool,
    /// A further header of each request, `NAME: VALUE`.
    #[arg(long)]
    header: Vec<String>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    println!("{}", local.block_on(&runtime, measure(Run::parse())));
}

/// What all connections share: one thread, so cells do.
struct Shared {
    run: Run,
    keys: Vec<String>,
    due: RefCell<VecDeque<Instant>>,
    wake: Notify,
    next_id: Cell<u64>,
    counts_from: Instant,
    ends: Instant,
    tally: RefCell<Tally>,
}

/// What came of the calls.
struct Tally {
    latency: Histogram<u64>,
    service: Histogram<u64>,
    late_start: Histogram<u64>,
    seconds: Vec<(u64, Histogram<u64>)>,
    ok: u64,
    /// Verified replies of the warm-up too: what the target's processor time is divided by.
    all: u64,
    bytes: u64,
    errors: BTreeMap<String, u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).unwrap()
}

async fn measure(run: Run) -> serde_json::Value {
    let start = Instant::now() + Duration::from_millis(50);
    let counts_from = start + Duration::from_secs_f64(run.warmup);
    let keys = run
        .keys
        .as_ref()
        .map_or_else(Vec::new, |path| std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect());
    let shared = Rc::new(Shared {
        keys,
        due: RefCell::default(),
        wake: Notify::new(),
        next_id: Cell::new(1),
        counts_from,
        ends: counts_from + Duration::from_secs_f64(run.seconds),
        tally: RefCell::new(Tally {
            latency: histogram(),
            service: histogram(),
            late_start: histogram(),
            seconds: Vec::new(),
            ok: 0,
            all: 0,
            bytes: 0,
            errors: BTreeMap::new(),
        }),
        run,
    });
    let workers: Vec<_> =
        (0..shared.run.connections).map(|_| tokio::task::spawn_local(work(Rc::clone(&shared)))).collect();
    let mut offered = 0;
    if let Some(rate) = shared.run.rate {
        offered = pace(&shared, start, rate).await;
    } else {
        tokio::time::sleep_until(shared.ends.into()).await;
    }
    let grace = Instant::now() + Duration::from_secs(5);
    for worker in workers {
        if tokio::time::timeout_at(grace.into(), worker).await.is_err() {
            shared.fail("unanswered", counts_from);
        }
    }
    for due in shared.due.borrow().iter() {
        shared.fail("never sent", *due);
    }
    report(&shared, offered)
}

/// Makes calls due at a constant rate, by a timer of the kernel that is exact to microseconds.
async fn pace(shared: &Shared, start: Instant, rate: f64) -> u64 {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
    // To be waited for and read it is as good as a pipe.
    let mut timer = pipe::Receiver::from_owned_fd_unchecked(timer.unwrap()).unwrap();
    let (mut count, mut counted) = (0u64, 0u64);
    loop {
        let due = start + Duration::from_secs_f64(count as f64 / rate);
        if due >= shared.ends {
            return counted;
        }
        let wait = due.saturating_duration_since(Instant::now());
        if wait > Duration::from_micros(2) {
            let after = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::time::timerfd_settime(
                &timer,
                TimerfdTimerFlags::empty(),
                &Itimerspec { it_interval: never, it_value: after },
            )
            .unwrap();
            timer.read_exact(&mut [0u8; 8]).await.unwrap();
        }
        count += 1;
        counted += u64::from(due >= shared.counts_from);
        shared.due.borrow_mut().push_back(due);
        shared.wake.notify_one();
        if count.is_multiple_of(32) {
            tokio::task::yield_now().await;
        }
    }
}

/// A connection, and the legacy session on it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    session: Option<HeaderValue>,
}

/// One connection after the other.
async fn work(shared: Rc<Shared>) {
    let mut connection: Option<Connection> = None;
    loop {
        let due = if shared.run.rate.is_some() {
            let next = shared.due.borrow_mut().pop_front();
            match next {
                Some(due) => due,
                None if Instant::now() >= shared.ends => {
                    shared.wake.notify_one(); // the others are to see the end too
                    return;
                }
                None => {
                    let _ = tokio::time::timeout_at(shared.ends.into(), shared.wake.notified()).await;
                    continue;
                }
            }
        } else if Instant::now() >= shared.ends {
            return;
        } else {
            Instant::now()
        };
        let outcome = call(&shared, &mut connection, due).await;
        if let Err(class) = outcome {
            shared.fail(&class, due);
            connection = None;
        }
    }
}

async fn call(shared: &Shared, connection: &mut Option<Connection>, due: Instant) -> Result<(), String> {
    let id = shared.next_id.replace(shared.next_id.get() + 1);
    if connection.as_ref().is_none_or(|connection| connection.sender.is_closed()) {
        let mut sender = connect(&shared.run.target).await.map_err(|why| format!("connect: {why}"))?;
        let session = if shared.run.legacy { initialize(shared, &mut sender, id).await? } else { None };
        *connection = Some(Connection { sender, session });
    }
    let Connection { sender, session } = connection.as_mut().unwrap();
    sender.ready().await.map_err(|why| format!("not ready: {why}"))?;
    let request = request(shared, id, session.as_ref());
    let sent = Instant::now();
    let response = sender.send_request(request).await.map_err(|why| format!("send: {why}"))?;
    let status = response.status().as_u16();
    let streams = is_stream(&response);
    let body = response.into_body().collect().await.map_err(|why| format!("body: {why}"))?.to_bytes();
    let end = Instant::now();
    verify(&shared.run, id, status, streams, &body)?;
    shared.count(due, sent, end, body.len());
    Ok(())
}

fn is_stream<B>(response: &Response<B>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

async fn connect(target: &str) -> Result<SendRequest<Full<Bytes>>, String> {
    let address = target.split('/').next().unwrap_or("");
    let stream = TcpStream::connect(address).await.map_err(|why| why.kind().to_string())?;
    stream.set_nodelay(true).map_err(|why| why.to_string())?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    tokio::task::spawn_local(connection);
    Ok(sender)
}

/// The two messages that open a legacy session; its id, if the server gives one.
async fn initialize(
    shared: &Shared,
    sender: &mut SendRequest<Full<Bytes>>,
    id: u64,
) -> Result<Option<HeaderValue>, String> {
    let hello = json!({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "toolgate-load", "version": "1"}
    }});
    let mut session = None;
    for message in [hello, json!({"jsonrpc": "2.0", "method": "notifications/initialized"})] {
        let builder = head(shared, id, session.as_ref());
        sender.ready().await.map_err(|why| format!("initialize: {why}"))?;
        let request = builder.body(Full::new(message.to_string().into())).unwrap();
        let response = sender.send_request(request).await.map_err(|why| format!("initialize: {why}"))?;
        if !response.status().is_success() {
            return Err(format!("initialize: http {}", response.status().as_u16()));
        }
        session = session.or_else(|| response.headers().get("mcp-session-id").cloned());
        response.into_body().collect().await.map_err(|why| format!("initialize: {why}"))?;
    }
    Ok(session)
}

/// What every request bears.
fn head(shared: &Shared, id: u64, session: Option<&HeaderValue>) -> http::request::Builder {
    let run = &shared.run;
    let (address, path) = run.target.split_once('/').unwrap_or((&run.target, ""));
    let mut builder = Request::post(format!("/{path}"))
        .header(header::HOST, address)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, &run.accept)
        .header("mcp-protocol-version", if run.legacy { LEGACY } else { MODERN });
    if let Some(session) = session {
        builder = builder.header("mcp-session-id", session);
    }
    let turn = usize::try_from(id).unwrap_or(0) % shared.keys.len().max(1);
    if let Some(key) = shared.keys.get(turn) {
        builder = builder.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    for (name, value) in run.header.iter().filter_map(|header| header.split_once(": ")) {
        builder = builder.header(name, value);
    }
    builder
}

fn request(shared: &Shared, id: u64, session: Option<&HeaderValue>) -> Request<Full<Bytes>> {
    let run = &shared.run;
    let tool = run.tool.replace("{n}", &format!("{:05}", id % run.spread.max(1)));
    let mut builder = head(shared, id, session);
    if !run.legacy {
        builder = builder.header("mcp-method", "tools/call").header("mcp-name", &tool);
    }
    builder.body(Full::new(body(run, id, &tool).into())).unwrap()
}

/// The marker of a call: what its answer must repeat.
fn marker(id: u64) -> String {
    format!("call-{id:x}-of-{:x}", std::process::id())
}

fn body(run: &Run, id: u64, tool: &str) -> Vec<u8> {
    const PROSE: &str = "It began with the release of last week; the build before it is fine. Open the report, choose two regions, \
                         press export, and wait until the progress bar shows page three. ";
    let title = if run.broken { "7" } else { "\"The export stops at page three\"" };
    let meta = match run.legacy {
        true => String::new(),
        false => format!(
            "\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"{MODERN}\",\
             \"io.modelcontextprotocol/clientCapabilities\":{{}}}},"
        ),
    };
    let head = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{{meta}\
         \"name\":\"{tool}\",\"arguments\":{{\"marker\":\"{}\",\"answer\":{},\"title\":{title},\
         \"labels\":[\"export\",\"regression\"],\"priority\":\"high\",\"estimate\":2.5,\"body\":\"",
        marker(id),
        run.answer
    );
    let tail = "\"}}}";
    let mut out = head.into_bytes();
    let left = run.request.saturating_sub(out.len() + tail.len()).max(1);
    out.extend(PROSE.bytes().cycle().take(left));
    out.extend_from_slice(tail.as_bytes());
    out
}

#[derive(Deserialize)]
struct Reply<'r> {
    id: Option<u64>,
    #[serde(borrow)]
    result: Option<CallResult<'r>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'r> {
    #[serde(borrow)]
    content: Vec<Text<'r>>,
    #[serde(default)]
    is_error: bool,
    structured_content: Option<Structured>,
}

#[derive(Deserialize)]
struct Text<'r> {
    #[serde(borrow)]
    text: std::borrow::Cow<'r, str>,
}

#[derive(Deserialize)]
struct Structured {
    error: Option<Code>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

/// Whether the reply is the one to this call.
fn verify(run: &Run, id: u64, status: u16, streams: bool, body: &[u8]) -> Result<(), String> {
    if let Some(expected) = run.expect.strip_prefix("http:") {
        return if expected.split('|').any(|expected| expected == status.to_string()) {
            Ok(())
        } else {
            Err(format!("http {status}"))
        };
    }
    if status != 200 {
        return Err(format!("http {status}"));
    }
    let message = if streams { event_data(body).ok_or("no event")? } else { body };
    let reply: Reply<'_> = serde_json::from_slice(message).map_err(|why| format!("not a reply: {why}"))?;
    if reply.id != Some(id) {
        return Err("another id".to_owned());
    }
    let result = reply.result.ok_or("no result")?;
    let code = result.structured_content.and_then(|structured| structured.error).map(|error| error.code);
    if let Some(expected) = run.expect.strip_prefix("refusal:") {
        return match code {
            Some(code) if expected.split('|').any(|expected| expected == code) && result.is_error => Ok(()),
            other => Err(format!("refusal {other:?}")),
        };
    }
    if result.is_error {
        return Err(format!("refusal {}", code.unwrap_or_default()));
    }
    let text = result.content.first().ok_or("no content")?;
    if !text.text.starts_with(&marker(id)) || text.text.len() + 256 < run.answer {
        return Err("another content".to_owned());
    }
    Ok(())
}

fn event_data(body: &[u8]) -> Option<&[u8]> {
    let mut lines = body.split(|c| *c == b'\n');
    lines.find_map(|line| line.strip_prefix(b"data: ").filter(|data| !data.is_empty()))
}

impl Shared {
    fn count(&self, due: Instant, sent: Instant, end: Instant, bytes: usize) {
        self.tally.borrow_mut().all += 1;
        if due < self.counts_from || (self.run.rate.is_none() && end > self.ends) {
            return;
        }
        let nanos = |from: Instant, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
        };
        let mut tally = self.tally.borrow_mut();
        let latency = nanos(due, end).max(1);
        tally.latency.saturating_record(latency);
        tally.service.saturating_record(nanos(sent, end).max(1));
        tally.late_start.saturating_record(nanos(due, sent).max(1));
        let second = nanos(self.counts_from, due) / 1_000_000_000;
        if tally.seconds.last().is_none_or(|(last, _)| *last < second) {
            tally.seconds.push((second, histogram()));
        }
        tally.seconds.last_mut().unwrap().1.saturating_record(latency);
        tally.ok += 1;
        tally.bytes += bytes as u64;
    }

    fn fail(&self, class: &str, due: Instant) {
        if due >= self.counts_from {
            *self.tally.borrow_mut().errors.entry(class.to_owned()).or_default() += 1;
        }
    }
}

fn report(shared: &Shared, offered: u64) -> serde_json::Value {
    let tally = shared.tally.borrow();
    let quantiles = |h: &Histogram<u64>| {
        let at = |q: f64| h.value_at_quantile(q) as f64 / 1e3;
        json!({"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": h.max() as f64 / 1e3, "mean": h.mean() / 1e3})
    };
    let curve: Vec<_> = tally
        .latency
        .iter_quantiles(5)
        .map(|step| json!([step.quantile_iterated_to(), step.value_iterated_to() as f64 / 1e3]))
        .collect();
    let timeline: Vec<_> = tally
        .seconds
        .iter()
        .map(|(second, h)| {
            json!([second, h.len(), h.value_at_quantile(0.5) as f64 / 1e3, h.value_at_quantile(0.99) as f64 / 1e3])
        })
        .collect();
    json!({
        "offered": if shared.run.rate.is_some() { Some(offered) } else { None },
        "ok": tally.ok,
        "all": tally.all,
        "errors": tally.errors,
        "seconds": shared.run.seconds,
        "achieved_per_second": tally.ok as f64 / shared.run.seconds,
        "bytes": tally.bytes,
        "latency_us": quantiles(&tally.latency),
        "service_us": quantiles(&tally.service),
        "late_start_us": quantiles(&tally.late_start),
        "curve_us": curve,
        "timeline": timeline,
    })
}
