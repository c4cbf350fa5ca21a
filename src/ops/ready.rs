//! Readiness: a set of facts, each reported by the room that knows it; nothing here asks.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// How long the first round of discovery may hold readiness back.
pub const FIRST_DISCOVERY_MAX: Duration = Duration::from_secs(10);

/// The facts of `/readyz`; each is reported once, where it comes true.
#[derive(Debug)]
pub struct Ready {
    started: Instant,
    published: AtomicBool,
    bound: AtomicBool,
    asked: AtomicBool,
    stopping: AtomicBool,
    withdrawn: AtomicBool,
    /// Seconds for which the policy store has not answered; [`ANSWERS`]: it does.
    store_silent_s: AtomicU64,
}

const ANSWERS: u64 = u64::MAX;

impl Ready {
    /// Not ready; `started` is when the process was, and [`FIRST_DISCOVERY_MAX`] counts from it.
    #[must_use]
    pub fn new(started: Instant) -> Self {
        let no = || AtomicBool::new(false);
        let store_silent_s = AtomicU64::new(ANSWERS);
        Self { started, published: no(), bound: no(), asked: no(), stopping: no(), withdrawn: no(), store_silent_s }
    }

    /// A snapshot is live.
    pub fn published(&self) {
        self.published.store(true, Ordering::Release);
    }

    /// The gateway's listeners are bound.
    pub fn bound(&self) {
        self.bound.store(true, Ordering::Release);
    }

    /// Each enabled server was asked for its tools once, answered or not; also when there is no server.
    pub fn asked(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// For how long the policy store has not answered (none: it does), and whether the policy was withdrawn for it.
    pub fn store(&self, silence: Option<Duration>, withdrawn: bool) {
        self.store_silent_s.store(silence.map_or(ANSWERS, |silence| silence.as_secs()), Ordering::Release);
        self.withdrawn.store(withdrawn, Ordering::Release);
    }

    /// What a person should know though traffic should come; empty: nothing.
    #[must_use]
    pub fn warning(&self) -> String {
        match self.store_silent_s.load(Ordering::Acquire) {
            ANSWERS => String::new(),
            seconds => {
                format!("warning: the policy store has not answered for {seconds} s; the last good policy is served\n")
            }
        }
    }

    /// SIGTERM came: not ready again.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether it came.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Why no traffic should come; empty: it should.
    #[must_use]
    pub fn lacks(&self) -> Vec<&'static str> {
        let is = |fact: &AtomicBool| fact.load(Ordering::Acquire);
        if is(&self.stopping) {
            return vec!["the gateway is stopping"];
        }
        let asked = is(&self.asked) || self.started.elapsed() >= FIRST_DISCOVERY_MAX;
        [
            (is(&self.published), "no policy is published"),
            (!is(&self.withdrawn), "the policy store was away for longer than store.max_age"),
            (is(&self.bound), "the listeners are not bound"),
            (asked, "not every server was asked for its tools yet"),
        ]
        .into_iter()
        .filter_map(|(there, why)| (!there).then_some(why))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_first_discovery_holds_readiness_back_for_ten_seconds_at_most() {
        for (age, ready) in [(0, false), (9, false), (11, true)] {
            let facts = Ready::new(Instant::now().checked_sub(Duration::from_secs(age)).unwrap());
            facts.published();
            facts.bound();
            assert_eq!(facts.lacks().is_empty(), ready, "after {age} s");
        }
    }
}
