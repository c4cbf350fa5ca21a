//! What is spent by the second: token buckets and counts, outside the snapshot, so that a reload resets nothing (invariant 4).
//!
//! Floor 1. No lock on a call's path: a bucket is one atomic. Only `fleet` speaks to a socket.

mod failures;
mod fleet;
mod lease;
mod limit;
mod local;

pub use failures::Failures;
pub use fleet::{ASK_MAX, Fleet};
pub use lease::{LEASED_MIN, Lease};
pub use limit::{Limit, Registry, Scope, Short};
pub use local::{Bucket, Used};

/// The clock of budgets and breakers: nanoseconds since `started`, plus an hour so that it never comes near zero.
#[must_use]
pub fn clock_nanos(started: std::time::Instant) -> u64 {
    const AHEAD: u64 = 3_600_000_000_000;
    AHEAD.saturating_add(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
