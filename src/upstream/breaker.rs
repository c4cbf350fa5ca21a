//! How healthy a server is: its breaker, its calls in flight, the age of its last good listing. Outside the snapshot, so
//! a reload resets nothing (contract §5).
//!
//! Atomics only: no lock, no wait. Knows no clock: time comes in as milliseconds of a clock that never goes back.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use thiserror::Error;

/// So many connect failures or timeouts in a row open the breaker.
pub const FAILURES_TO_OPEN: u64 = 5;
/// An open breaker lets one call test the server each so many milliseconds.
pub const TEST_EVERY_MS: u64 = 5_000;

/// Why a call is not attempted: `upstream_unavailable`, without "may have run" (contract §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAttempted {
    /// No good listing within `discovery.max_age`.
    #[error("the server's tools were not listed for too long")]
    ListingTooOld,
    /// `max_in_flight` calls are running.
    #[error("the server already handles as many calls as it may")]
    MaxInFlight,
    /// The breaker is open.
    #[error("the server did not answer the last calls")]
    BreakerOpen,
}

/// What the policy says of a server's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthLimits {
    /// `max_in_flight`
    pub in_flight_max: u32,
    /// `discovery.max_age`, in milliseconds.
    pub listing_age_max_ms: u64,
}

/// The health of one server.
#[derive(Debug)]
pub struct Health {
    /// Failures in a row in the low [`COUNT_BITS`], above them the time of the next test in milliseconds.
    breaker: AtomicU64,
    in_flight: AtomicU32,
    listed_ms: AtomicU64,
}

const COUNT_BITS: u32 = 3;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl Health {
    /// A server of which nothing is known yet. The age of its listing counts from now.
    #[must_use]
    pub fn new(now_ms: u64) -> Self {
        Self { breaker: AtomicU64::new(0), in_flight: AtomicU32::new(0), listed_ms: AtomicU64::new(now_ms) }
    }

    /// Lets a call in, or says why not. The breaker is asked last, so that a test is never given to a call that is refused anyway.
    ///
    /// # Errors
    /// [`NotAttempted`]
    pub fn enter(self: &Arc<Self>, limits: HealthLimits, now_ms: u64) -> Result<Permit, NotAttempted> {
        if self.listing_age_ms(now_ms) > limits.listing_age_max_ms {
            return Err(NotAttempted::ListingTooOld);
        }
        self.in_flight
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < limits.in_flight_max).then(|| count + 1))
            .map_err(|_| NotAttempted::MaxInFlight)?;
        let mut permit = Permit { health: Arc::clone(self), test: false };
        permit.test = self.pass_breaker(now_ms).ok_or(NotAttempted::BreakerOpen)?; // refused: its drop takes the count back
        Ok(permit)
    }

    /// Whether [`Self::enter`] would let a call in, without taking a place or the test of an open breaker.
    ///
    /// # Errors
    /// [`NotAttempted`]
    pub fn look(&self, limits: HealthLimits, now_ms: u64) -> Result<(), NotAttempted> {
        if self.listing_age_ms(now_ms) > limits.listing_age_max_ms {
            return Err(NotAttempted::ListingTooOld);
        }
        if self.in_flight() >= limits.in_flight_max {
            return Err(NotAttempted::MaxInFlight);
        }
        let state = self.breaker.load(Ordering::Relaxed);
        let passes = state & COUNT_MASK < FAILURES_TO_OPEN || now_ms >= state >> COUNT_BITS;
        if passes { Ok(()) } else { Err(NotAttempted::BreakerOpen) }
    }

    /// The server's tools were listed.
    pub fn listed(&self, now_ms: u64) {
        self.listed_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Milliseconds since the last good listing.
    #[must_use]
    pub fn listing_age_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.listed_ms.load(Ordering::Relaxed))
    }

    /// Calls in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether the breaker is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.breaker.load(Ordering::Relaxed) & COUNT_MASK >= FAILURES_TO_OPEN
    }

    /// `None`: open. Otherwise whether this call is the test of an open breaker.
    fn pass_breaker(&self, now_ms: u64) -> Option<bool> {
        let taken = self.breaker.try_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            let due = state & COUNT_MASK >= FAILURES_TO_OPEN && now_ms >= state >> COUNT_BITS;
            due.then(|| open_until(now_ms.saturating_add(TEST_EVERY_MS)))
        });
        match taken {
            Ok(_) => Some(true),
            Err(state) if state & COUNT_MASK < FAILURES_TO_OPEN => Some(false),
            Err(_) => None,
        }
    }

    fn fail(&self, test: bool, now_ms: u64) {
        let next_test = open_until(now_ms.saturating_add(TEST_EVERY_MS));
        let _ = self.breaker.try_update(Ordering::Relaxed, Ordering::Relaxed, |state| match state & COUNT_MASK {
            count if count + 1 < FAILURES_TO_OPEN => Some(count + 1),
            count if count < FAILURES_TO_OPEN || test => Some(next_test),
            _ => None, // a straggler of the time before it opened: the next test stands
        });
    }
}

const fn open_until(test_ms: u64) -> u64 {
    (test_ms << COUNT_BITS) | FAILURES_TO_OPEN
}

/// One call in flight; counted out when dropped. Without an outcome it says nothing of the server.
#[derive(Debug)]
pub struct Permit {
    health: Arc<Health>,
    test: bool,
}

impl Permit {
    /// The server answered anything at all: the breaker closes. The call stays counted until the permit is dropped.
    pub fn answered(&self) {
        if self.health.breaker.load(Ordering::Relaxed) != 0 {
            self.health.breaker.store(0, Ordering::Relaxed);
        }
    }

    /// The connection failed, or the time limit passed.
    pub fn failed(&self, now_ms: u64) {
        self.health.fail(self.test, now_ms);
    }

    /// The call was refused before it was sent: a test that it held is given to the next call.
    pub fn unused(self) {
        if self.test {
            let _ = self.health.breaker.try_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                (state & COUNT_MASK >= FAILURES_TO_OPEN).then(|| open_until(0))
            });
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.health.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    const LIMITS: HealthLimits = HealthLimits { in_flight_max: 1000, listing_age_max_ms: 3_600_000 };

    /// One line a step: `time act expected`; acts: enter, answered, failed, drop, unused, listed. `#n` names a permit.
    fn check(limits: HealthLimits, script: &str) {
        let health = Arc::new(Health::new(0));
        let mut permits: std::collections::HashMap<String, Permit> = std::collections::HashMap::new();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let now: u64 = words[0].parse().unwrap();
            match words[1] {
                "enter" => {
                    let got = match health.enter(limits, now) {
                        Ok(permit) => {
                            let said = if permit.test { "test" } else { "ok" };
                            permits.insert(words[3].to_owned(), permit);
                            said
                        }
                        Err(NotAttempted::BreakerOpen) => "open",
                        Err(NotAttempted::MaxInFlight) => "full",
                        Err(NotAttempted::ListingTooOld) => "old",
                    };
                    assert_eq!(got, words[2], "{line}");
                }
                "answered" => permits.remove(words[2]).unwrap().answered(),
                "failed" => permits.remove(words[2]).unwrap().failed(now),
                "drop" => drop(permits.remove(words[2]).unwrap()),
                "unused" => permits.remove(words[2]).unwrap().unused(),
                "listed" => health.listed(now),
                other => panic!("{other}"),
            }
            assert_eq!(health.in_flight() as usize, permits.len(), "{line}");
        }
    }

    fn five_failures() -> String {
        (0..5).map(|n| format!("{n} enter ok #{n}\n{n} failed #{n}\n")).collect()
    }

    #[test]
    fn five_failures_in_a_row_open_it() {
        check(
            LIMITS,
            &format!("{}4 enter open\n5003 enter open\n5004 enter test #a\n5004 enter open", five_failures()),
        );
        check(
            LIMITS,
            "0 enter ok #1\n0 failed #1\n0 enter ok #2\n0 failed #2\n0 enter ok #3\n0 failed #3\n0 enter ok #4\n0 failed #4\n0 enter ok #5",
        );
        let broken_row = "0 enter ok #1\n0 failed #1\n0 enter ok #2\n0 failed #2\n0 enter ok #3\n0 failed #3\n0 enter ok #4\n0 failed #4\n
            0 enter ok #5\n0 answered #5\n0 enter ok #6\n0 failed #6\n0 enter ok #7";
        check(LIMITS, broken_row);
    }

    #[test]
    fn one_call_tests_it_every_five_seconds() {
        let script = format!(
            "{}5004 enter test #a\n5004 enter open\n10003 enter open\n10004 enter test #b\n10005 failed #b\n15004 enter open
             15005 enter test #c\n15006 answered #c\n15006 enter ok #d\n15006 enter ok #e\n15006 failed #d\n15006 enter ok #f",
            five_failures()
        );
        check(LIMITS, &script);
    }

    #[test]
    fn a_test_that_was_not_sent_is_given_back() {
        check(
            LIMITS,
            &format!(
                "{}5004 enter test #a\n5005 unused #a\n5005 enter test #b\n5006 drop #b\n5006 enter open",
                five_failures()
            ),
        );
    }

    #[test]
    fn stragglers_neither_move_the_test_nor_keep_it_open() {
        let script = format!(
            "0 enter ok #s\n0 enter ok #t\n{}5000 failed #s\n5004 enter test #a\n6000 answered #t\n6000 enter ok #b",
            five_failures()
        );
        check(LIMITS, &script);
    }

    #[test]
    fn calls_in_flight_are_capped_and_counted() {
        let two = HealthLimits { in_flight_max: 2, ..LIMITS };
        check(
            two,
            "0 enter ok #1\n0 enter ok #2\n0 enter full\n0 drop #1\n0 enter ok #3\n0 enter full\n0 failed #2\n0 enter ok #4",
        );
        check(HealthLimits { in_flight_max: 0, ..LIMITS }, "0 enter full");
    }

    #[test]
    fn a_test_is_not_spent_on_a_full_server() {
        let one = HealthLimits { in_flight_max: 1, ..LIMITS };
        check(
            one,
            &format!("{}5004 enter test #a\n20000 enter full\n20000 drop #a\n20000 enter test #b", five_failures()),
        );
    }

    #[test]
    fn an_old_listing_stops_calls() {
        let aged = HealthLimits { listing_age_max_ms: 100, ..LIMITS };
        check(
            aged,
            "100 enter ok #1\n101 enter old\n150 listed\n250 enter ok #2\n251 enter old\n120 listed\n250 enter ok #3",
        );
    }

    #[test]
    fn concurrent_callers_get_one_test_and_keep_the_count() {
        let health = Arc::new(Health::new(0));
        for _ in 0..5 {
            health.enter(LIMITS, 0).unwrap().failed(0);
        }
        let tests: usize = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..1000).filter(|_| health.enter(LIMITS, TEST_EVERY_MS).is_ok()).count()))
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!((tests, health.in_flight()), (1, 0));
    }
}
