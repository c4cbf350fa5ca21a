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
//! Imports run strictly downwards, and `tests/suite/tidy.rs` keeps it so:
//! 0 `model`; 1 `refusal`, `conf`, `store`, `upstream`, `budget`; 2 `policy`, `metrics`, `access_log`, `traces`; 3 `call`; 4 `control`;
//! 5 `proxy`, `discovery`, `admin`, `ops`; 6 `server`; 7 `cli`; 8 `main`.
//! `upstream` is low because a compiled server holds how it is spoken to; it knows no policy.
//!
//! # The shape of the data plane
//! Pingora's filters over a held downstream session, see [`proxy`] and `proxy/held.rs`: `request_filter` admits,
//! `upstream_response_body_filter` checks what comes back, and the header waits for the verdict.
//!
//! # Invariants
//! 1. What is forwarded was admitted, and is byte for byte what was checked (`tests/suite/bytes.rs`).
//! 2. What is returned was released (`tests/suite/matrix.rs`, `faults.rs`).
//! 3. One call, one snapshot: the edge loads it once and hands it on (`tests/suite/reload.rs`).
//! 4. A reload resets no budget and drops no call (`tests/suite/reload.rs`).
//! 5. No stage waits, locks or reads a clock: `call` imports none of them (`tests/suite/tidy.rs`).
//! 6. An error inside the gate refuses; it never allows (`tests/suite/faults.rs`).
//! 7. A refusal says nothing of what the caller cannot see, and never echoes a match (`tests/suite/contract_http.rs`, `matrix.rs`).
//! 8. Keys exist only as digests, credentials only as references, in store and logs (`tests/suite/reports.rs`).
//! 9. Every limit has a default, a unit, and a test one past it (`tests/suite/contract_http.rs`, `bytes.rs`).
//! 10. A definition that differs from its pin is not callable until approved again (`tests/suite/discovery.rs`).
//! 11. Cost per call does not grow with the number of tools, keys or servers (`benches/`).

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
pub mod traces;
pub mod upstream;
