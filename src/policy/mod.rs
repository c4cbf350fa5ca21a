//! What is allowed: compiled, immutable, published whole.
//!
//! `approval.rs` is the life of a tool, `schema/` and `guard/` compile what checks content, `compile.rs` puts a snapshot together,
//! `live.rs` publishes it. Knows no socket, no clock and no store.

pub mod approval;
pub mod compile;
pub mod guard;
pub mod issuers;
pub mod live;
pub mod schema;
pub mod snapshot;
pub mod trifecta;
pub mod users;
mod views;
