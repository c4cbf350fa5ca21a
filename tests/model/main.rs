//! A model check of what calls share without a lock: budgets, sessions, and budgets across a swap of the policy.
//!
//! The product's own files are compiled here with loom's atomics in the place of the standard ones (`model::atomic`), and loom plays
//! every order of events that the memory model allows, up to [`PREEMPTIONS`] preemptions. The slot that holds the policy is
//! `arc-swap`'s, whose atomics are not ours: here a pointer under a lock stands for it, and what is checked is what we build on it.
//!
//! `cargo test --test model`
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, unreachable_pub, dead_code, missing_docs)]

use loom::{
    sync::{Arc, Mutex, atomic::AtomicUsize},
    thread,
};

/// As the product's floor 0, but for the atomics.
mod model {
    pub mod atomic {
        pub use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
    }
    pub use toolgate::model::units;
}
#[path = "../../src/upstream/sessions/hold.rs"]
mod hold;
#[path = "../../src/budget/local.rs"]
mod local;

use hold::Hold;
use local::{Bucket, Used};
use model::{atomic::Ordering, units::Rate};

/// Preemptions of one run; loom's authors find that two or three show nearly every fault.
const PREEMPTIONS: usize = 2;
const SECOND: u64 = 1_000_000_000;
const START: u64 = 3600 * SECOND;

fn check(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(run);
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// Runs each of `parts` on a thread of its own; the last one here.
fn together(parts: Vec<Box<dyn FnOnce() + Send>>) {
    let mut parts = parts.into_iter();
    let last = parts.next_back();
    let others: Vec<_> = parts.map(thread::spawn).collect();
    last.into_iter().for_each(|part| part());
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn a_bucket_gives_exactly_its_tokens_to_callers_at_once() {
    check(|| {
        let (bucket, given) = (Arc::new(Bucket::default()), Arc::new(AtomicUsize::new(0)));
        let caller = |calls: usize| -> Box<dyn FnOnce() + Send> {
            let (bucket, given) = (Arc::clone(&bucket), Arc::clone(&given));
            Box::new(move || {
                for _ in 0..calls {
                    match bucket.charge(rate("2/min"), START) {
                        Ok(()) => drop(given.fetch_add(1, Ordering::Relaxed)),
                        Err(wait) => assert_eq!(wait, 30, "a token comes back each 30 s"),
                    }
                }
            })
        };
        together(vec![caller(1), caller(1), caller(2)]);
        assert_eq!(given.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_bucket_gives_back_no_token_to_a_caller_whose_clock_is_behind() {
    check(|| {
        let (bucket, given) = (Arc::new(Bucket::default()), Arc::new(AtomicUsize::new(0)));
        let caller = |now_ns: u64| -> Box<dyn FnOnce() + Send> {
            let (bucket, given) = (Arc::clone(&bucket), Arc::clone(&given));
            Box::new(move || {
                if bucket.charge(rate("1/s"), now_ns).is_ok() {
                    given.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        // Half a second apart, so at most one token whatever order they come in.
        together(vec![caller(START), caller(START + SECOND / 2), caller(START)]);
        assert_eq!(given.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_time_of_the_last_use_is_one_that_was_noted() {
    check(|| {
        let used = Arc::new(Used::default());
        let note = |unix: i64| -> Box<dyn FnOnce() + Send> {
            let used = Arc::clone(&used);
            Box::new(move || used.note(unix))
        };
        together(vec![note(7), note(8)]);
        assert!(matches!(used.last(), Some(7 | 8)));
    });
}

/// A policy as far as it matters here: its revision and a limit.
struct Policy {
    revision: u64,
    rate: Rate,
    bucket: Arc<Bucket>,
}

#[test]
fn a_swap_gives_no_token_twice_and_mixes_no_policies() {
    check(|| {
        let first = Policy { revision: 1, rate: rate("1/min"), bucket: Arc::new(Bucket::default()) };
        let (live, given) = (Arc::new(Mutex::new(Arc::new(first))), Arc::new(AtomicUsize::new(0)));
        let caller = || -> Box<dyn FnOnce() + Send> {
            let (live, given) = (Arc::clone(&live), Arc::clone(&given));
            Box::new(move || {
                // A call loads once, and keeps what it got to its end.
                let policy = Arc::clone(&live.lock().unwrap());
                assert_eq!(policy.rate.count, u32::try_from(policy.revision).unwrap(), "a mixed policy");
                if policy.bucket.charge(policy.rate, START).is_ok() {
                    given.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let writer: Box<dyn FnOnce() + Send> = {
            let live = Arc::clone(&live);
            Box::new(move || {
                // As `budget::Registry::obtain`: the bucket goes on under a new rate.
                let bucket = Arc::clone(&live.lock().unwrap().bucket);
                let next = Arc::new(Policy { revision: 2, rate: rate("2/min"), bucket });
                let last = std::mem::replace(&mut *live.lock().unwrap(), next);
                drop(last);
            })
        };
        together(vec![caller(), caller(), writer]);
        let given = given.load(Ordering::Relaxed);
        assert!((1..=2).contains(&given), "{given} calls of at most two");
    });
}

#[test]
fn a_session_in_use_is_never_swept_and_a_swept_one_never_used() {
    check(|| {
        let (hold, ended) = (Arc::new(Hold::default()), Arc::new(AtomicUsize::new(0)));
        let caller = || -> Box<dyn FnOnce() + Send> {
            let (hold, ended) = (Arc::clone(&hold), Arc::clone(&ended));
            Box::new(move || {
                if hold.take() {
                    assert_eq!(ended.load(Ordering::SeqCst), 0, "a session that was ended is used");
                    hold.give_back();
                }
            })
        };
        let sweeper: Box<dyn FnOnce() + Send> = {
            let (hold, ended) = (Arc::clone(&hold), Arc::clone(&ended));
            Box::new(move || {
                if hold.retire() {
                    ended.store(1, Ordering::SeqCst);
                }
            })
        };
        together(vec![caller(), caller(), sweeper]);
        assert_eq!(hold.is_good(), ended.load(Ordering::SeqCst) == 0);
    });
}

#[test]
fn a_lost_session_stays_lost_whoever_sweeps_meanwhile() {
    check(|| {
        let hold = Arc::new(Hold::default());
        assert!(hold.take());
        let loser: Box<dyn FnOnce() + Send> = {
            let hold = Arc::clone(&hold);
            Box::new(move || {
                hold.end();
                hold.give_back();
                assert!(!hold.take(), "a lost session is taken up again");
            })
        };
        let sweeper: Box<dyn FnOnce() + Send> = {
            let hold = Arc::clone(&hold);
            Box::new(move || {
                hold.retire();
            })
        };
        let caller: Box<dyn FnOnce() + Send> = {
            let hold = Arc::clone(&hold);
            Box::new(move || {
                if hold.take() {
                    hold.give_back();
                }
            })
        };
        together(vec![caller, sweeper, loser]);
        assert!(!hold.is_good() && hold.retire(), "nobody uses it, and it is gone");
    });
}

#[test]
fn many_that_lose_a_session_leave_no_use_behind() {
    check(|| {
        let hold = Arc::new(Hold::default());
        let caller = || -> Box<dyn FnOnce() + Send> {
            let hold = Arc::clone(&hold);
            Box::new(move || {
                if hold.take() {
                    hold.end();
                    hold.give_back();
                }
            })
        };
        together(vec![caller(), caller(), caller()]);
        assert!(!hold.is_good() && hold.retire());
    });
}

/// What [`Hold`] must not be: two words, of which the sweeper writes one back that somebody else wrote meanwhile.
#[derive(Default)]
struct TwoWords {
    gone: AtomicUsize,
    users: AtomicUsize,
}

impl TwoWords {
    fn retire(&self) {
        self.gone.store(1, Ordering::SeqCst);
        if self.users.load(Ordering::SeqCst) > 0 {
            self.gone.store(0, Ordering::SeqCst);
        }
    }
}

#[test]
#[should_panic(expected = "a lost session is taken up again")]
fn the_checker_sees_what_two_words_would_do() {
    check(|| {
        let hold = Arc::new(TwoWords::default());
        hold.users.store(1, Ordering::SeqCst);
        let loser: Box<dyn FnOnce() + Send> = {
            let hold = Arc::clone(&hold);
            Box::new(move || {
                hold.gone.store(1, Ordering::SeqCst);
                hold.users.fetch_sub(1, Ordering::SeqCst);
            })
        };
        let sweeper: Box<dyn FnOnce() + Send> = {
            let hold = Arc::clone(&hold);
            Box::new(move || hold.retire())
        };
        together(vec![sweeper, loser]);
        assert_eq!(hold.gone.load(Ordering::SeqCst), 1, "a lost session is taken up again");
    });
}
