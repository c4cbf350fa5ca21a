//! The access log: one JSON object a line and request (contract §11), written by one thread behind a bounded queue.
//!
//! Floor 2. Knows nothing of requests: `proxy/record.rs` says what is in a [`Line`], and nothing in it is an argument, a result or a key.
//! A call hands its line over and goes on: it never waits for the disk or for whoever reads stdout. When the queue is full, or a write
//! fails, lines are dropped and counted ([`AccessLog::dropped`]).
//!
//! The first line wakes the writer, which then sleeps for [`GATHER`], takes what has come and writes all at once; so a busy gateway
//! pays no wake-up a call.
//! Lines are ASCII: everything else is `\u`-escaped, so that no line break, direction mark or terminal escape that a client
//! put into a name does anything to whoever reads the file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// The most lines that wait for the writer; the next one is dropped.
pub const QUEUE_LINES_MAX: usize = 8192;
/// How long the writer gathers lines before it writes them.
pub const GATHER: Duration = Duration::from_millis(5);
/// The writer writes what it gathered when it is so many bytes.
const BATCH_BYTES: usize = 256 * 1024;
/// Mode of a log file that is created: it tells who called what from where.
const FILE_MODE: u32 = 0o640;

/// Where the lines go: `log.access` (contract §10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file, created with mode 0640.
    File(PathBuf),
}

impl Target {
    /// `off`, `stdout`, or a path; a relative path is relative to `base`.
    #[must_use]
    pub fn parse(text: &str, base: &Path) -> Self {
        match text {
            "off" => Self::Off,
            "stdout" => Self::Stdout,
            path => Self::File(base.join(path)),
        }
    }
}

/// What is written of a request, in the order in which it is written after `ts`. What is not known is `null`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// `X-Request-Id` of the answer.
    pub request_id: String,
    /// From the attribution header or `?trace_id=`.
    pub trace_id: Option<String>,
    /// The client's address; forwarded headers count from trusted proxies only.
    pub client_ip: Option<String>,
    /// The key's id, never the key.
    pub key_id: Option<String>,
    /// The key's organization.
    pub organization: Option<String>,
    /// `aggregated`, `server`, `other`.
    pub endpoint: &'static str,
    /// `modern`, `legacy`, `none`.
    pub era: &'static str,
    /// The JSON-RPC method as in the metrics, `_other` if it is none of ours.
    pub method: &'static str,
    /// The server's slug.
    pub server: Option<String>,
    /// The tool's own name at its server, cut; none that the organization does not know.
    pub tool: Option<String>,
    /// `ok`, a refusal code, `rpc_<code>`, `http_<status>`.
    pub outcome: String,
    /// The guardrail rule that acted first, or else matched first.
    pub rule: Option<String>,
    /// Revision of the policy that decided; 0: none yet.
    pub snapshot: u64,
    /// HTTP status; 499: the client went away.
    pub status: u16,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
    /// Milliseconds from the first byte to the last.
    pub total_ms: f64,
    /// Milliseconds from the call going out to the end of its answer.
    pub upstream_ms: Option<f64>,
    /// Microseconds of the gateway's own time.
    pub own_us: f64,
    /// Attribution headers below their prefix, written as an object.
    #[serde(serialize_with = "as_object")]
    pub attribution: Vec<(String, String)>,
}

fn as_object<S: Serializer>(entries: &[(String, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(entries.iter().map(|(name, value)| (name, value)))
}

/// A handle on the log; the writer ends when the last one is dropped, after writing what waits.
#[derive(Clone)]
pub struct AccessLog {
    queue: Option<SyncSender<Message>>,
    shared: Arc<Shared>,
    /// Of so many requests that succeed one has a line.
    sample: u64,
}

#[derive(Default)]
struct Shared {
    successes: AtomicU64,
    waiting: AtomicUsize,
    dropped: AtomicU64,
    reopen: AtomicBool,
}

enum Message {
    Line(Box<Stamped>),
    Wake,
    Flush(SyncSender<()>),
}

#[derive(Serialize)]
struct Stamped {
    #[serde(serialize_with = "rfc3339")]
    ts: SystemTime,
    #[serde(flatten)]
    line: Line,
}

fn rfc3339<S: Serializer>(at: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    let at = jiff::Timestamp::try_from(*at).unwrap_or_default();
    to.collect_str(&format_args!("{at:.3}"))
}

impl AccessLog {
    /// Opens the target and starts the writer.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or the thread not be started.
    pub fn open(target: &Target) -> io::Result<Self> {
        let out = match target {
            Target::Off => return Ok(Self::off()),
            Target::Stdout => Out::Stream(Box::new(io::stdout())),
            Target::File(path) => Out::File(open_file(path)?, path.clone()),
        };
        Self::start(out)
    }

    /// A log that writes nothing.
    #[must_use]
    pub fn off() -> Self {
        Self { queue: None, shared: Arc::default(), sample: 1 }
    }

    /// Of so many requests that succeed one has a line from now on.
    #[must_use]
    pub fn sampling(mut self, sample: u32) -> Self {
        self.sample = u64::from(sample.max(1));
        self
    }

    /// Whether a request that succeeded has a line; to be asked once for each. The first one has.
    #[must_use]
    pub fn takes_success(&self) -> bool {
        self.sample == 1 || self.shared.successes.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.sample)
    }

    /// A log into anything that takes bytes; [`AccessLog::reopen`] leaves it as it is.
    ///
    /// # Errors
    /// The writer's thread cannot be started.
    pub fn into_stream(stream: Box<dyn Write + Send>) -> io::Result<Self> {
        Self::start(Out::Stream(stream))
    }

    fn start(out: Out) -> io::Result<Self> {
        let (queue, lines) = mpsc::sync_channel(QUEUE_LINES_MAX + 16);
        let shared = Arc::<Shared>::default();
        let writer = Writer {
            out,
            shared: Arc::clone(&shared),
            batch: Vec::new(),
            ends: Vec::new(),
            torn: false,
            failing: false,
        };
        thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(&lines))?;
        Ok(Self { queue: Some(queue), shared, sample: 1 })
    }

    /// Queues a line with the time of now. Never waits; the line is not even made when there is no room or no log.
    pub fn write(&self, make: impl FnOnce() -> Line) {
        let Some(queue) = &self.queue else { return };
        if self.shared.waiting.fetch_add(1, Ordering::Relaxed) >= QUEUE_LINES_MAX {
            self.lose();
            return;
        }
        let line = Message::Line(Box::new(Stamped { ts: SystemTime::now(), line: make() }));
        if queue.try_send(line).is_err() {
            self.lose();
        }
    }

    fn lose(&self) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the file opened anew by its path before the next write (SIGUSR1, after a rotation). If that fails, the old one is kept.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        if let Some(queue) = &self.queue {
            // A full queue needs no waking.
            let _ = queue.try_send(Message::Wake);
        }
    }

    /// Lines lost since the start: `toolgate_access_log_dropped_total`.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits until every line queued before is written, `within` at most; whether it was. For shutdown only: it blocks its thread.
    #[must_use]
    pub fn flush(&self, within: Duration) -> bool {
        let Some(queue) = &self.queue else { return true };
        let end = Instant::now() + within;
        let (done, written) = mpsc::sync_channel(1);
        let mut message = Message::Flush(done);
        loop {
            match queue.try_send(message) {
                Ok(()) => return written.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok(),
                Err(TrySendError::Full(back)) if Instant::now() < end => {
                    message = back;
                    thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return false,
            }
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
}

enum Out {
    File(File, PathBuf),
    Stream(Box<dyn Write + Send>),
}

/// The thread that writes.
struct Writer {
    out: Out,
    shared: Arc<Shared>,
    batch: Vec<u8>,
    /// Where each line of the batch ends.
    ends: Vec<usize>,
    /// The last write stopped inside a line.
    torn: bool,
    /// The last write failed.
    failing: bool,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Message>) {
        while let Ok(first) = lines.recv() {
            let mut flushes = Vec::new();
            self.take(first, &mut flushes);
            if flushes.is_empty() {
                // Asleep, not waiting on the queue: else each line that comes would wake this thread.
                thread::sleep(GATHER);
            }
            while flushes.is_empty() && self.batch.len() < BATCH_BYTES {
                let Ok(message) = lines.try_recv() else { break };
                self.take(message, &mut flushes);
            }
            self.write_out();
            for done in flushes {
                let _ = done.try_send(());
            }
        }
    }

    fn take(&mut self, message: Message, flushes: &mut Vec<SyncSender<()>>) {
        match message {
            Message::Wake => {}
            Message::Flush(done) => flushes.push(done),
            Message::Line(line) => {
                self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                let start = self.batch.len();
                let mut json = serde_json::Serializer::with_formatter(&mut self.batch, Ascii);
                if line.serialize(&mut json).is_err() {
                    self.batch.truncate(start);
                    self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                self.batch.push(b'\n');
                self.ends.push(self.batch.len());
            }
        }
    }

    fn write_out(&mut self) {
        if self.shared.reopen.swap(false, Ordering::Acquire)
            && let Out::File(file, path) = &mut self.out
        {
            match open_file(path) {
                Ok(anew) => *file = anew,
                Err(error) => tracing::error!(%error, path = %path.display(), "the access log could not be reopened"),
            }
        }
        if self.batch.is_empty() {
            return;
        }
        let out: &mut dyn Write = match &mut self.out {
            Out::File(file, _) => file,
            Out::Stream(stream) => stream,
        };
        if self.torn && out.write_all(b"\n").is_ok() {
            self.torn = false;
        }
        let (written, result) = write_some(out, &self.batch);
        if let Err(error) = result {
            let whole = self.ends.iter().filter(|end| **end <= written).count();
            let lost = self.ends.len().saturating_sub(whole);
            self.shared.dropped.fetch_add(u64::try_from(lost).unwrap_or(0), Ordering::Relaxed);
            self.torn |= written > 0 && !self.ends.contains(&written);
            if !self.failing {
                tracing::error!(%error, "the access log cannot be written; lines are lost and counted until it can");
            }
            self.failing = true;
        } else if std::mem::take(&mut self.failing) {
            tracing::info!("the access log is written again");
        }
        self.batch.clear();
        self.batch.shrink_to(2 * BATCH_BYTES);
        self.ends.clear();
    }
}

/// Writes everything, or says how far it came.
fn write_some(out: &mut dyn Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match out.write(rest) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => written += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, out.flush())
}

/// JSON in ASCII only.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if fragment.bytes().all(|byte| byte.is_ascii() && byte != 0x7f) {
            return writer.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            if c.is_ascii() && c != '\u{7f}' {
                write!(writer, "{c}")?;
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    #![allow(clippy::disallowed_types, clippy::type_complexity, reason = "a sink of tests, never on a call's path")]
    use std::{
        fs,
        os::unix::fs::PermissionsExt as _,
        sync::{Mutex, atomic::AtomicU32},
    };

    use serde_json::Value;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A target of tests: what was written, and what to do with the next write.
    #[derive(Clone, Default)]
    struct Sink {
        written: Arc<Mutex<Vec<u8>>>,
        script: Arc<Mutex<Vec<Step>>>,
    }

    enum Step {
        /// Waits until the sender is gone.
        Wait(Receiver<()>),
        /// Takes so many bytes.
        Short(usize),
        Fail,
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let step = self.script.lock().unwrap().pop();
            let n = match step {
                Some(Step::Fail) => return Err(io::ErrorKind::StorageFull.into()),
                Some(Step::Short(n)) => n.min(bytes.len()),
                Some(Step::Wait(gate)) => gate.recv().map_or(bytes.len(), |()| bytes.len()),
                None => bytes.len(),
            };
            self.written.lock().unwrap().extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        /// With the steps in order.
        fn with(steps: impl IntoIterator<Item = Step>) -> (AccessLog, Self) {
            let sink = Self::default();
            let mut steps: Vec<Step> = steps.into_iter().collect();
            steps.reverse();
            *sink.script.lock().unwrap() = steps;
            (AccessLog::into_stream(Box::new(sink.clone())).unwrap(), sink)
        }

        fn text(&self) -> String {
            String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
        }
    }

    fn named(tool: &str) -> Line {
        Line { tool: Some(tool.to_owned()), ..Line::default() }
    }

    fn tools(text: &str) -> Vec<String> {
        let tool = |line: &str| serde_json::from_str::<Value>(line).unwrap()["tool"].as_str().unwrap().to_owned();
        text.lines().map(tool).collect()
    }

    #[test]
    fn a_line_has_the_fields_of_the_contract_in_their_order() {
        let (log, sink) = Sink::with([]);
        log.write(|| Line {
            request_id: "req_1".into(),
            trace_id: Some("t1".into()),
            client_ip: Some("192.0.2.1".into()),
            key_id: Some("ann".into()),
            organization: Some("acme".into()),
            endpoint: "aggregated",
            era: "modern",
            method: "tools/call",
            server: Some("github".into()),
            tool: Some("github_search".into()),
            outcome: "guardrail_blocked".into(),
            rule: None,
            snapshot: 7,
            status: 200,
            bytes_in: 10,
            bytes_out: 20,
            total_ms: 3.25,
            upstream_ms: None,
            own_us: 41.5,
            attribution: vec![("tag-cost".into(), "a1".into()), ("user".into(), "ann".into())],
        });
        assert!(log.flush(LONG));
        let text = sink.text();
        let (ts, rest) = text.strip_prefix("{\"ts\":\"").unwrap().split_once('"').unwrap();
        assert_eq!(
            rest,
            concat!(
                r#","request_id":"req_1","trace_id":"t1","client_ip":"192.0.2.1","key_id":"ann","organization":"acme","#,
                r#""endpoint":"aggregated","era":"modern","method":"tools/call","server":"github","tool":"github_search","#,
                r#""outcome":"guardrail_blocked","rule":null,"snapshot":7,"status":200,"bytes_in":10,"bytes_out":20,"#,
                r#""total_ms":3.25,"upstream_ms":null,"own_us":41.5,"attribution":{"tag-cost":"a1","user":"ann"}}"#,
                "\n"
            )
        );
        let shape: String = ts.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
        let at: jiff::Timestamp = ts.parse().unwrap();
        assert!((jiff::Timestamp::now().as_second() - at.as_second()).abs() < 60);
    }

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_000_000_000, "2023-11-14T22:13:20.000Z"),
            (1_700_000_000_123_999_999, "2023-11-14T22:13:20.123Z"),
        ] {
            let ts = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
            let json = serde_json::to_value(Stamped { ts, line: Line::default() }).unwrap();
            assert_eq!(json["ts"], text);
        }
    }

    #[test]
    fn a_hostile_name_stays_on_its_line_and_in_ascii() {
        let names = [
            "a\nb",
            "a\r\nb",
            "a\u{2028}b\u{2029}",
            "\u{202e}evil",
            "\u{1b}[2J",
            "\u{7f}\u{9b}",
            "\"}\\",
            "\u{e0041}\u{1f600}é",
            "\0",
        ];
        let (log, sink) = Sink::with([]);
        for name in names {
            log.write(|| Line { attribution: vec![(name.to_owned(), name.to_owned())], ..named(name) });
        }
        assert!(log.flush(LONG));
        let text = sink.text();
        assert!(text.bytes().all(|byte| byte == b'\n' || (0x20..0x7f).contains(&byte)), "{text}");
        assert_eq!(tools(&text), names);
    }

    #[test]
    fn a_stuck_writer_costs_lines_but_no_call() {
        let (open, gate) = mpsc::sync_channel::<()>(0);
        let (log, sink) = Sink::with([Step::Wait(gate)]);
        // The first line is on its way when the queue is empty again; it is stuck in the writer then.
        log.write(|| named("first"));
        while log.shared.waiting.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        let made = AtomicU32::new(0);
        let write = |n: usize| {
            for _ in 0..n {
                log.write(|| {
                    made.fetch_add(1, Ordering::Relaxed);
                    named("x")
                });
            }
        };
        // The writer may still gather, so that more than the queue holds is taken; in the end it is stuck and the queue full.
        while log.dropped() == 0 {
            write(1);
        }
        let (made_before, dropped_before) = (made.load(Ordering::Relaxed), log.dropped());
        write(100);
        let (made_after, dropped_after) = (made.load(Ordering::Relaxed), log.dropped());
        assert_eq!(u64::from(made_after - made_before) + dropped_after - dropped_before, 100);
        assert!(!log.flush(Duration::ZERO), "the writer is stuck");
        drop(open);
        assert!(log.flush(LONG));
        let total = u64::from(made.load(Ordering::Relaxed)) + 1;
        assert_eq!(u64::try_from(sink.text().lines().count()).unwrap(), total, "what was made was written");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_the_next_ones_are_whole() {
        let (log, sink) = Sink::with([Step::Short(10), Step::Fail]);
        log.write(|| named("lost"));
        assert!(log.flush(LONG));
        assert_eq!(log.dropped(), 1);
        log.write(|| named("kept"));
        assert!(log.flush(LONG));
        let text = sink.text();
        let (torn, rest) = text.split_once('\n').unwrap();
        assert_eq!((torn.len(), tools(rest), log.dropped()), (10, vec!["kept".to_owned()], 1));
    }

    #[test]
    fn a_file_is_appended_to_and_opened_anew_on_request() {
        let folder = std::env::temp_dir().join(format!("toolgate-access-log-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, rotated) = (folder.join("access.log"), folder.join("access.log.1"));
        let log = AccessLog::open(&Target::parse("access.log", &folder)).unwrap();
        let say = |tool: &str| {
            log.write(|| named(tool));
            assert!(log.flush(LONG));
        };
        say("one");
        fs::rename(&path, &rotated).unwrap();
        say("two");
        log.reopen();
        say("three");
        let again = AccessLog::open(&Target::File(path.clone())).unwrap();
        again.write(|| named("four"));
        assert!(again.flush(LONG));
        let of = |path: &Path| tools(&fs::read_to_string(path).unwrap());
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let (old, new) = (of(&rotated), of(&path));
        // A folder that is gone: the open file is kept.
        fs::remove_dir_all(&folder).unwrap();
        log.reopen();
        say("five");
        assert_eq!((old, new), (vec!["one".into(), "two".into()], vec!["three".into(), "four".into()]));
        assert_eq!((mode & !FILE_MODE, log.dropped()), (0, 0));
        assert!(AccessLog::open(&Target::File(folder.join("none/access.log"))).is_err());
    }

    #[test]
    fn a_log_that_is_off_makes_no_lines() {
        let log = AccessLog::open(&Target::parse("off", Path::new("/"))).unwrap();
        log.write(|| panic!("made"));
        assert!(log.flush(Duration::ZERO) && log.dropped() == 0);
        assert_eq!(Target::parse("stdout", Path::new("/etc")), Target::Stdout);
        assert_eq!(Target::parse("/var/log/a", Path::new("/etc")), Target::File("/var/log/a".into()));
    }
}
