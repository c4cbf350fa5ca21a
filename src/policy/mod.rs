//! (stub)

pub mod schema;
