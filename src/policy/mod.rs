//! What is allowed, compiled.

pub mod guard;
pub mod schema;
