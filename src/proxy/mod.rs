//! The data plane: the only room that knows Pingora's proxy. Each hook calls what it is named after.
//!
//! `edge.rs` reads heads and owns connections, `drain.rs` is how they end when the gateway stops, `held.rs` is the session as the
//! proxy loop sees it, `admit.rs` is `request_filter`, `to_server.rs` the way to the server, `relay.rs`, `deliver.rs` and `finish.rs`
//! the way back, `respond.rs` the one translator, `listen.rs` the stream of a subscription.
//!
//! **The shape.** Plain filters, as the user asked, over a held downstream session: `request_filter` admits, Pingora proxies,
//! `upstream_response_body_filter` checks what comes back. Holding gives the answers whose status or form depends on the body, the
//! wall clock of a call, and request bodies of any size; see `held.rs`.

mod admit;
mod arrival;
mod body;
mod context;
mod deliver;
mod drain;
mod edge;
mod finish;
pub mod framing;
mod held;
mod listen;
mod record;
mod relay;
mod respond;
mod screen;
mod signals;
mod to_server;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use pingora::{
    Error, Result,
    http::{RequestHeader, ResponseHeader},
    proxy::{FailToProxy, ProxyHttp, Session},
    upstreams::peer::HttpPeer,
};

pub use context::{Context, Counts, Gateway, Rediscover, State};
pub use drain::{Drain, LAST_CALL};
pub use edge::Door;

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = Context;

    fn new_ctx(&self) -> Context {
        Context::new()
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        self.admit(session, ctx).await
    }

    async fn upstream_peer(&self, session: &mut Session, ctx: &mut Context) -> Result<Box<HttpPeer>> {
        let _ = session;
        self.peer(ctx).await
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        self.write_head(request, ctx)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end: bool,
        ctx: &mut Context,
    ) -> Result<()> {
        *body = Some(ctx.upstream_body());
        ctx.note_sent();
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Context,
    ) -> Result<()> {
        self.receive_head(response, ctx)
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Context,
    ) -> Result<Option<Duration>> {
        self.receive_body(body, end, ctx).map(|()| None)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut Context,
        error: Box<Error>,
    ) -> Box<Error> {
        self.note_unconnected(peer, ctx);
        error
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Context,
        _client_reused: bool,
    ) -> Box<Error> {
        // Nothing is ever sent twice, but for one renewal of a legacy session that the server provably refused.
        let lost = *error.etype() == deliver::RENEW || (*error.etype() == held::UNFINISHED && ctx.lost_session());
        let renew = lost && ctx.may_renew();
        error.set_retry(renew);
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, ctx: &mut Context) -> FailToProxy {
        self.fail(session, error, ctx).await
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Context, _error: &Error) -> bool {
        // Pingora's texts carry raw heads, keys included.
        true
    }

    async fn logging(&self, session: &mut Session, _error: Option<&Error>, ctx: &mut Context) {
        self.record(session, ctx);
    }
}

/// How long a stream may be quiet before a comment says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The comment.
const COMMENT: &[u8] = b": keep-alive\n\n";

/// Whole milliseconds, for fields of logs.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// A reference to the gateway's shared state, cheap to clone.
type Shared = Arc<context::State>;
