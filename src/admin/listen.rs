//! The listeners of the management API: the unix socket (mode 0600, `server/doors.rs`) and, if the conf says so, TCP behind tokens.

use std::{convert::Infallible, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rand::Rng as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::Semaphore,
};
use tower_service::Service as _;

use super::{Rooms, auth::Peer, call, console, reply::Refused, router::router};
use crate::model::id::RequestId;

/// Connections of each listener at one time; more wait.
const CONNECTIONS_MAX: usize = 256;
/// How long a request head may take, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may live: nothing here takes longer than registering a slow server.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);

/// Bound listeners.
#[derive(Debug)]
pub struct Listeners {
    socket: Option<UnixListener>,
    tcp: Option<TcpListener>,
}

impl Listeners {
    /// Listeners on sockets that are bound already.
    ///
    /// # Errors
    /// One is no listening socket of its kind.
    pub fn on(socket: Option<OwnedFd>, tcp: Option<OwnedFd>) -> io::Result<Self> {
        let socket = socket.map(|socket| UnixListener::from_std(socket.into())).transpose()?;
        let tcp = tcp.map(|socket| TcpListener::from_std(socket.into())).transpose()?;
        Ok(Self { socket, tcp })
    }
}

/// Serves the listeners until the runtime ends.
pub async fn serve(listeners: Listeners, rooms: Arc<Rooms>) {
    let router = router(Arc::clone(&rooms));
    let socket = serve_socket(listeners.socket, router.clone(), Arc::clone(&rooms));
    tokio::join!(socket, serve_tcp(listeners.tcp, router, rooms));
}

async fn serve_socket(listener: Option<UnixListener>, router: Router, rooms: Arc<Rooms>) {
    let Some(listener) = listener else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = Peer::Socket { uid: stream.peer_cred().ok().map(|peer| peer.uid()) };
                let serving = serve_connection(stream, peer, router.clone(), Arc::clone(&rooms));
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(why) => pause(&why).await,
        }
    }
}

async fn serve_tcp(listener: Option<TcpListener>, router: Router, rooms: Arc<Rooms>) {
    let Some(listener) = listener else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                let peer = Peer::Tcp(address.ip().to_canonical());
                let serving = serve_connection(stream, peer, router.clone(), Arc::clone(&rooms));
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(why) => pause(&why).await,
        }
    }
}

/// Out of descriptors, most likely: others must end first.
async fn pause(why: &io::Error) {
    tracing::warn!("the management API cannot accept a connection: {why}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn serve_connection<S>(stream: S, peer: Peer, router: Router, rooms: Arc<Rooms>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (peer, router, rooms) = (peer.clone(), router.clone(), Arc::clone(&rooms));
        async move { Ok::<_, Infallible>(answer(request.map(Body::new), &peer, router, rooms).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

/// One request: who calls is settled before the path is looked at. A panic in a handler is a 500.
async fn answer(mut request: Request, peer: &Peer, mut router: Router, rooms: Arc<Rooms>) -> Response {
    // On a task of its own, so that a change that has begun is finished, and answered for in the audit, when the caller goes away.
    let answering = match peer {
        Peer::Tcp(address) if console::is_at(request.uri().path()) => {
            let address = *address;
            tokio::spawn(async move { console::answer(&rooms, address, request).await })
        }
        peer => match call::admit(&rooms, peer, &mut request) {
            Err(refused) => tokio::spawn(async { refused.into_response() }),
            Ok(()) => tokio::spawn(async move { router.call(request).await.unwrap_or_else(|never| match never {}) }),
        },
    };
    let mut response = answering.await.unwrap_or_else(|_| Refused::internal().into_response());
    let mut random = rand::rng();
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&RequestId::new(bits).to_string()) {
        headers.insert("x-request-id", id);
    }
    // Tokens and policies are nobody's to keep, and nothing is to be taken for what it does not say that it is.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
