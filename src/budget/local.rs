//! Token buckets of one node: exact, lock-free, kept across reloads (contract §8).

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use crate::model::units::Rate;

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
}

fn nanos(rate: Rate) -> u64 {
    u64::try_from(rate.per.length().as_nanos()).unwrap_or(u64::MAX)
}

/// When a key was used last, to the second, since the process started.
#[derive(Debug, Default)]
pub struct Used {
    unix: AtomicI64,
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

/// Whose budget a bucket is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A key's requests: its id.
    Key(String),
    /// A server's calls across every key: organization and slug.
    Server(String, String),
}

/// Hands out the bucket of a scope; control plane only.
#[derive(Debug, Default)]
pub struct Registry {
    buckets: HashMap<Scope, Weak<Bucket>>,
    used: HashMap<String, Weak<Used>>,
}

impl Registry {
    /// The scope's bucket: the same one as long as any snapshot holds it.
    pub fn obtain(&mut self, scope: Scope) -> Arc<Bucket> {
        if let Some(bucket) = self.buckets.get(&scope).and_then(Weak::upgrade) {
            return bucket;
        }
        let bucket = Arc::new(Bucket::default());
        self.buckets.insert(scope, Arc::downgrade(&bucket));
        bucket
    }

    /// When the key of that id was used last: the same one as long as any snapshot holds it.
    pub fn used(&mut self, key: &str) -> Arc<Used> {
        if let Some(used) = self.used.get(key).and_then(Weak::upgrade) {
            return used;
        }
        let used = Arc::new(Used::default());
        self.used.insert(key.to_owned(), Arc::downgrade(&used));
        used
    }

    /// Forgets what no snapshot holds any more.
    pub fn sweep(&mut self) {
        self.used.retain(|_, used| used.strong_count() > 0);
        self.buckets.retain(|_, bucket| bucket.strong_count() > 0);
    }
}
