//! What a call and its held session tell each other, across Pingora's loop.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use super::drain::Drain;

/// What the call and its held session tell each other. Atomics: neither side waits for the other.
#[derive(Debug)]
pub(super) struct Signals {
    start: Instant,
    deadline_us: AtomicU64,
    /// Pieces of the server's body that went through the filter.
    filtered: AtomicU64,
    /// Pieces that reached the held session.
    taken: AtomicU64,
    /// Which of them holds the end of the answer; none yet: 0.
    answer_at: AtomicU64,
    /// The response did not end as HTTP wants it, or must not be followed by another: close the connection.
    spoiled: AtomicBool,
    drain: Arc<Drain>,
}

/// A time limit passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed;

/// A wait's timer, made when it is first needed.
pub(super) type Timer = Option<Pin<Box<Sleep>>>;

impl Signals {
    pub(super) fn new(drain: Arc<Drain>) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            deadline_us: AtomicU64::new(u64::MAX),
            filtered: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            answer_at: AtomicU64::new(0),
            spoiled: AtomicBool::new(false),
            drain,
        })
    }

    /// Sets the end of the call's wall clock.
    pub(super) fn set_deadline(&self, at: Instant) {
        let micros = at.saturating_duration_since(self.start).as_micros();
        self.deadline_us.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether a call was admitted: its wall clock runs.
    pub(super) fn is_call(&self) -> bool {
        self.deadline_us.load(Ordering::Relaxed) != u64::MAX
    }

    /// Counts a piece of the server's body. Pingora filters several pieces before it writes the first.
    pub(super) fn note_piece(&self) {
        self.filtered.fetch_add(1, Ordering::Relaxed);
    }

    /// The piece that was counted last holds the end of the answer, whether or not the server ends there.
    pub(super) fn set_answered(&self) {
        self.answer_at.store(self.filtered.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The connection must not be used for another request.
    pub(super) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Relaxed)
    }

    /// Counts a piece that reached the held session; whether it holds the end of the answer.
    pub(super) fn take_piece(&self) -> bool {
        let piece = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.answer_at.load(Ordering::Relaxed) == piece
    }

    /// The call is sent once more: what came of the first time does not count.
    pub(super) fn begin_again(&self) {
        self.filtered.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
    }

    /// Whether the gateway stops, so that this connection carries no other request.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_told()
    }

    /// Whether the end of the drain passed.
    pub(super) fn is_drained(&self) -> bool {
        self.drain.end().is_some_and(|end| Instant::now() >= end)
    }

    /// When the call ends whatever happens: its own limit, or the end of the drain. It may come nearer while a wait is on.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let own = match self.deadline_us.load(Ordering::Relaxed) {
            u64::MAX => None,
            micros => Some(self.start + Duration::from_micros(micros)),
        };
        self.or_drained(own)
    }

    /// What is left until `deadline`, or until the end of the drain.
    pub(super) fn left(&self, deadline: Instant) -> Duration {
        self.or_drained(Some(deadline)).unwrap_or(deadline).saturating_duration_since(Instant::now())
    }

    /// Runs `work` until `deadline`, or until the end of the drain.
    pub(super) async fn within<F: Future>(&self, deadline: Instant, work: F) -> Result<F::Output, Passed> {
        let mut timer = None;
        tokio::select! {
            biased;
            output = work => Ok(output),
            () = wait(&mut timer, || self.or_drained(Some(deadline))) => Err(Passed),
        }
    }

    /// Waits for the call's end. The timer is kept by the caller, so that a wait that is dropped costs nothing anew.
    pub(super) async fn over(&self, timer: &mut Timer) {
        wait(timer, || self.deadline()).await;
    }

    fn or_drained(&self, own: Option<Instant>) -> Option<Instant> {
        match (own, self.drain.end()) {
            (Some(own), Some(end)) => Some(own.min(end)),
            (own, end) => own.or(end),
        }
    }
}

/// Waits until the moment that `at` names, asked anew at each wake-up; as long as it names none, for ever.
pub(super) async fn wait(timer: &mut Timer, at: impl Fn() -> Option<Instant>) {
    poll_fn(|context| {
        let Some(at) = at() else { return Poll::Pending };
        let sleep = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(context)
    })
    .await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_began_before_the_drain_ends_with_it() {
        let drain = Arc::new(Drain::new());
        let signals = Signals::new(Arc::clone(&drain));
        let begun = Instant::now();
        signals.set_deadline(begun + Duration::from_secs(30));
        let mut listening = drain.listen();
        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drain.begin(Duration::from_secs(2));
        };
        let mut timer = None;
        tokio::join!(listening.attend(signals.over(&mut timer)), stop);
        assert_eq!(begun.elapsed().as_secs(), 3);
        assert!(signals.is_draining() && signals.is_drained());
        assert_eq!(signals.within(begun + Duration::from_secs(30), std::future::pending::<()>()).await, Err(Passed));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_drain_the_own_limit_holds() {
        let signals = Signals::new(Arc::new(Drain::new()));
        assert_eq!(signals.deadline(), None);
        let deadline = Instant::now() + Duration::from_secs(5);
        signals.set_deadline(deadline);
        let mut timer = None;
        signals.over(&mut timer).await;
        assert_eq!((Instant::now(), signals.left(deadline)), (deadline, Duration::ZERO));
        assert!(!signals.is_draining() && !signals.is_drained());
    }
}
