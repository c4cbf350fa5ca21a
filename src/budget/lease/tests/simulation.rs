//! A fleet of up to a thousand nodes in one thread, on a clock and dice of its own: what they let through together is held to the
//! bounds of `docs/fleet.md`, under skewed and bursty demand, lost messages, failovers and steps of the store's clock.
//!
//! The nodes are the real [`Lease`]s, the store is [`Store`], and the background task is played as `fleet.rs` runs it. The same seed
//! gives the same run.

use std::collections::VecDeque;

use super::*;

const MS: u64 = 1_000_000;
/// The background task's look around.
const TICK: u64 = 10 * MS;
/// The longest that it waits for an answer.
const TELL_MAX: u64 = 250 * MS;
const QUIET: u64 = SECOND;

/// SplitMix64: the same numbers everywhere, for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly in 0..1.
    fn part(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[derive(Clone, Copy, Debug)]
enum Demand {
    /// The second node gets half of what the first one gets, the third one a third, and so on.
    Skewed,
    /// For a second, all calls go to a tenth of the nodes; then to another.
    Bursty,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The store starts again, empty: its bucket is full.
    Emptied,
    /// A replica takes over that is so many milliseconds behind.
    Behind(u64),
    /// The store's clock is set forward or back by so many milliseconds.
    Clock(i64),
    /// Nothing reaches the store for so many milliseconds.
    Away(u64),
}

struct Scenario {
    name: &'static str,
    limit: &'static str,
    nodes: usize,
    seconds: u64,
    /// Calls, as a multiple of the limit.
    pressure: f64,
    demand: Demand,
    /// How many of a thousand messages are lost, on either way.
    lost: u64,
    /// At which second.
    events: &'static [(u64, Event)],
    /// What may be let through beyond the bound: times the limit, and calls a node.
    beyond: (f64, f64),
    /// How much of what the bucket alone would have let through must pass at least.
    least: f64,
}

struct Node {
    standing: Arc<Standing>,
    lease: Arc<Lease>,
    queue: UnboundedReceiver<Arc<Lease>>,
    sent: Option<Sent>,
    probe_at: u64,
    in_hand: u64,
    since: u64,
    in_use: bool,
}

/// A message of the background task, and what came back.
struct Sent {
    booking: Booking,
    /// None: it, or its answer, was lost.
    answer: Option<Answer>,
    at: u64,
}

struct World {
    rate: Rate,
    store: Store,
    /// What the store was, oldest first.
    past: VecDeque<(u64, f64, u64)>,
    /// Added to the time for the store's clock.
    skew_ms: i64,
    away_until: u64,
    lost: u64,
    dice: Dice,
    admitted: Vec<u64>,
}

impl World {
    fn clock(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.skew_ms * MS as i64)
    }

    /// Carries a message to the store and its answer back; none: either was lost.
    fn carry(&mut self, booking: Booking, now: u64) -> Option<Answer> {
        let mut is_lost = || self.dice.roll() % 1000 < self.lost;
        if now < self.away_until || is_lost() {
            return None;
        }
        let is_unheard = is_lost();
        let answer = self.store.take(booking, self.clock(now));
        (!is_unheard).then_some(answer)
    }

    fn call(&mut self, node: &mut Node, now: u64) {
        node.in_use = true;
        let passed = match node.lease.charge(self.rate, now) {
            Ok(()) => true,
            Err(Short::Wait(_)) => false,
            Err(Short::Ask) => match self.carry(node.lease.ask(self.rate), now) {
                Some(answer) => node.lease.asked(self.rate, answer, now).is_ok(),
                None => node.lease.charge_share(self.rate, now).is_ok(),
            },
        };
        self.admitted.extend(passed.then_some(now));
    }

    /// One look around of a node's background task.
    fn tend(&mut self, node: &mut Node, now: u64) {
        if let Some(sent) = node.sent.take_if(|sent| now >= sent.at) {
            match sent.answer {
                Some(answer) => {
                    node.lease.settle(sent.booking, answer, now);
                    node.standing.up.store(true, Ordering::Relaxed);
                }
                None => {
                    node.lease.lost(sent.booking);
                    node.standing.up.store(false, Ordering::Relaxed);
                    node.probe_at = now + (250 + self.dice.roll() % 500) * MS;
                }
            }
        }
        if node.sent.is_some() {
            return;
        }
        let is_up = node.standing.up.load(Ordering::Relaxed);
        let mut has_to_tell = false;
        while node.queue.try_recv().is_ok() {
            has_to_tell = true;
        }
        if node.lease.in_hand() != node.in_hand || node.lease.is_wanted() || has_to_tell {
            (node.in_hand, node.since) = (node.lease.in_hand(), now);
        }
        let is_quiet = now - node.since >= QUIET;
        let wakes = if is_up { has_to_tell || is_quiet || node.lease.is_due(now) } else { now >= node.probe_at };
        if !node.in_use || !wakes {
            return;
        }
        node.in_use = !is_quiet;
        let booking = node.lease.book(is_quiet);
        let answer = self.carry(booking, now);
        let travel = if answer.is_some() { (self.dice.roll() % 30) * MS } else { TELL_MAX };
        node.sent = Some(Sent { booking, answer, at: now + travel });
    }

    fn happen(&mut self, event: Event, now: u64) {
        match event {
            Event::Emptied => self.store = Store { tokens: f64::from(self.rate.count), at_ns: self.clock(now) },
            Event::Behind(ms) => {
                let then = self.past.iter().rev().find(|(at, ..)| at + ms * MS <= now);
                if let Some((_, tokens, at_ns)) = then {
                    self.store = Store { tokens: *tokens, at_ns: *at_ns };
                }
            }
            Event::Clock(ms) => self.skew_ms += ms,
            Event::Away(ms) => self.away_until = now + ms * MS,
        }
    }
}

fn make_nodes(count: usize) -> Vec<Node> {
    let make = |_| {
        let (sender, queue) = unbounded_channel();
        let nodes = AtomicU32::new(count as u32);
        let standing = Arc::new(Standing { nodes, up: AtomicBool::new(true), queue: sender });
        let lease = Arc::new(Lease::new(Arc::clone(&standing), "toolgate:{key:k}".to_owned()));
        Node { standing, lease, queue, sent: None, probe_at: 0, in_hand: 0, since: START, in_use: false }
    };
    (0..count).map(make).collect()
}

/// Which node the next call lands on.
fn pick(demand: Demand, nodes: usize, second: u64, dice: &mut Dice) -> usize {
    match demand {
        // 1/x, cut at the number of nodes.
        Demand::Skewed => ((nodes as f64).powf(dice.part()) - 1.0) as usize,
        Demand::Bursty => {
            let tenth = nodes.div_ceil(10);
            (second as usize * 7 * tenth + (dice.part() * tenth as f64) as usize) % nodes
        }
    }
}

/// Plays a scenario; the overshoot over the bucket's own `N + rate * time`, what passed, and what the bucket alone lets through.
fn play(scenario: &Scenario, seed: u64) -> (f64, f64, f64) {
    let rate = rate(scenario.limit);
    let per_second = f64::from(rate.count) / rate.per.length().as_secs_f64();
    let mut world = World {
        rate,
        store: Store::full(rate),
        past: VecDeque::new(),
        skew_ms: 0,
        away_until: 0,
        lost: scenario.lost,
        dice: Dice(seed),
        admitted: Vec::new(),
    };
    let mut nodes = make_nodes(scenario.nodes);
    let (mut now, mut due, mut asked) = (START, 0.0, 0.0);
    while now < START + scenario.seconds * SECOND {
        let second = (now - START) / SECOND;
        if (now - START).is_multiple_of(SECOND) {
            for (_, event) in scenario.events.iter().filter(|(at, _)| *at == second) {
                world.happen(*event, now);
            }
        }
        world.past.push_back((now, world.store.tokens, world.store.at_ns));
        due += per_second * scenario.pressure * TICK as f64 / SECOND as f64;
        while due >= 1.0 {
            (due, asked) = (due - 1.0, asked + 1.0);
            let node = pick(scenario.demand, nodes.len(), second, &mut world.dice).min(nodes.len() - 1);
            world.call(&mut nodes[node], now);
        }
        for node in &mut nodes {
            world.tend(node, now);
        }
        now += TICK;
    }
    let alone = (f64::from(rate.count) + per_second * scenario.seconds as f64).min(asked);
    (overshoot(rate, &world.admitted), world.admitted.len() as f64, alone)
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a thousand nodes, skewed",
        limit: "32000/s",
        nodes: 1000,
        seconds: 6,
        pressure: 2.0,
        demand: Demand::Skewed,
        lost: 0,
        events: &[],
        beyond: (0.0, 0.0),
        least: 0.9,
    },
    Scenario {
        name: "a thousand nodes, in bursts",
        limit: "32000/s",
        nodes: 1000,
        seconds: 6,
        pressure: 2.0,
        demand: Demand::Bursty,
        lost: 0,
        events: &[],
        beyond: (0.0, 0.0),
        least: 0.9,
    },
    Scenario {
        name: "below the limit nobody is refused",
        limit: "32000/s",
        nodes: 1000,
        seconds: 6,
        pressure: 0.5,
        demand: Demand::Skewed,
        lost: 0,
        events: &[],
        beyond: (0.0, 0.0),
        least: 0.999,
    },
    Scenario {
        name: "too small to lease",
        limit: "6000/min",
        nodes: 1000,
        seconds: 20,
        pressure: 5.0,
        demand: Demand::Bursty,
        lost: 0,
        events: &[],
        beyond: (-0.125, 0.0),
        least: 0.9,
    },
    Scenario {
        name: "one message of a hundred is lost",
        limit: "32000/s",
        nodes: 1000,
        seconds: 6,
        pressure: 2.0,
        demand: Demand::Skewed,
        lost: 10,
        events: &[],
        beyond: (1.0, 1.0),
        least: 0.7,
    },
    Scenario {
        name: "the store is away for two seconds",
        limit: "32000/s",
        nodes: 1000,
        seconds: 8,
        pressure: 2.0,
        demand: Demand::Bursty,
        lost: 0,
        events: &[(3, Event::Away(2000))],
        beyond: (1.0, 1.0),
        least: 0.5,
    },
    Scenario {
        name: "the store comes back empty",
        limit: "16000/s",
        nodes: 500,
        seconds: 6,
        pressure: 3.0,
        demand: Demand::Skewed,
        lost: 0,
        events: &[(3, Event::Emptied)],
        beyond: (1.0, 0.0),
        least: 0.9,
    },
    Scenario {
        name: "a replica takes over that is half a second behind",
        limit: "16000/min",
        nodes: 500,
        seconds: 20,
        pressure: 20.0,
        demand: Demand::Bursty,
        lost: 0,
        events: &[(1, Event::Behind(500)), (4, Event::Behind(500))],
        beyond: (1.0, 0.0),
        least: 0.9,
    },
    Scenario {
        name: "the store's clock is set forward and back",
        limit: "16000/s",
        nodes: 500,
        seconds: 8,
        pressure: 3.0,
        demand: Demand::Skewed,
        lost: 0,
        events: &[(2, Event::Clock(3000)), (5, Event::Clock(-500))],
        beyond: (1.0, 0.0),
        least: 0.8,
    },
];

#[test]
fn a_large_fleet_keeps_its_bounds() {
    let mut faults = Vec::new();
    for scenario in SCENARIOS {
        for seed in [1, 2] {
            let (over, passed, alone) = play(scenario, seed);
            let limit = f64::from(rate(scenario.limit).count);
            let (limits, each) = scenario.beyond;
            let most = limit * (0.125 + limits) + each * scenario.nodes as f64 + 1e-6;
            let share = passed / alone;
            eprintln!("{}: {:+.3} of the limit, {share:.3} of what may pass", scenario.name, over / limit);
            if over > most || share < scenario.least {
                faults.push(format!("{}: {over} over, at most {most}; {share} passed", scenario.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let small = &SCENARIOS[3];
    assert_eq!(play(small, 3), play(small, 3), "the same seed gives the same run");
}
