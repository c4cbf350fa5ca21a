//! What is spent by the second: token buckets and counts, outside the snapshot, so that a reload resets nothing (invariant 4).
//!
//! Floor 2. No lock on a call's path: a bucket is one atomic.

mod failures;
mod local;

pub use failures::Failures;
pub use local::{Bucket, Registry, Scope};
