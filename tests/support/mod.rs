//! The whole-gateway harness: three builders ([`gateway::Gateway`], [`upstream::Upstream`], [`client::Client`]) and what they stand on.
//!
//! It knows the gateway only from outside: conf and policy files, signals, sockets, `/readyz` and `/metrics`. It must not know `src/`.
//! Nothing sleeps to synchronise: whoever waits, waits for an event or polls with a deadline, and every wait has one.

use std::{
    collections::HashSet,
    future::Future,
    net::TcpListener,
    sync::{LazyLock, Mutex},
    time::{Duration, Instant},
};

use futures::FutureExt;

pub mod answer;
pub mod answering;
pub mod client;
pub mod exchange;
pub mod gateway;
pub mod h2wire;
pub mod http;
pub mod judge;
pub mod metrics;
pub mod mock;
pub mod pin;
pub mod policy;
pub mod postgres;
pub mod redis;
pub mod script;
pub mod stream;
pub mod tls;
pub mod toggle;
pub mod upstream;

/// The longest that one test may take; a hang becomes a failure with a name.
const TEST_LIMIT: Duration = Duration::from_secs(180);
/// The longest that a test waits for one thing to happen.
pub const WAIT_LIMIT: Duration = Duration::from_secs(20);

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

/// Runs a test on the one runtime that all tests share, so that a fixture can serve several tests; panics when it hangs.
pub fn run<F: Future>(test: F) -> F::Output {
    RUNTIME.block_on(async {
        match tokio::time::timeout(TEST_LIMIT, test).await {
            Ok(output) => output,
            Err(_) => panic!("the test did not end within {TEST_LIMIT:?}"),
        }
    })
}

/// Waits for `future`, at most [`WAIT_LIMIT`]; `what` names it in the panic.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(WAIT_LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not happen within {WAIT_LIMIT:?}"),
    }
}

/// Asks again and again until `probe` has a value, at most [`WAIT_LIMIT`]: for what can only be seen from outside, such as a metric.
pub async fn eventually<T, F: AsyncFnMut() -> Option<T>>(what: &str, mut probe: F) -> T {
    let end = Instant::now() + WAIT_LIMIT;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < end, "{what} did not happen within {WAIT_LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A port of 127.0.0.1 that was free just now and that no other test of this process was given.
pub fn free_port() -> u16 {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    loop {
        let socket = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = socket.local_addr().expect("its address").port();
        if GIVEN.lock().expect("no test panics here").insert(port) {
            return port;
        }
    }
}

/// Notes how many rows of this test's table were played and how many were wrong: a line of the table that closes `make test`.
/// Writes `target/counts/TEST.rows.txt`; a test's thread bears its name.
pub fn count(played: usize, wrong: usize) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main").replace("::", ".");
    let target = std::path::Path::new(env!("CARGO_BIN_EXE_toolgate")).ancestors().nth(2).expect("a target folder");
    std::fs::create_dir_all(target.join("counts")).expect("a folder");
    std::fs::write(target.join(format!("counts/{test}.rows.txt")), format!("{played}\t{wrong}\n")).expect("a file");
}

/// Reads a data file of `tests/cases`.
pub fn case_file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fails with every fault of a table at once, not with the first, and notes how many rows were played.
#[derive(Default)]
pub struct Faults {
    faults: Vec<String>,
    rows: usize,
}

impl Faults {
    /// Runs one row; a panic in it is a fault of that row.
    pub async fn row<F: Future<Output = ()>>(&mut self, name: impl Into<String>, row: F) {
        self.rows += 1;
        if let Err(panic) = std::panic::AssertUnwindSafe(row).catch_unwind().await {
            self.faults.push(format!("{}: {}", name.into(), panic_text(&*panic)));
        }
    }

    /// How many rows were played so far.
    pub fn played(&self) -> usize {
        self.rows
    }

    /// How many rows failed so far.
    pub fn count(&self) -> usize {
        self.faults.len()
    }

    /// Panics when a row failed, or when fewer than `rows` were played.
    pub fn assert_none(self, rows: usize) {
        count(self.rows, self.faults.len());
        assert!(rows > 0 && self.rows >= rows, "the table has {} rows of {rows}", self.rows);
        assert!(
            self.faults.is_empty(),
            "{} of {} rows failed:\n{}",
            self.faults.len(),
            self.rows,
            self.faults.join("\n")
        );
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panicked".to_owned())
}
