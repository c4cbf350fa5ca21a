//! The stream of a subscription: it opens with the acknowledgement, stays open with comments, says what changed, and ends with a
//! result when the gateway stops, or when the key may no longer hear what it subscribed to.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use pingora::{Result, http::ResponseHeader, protocols::http::HttpTask, proxy::Session};

use super::{
    COMMENT, KEEP_ALIVE, Shared,
    context::{Call, Context, Gateway},
    edge::dress,
    respond::{self, SSE},
};
use crate::{
    budget::Used,
    call::{
        authenticate,
        listen::{self, Listen},
    },
    refusal::Refusal,
};

/// The most subscriptions that are open at one time.
const SUBSCRIPTIONS_MAX: u64 = 1024;
/// The most of them that one key holds, so that keys do not punish each other.
const SUBSCRIPTIONS_PER_KEY_MAX: u64 = 256;
/// How long a client may take to take what is written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// One place among the open subscriptions, all and the key's; given back when dropped.
pub(super) struct Subscribed(Shared, Arc<Used>);

impl Subscribed {
    /// # Refuses
    /// - [`Refusal::Overloaded`]: [`SUBSCRIPTIONS_MAX`] are open, or [`SUBSCRIPTIONS_PER_KEY_MAX`] of the key.
    pub(super) fn take(state: &Shared, key: &Arc<Used>) -> Result<Self, Refusal> {
        let all = state.counts.subscriptions.fetch_add(1, Ordering::Relaxed);
        let own = key.subscriptions.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(state), Arc::clone(key));
        if all >= SUBSCRIPTIONS_MAX || own >= SUBSCRIPTIONS_PER_KEY_MAX { Err(Refusal::Overloaded) } else { Ok(place) }
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.counts.subscriptions.fetch_sub(1, Ordering::Relaxed);
        self.1.subscriptions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a subscription ends.
#[derive(PartialEq, Eq)]
enum End {
    /// The client went away, or takes nothing.
    Gone,
    /// In good order.
    Over,
}

impl Gateway {
    /// Serves a subscription to its end.
    pub(super) async fn listen(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        (listen, _place): (Listen, Subscribed),
    ) -> Result<()> {
        // From here on it counts among the subscriptions, and takes no place from calls.
        ctx.leave();
        ctx.status = 200;
        ctx.call = Call::Done("ok".to_owned());
        session.set_write_timeout(Some(WRITE_TIMEOUT));
        let mut head = ResponseHeader::build(200, Some(8))?;
        head.insert_header("content-type", SSE)?;
        head.insert_header("cache-control", "no-cache")?;
        head.insert_header("x-accel-buffering", "no")?;
        head.insert_header("transfer-encoding", "chunked")?;
        dress(&mut head, &ctx.request_id, ctx.origin.as_deref())?;
        let known = self.list_now(ctx);
        let first = respond::event(&listen::acknowledged(listen, &ctx.asked));
        let tasks = vec![HttpTask::Header(Box::new(head), false)];
        let opened = session.downstream_session.response_duplex_vec(tasks).await.is_ok();
        let end = if opened && write(session, ctx, first, false).await {
            self.follow(session, ctx, (listen, known)).await
        } else {
            End::Gone
        };
        let settings = self.settings();
        let last = respond::event(&respond::result_message(&listen::ended(&ctx.asked, &settings), &ctx.asked));
        if (end == End::Gone || !write(session, ctx, last, true).await)
            && let Some(signals) = &ctx.signals
        {
            signals.spoil();
        }
        Ok(())
    }

    /// Says each change, and comments in between.
    async fn follow(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        (listen, mut known): (Listen, Option<Arc<str>>),
    ) -> End {
        // The edge wakes whoever waits when the gateway is told to stop.
        let stops = || poll_fn(|_| if self.0.drain.is_told() { Poll::Ready(()) } else { Poll::Pending });
        loop {
            let published = self.0.live.next();
            tokio::pin!(published);
            published.as_mut().enable();
            let Some(list) = self.list_now(ctx) else { return End::Over };
            if known.as_ref() != Some(&list) {
                known = Some(list);
                if listen.tools && !write(session, ctx, respond::event(&listen::changed(&ctx.asked)), false).await {
                    return End::Gone;
                }
            }
            let quiet = tokio::select! {
                () = stops() => return End::Over,
                () = published => false,
                _ = session.downstream_session.read_body_or_idle(true) => return End::Gone,
                () = tokio::time::sleep(KEEP_ALIVE) => true,
            };
            if quiet && !write(session, ctx, COMMENT.to_vec(), false).await {
                return End::Gone;
            }
        }
    }

    /// What the key may see now; none: it is no longer valid, or the endpoint is not there for it. The stream keeps no policy but
    /// the one it looked at last.
    fn list_now(&self, ctx: &mut Context) -> Option<Arc<str>> {
        let snapshot = self.snapshot()?;
        let token = authenticate::holder(&snapshot, ctx.proof.as_ref()?, self.now()).ok()?;
        authenticate::standing(&token.key, ctx.client_ip?).ok()?;
        let list = listen::tools(&snapshot, &token.key, ctx.server_slug.as_deref());
        (ctx.key, ctx.snapshot) = (Some(Arc::clone(&token.key)), Some(Arc::clone(&snapshot)));
        list
    }
}

/// Writes a piece of the stream at once. Whether the client took it.
async fn write(session: &mut Session, ctx: &mut Context, piece: Vec<u8>, end: bool) -> bool {
    ctx.bytes_out += u64::try_from(piece.len()).unwrap_or(u64::MAX);
    let task = HttpTask::Body(Some(Bytes::from(piece)), end);
    session.downstream_session.response_duplex_vec(vec![task]).await.is_ok()
}
