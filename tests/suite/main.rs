//! One test binary for the whole suite: a file a room.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

mod conf;
