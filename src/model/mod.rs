//! Floor 0: the vocabulary. Ids, names, JSON, pins, policy objects; imports none of our other rooms.
//!
//! **Invariant.** Nothing here knows a socket, a clock, a file or Pingora.

pub mod atomic;
pub mod id;
pub mod jsonrpc;
pub mod mcp;
pub mod name;
pub mod pin;
pub mod records;
pub mod sse;
pub mod trace;
pub mod units;
