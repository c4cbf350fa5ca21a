//! The atomics of what is checked by `tests/model`: there a model checker's own stand in their place.

pub use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
