//! Token buckets of one node: exact, lock-free, kept across reloads (contract §8).

use crate::model::{
    atomic::{AtomicI64, AtomicU64, Ordering},
    units::Rate,
};

/// A token bucket of capacity N, refilled evenly over the rate's unit.
///
/// Kept as the theoretical arrival time of a generic cell rate algorithm: one `u64` of nanoseconds, which is exactly a
/// bucket that starts full. The rate is given with each charge, so a reload may change it and the spent tokens stay spent.
#[derive(Debug, Default)]
pub struct Bucket {
    arrival_ns: AtomicU64,
}

impl Bucket {
    /// Takes one token at `now_ns` (nanoseconds of a monotonic clock that started well after zero).
    ///
    /// # Errors
    /// With no token left: the whole seconds to the next one, rounded up, at least 1 (`Retry-After`, contract §8).
    pub fn charge(&self, rate: Rate, now_ns: u64) -> Result<(), u64> {
        let unit_ns = nanos(rate);
        let count = u64::from(rate.count.max(1));
        let mut seen = self.arrival_ns.load(Ordering::Relaxed);
        loop {
            // Each token costs unit/N; the remainder is spread so that N tokens cost the unit exactly.
            let cost = unit_ns.div_ceil(count);
            let start = seen.max(now_ns);
            let after = start.saturating_add(cost);
            let allowed = now_ns.saturating_add(cost.saturating_mul(count));
            if after > allowed {
                return Err((after - allowed).div_ceil(1_000_000_000).max(1));
            }
            match self.arrival_ns.compare_exchange_weak(seen, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => seen = now,
            }
        }
    }

    /// Leaves at most `tokens` in the bucket at `now_ns`; takes them as [`Self::charge`] does.
    pub(super) fn lower(&self, rate: Rate, tokens: u64, now_ns: u64) {
        let count = u64::from(rate.count.max(1));
        let taken = count.saturating_sub(tokens);
        let arrival_ns = now_ns.saturating_add(nanos(rate).div_ceil(count).saturating_mul(taken));
        if taken > 0 {
            self.arrival_ns.fetch_max(arrival_ns, Ordering::Relaxed);
        }
    }
}

fn nanos(rate: Rate) -> u64 {
    u64::try_from(rate.per.length().as_nanos()).unwrap_or(u64::MAX)
}

/// When a key was used last, to the second, since the process started, and what it holds open.
#[derive(Debug, Default)]
pub struct Used {
    unix: AtomicI64,
    /// Its open subscriptions.
    pub subscriptions: AtomicU64,
}

impl Used {
    /// It is used now, in seconds since 1970. Writes once a second at most, so that calls of one key do not fight over it.
    pub fn note(&self, unix: i64) {
        if self.unix.load(Ordering::Relaxed) != unix {
            self.unix.store(unix, Ordering::Relaxed);
        }
    }

    /// When it was used last, in seconds since 1970; none: not yet.
    #[must_use]
    pub fn last(&self) -> Option<i64> {
        Some(self.unix.load(Ordering::Relaxed)).filter(|unix| *unix != 0)
    }
}
