//! The line that a call walks: one stage a file, each a decision over values that are handed in.
//!
//! Floor 3. Knows no socket, no clock, no store and no Pingora: bytes, headers and time come in as arguments (invariant 5).
//! `proxy/` turns what the stages decide into HTTP.

pub mod answer;
pub mod arguments;
pub mod attribution;
pub mod authenticate;
mod fit;
pub mod headers;
pub mod hello;
pub mod input;
mod line;
pub mod list;
pub mod listen;
mod meta;
pub mod output;
pub mod parse;
pub mod pass;
pub mod resolve;
pub mod rewrite;
pub mod route;
pub mod seal;
mod subject;
pub mod throttle;
pub mod trace;

pub use line::{Admission, Admitted, Asked, Caller, Charged, Checked, Unpaid, admit, charge};
pub use meta::Meta;
pub use subject::Subject;

/// The time of a decision, as handed in by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970.
    pub unix: i64,
    /// Nanoseconds of a monotonic clock.
    pub nanos: u64,
}

impl Now {
    /// Milliseconds of the monotonic clock.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.nanos / 1_000_000
    }
}
