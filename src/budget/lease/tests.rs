//! The arithmetic of a lease as tables, and the bound on a fleet's overshoot under whatever may happen.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used,
    clippy::cast_possible_truncation
)]

use proptest::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

mod simulation;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 3600 * SECOND;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

/// `conf/fleet/bucket.lua`, in Rust.
struct Store {
    tokens: f64,
    at_ns: u64,
}

impl Store {
    fn full(rate: Rate) -> Self {
        Self { tokens: f64::from(rate.count), at_ns: START }
    }

    fn take(&mut self, booking: Booking, now_ns: u64) -> Answer {
        let capacity = f64::from(booking.rate.count);
        let unit = booking.rate.per.length().as_nanos() as f64;
        self.tokens = capacity.min(self.tokens + now_ns.saturating_sub(self.at_ns) as f64 * capacity / unit);
        self.at_ns = now_ns;
        self.tokens = capacity.min(self.tokens + booking.back as f64);
        self.tokens = self.tokens.min(0.0).max(self.tokens - booking.spent as f64);
        self.tokens = (self.tokens - booking.owed as f64).max(-capacity / 8.0);
        let taken = (booking.want as f64).min(self.tokens.floor()).max(0.0);
        self.tokens -= taken;
        let wait = if self.tokens < 1.0 { ((1.0 - self.tokens) * unit / capacity).ceil() } else { 0.0 };
        Answer { taken: taken as u64, level: self.tokens.floor() as i64, wait_ns: wait as u64 }
    }
}

/// Nodes of one limit.
struct Fleet {
    standing: Arc<Standing>,
    leases: Vec<Arc<Lease>>,
    queue: UnboundedReceiver<Arc<Lease>>,
}

fn fleet(nodes: u32) -> Fleet {
    let (sender, queue) = unbounded_channel();
    let standing = Arc::new(Standing { nodes: AtomicU32::new(nodes), up: AtomicBool::new(true), queue: sender });
    let lease = |_| Arc::new(Lease::new(Arc::clone(&standing), "toolgate:{key:k}".to_owned()));
    Fleet { leases: (0..nodes).map(lease).collect(), standing, queue }
}

#[test]
fn a_lease_is_a_sixteenth_divided_by_the_nodes() {
    for (text, nodes, hold, share) in [
        ("1/s", 1, 0, 1),
        ("31/min", 1, 0, 31),
        ("32/min", 1, 1, 32),
        ("32/min", 2, 1, 16),
        ("32/min", 3, 0, 10),
        ("47/min", 3, 0, 15),
        ("48/min", 3, 1, 16),
        ("1000/s", 0, 31, 1000),
        ("1000/s", 4, 15, 250),
        ("3/hour", 10, 0, 1),
        ("1000000000/s", 1000, 62500, 1_000_000),
        ("1000000000/s", u32::MAX, 0, 1),
    ] {
        let fleet = fleet(0);
        fleet.standing.nodes.store(nodes, Ordering::Relaxed);
        let got = (fleet.standing.hold(rate(text)), fleet.standing.share(rate(text)).count);
        assert_eq!(got, (hold, share), "{text} on {nodes} nodes");
        assert!(u64::from(nodes) * hold <= u64::from(rate(text).count) / 16, "{text} on {nodes} nodes");
    }
    let smallest = (1..100).find(|count| fleet(1).standing.hold(Rate { count: *count, per: RateUnit::Second }) > 0);
    assert_eq!(smallest, Some(LEASED_MIN));
}

#[test]
fn a_rate_is_kept_in_one_word() {
    for text in ["1/s", "7/min", "1000000000/hour"] {
        assert_eq!(unpacked(packed(rate(text))), rate(text));
    }
}

/// A line a step, `act expected`: `call ok|ask|SECONDS`, `book want back owed spent`, `quiet …`, `settle taken level wait_ms`,
/// `lost`, `asked taken level wait_ms ok|SECONDS`, `down`, `up`, `pass MS`.
fn check(limit: &str, nodes: u32, script: &str) {
    let rate = rate(limit);
    let mut fleet = fleet(nodes);
    let (lease, mut now, mut booking) = (Arc::clone(&fleet.leases[0]), START, None);
    let number = |word: &str| word.parse::<i64>().unwrap();
    let answer = |words: &[&str]| Answer {
        taken: number(words[1]) as u64,
        level: number(words[2]),
        wait_ns: number(words[3]) as u64 * 1_000_000,
    };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "call" => {
                let got = match lease.charge(rate, now) {
                    Ok(()) => "ok".to_owned(),
                    Err(Short::Ask) => "ask".to_owned(),
                    Err(Short::Wait(seconds)) => seconds.to_string(),
                };
                assert_eq!(got, words[1], "{line}\n{lease:?}");
            }
            "book" | "quiet" => {
                let told = lease.book(words[0] == "quiet");
                let got = [told.want, told.back, told.owed, told.spent].map(|n| n.to_string());
                assert_eq!(got, words[1..], "{line}\n{lease:?}");
                booking = Some(told);
            }
            "settle" => lease.settle(booking.take().unwrap(), answer(&words), now),
            "lost" => lease.lost(booking.take().unwrap()),
            "asked" => {
                let got = lease.asked(rate, answer(&words), now).map_or_else(|s| s.to_string(), |()| "ok".to_owned());
                assert_eq!(got, words[4], "{line}");
            }
            "queued" => assert_eq!(fleet.queue.try_recv().is_ok(), words[1] == "yes", "{line}"),
            "due" => assert_eq!(lease.is_due(now), words[1] == "yes", "{line}"),
            "down" => fleet.standing.up.store(false, Ordering::Relaxed),
            "up" => fleet.standing.up.store(true, Ordering::Relaxed),
            "pass" => now += number(words[1]) as u64 * 1_000_000,
            other => panic!("{other}"),
        }
    }
}

#[test]
fn the_life_of_a_lease() {
    // The first calls go on credit, which is told; what is in hand is topped up.
    check(
        "128/min",
        2,
        "call ok\nqueued yes\nbook 1 0 4 0\nsettle 1 123 0\ncall ok\nqueued no\ncall ok\nqueued yes\nbook 2 0 0 0\n
         settle 2 121 0\ncall ok\ncall ok\ncall ok\ncall ok\ncall ask\nqueued yes\nqueued no\nasked 1 120 0 ok",
    );
    // A quiet node gives back, and begins on credit again.
    check("128/min", 2, "call ok\nbook 1 0 4 0\nsettle 1 123 0\nquiet 0 4 0 0\nsettle 0 127 0\ncall ok\nbook 1 0 4 0");
    // It gives back nothing twice, and has no credit when the bucket was empty.
    check("128/min", 2, "call ok\nquiet 0 3 4 0\nlost\nquiet 0 0 4 0\nsettle 0 -3 1875\ncall 2\npass 1875\ncall ask");
    // An empty bucket refuses until there is a token, and nobody takes that ahead of the call that comes for it.
    check(
        "128/min",
        2,
        "call ok\nbook 1 0 4 0\nsettle 0 -2 1400\ncall ok\ncall ok\ncall ok\ndue no\ncall 2\ndue no\npass 1399\ncall 1\n
         pass 1\ndue no\nbook 0 0 0 0\nsettle 0 0 101\ncall 1\npass 101\ndue no\ncall ask\nasked 0 0 400 1\ncall 1",
    );
    // Where it has its next token soon, the background task is told when.
    check(
        "128/min",
        2,
        "call ok\nbook 1 0 4 0\nsettle 0 -4 0\ncall ok\ncall ok\ncall ok\ncall ask\nasked 0 0 100 1\ncall 1\ndue no\npass 100\ndue yes\nbook 4 0 0 0\ndue no",
    );
    // A bucket with tokens is leased from again.
    check(
        "128/min",
        2,
        "call ok\nbook 1 0 4 0\nsettle 0 -4 0\ncall ok\ncall ok\ncall ok\ncall ask\nasked 0 0 400 1\npass 400\ncall ask\nasked 1 3 0 ok\nbook 4 0 0 0",
    );
    // Tokens that come fast are fetched for all at once.
    check("12800/s", 2, "call ok\nquiet 0 399 400 0\nsettle 0 0 1\ncall 1\npass 1\ndue yes\ncall 1\npass 19\ncall ask");
    // Too small to lease: each call asks; nothing is in hand.
    check(
        "5/min",
        2,
        "call ask\nqueued no\nasked 1 4 0 ok\ncall ask\nasked 0 0 11500 12\ncall 12\npass 11500\ncall ask",
    );
}

#[test]
fn the_share_while_the_store_is_away() {
    // Nothing known: the node's part of the limit, and at least 1.
    check("4/min", 2, "down\ncall ok\ncall ok\ncall 30\npass 30000\ncall ok\nup\nbook 0 0 0 3");
    check("1/min", 9, "down\ncall ok\ncall 60");
    // Known: the node's part of what there was, and of what came back since.
    check("4/min", 2, "call ask\nasked 1 2 0 ok\ndown\ncall ok\ncall 30");
    check("4/min", 2, "call ask\nasked 1 2 0 ok\npass 30000\ndown\ncall ok\ncall ok\ncall 30");
    check("4/min", 2, "call ask\nasked 1 0 15000 ok\ndown\ncall 30");
    // What is in hand stays in hand; what got no answer is told again.
    check(
        "64/s",
        2,
        "call ok\nbook 1 0 2 0\nlost\ndown\ncall ok\ncall ok\nbook 2 0 2 1\nlost\nbook 2 0 2 1\nsettle 2 50 0\nup\ncall ok",
    );
    // A second loss in a row gives no second share.
    check("4/min", 2, "down\ncall ok\ncall ok\nup\nbook 0 0 0 2\nsettle 0 2 0\ndown\ncall 30");
}

/// What happens, in any order.
#[derive(Clone, Debug)]
enum Act {
    /// So many calls on a node.
    Calls(usize, u32),
    /// The background task of a node sends.
    Tell(usize),
    Quiet(usize),
    /// Its message arrives, and the answer at once; or one of them is lost.
    Arrive(usize),
    LoseMessage(usize),
    LoseAnswer(usize),
    Pass(u64),
}

fn acts(nodes: usize) -> impl Strategy<Value = Vec<Act>> {
    let node = 0..nodes;
    let act = prop_oneof![
        8 => (node.clone(), 1u32..4).prop_map(|(node, calls)| Act::Calls(node, calls)),
        2 => (node.clone(), 1u32..80).prop_map(|(node, calls)| Act::Calls(node, calls)),
        4 => node.clone().prop_map(Act::Tell),
        3 => node.clone().prop_map(Act::Quiet),
        4 => node.clone().prop_map(Act::Arrive),
        1 => node.clone().prop_map(Act::LoseMessage),
        1 => node.prop_map(Act::LoseAnswer),
        2 => (0u64..30).prop_map(Act::Pass),
        1 => (0u64..3000).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..400)
}

/// The most calls over the bucket's own `N + rate * time`, over all spans of time.
fn overshoot(rate: Rate, admitted: &[u64]) -> f64 {
    let per_ns = f64::from(rate.count) / rate.per.length().as_nanos() as f64;
    let (mut most, mut worst_begin) = (f64::MIN, f64::MIN);
    for (before, at) in admitted.iter().enumerate() {
        // Calls after `begin` less what came back since: the best begin so far serves every later end.
        let grown = |calls: usize| calls as f64 - (at - START) as f64 * per_ns;
        worst_begin = worst_begin.max(-grown(before));
        most = most.max(worst_begin + grown(before + 1) - f64::from(rate.count));
    }
    most
}

/// Plays it; the times at which calls were let through. `asks`: a call without a token waits for the store.
fn play(rate: Rate, nodes: usize, acts: &[Act]) -> Vec<u64> {
    let fleet = fleet(nodes as u32);
    let (mut store, mut now, mut admitted) = (Store::full(rate), START, Vec::new());
    let mut sent: Vec<Option<Booking>> = vec![None; nodes];
    for act in acts {
        match *act {
            Act::Calls(node, calls) => {
                let lease = &fleet.leases[node];
                for _ in 0..calls {
                    let passed = match lease.charge(rate, now) {
                        Ok(()) => true,
                        Err(Short::Wait(_)) => false,
                        Err(Short::Ask) => lease.asked(rate, store.take(lease.ask(rate), now), now).is_ok(),
                    };
                    admitted.extend(passed.then_some(now));
                }
            }
            Act::Tell(node) if sent[node].is_none() => {
                fleet.leases[node].note_rate(rate);
                sent[node] = Some(fleet.leases[node].book(false));
            }
            Act::Quiet(node) if sent[node].is_none() => {
                fleet.leases[node].note_rate(rate);
                sent[node] = Some(fleet.leases[node].book(true));
            }
            Act::Arrive(node) => {
                let Some(booking) = sent[node].take() else { continue };
                fleet.leases[node].settle(booking, store.take(booking, now), now);
            }
            Act::LoseMessage(node) | Act::LoseAnswer(node) => {
                let Some(booking) = sent[node].take() else { continue };
                if matches!(act, Act::LoseAnswer(_)) {
                    store.take(booking, now);
                }
                fleet.leases[node].lost(booking);
            }
            Act::Pass(ms) => now += ms * 1_000_000,
            Act::Tell(_) | Act::Quiet(_) => {}
        }
        for lease in &fleet.leases {
            assert!(lease.in_hand() <= fleet.standing.hold(rate), "{lease:?}");
        }
    }
    admitted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Whatever happens in whatever order, a fleet lets through at most an eighth of the limit more than one bucket would.
    #[test]
    fn the_fleet_keeps_its_bound((nodes, acts) in (1usize..5).prop_flat_map(|n| (Just(n), acts(n))), limit in 0usize..4) {
        let rate = rate(["32/s", "40/s", "128/s", "129/min"][limit]);
        let most = overshoot(rate, &play(rate, nodes, &acts));
        prop_assert!(most <= f64::from(rate.count) / 8.0 + 1e-6, "{most} over {rate:?}");
    }

    /// A limit too small to lease is exact.
    #[test]
    fn a_small_limit_is_exact((nodes, acts) in (1usize..5).prop_flat_map(|n| (Just(n), acts(n))), limit in 0usize..4) {
        let rate = rate(["1/s", "5/s", "31/s", "7/min"][limit]);
        let most = overshoot(rate, &play(rate, nodes, &acts));
        prop_assert!(most <= 1e-6, "{most} over {rate:?}");
    }

    /// A loss of the store costs at most what the nodes could not know: their shares, which are one limit together.
    #[test]
    fn a_loss_costs_at_most_the_shares(nodes in 1u32..5, calls in prop::collection::vec((0usize..5, 0u64..400), 1..300), down in 0usize..300, limit in 0usize..3) {
        let rate = rate(["32/s", "128/s", "129/min"][limit]);
        let fleet = fleet(nodes);
        let (mut store, mut now, mut admitted) = (Store::full(rate), START, Vec::new());
        for (at, (node, pass)) in calls.iter().enumerate() {
            fleet.standing.up.store(at < down, Ordering::Relaxed);
            let lease = &fleet.leases[*node % fleet.leases.len()];
            let passed = match lease.charge(rate, now) {
                Err(Short::Ask) => lease.asked(rate, store.take(lease.ask(rate), now), now).is_ok(),
                other => other.is_ok(),
            };
            admitted.extend(passed.then_some(now));
            if at < down {
                let booking = lease.book(false);
                lease.settle(booking, store.take(booking, now), now);
            }
            now += pass * 1_000_000;
        }
        let most = overshoot(rate, &admitted);
        let bound = f64::from(rate.count.max(nodes)) * 1.125 + 1e-6;
        prop_assert!(most <= bound, "{most} over {rate:?}");
    }
}

#[test]
fn calls_on_many_threads_take_each_token_once() {
    let (fleet, rate) = (fleet(1), rate("32000/min"));
    let hold = fleet.standing.hold(rate);
    let passed = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    passed.fetch_add(u64::from(fleet.leases[0].charge(rate, START).is_ok()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((passed.into_inner(), fleet.leases[0].in_hand()), (hold, 0));
    assert_eq!(fleet.leases[0].book(false).owed, hold);
}
