//! Toolgate: an MCP policy gateway on Pingora.
//!
//! # The line
//! ```text
//! bytes -> framing -> authenticate -> throttle (key) -> attribution -> route -> (read body) -> parse -> headers
//!       -> resolve -> arguments -> input -> throttle (server) -> Admitted -> upstream
//! bytes <- respond <- Released <- output <- clean <- answer <- size <- relay (JSON or SSE) <- upstream
//! ```
//! Any stage may end a call with a [`refusal::Refusal`]; `proxy/respond.rs` is the only place that turns one into bytes.
//!
//! # The floors
//! Imports run strictly downwards: 0 `model`; 1 `refusal`, `conf`, `store`; 2 `policy`, `budget`, `metrics`, `access_log`;
//! 3 `call`; 4 `upstream`, `control`; 5 `proxy`, `discovery`, `admin`; 6 `server`, `ops`; 7 `cli`; 8 `main`. `tests/suite/tidy.rs` keeps it so.

pub mod access_log;
pub mod admin;
pub mod budget;
pub mod call;
pub mod cli;
pub mod conf;
pub mod control;
pub mod discovery;
pub mod metrics;
pub mod model;
pub mod ops;
pub mod policy;
pub mod proxy;
pub mod refusal;
pub mod server;
pub mod store;
pub mod upstream;
