//! How the gateway stops: told once from outside, seen by every connection and every call (contract §10 `timeouts.drain`).
//!
//! From then on every head that is written says `Connection: close`; a connection that was not told so and is without a request gets
//! [`LAST_CALL`] to send one more and is closed; a call has until the end of the drain, and is then refused in the gateway's own words instead of being cut.
//!
//! Knows no signal and no process: `server` tells it, waits until it is idle, and ends the process.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// How long a connection without a request is kept when the gateway stops: a client that sends at that very moment is still answered.
pub const LAST_CALL: Duration = Duration::from_secs(1);

/// Not told to stop.
const NEVER: u64 = u64::MAX;

/// Whether and until when the gateway stops, and what it still waits for.
#[derive(Debug)]
pub struct Drain {
    born: Instant,
    /// Microseconds after `born`.
    end_us: AtomicU64,
    /// When a connection that was idle at the beginning is closed.
    last_call_us: AtomicU64,
    /// When the last connection that waits for a request is closed.
    latest_us: AtomicU64,
    told: watch::Sender<()>,
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// Of a gateway that serves.
    #[must_use]
    pub fn new() -> Self {
        Self {
            born: Instant::now(),
            end_us: AtomicU64::new(NEVER),
            last_call_us: AtomicU64::new(0),
            latest_us: AtomicU64::new(0),
            told: watch::Sender::new(()),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
        }
    }

    /// Stops: what runs has `within` to end. Told again it can only become shorter.
    pub fn begin(&self, within: Duration) {
        let end = self.micros(Instant::now() + within).min(self.end_us.load(Ordering::Relaxed));
        let last_call = end.min(self.micros(Instant::now() + LAST_CALL));
        self.last_call_us.store(last_call, Ordering::Relaxed);
        self.latest_us.store(last_call, Ordering::Relaxed);
        self.end_us.store(end, Ordering::Release);
        self.told.send_replace(());
    }

    /// Whether the gateway stops.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.end_us.load(Ordering::Acquire) != NEVER
    }

    /// When what still runs is refused; none: the gateway does not stop.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        let end = self.end_us.load(Ordering::Acquire);
        (end != NEVER).then(|| self.at(end))
    }

    /// Whether nothing is left to wait for: no request runs, and no connection is open that may still send one.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        /// For the connections to be closed after the last call.
        const CLOSING: Duration = Duration::from_millis(200);
        let over = Instant::now() >= self.at(self.latest_us.load(Ordering::Relaxed)) + CLOSING;
        self.requests() == 0 && (over || self.connections.load(Ordering::Acquire) == 0)
    }

    /// Requests whose head was read and whose answer is not written out yet.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    /// A connection is open, until this is dropped.
    pub(super) fn connection(&self) -> Counted<'_> {
        Counted::new(&self.connections)
    }

    /// A request is being served, until this is dropped.
    pub(super) fn request(&self) -> Counted<'_> {
        Counted::new(&self.requests)
    }

    /// Who wants to hear of it.
    pub(super) fn listen(&self) -> Listening<'_> {
        Listening { drain: self, told: self.told.subscribe(), since: Instant::now() }
    }

    /// When a connection that waits since then is closed; none: the gateway does not stop.
    fn last_call(&self, since: Instant) -> Option<Instant> {
        let end = self.end()?;
        let begun = self.at(self.last_call_us.load(Ordering::Relaxed));
        let at = begun.max(since + LAST_CALL).min(end);
        self.latest_us.fetch_max(self.micros(at), Ordering::Relaxed);
        Some(at)
    }

    fn at(&self, micros: u64) -> Instant {
        self.born + Duration::from_micros(micros)
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.born).as_micros()).unwrap_or(NEVER - 1)
    }
}

/// One of a count; leaves it when dropped.
pub(super) struct Counted<'d>(&'d AtomicUsize);

impl<'d> Counted<'d> {
    fn new(count: &'d AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One that is told.
pub(super) struct Listening<'d> {
    drain: &'d Drain,
    told: watch::Receiver<()>,
    since: Instant,
}

impl Listening<'_> {
    /// Returns when a connection without a request is to be closed.
    pub(super) async fn last_call(&mut self) {
        loop {
            match self.drain.last_call(self.since) {
                None => {
                    let _ = self.told.changed().await;
                }
                Some(at) if Instant::now() >= at => return,
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        _ = self.told.changed() => {}
                    }
                }
            }
        }
    }

    /// Runs `work` to its end, and wakes it when the gateway is told to stop: the waits in it look at their deadlines again.
    pub(super) async fn attend<F: Future>(&mut self, work: F) -> F::Output {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                output = &mut work => return output,
                _ = self.told.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_word_only_shortens_the_first() {
        let drain = Drain::new();
        assert!(!drain.is_told() && drain.end().is_none());
        let begun = Instant::now();
        drain.begin(Duration::from_secs(30));
        assert_eq!(drain.end().unwrap() - begun, Duration::from_secs(30));
        assert_eq!(drain.last_call(begun).unwrap() - begun, LAST_CALL);
        drain.begin(Duration::from_secs(60));
        assert_eq!(drain.end().unwrap() - begun, Duration::from_secs(30));
        drain.begin(Duration::ZERO);
        assert_eq!((drain.end().unwrap(), drain.last_call(begun).unwrap()), (begun, begun));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_means_no_request_and_no_connection_that_may_send_one() {
        let drain = Drain::new();
        let (connection, request) = (drain.connection(), drain.request());
        drain.begin(Duration::from_secs(30));
        assert!(!drain.is_idle());
        drop(request);
        assert!(!drain.is_idle(), "the connection may send one more");
        tokio::time::advance(LAST_CALL + Duration::from_secs(1)).await;
        assert!(drain.is_idle());
        let request = drain.request();
        assert!(!drain.is_idle(), "a request is waited for, however late");
        drop((request, connection));
        assert!(drain.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_call_comes_after_its_time_and_at_once_when_told_twice() {
        let drain = Drain::new();
        let begun = Instant::now();
        drain.begin(Duration::from_secs(30));
        drain.listen().last_call().await;
        assert_eq!(begun.elapsed().as_millis(), LAST_CALL.as_millis());
        let drain = Drain::new();
        let begun = Instant::now();
        drain.begin(Duration::from_secs(30));
        let mut listening = drain.listen();
        tokio::join!(listening.last_call(), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            drain.begin(Duration::ZERO);
        });
        assert!(begun.elapsed() < LAST_CALL, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_woken_to_look_at_its_deadline_again() {
        let drain = Drain::new();
        let mut polls = 0;
        let work = std::future::poll_fn(|_| {
            polls += 1;
            if drain.is_told() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        let mut listening = drain.listen();
        tokio::join!(listening.attend(work), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drain.begin(Duration::ZERO);
        });
        assert!(polls >= 2);
    }
}
