//! The ops listener: `GET /metrics`, `/livez`, `/readyz` (contract §1), and nothing else.
//!
//! Floor 6. Knows neither policy nor Pingora: what the gauges are is a closure of whoever wires the process, and readiness is a set of
//! facts that they report in [`Ready`]. Never on the gateway's listener.

mod process;
mod ready;

use std::{io, os::fd::OwnedFd, path::Path, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State as Shared,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::{TcpListener, UnixListener};

pub use ready::{FIRST_DISCOVERY_MAX, Ready};

use self::process::process;
use crate::metrics::{self, Metrics, Scrape};

/// How long a running scrape may hold the end back.
const LINGER: Duration = Duration::from_secs(1);

/// What the ops listener answers from.
pub struct State {
    /// Every series.
    pub metrics: Arc<Metrics>,
    /// Says what the gauges are now; called for each scrape. The process's own are added to it.
    pub scrape: Box<dyn Fn(&mut Scrape) + Send + Sync>,
    /// Whether traffic should come.
    pub ready: Arc<Ready>,
}

/// A bound ops listener.
#[derive(Debug)]
pub enum Listener {
    /// `address:port`
    Tcp(TcpListener),
    /// A socket in the file system.
    Unix(UnixListener),
}

impl Listener {
    /// A listener on a socket that is bound already.
    ///
    /// # Errors
    /// It is no listening socket of that kind.
    pub fn on(socket: OwnedFd, is_unix: bool) -> io::Result<Self> {
        if is_unix {
            UnixListener::from_std(socket.into()).map(Self::Unix)
        } else {
            TcpListener::from_std(socket.into()).map(Self::Tcp)
        }
    }
}

/// Serves until `shutdown` is done, and a second more for scrapes that run. During a drain this must go on: `/readyz` says 503 then.
///
/// # Errors
/// The listener died.
pub async fn serve(
    listener: Listener,
    state: State,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let app = router(Arc::new(state));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let until_stopped = |mut stopped: tokio::sync::watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let serving = async {
        match listener {
            Listener::Tcp(tcp) => axum::serve(tcp, app).with_graceful_shutdown(until_stopped(stopped)).await,
            Listener::Unix(unix) => axum::serve(unix, app).with_graceful_shutdown(until_stopped(stopped)).await,
        }
    };
    let ending = async {
        shutdown.await;
        let _ = stop.send(true);
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        ended = serving => ended,
        () = ending => Ok(()),
    }
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(state)
}

async fn livez() -> &'static str {
    "live\n"
}

async fn readyz(Shared(state): Shared<Arc<State>>) -> Response {
    let lacks = state.ready.lacks();
    if lacks.is_empty() {
        return format!("ready\n{}", state.ready.warning()).into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", lacks.join("; "))).into_response()
}

/// On a thread of its own, so that a large scrape does not hold `/livez` back; a panic in a closure is a 500.
async fn show_metrics(Shared(state): Shared<Arc<State>>) -> Response {
    let text = tokio::task::spawn_blocking(move || {
        state.metrics.render(|scrape| {
            scrape.process(&process(Path::new("/proc")));
            (state.scrape)(scrape);
        })
    });
    match text.await {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a scrape failed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use std::{fs, time::Instant};

    use tokio::{
        io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
        net::{TcpStream, UnixStream},
        sync::oneshot,
        task::JoinHandle,
    };

    use super::*;

    struct Running {
        ready: Arc<Ready>,
        metrics: Arc<Metrics>,
        stop: oneshot::Sender<()>,
        served: JoinHandle<io::Result<()>>,
    }

    fn run(listener: Listener, scrape: impl Fn(&mut Scrape) + Send + Sync + 'static) -> Running {
        let (ready, metrics) = (Arc::new(Ready::new(Instant::now())), Arc::new(Metrics::new()));
        let (stop, stopped) = oneshot::channel();
        let state = State { metrics: Arc::clone(&metrics), scrape: Box::new(scrape), ready: Arc::clone(&ready) };
        let served = tokio::spawn(serve(listener, state, async {
            let _ = stopped.await;
        }));
        Running { ready, metrics, stop, served }
    }

    async fn tcp() -> (Listener, std::net::SocketAddr) {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        (Listener::on(tcp.into_std().unwrap().into(), false).unwrap(), address)
    }

    /// Status, head and body of the answer to one request.
    async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> (u16, String, String) {
        let text = format!("{request} HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n");
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    async fn ask_tcp(address: std::net::SocketAddr, request: &str) -> (u16, String, String) {
        ask(TcpStream::connect(address).await.unwrap(), request).await
    }

    #[tokio::test]
    async fn readiness_follows_the_facts_and_says_what_lacks() {
        let (listener, address) = tcp().await;
        let gateway = run(listener, |_| {});
        let get = || async move { ask_tcp(address, "GET /readyz").await };
        let (status, _, body) = get().await;
        assert_eq!(
            (status, body.as_str()),
            (
                503,
                "not ready: no policy is published; the listeners are not bound; not every server was asked for its tools yet\n"
            )
        );
        gateway.ready.published();
        gateway.ready.asked();
        let (status, _, body) = get().await;
        assert_eq!((status, body.as_str()), (503, "not ready: the listeners are not bound\n"));
        gateway.ready.bound();
        let (status, _, body) = get().await;
        assert_eq!((status, body.as_str()), (200, "ready\n"));
        gateway.ready.store(Some(Duration::from_secs(7)), false);
        let (status, _, body) = get().await;
        let warning = "warning: the policy store has not answered for 7 s; the last good policy is served";
        assert_eq!((status, body), (200, format!("ready\n{warning}\n")));
        gateway.ready.store(Some(Duration::from_secs(70)), true);
        let (status, _, body) = get().await;
        let why = "not ready: the policy store was away for longer than store.max_age\n";
        assert_eq!((status, body.as_str()), (503, why));
        gateway.ready.store(None, false);
        gateway.ready.stopping();
        let (status, _, body) = get().await;
        assert_eq!((status, body.as_str()), (503, "not ready: the gateway is stopping\n"));
        assert_eq!(ask_tcp(address, "GET /livez").await.0, 200, "a gateway that stops is alive");
    }

    #[tokio::test]
    async fn metrics_are_scraped_with_the_gauges_of_now() {
        let (listener, address) = tcp().await;
        let gateway = run(listener, |scrape| scrape.in_flight("github", 3));
        gateway.metrics.refused("not_found", "");
        let (status, head, body) = ask_tcp(address, "GET /metrics").await;
        assert_eq!(status, 200);
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        for line in [
            "toolgate_in_flight{server=\"github\"} 3",
            "toolgate_refusals_total{code=\"not_found\",server=\"_other\"} 1",
            "# TYPE toolgate_snapshot_swaps_total counter",
            "# TYPE process_resident_memory_bytes gauge",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
    }

    #[tokio::test]
    async fn nothing_else_is_served() {
        let (listener, address) = tcp().await;
        let _gateway = run(listener, |_| {});
        for (request, status) in [
            ("GET /", 404),
            ("GET /v1/servers", 404),
            ("POST /gateway/mcp", 404),
            ("GET /metrics/", 404),
            ("POST /metrics", 405),
            ("HEAD /livez", 200),
            ("GET /metrics?name=x", 200),
        ] {
            assert_eq!(ask_tcp(address, request).await.0, status, "{request}");
        }
    }

    #[tokio::test]
    async fn a_scrape_that_panics_is_an_error_and_the_listener_lives() {
        let (listener, address) = tcp().await;
        let _gateway = run(listener, |_| panic!("a gauge"));
        assert_eq!(ask_tcp(address, "GET /metrics").await.0, 500);
        assert_eq!(ask_tcp(address, "GET /livez").await.0, 200);
    }

    #[tokio::test]
    async fn it_ends_when_told_even_with_a_client_that_hangs() {
        let (listener, address) = tcp().await;
        let gateway = run(listener, |_| {});
        let mut hanging = TcpStream::connect(address).await.unwrap();
        hanging.write_all(b"GET /met").await.unwrap();
        assert_eq!(ask_tcp(address, "GET /livez").await.0, 200);
        gateway.stop.send(()).unwrap();
        gateway.served.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    #[tokio::test]
    async fn a_unix_socket_answers_too() {
        let path = std::env::temp_dir().join(format!("toolgate-ops-{}.sock", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        let _gateway = run(Listener::on(unix.into_std().unwrap().into(), true).unwrap(), |_| {});
        let (status, ..) = ask(UnixStream::connect(&path).await.unwrap(), "GET /livez").await;
        assert_eq!(status, 200);
        fs::remove_file(&path).unwrap();
    }
}
