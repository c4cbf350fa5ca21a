//! (stub)

pub mod approval;
