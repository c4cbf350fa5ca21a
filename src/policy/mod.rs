//! What is allowed, compiled.

pub mod guard;
