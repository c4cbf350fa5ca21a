//! The life of the process: start, drain, reload, certificates, and what operators see of it (contract §1, §10, §11).

mod certificates;
mod drain;
mod load;
mod reload;
mod series;
mod service;
mod sockets;
#[cfg(feature = "otlp")]
mod traces;
mod upgrade;

use crate::support::upstream::Up;

/// How often a test under load does what it does: a few times by default, the full count by `make test-life`.
fn count(name: &str, few: usize) -> usize {
    match std::env::var(format!("TOOLGATE_TEST_{name}")) {
        Ok(count) => count.parse().expect("a number"),
        Err(_) => few,
    }
}

/// Waits until so many calls have reached the server; gives their number.
async fn until_more_calls(up: &Up, count: usize) -> usize {
    up.until_calls(count).await.len()
}
