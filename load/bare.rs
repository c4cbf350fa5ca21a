//! Bare Pingora: what the framework itself costs, without a gateway in it; and the shapes a gateway on it can have.
//!
//! `toolgate-load-bare LISTEN UPSTREAM [SHAPE]`: one worker thread, kept connections, the same options as the gateway's own listener.
//! `pass` (the default) passes everything through. The others read the whole request and hold the whole answer, as a gateway that
//! checks both must, and parse each as JSON: `filters` by Pingora's filters alone, `held` by the same filters over a session of our own
//! that keeps the header until the answer is there (`src/proxy/held.rs` is the product's).
#![allow(clippy::expect_used, clippy::print_stdout)]

#[path = "bare/held.rs"]
mod held;

use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use pingora::{
    Error, ErrorType, Result,
    http::{RequestHeader, ResponseHeader},
    proxy::{ProxyHttp, Session, http_proxy, http_proxy_service},
    server::{Server, configuration::ServerConf},
    services::listening::Service,
    upstreams::peer::HttpPeer,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A body of a request up to this size is kept by Pingora for a retry.
const RETRY_BYTES: usize = 64 * 1024;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("usage: toolgate-load-bare LISTEN UPSTREAM [pass|filters|held]");
    let (listen, upstream) = (next(), next().parse().expect("IP:port"));
    let conf = ServerConf {
        threads: 1,
        work_stealing: false,
        upstream_keepalive_pool_size: 1024,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    match arguments.next().as_deref() {
        None | Some("pass") => {
            let mut service = http_proxy_service(&server.configuration, Pass(upstream));
            service.threads = Some(1);
            service.add_tcp(&listen);
            server.add_service(service);
        }
        Some("filters") => {
            let mut service = http_proxy_service(&server.configuration, Checked { upstream, is_held: false });
            service.threads = Some(1);
            service.add_tcp(&listen);
            server.add_service(service);
        }
        Some("held") => {
            let proxy = http_proxy(&server.configuration, Checked { upstream, is_held: true });
            let mut service = Service::new("held".to_owned(), held::Edge::new(proxy));
            service.threads = Some(1);
            service.add_tcp(&listen);
            server.add_service(service);
        }
        Some(other) => {
            println!("no shape `{other}`");
            return;
        }
    }
    server.run_forever();
}

/// Passes everything through.
struct Pass(SocketAddr);

#[async_trait]
impl ProxyHttp for Pass {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

/// Holds and parses both bodies.
struct Checked {
    upstream: SocketAddr,
    is_held: bool,
}

#[derive(Default)]
struct Bodies {
    request: Bytes,
    answer: Vec<u8>,
}

fn parse(bytes: &[u8]) -> Result<()> {
    let mut copy = bytes.to_vec();
    match simd_json::to_tape(&mut copy) {
        Ok(_) => Ok(()),
        Err(_) => Error::e_explain(ErrorType::InternalError, "not JSON"),
    }
}

#[async_trait]
impl ProxyHttp for Checked {
    type CTX = Bodies;

    fn new_ctx(&self) -> Bodies {
        Bodies::default()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Bodies) -> Result<bool> {
        let length = session.req_header().headers.get("content-length").and_then(|value| value.to_str().ok());
        let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        let (mut body, mut is_kept) = (Vec::with_capacity(length), false);
        loop {
            // Pingora calls `request_body_filter` for a body that was read here only if its last piece is in the retry buffer.
            if !self.is_held && !is_kept && length - body.len() <= RETRY_BYTES {
                session.enable_retry_buffering();
                is_kept = true;
            }
            match session.downstream_session.read_request_body().await? {
                Some(piece) => body.extend_from_slice(&piece),
                None => break,
            }
        }
        parse(&body)?;
        ctx.request = body.into();
        Ok(false)
    }

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut Bodies) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Bodies,
    ) -> Result<()> {
        request.insert_header("content-length", ctx.request.len())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end: bool,
        ctx: &mut Bodies,
    ) -> Result<()> {
        *body = Some(ctx.request.clone());
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        _ctx: &mut Bodies,
    ) -> Result<()> {
        response.remove_header("content-length");
        response.insert_header("transfer-encoding", "chunked")
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Bodies,
    ) -> Result<Option<std::time::Duration>> {
        ctx.answer.extend_from_slice(&body.take().unwrap_or_default());
        *body = Some(Bytes::new());
        if end {
            parse(&ctx.answer)?;
            *body = Some(std::mem::take(&mut ctx.answer).into());
        }
        Ok(None)
    }
}
