//! A server as the gateway speaks to it: which addresses, which era, which session, how healthy.
//!
//! The data path sends its calls through Pingora; from here it takes addresses ([`dns::Addresses`]), the bytes and headers of a
//! call ([`envelope`]), a legacy session ([`sessions::Sessions`]) and the server's health ([`breaker::Health`]). What the gateway
//! asks on its own account goes through [`client::Client`].
//!
//! **Invariants.** No connection is made to an address that [`egress`] does not pass. No text of this room repeats a
//! URL or a credential.

pub mod breaker;
pub mod client;
pub mod dns;
pub mod egress;
pub mod engine;
pub mod envelope;
pub mod exchange;
pub mod legacy;
pub mod modern;
pub mod server;
pub mod sessions;
pub mod target;

pub use server::{Spoken, Upstream};

#[cfg(test)]
pub(crate) mod mock;
