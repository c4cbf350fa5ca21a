//! A bare Pingora pass-through: what the proxy framework itself costs, without a gateway in it.
//!
//! `toolgate-load-bare LISTEN UPSTREAM`: one worker thread, kept connections, the same options as the gateway's own listener.
#![allow(clippy::expect_used, clippy::print_stdout)]

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora::{
    Result,
    proxy::{ProxyHttp, Session, http_proxy_service},
    server::{Server, configuration::ServerConf},
    upstreams::peer::HttpPeer,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bare(SocketAddr);

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("usage: toolgate-load-bare LISTEN UPSTREAM");
    let (listen, upstream) = (next(), next());
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
    let upstream = upstream.parse().expect("IP:port");
    let mut service = http_proxy_service(&server.configuration, Bare(upstream));
    service.threads = Some(1);
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever();
}
