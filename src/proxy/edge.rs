//! The edge: a connection's requests one by one, before and after Pingora's proxy loop.
//!
//! Reads each head in time, judges its framing, hands the session held to the proxy, takes it back however the loop ended,
//! and decides on keep-alive. Pingora's own error texts carry raw heads, keys included: they are never logged nor sent.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::FutureExt;
use pingora::{
    apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream, ServerApp},
    http::ResponseHeader,
    protocols::{Stream, http::ServerSession},
    proxy::HttpProxy,
    server::ShutdownWatch,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
};

use super::{
    Gateway,
    arrival::{Arrivals, Heard},
    drain::Listening,
    framing,
    held::Held,
    respond::{self, Answer, Takes},
    signals::Signals,
};
use crate::{
    call::Asked,
    policy::snapshot::{Settings, Snapshot},
    refusal::Refusal,
};

/// How long what is left of a request body may take to be read away, so that the connection can be kept.
const DRAIN: Duration = Duration::from_millis(500);

/// What the edge hands to `request_filter`, in the head's extensions: one policy and one id for the whole request.
#[derive(Clone)]
pub(super) struct FromEdge {
    pub(super) signals: Arc<Signals>,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) request_id: String,
}

/// The application on a listener: counts its connections, so that the end of the gateway can wait for them.
pub struct Door(Edge);

impl Door {
    /// Puts a door in front of a proxy of the same gateway.
    #[must_use]
    pub fn new(proxy: HttpProxy<Gateway>, gateway: Gateway) -> Self {
        let quiet = watch::channel(false).1;
        let options = HttpServerOptions::default();
        Self(Edge { proxy: Arc::new(proxy), gateway, options, quiet, arrivals: Arc::default() })
    }
}

#[async_trait]
impl ServerApp for Door {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let _open = self.0.gateway.0.drain.connection();
        let edge = Arc::new(Edge { arrivals: Arc::default(), ..self.0.clone() });
        let stream = Heard::new(stream, Arc::clone(&edge.arrivals));
        edge.process_new(Box::new(stream), shutdown).await
    }

    async fn cleanup(&self) {
        self.0.http_cleanup().await;
    }
}

/// A connection's requests, one by one.
#[derive(Clone)]
struct Edge {
    proxy: Arc<HttpProxy<Gateway>>,
    gateway: Gateway,
    options: HttpServerOptions,
    /// Never says that the process ends: when connections are told so is for `drain.rs` to say, after the listeners are closed.
    quiet: ShutdownWatch,
    arrivals: Arc<Arrivals>,
}

#[async_trait]
impl HttpServerApp for Edge {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let settings = self.gateway.settings();
        // The edge marks the connections that it gives back, so that only their idle time counts as keep-alive.
        let reused = session.take_connection_user_context().is_some();
        let keep_alive = settings.keep_alive_timeout.as_secs();
        session.set_keepalive(Some(keep_alive));
        let drain = &self.gateway.0.drain;
        let mut stopping = drain.listen();
        let read = self.read_head(&mut session, &settings, (&mut stopping, reused)).await?;
        let _running = drain.request();
        if let Err(refusal) = read {
            self.refuse(session, &refusal, &settings).await;
            return None;
        }
        let signals = Signals::new(Arc::clone(drain));
        let snapshot = self.gateway.snapshot();
        let request_id = self.gateway.new_request_id().to_string();
        let edge = FromEdge { signals: Arc::clone(&signals), snapshot, request_id };
        session.req_header_mut().extensions_mut().insert(edge);
        session.set_total_drain_timeout(Some(DRAIN));
        if let ServerSession::H1(h1) = &mut session {
            // Else an answer before the end of the body, `100 Continue` too, would cost the connection.
            h1.set_close_on_response_before_downstream_finish(false);
        }
        session.set_pipelining_enabled(true);
        let (held, mut back) = Held::wrap(session, Arc::clone(&signals));
        let run =
            stopping.attend(AssertUnwindSafe(self.proxy.process_new_http(held, &self.quiet)).catch_unwind()).await;
        let session = *back.try_recv().ok()?;
        if run.is_err() {
            self.gateway.note_panic();
            if session.response_written().is_none() {
                self.refuse(session, &Refusal::Internal, &settings).await;
            }
            return None;
        }
        if signals.is_spoiled() || session.response_written().is_none() {
            linger(session).await;
            return None;
        }
        // A connection is kept when its answer's head said so, also in a drain: its client may send at this very moment.
        let mut persistent = HttpPersistentSettings::for_session(&session);
        persistent.set_user_context(Box::new(()));
        let reusable = session.finish().await.ok().flatten()?;
        Some(ReusedHttpStream::from_reusable_stream(reusable, persistent))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }

    async fn http_cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}

impl Edge {
    /// Reads and judges one head. None: the peer is gone, or was idle for too long, or for the last call of a gateway that stops.
    async fn read_head(
        &self,
        session: &mut ServerSession,
        settings: &Settings,
        (stopping, reused): (&mut Listening<'_>, bool),
    ) -> Option<Result<(), Refusal>> {
        if session.is_http2() {
            return Some(Ok(()));
        }
        self.arrivals.expect();
        let read = tokio::select! {
            biased;
            read = session.read_request() => read,
            late = self.late(settings, reused) => return late.then_some(Err(Refusal::TooSlow)),
            () = stopping.last_call() => return None,
        };
        match read {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                return match error.etype() {
                    _ if is_over_pingoras_bound(&error) => Some(Err(Refusal::HeadTooLarge)),
                    pingora::ErrorType::InvalidHTTPHeader => Some(Err(Refusal::Framing("the head cannot be read"))),
                    pingora::ErrorType::ReadTimedout => Some(Err(Refusal::TooSlow)),
                    _ => None,
                };
            }
        }
        let ServerSession::H1(h1) = session else { return Some(Ok(())) };
        if session_is_connect(h1.req_header()) {
            return Some(Err(Refusal::NotFound));
        }
        Some(framing::judge(&h1.get_headers_raw_bytes(), settings.headers_bytes_max))
    }

    /// Returns true when a head is late: its time runs from the beginning of the connection, and on a kept one from the head's first
    /// byte. False: a kept connection was idle for too long, which needs no answer.
    async fn late(&self, settings: &Settings, reused: bool) -> bool {
        if reused && tokio::time::timeout(settings.keep_alive_timeout, self.arrivals.first()).await.is_err() {
            return false;
        }
        tokio::time::sleep(settings.request_header_timeout).await;
        true
    }

    /// Answers outside the proxy loop, and closes the connection.
    async fn refuse(&self, mut session: ServerSession, refusal: &Refusal, settings: &Settings) {
        let request_id = self.gateway.new_request_id().to_string();
        let answer = respond::refusal(refusal, &Asked::default(), settings, &request_id, Takes::Json);
        self.gateway.count_outside(refusal);
        session.set_keepalive(None);
        if let Ok(head) = head_of(&Answer { close: true, ..answer.clone() }, &request_id, None) {
            let written = session.write_response_header(Box::new(head)).await;
            if written.is_ok() {
                let _ = session.write_response_body(answer.body.into(), true).await;
            }
        }
        linger(session).await;
    }
}

/// Closes so that the peer can read its answer: our side first, then what it still sends is read away for a while.
async fn linger(session: ServerSession) {
    const BYTES_MAX: usize = 1 << 20;
    let ServerSession::H1(h1) = session else {
        let _ = session.finish().await;
        return;
    };
    let mut stream = h1.into_inner();
    let drain = async {
        let _ = stream.flush().await;
        if AsyncWriteExt::shutdown(&mut stream).await.is_err() {
            return;
        }
        let (mut waste, mut read) = ([0u8; 4096], 0usize);
        while let Ok(n @ 1..) = stream.read(&mut waste).await {
            read += n;
            if read > BYTES_MAX {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, drain).await;
}

/// Whether Pingora gave a head up for its size (1 MiB), which it tells in words alone.
fn is_over_pingoras_bound(error: &pingora::Error) -> bool {
    error.context.as_ref().is_some_and(|words| words.as_str().starts_with("Request header larger than"))
}

fn session_is_connect(head: &pingora::http::RequestHeader) -> bool {
    head.method == http::Method::CONNECT
}

/// The response header of a whole answer.
pub(super) fn head_of(
    answer: &Answer,
    request_id: &str,
    origin: Option<&str>,
) -> Result<ResponseHeader, Box<pingora::Error>> {
    let mut head = ResponseHeader::build(answer.status, Some(8))?;
    if let Some(content_type) = answer.content_type {
        head.insert_header("content-type", content_type)?;
    }
    if answer.status != 204 {
        head.insert_header("content-length", answer.body.len())?;
    }
    for (name, value) in &answer.headers {
        head.insert_header(*name, value)?;
    }
    dress(&mut head, request_id, origin)?;
    if answer.close {
        head.insert_header("connection", "close")?;
    }
    Ok(head)
}

/// What every answer of the gateway's bears.
pub(super) fn dress(
    head: &mut ResponseHeader,
    request_id: &str,
    origin: Option<&str>,
) -> Result<(), Box<pingora::Error>> {
    head.insert_header("x-request-id", request_id)?;
    if let Some(origin) = origin {
        head.insert_header("access-control-allow-origin", origin)?;
        head.insert_header("vary", "Origin")?;
    }
    Ok(())
}
