//! A server as the gateway speaks to it: which addresses, which era, which session, how healthy.
pub mod breaker;
pub mod client;
pub mod dns;
pub mod egress;
pub mod envelope;
pub mod target;

#[cfg(test)]
pub(crate) mod mock;
