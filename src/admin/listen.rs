//! The listeners of the management API: the unix socket (mode 0600) and, if the conf says so, TCP behind tokens.
//!
//! **Invariant.** The socket never stands at its path with another mode than 0600.

use std::{
    convert::Infallible,
    fs, io,
    net::SocketAddr,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

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
    net::{TcpListener, UnixListener, UnixStream},
    sync::Semaphore,
};
use tower_service::Service as _;

use super::{Rooms, auth::Peer, call, router::router};
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
    /// Binds `admin.socket` and `admin.listen`. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// Which address, and why it cannot be bound.
    pub async fn bind(socket: Option<&Path>, listen: Option<SocketAddr>) -> Result<Self, String> {
        let socket = match socket {
            Some(path) => {
                Some(bind_socket(path).await.map_err(|why| format!("admin.socket: {}: {why}", path.display()))?)
            }
            None => None,
        };
        let tcp = match listen {
            Some(address) => {
                Some(TcpListener::bind(address).await.map_err(|why| format!("admin.listen: {address}: {why}"))?)
            }
            None => None,
        };
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
        async move { Ok::<_, Infallible>(answer(request.map(Body::new), &peer, router, &rooms).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

/// One request: who calls is settled before the path is looked at. A panic in a handler is a 500.
async fn answer(mut request: Request, peer: &Peer, mut router: Router, rooms: &Rooms) -> Response {
    let mut response = match call::admit(rooms, peer, &mut request) {
        Err(refused) => refused.into_response(),
        // On a task of its own, so that a change that has begun is finished, and answered for in the audit, when the caller goes away.
        Ok(()) => match tokio::spawn(async move { router.call(request).await }).await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => super::reply::Refused::internal().into_response(),
        },
    };
    let mut random = rand::rng();
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&RequestId::new(bits).to_string()) {
        headers.insert("x-request-id", id);
    }
    // Tokens and policies are nobody's to keep, and nothing here is a page.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Binds beside the path, narrows the mode, and only then moves the socket to its path.
async fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another gateway listens there"));
        }
    }
    let beside = beside(path);
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let placed =
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed.map(|()| listener)
}

/// A name in the same folder that is no longer than it must be: a socket's path has at most 107 bytes.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".tg{}", std::process::id()))
}
