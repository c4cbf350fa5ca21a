//! Conf and policy as they are written: read strictly, every fault at once, each at its `file:line:col` (contract §5, §10).
//!
//! ```text
//! file -> value (TOML, spans) -> interpolate -> sections / policy (tables of members) -> resolve -> model::records
//! JSON of the management API -> value (no spans) ------------------^
//! ```
//! **Invariants.** A secret never stands in a conf or a policy, only where to find one; what stands in its place is shown in
//! no fault. An unknown member, a bare number, a bad word is an error, never a guess. Nothing is written.
//!
//! Knows no snapshot, no store and no socket; whether a pattern or a schema compiles is judged by `policy`.

mod auth;
mod codec;
mod court;
mod credential;
mod describe;
mod fault;
mod guardrail;
mod interpolate;
mod load;
mod logs;
mod measure;
mod net;
mod objects;
mod options;
pub mod policy;
mod read;
mod reference;
mod resolve;
mod sections;
mod value;

pub use auth::TokenIssuer;
pub use credential::{CREDENTIAL_HEADER_NAME_MAX, CREDENTIAL_HEADERS_MAX, judge_header};
pub use describe::{Explained, dump, explain, policy_schema, schema, values};
pub use fault::{Fault, FaultCode, FileSpan, Severity, Sources, nearest};
pub use load::{FILE_BYTES_MAX, Loaded, Outcome, Rejected, from_text, from_texts, load};
pub use logs::AccessLog;
pub use net::{Address, Dsn, Listen, Tls, judge_url};
pub use options::{
    Admin, AdminToken, Attribution, Auth, Conf, Discovery, Egress, Gateway, Limits, Log, LogFormat, LogLevel, Ops,
    PolicyFiles, RateLimits, Role, Store, Timeouts,
};
pub use policy::Policy;
pub use reference::reference;
pub use resolve::resolve;
