//! The ops listener: `/metrics`, `/livez`, `/readyz` (contract §1). Never on the gateway listener.

use std::sync::Arc;

use axum::{Router, extract, http::StatusCode, response::IntoResponse, routing::get};
use futures::future::BoxFuture;

use crate::conf::Address;

/// What readiness depends on.
#[derive(Clone, Copy, Debug)]
pub struct Readiness {
    /// A snapshot is live.
    pub snapshot: bool,
    /// The gateway's listeners take connections.
    pub listeners: bool,
    /// Each enabled server was asked for its tools once, or 10 s passed.
    pub discovered: bool,
    /// SIGTERM was received.
    pub stopping: bool,
}

/// What the listener asks when it is asked.
pub struct State {
    ready: Box<dyn Fn() -> Readiness + Send + Sync>,
    metrics: Box<dyn Fn() -> BoxFuture<'static, Vec<u8>> + Send + Sync>,
}

impl State {
    /// A listener's state over the two questions.
    #[must_use]
    pub fn new(
        ready: Box<dyn Fn() -> Readiness + Send + Sync>,
        metrics: Box<dyn Fn() -> BoxFuture<'static, Vec<u8>> + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self { ready, metrics })
    }
}

/// Binds, and serves in the background.
///
/// # Errors
/// When the address cannot be bound.
pub async fn start(address: &Address, state: Arc<State>) -> std::io::Result<()> {
    let app = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(state);
    match address {
        Address::Tcp(address) => {
            let listener = tokio::net::TcpListener::bind(address).await?;
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
        Address::Unix(path) => {
            let _ = std::fs::remove_file(path);
            let listener = tokio::net::UnixListener::bind(path)?;
            tokio::spawn(async move { axum::serve(listener, app).await });
        }
    }
    Ok(())
}

async fn metrics(extract::State(state): extract::State<Arc<State>>) -> impl IntoResponse {
    ([("content-type", "text/plain; version=0.0.4")], (state.metrics)().await)
}

async fn ready(extract::State(state): extract::State<Arc<State>>) -> impl IntoResponse {
    let readiness = (state.ready)();
    let why = [
        (readiness.stopping, "stopping"),
        (!readiness.snapshot, "no policy is live"),
        (!readiness.listeners, "the listeners are not bound"),
        (!readiness.discovered, "the servers were not asked for their tools yet"),
    ];
    match why.into_iter().find(|(applies, _)| *applies) {
        None => (StatusCode::OK, "ready\n".to_owned()),
        Some((_, why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}
