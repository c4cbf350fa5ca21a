//! The suite: Toolgate from outside, against the real binary, a topic a file.
//!
//! Tests are tables: one `check`, many rows. Every test asserts what the caller got and what the server behind saw.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    clippy::too_many_lines,
    clippy::type_complexity,
    clippy::print_stdout,
    clippy::manual_is_multiple_of,
    unreachable_pub,
    dead_code
)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod bytes;
mod canary;
mod cancel;
mod cases;
mod conf;
mod connections;
mod contract_http;
mod contract_rpc;
mod deadlines;
mod discovery;
mod eras;
mod faults;
mod fleet;
mod harness;
mod life;
mod limits;
mod matrix;
mod mixing;
mod oauth;
mod passthrough;
mod profiles;
mod refusals;
mod reload;
mod reports;
mod schemas;
mod screening;
mod sealed;
mod subscriptions;
mod tidy;
mod trace_context;
