//! The store's properties on real files and, where its programs are installed, on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

mod dir;
mod files;
mod kill;
mod last_good;
mod postgres;
mod properties;
mod samples;
