//! What a call and its held session tell each other, across Pingora's loop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

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
}

impl Signals {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            deadline_us: AtomicU64::new(u64::MAX),
            filtered: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            answer_at: AtomicU64::new(0),
            spoiled: AtomicBool::new(false),
        })
    }

    /// Sets the end of the call's wall clock.
    pub(super) fn set_deadline(&self, at: Instant) {
        let micros = at.saturating_duration_since(self.start).as_micros();
        self.deadline_us.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
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

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.deadline_us.load(Ordering::Relaxed) {
            u64::MAX => None,
            micros => Some(self.start + Duration::from_micros(micros)),
        }
    }
}
