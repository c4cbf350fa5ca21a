//! Strict JSON, parsed once: the only room that knows `simd_json`.
//!
//! A [`Document`] is a tape of decoded nodes beside the bytes as they were received. [`Node`] answers what a value is;
//! [`Spanned`] also says which bytes it is, so that arguments can be forwarded and redactions spliced without writing
//! the rest anew. Knows nothing of JSON-RPC's members nor of MCP: only what JSON is accepted at all (contract §3).
//!
//! **Invariant.** What is accepted here, `serde_json` accepts with an equal value (`tests`): no other reader behind the gateway
//! can see another document than the one that was checked. The known differences:
//! - a duplicate member is a fault here at any depth; `serde_json` keeps the last one;
//! - 128 levels pass here, 127 there;
//! - `-0` is the integer 0 here and the double -0.0 there; they compare equal.

mod document;
mod node;
mod span;
mod write;

pub use document::{Document, JsonFault};
pub use node::{Items, Kind, Members, Node};
pub use span::{Leaf, LeafKind, Leaves, Spanned, SpannedItems, SpannedMember, SpannedMembers};
pub use write::write_string;

/// The deepest nesting of arrays and objects that is accepted, in levels (contract §3).
pub const DEPTH_MAX: usize = 128;

#[cfg(test)]
mod tests;
