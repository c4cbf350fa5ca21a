//! The management API (contract §9): a file a resource, over axum, on the control runtime, never on the gateway's listener; and, on
//! its TCP listener, the console for reviewers.
//!
//! Reads the policy from the control room's catalog and hands every change to it; stores and compiles nothing itself. Who may do
//! what is decided in `call.rs`, how an answer looks in `reply.rs`.
//!
//! **Invariants.** What was answered is live and on disk. No answer holds a credential, and a key's token once, when it was made.

mod audit;
mod auth;
mod call;
mod console;
mod credentials;
mod diff;
mod explain;
mod guardrails;
mod keys;
mod listen;
mod named;
mod nodes;
mod objects;
mod openapi;
mod organizations;
mod pages;
mod projects;
mod reply;
mod review;
mod router;
mod servers;
mod shapes;
mod status;
mod token;
mod tools;
mod visible;
mod words;

use std::sync::Arc;

use futures::future::BoxFuture;

pub use self::{
    console::Sessions,
    listen::{Listeners, serve},
    openapi::document,
    visible::visible,
};
use crate::{
    budget::Failures,
    control::{Control, Rejected, Reloaded, change::Heard},
    model::records::Protocol,
    upstream::{dns::Resolver, target::Target},
};

/// What the management API works with.
pub struct Rooms {
    /// The one writer.
    pub control: Arc<Control>,
    /// Looks host names up.
    pub resolver: Resolver,
    /// Asks servers for their tools.
    pub discovery: Discovery,
    /// Reads conf and policy files anew, as SIGHUP does.
    pub reload: Box<dyn Fn() -> BoxFuture<'static, Result<Reloaded, Rejected>> + Send + Sync>,
    /// Hands the gateway over to a new process of the program as it is now.
    pub upgrade: Box<dyn Fn() -> BoxFuture<'static, Result<Upgraded, String>> + Send + Sync>,
    /// Failed attempts to authenticate, by address.
    pub failures: Failures,
    /// Who is logged in on the console.
    pub sessions: Sessions,
}

/// The process that serves after an upgrade.
#[derive(Clone, Debug)]
pub struct Upgraded {
    /// Its number.
    pub pid: u32,
    /// Its version.
    pub version: String,
}

/// Asks a server whether it is registered or not.
pub type Hear = Box<dyn Fn(Arc<Target>, Protocol) -> BoxFuture<'static, Result<Heard, String>> + Send + Sync>;
/// Asks a registered server, `organization/slug`, and waits until its listing is taken in; none: nobody asks it, as it is disabled.
pub type Ask = Box<dyn Fn(String) -> BoxFuture<'static, Option<Result<usize, String>>> + Send + Sync>;
/// Tells discovery that a server, `organization/slug`, was registered, changed or deleted.
pub type Changed = Box<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>;

/// What the management API needs of discovery, as functions: the two know nothing else of each other.
pub struct Discovery {
    /// Asks a server whether it is registered or not.
    pub hear: Hear,
    /// Asks a registered server now.
    pub ask: Ask,
    /// A server was registered, changed or deleted.
    pub changed: Changed,
}
