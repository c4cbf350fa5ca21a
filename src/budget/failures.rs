//! Failed authentications by client address, limited so that addresses do not punish each other (contract §2 row 5, §8).
//!
//! Counts in the count-min sketches of `pingora-limits`: memory is fixed however many addresses come, and a count is never too small.
//! It is too large only where an address meets busy ones in every row of the sketch at once. With 4 rows of 131,072 counters the chance
//! of that is (1 - (1 - 1/131072)^n)^4 for n addresses that are all at their limit: about 3·10⁻⁹ for n = 1,000 and 3·10⁻⁵ for n = 10,000;
//! addresses that fail now and then add next to nothing. An attempt past the limit is not counted, so one address fills at most its own
//! share. Two sketches (this window and the last) take 8 MiB, made at the first failure; nothing is spent while nobody fails.
//!
//! A window slides: what the last one counted weighs as much as it still overlaps. `pingora_limits::rate::Rate` does the same on
//! a clock of its own; here the clock is the caller's, so that `Retry-After` is true and tests need no sleep.
//!
//! **Invariant.** Only failing attempts ask: a valid key is never limited by what others do at its address. No lock.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use pingora_limits::estimator::Estimator;

use crate::model::units::{Rate, RateUnit};

/// Rows of a sketch.
const ROWS: usize = 4;
/// Counters of a row, 8 bytes each.
const COUNTERS: usize = 131_072;

/// Counts of failed attempts by address. Survives reloads: the rate is given with each attempt.
#[derive(Default)]
pub struct Failures {
    second: OnceLock<Window>,
    minute: OnceLock<Window>,
    hour: OnceLock<Window>,
}

impl Failures {
    /// Counts a failing attempt of `client` at `now_ns` (nanoseconds of a monotonic clock). If the address has already failed
    /// `rate.count` times within the rate's unit: the whole seconds until it may fail again, rounded up, at least 1.
    ///
    /// IPv6 addresses count by their /64, IPv4 written as IPv6 as IPv4.
    pub fn note(&self, client: IpAddr, rate: Rate, now_ns: u64) -> Option<u64> {
        let window = match rate.per {
            RateUnit::Second => &self.second,
            RateUnit::Minute => &self.minute,
            RateUnit::Hour => &self.hour,
        };
        let unit_ns = u64::try_from(rate.per.length().as_nanos()).unwrap_or(u64::MAX);
        window.get_or_init(|| Window::new(unit_ns, now_ns)).note(network(client), rate.count, now_ns)
    }
}

/// Whom an address belongs to, as far as anybody can say: itself, or its IPv6 /64.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

/// Counts over a sliding window of one unit.
struct Window {
    unit_ns: u64,
    /// Which unit of the clock is the current one.
    epoch: AtomicU64,
    turning: AtomicBool,
    even: Estimator,
    odd: Estimator,
}

impl Window {
    fn new(unit_ns: u64, now_ns: u64) -> Self {
        Self {
            unit_ns,
            epoch: AtomicU64::new(now_ns / unit_ns),
            turning: AtomicBool::new(false),
            even: Estimator::new(ROWS, COUNTERS),
            odd: Estimator::new(ROWS, COUNTERS),
        }
    }

    fn note(&self, client: IpAddr, limit: u32, now_ns: u64) -> Option<u64> {
        let epoch = self.turn(now_ns / self.unit_ns);
        let (current, last) = self.sketches(epoch);
        let passed_ns = now_ns.saturating_sub(epoch.saturating_mul(self.unit_ns)).min(self.unit_ns);
        let (now, before) = (count(current, client), count(last, client));
        let room = u64::from(limit).saturating_sub(1);
        match free_after(now, before, room, (passed_ns, self.unit_ns)) {
            0 => {
                current.incr(client, 1);
                None
            }
            wait_ns => Some(wait_ns.div_ceil(1_000_000_000).max(1)),
        }
    }

    /// Moves on to the unit `now`; one caller clears, the others go on in the old unit until it is done.
    fn turn(&self, now: u64) -> u64 {
        let seen = self.epoch.load(Ordering::Acquire);
        if now <= seen || self.turning.swap(true, Ordering::Acquire) {
            return seen;
        }
        let seen = self.epoch.load(Ordering::Acquire);
        if now > seen {
            self.sketches(now).0.reset();
            if now - seen > 1 {
                self.sketches(now).1.reset();
            }
            self.epoch.store(now, Ordering::Release);
        }
        self.turning.store(false, Ordering::Release);
        self.epoch.load(Ordering::Acquire)
    }

    /// The sketch of this unit, and of the one before.
    const fn sketches(&self, epoch: u64) -> (&Estimator, &Estimator) {
        if epoch.is_multiple_of(2) { (&self.even, &self.odd) } else { (&self.odd, &self.even) }
    }
}

fn count(sketch: &Estimator, client: IpAddr) -> u64 {
    u64::try_from(sketch.get(client)).unwrap_or(0)
}

/// Nanoseconds until the sliding count has room for one more: `now` counted in this unit, `before` in the last, which still
/// weighs by what is left of this unit. 0: there is room.
fn free_after(now: u64, before: u64, room: u64, (passed_ns, unit_ns): (u64, u64)) -> u64 {
    if let Some(left) = room.checked_sub(now) {
        // In this unit: before * (1 - passed/unit) <= left.
        return fades_at(before, left, unit_ns).saturating_sub(passed_ns);
    }
    // In the next unit, when what is counted now is the last one's.
    (unit_ns - passed_ns).saturating_add(fades_at(now, room, unit_ns))
}

/// How far into a unit `count` of the unit before has faded to `left`, in nanoseconds.
fn fades_at(count: u64, left: u64, unit_ns: u64) -> u64 {
    if count <= left {
        return 0;
    }
    let over = u128::from(count - left) * u128::from(unit_ns);
    u64::try_from(over.div_ceil(u128::from(count))).unwrap_or(unit_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// As the gateway's clock: well after zero, and not at the start of a unit.
    const START: u64 = 3600 * SECOND + 17 * SECOND + 5;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    fn v4(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[test]
    fn an_address_has_its_rate_and_the_wait_is_true() {
        for text in ["1/s", "5/s", "1/min", "300/min", "7/hour"] {
            let (failures, rate) = (Failures::default(), rate(text));
            for n in 0..rate.count {
                assert_eq!(failures.note(v4(1), rate, START), None, "{text}: attempt {n}");
            }
            let wait = failures.note(v4(1), rate, START).unwrap_or_else(|| panic!("{text}: one past the limit"));
            assert!(wait >= 1 && wait <= 2 * rate.per.length().as_secs(), "{text}: {wait}");
            if wait > 1 {
                assert!(
                    failures.note(v4(1), rate, START + (wait - 1) * SECOND).is_some(),
                    "{text}: free before {wait} s"
                );
            }
            assert_eq!(failures.note(v4(1), rate, START + wait * SECOND), None, "{text}: after {wait} s");
            assert_eq!(failures.note(v4(2), rate, START), None, "{text}: another address");
        }
    }

    #[test]
    fn a_noisy_address_does_not_get_others_limited() {
        let (failures, rate) = (Failures::default(), rate("300/min"));
        let mut limited = 0;
        for n in 0..100_000 {
            // Others fail three times each while one fails 300,000 times.
            for _ in 0..3 {
                assert_eq!(failures.note(v4(0x0a00_0000 + n), rate, START), None, "address {n}");
                limited += u32::from(failures.note(v4(1), rate, START).is_some());
            }
        }
        assert_eq!(limited, 300_000 - rate.count);
    }

    #[test]
    fn many_noisy_addresses_do_not_either() {
        let (failures, rate) = (Failures::default(), rate("50/min"));
        for n in 0..1000 {
            for _ in 0..=rate.count {
                failures.note(v4(0x0b00_0000 + n), rate, START);
            }
            assert!(failures.note(v4(0x0b00_0000 + n), rate, START).is_some());
        }
        let punished = (0..100_000).filter(|n| failures.note(v4(0x0a00_0000 + n), rate, START).is_some()).count();
        assert!(punished <= 1, "{punished} of 100,000 addresses are limited for what 1,000 others did");
    }

    #[test]
    fn an_ipv6_network_is_one_and_a_mapped_address_its_ipv4() {
        for (one, other, same) in [
            ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", false),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("::ffff:192.0.2.1", "::ffff:192.0.2.2", false),
        ] {
            let (failures, rate) = (Failures::default(), rate("1/min"));
            assert_eq!(failures.note(one.parse().unwrap(), rate, START), None);
            assert_eq!(failures.note(other.parse().unwrap(), rate, START).is_some(), same, "{one} {other}");
        }
    }

    #[test]
    fn a_changed_rate_keeps_what_was_counted() {
        let failures = Failures::default();
        for _ in 0..5 {
            assert_eq!(failures.note(v4(1), rate("10/min"), START), None);
        }
        assert!(failures.note(v4(1), rate("5/min"), START).is_some());
        assert_eq!(failures.note(v4(1), rate("6/min"), START), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// The sketch of one address is the exact sliding count.
        #[test]
        fn one_address_is_counted_exactly(limit in 1u32..8, gaps in prop::collection::vec(0u64..40_000_000_000, 1..60)) {
            let (failures, rate) = (Failures::default(), Rate { count: limit, per: RateUnit::Minute });
            let (unit, mut now) = (60 * SECOND, START);
            let mut counted: Vec<u64> = Vec::new();
            for gap in gaps {
                now += gap;
                let (epoch, passed) = (now / unit, now % unit);
                let of = |epoch: u64| u128::try_from(counted.iter().filter(|at| **at / unit == epoch).count()).unwrap();
                let weighed = of(epoch) * u128::from(unit) + of(epoch - 1) * u128::from(unit - passed);
                let free = weighed <= u128::from(limit - 1) * u128::from(unit);
                let answer = failures.note(v4(1), rate, now);
                prop_assert_eq!(answer.is_none(), free, "at {}: {:?}", now, answer);
                if free {
                    counted.push(now);
                }
            }
        }
    }
}
