//! The downstream session as Pingora's proxy loop sees it: a wrapper that holds the response header until there is a verdict.
//!
//! Pingora writes a header as soon as it has one, replays a body only up to 64 KiB, and knows no limit on a whole call.
//! This wrapper (Pingora's custom session, public but hidden in its docs, hence the pinned version) gives the line what it needs:
//! - the header waits for the first byte that was released, and leaves with it, with an exact `Content-Length` where the answer is whole;
//! - the request body, read and checked in `request_filter`, counts as buffered, so that `request_body_filter` sends the checked one;
//! - the wall clock of a call ends the loop, whatever the server does; a stream that is quiet meanwhile gets a comment;
//! - when the loop is done, however it ended, the real session goes back to `edge.rs`, which decides on keep-alive.

use std::{sync::Arc, time::Duration};

use super::{
    COMMENT, KEEP_ALIVE,
    respond::SSE,
    signals::{Signals, Timer, wait},
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use http::HeaderMap;
use pingora::{
    Error, ErrorType, Result,
    http::{RequestHeader, ResponseHeader},
    protocols::{
        Digest,
        http::{
            HttpTask, ServerSession,
            custom::{CustomMessageWrite, server::Session},
        },
        l4::socket::SocketAddr,
    },
};
use tokio::{sync::oneshot, time::Instant};

/// The wall clock of the call passed.
pub(super) const DEADLINE: ErrorType = ErrorType::Custom("deadline");
/// The answer is out; the server goes on talking and is cut off.
const ANSWERED: ErrorType = ErrorType::Custom("answered");
/// The server's response ended without a body that `relay.rs` could judge.
pub(super) const UNFINISHED: ErrorType = ErrorType::Custom("unfinished");

/// How long a server may take to end its stream after its answer before its connection is dropped.
const LINGER: Duration = Duration::from_millis(50);

/// The wrapper.
pub(super) struct Held {
    /// Taken when this is dropped.
    inner: Option<Box<ServerSession>>,
    back: Option<oneshot::Sender<Box<ServerSession>>>,
    signals: Arc<Signals>,
    timer: Timer,
    head: Option<Box<ResponseHeader>>,
    /// The client has the whole answer, since then.
    ended: Option<Instant>,
    expects_continue: bool,
    /// The response is the stream of a call, which gets comments here; a subscription writes its own.
    streams: bool,
    /// When something was last written, and the timer of the next comment.
    written: Instant,
    quiet: Timer,
    /// A comment is being written. The proxy loop may drop that half-way: then nothing may follow it.
    commenting: bool,
}

impl Held {
    /// Wraps a session whose head was read; the receiver gets it back when the wrapper is dropped.
    pub(super) fn wrap(
        inner: ServerSession,
        signals: Arc<Signals>,
    ) -> (ServerSession, oneshot::Receiver<Box<ServerSession>>) {
        let (back, receiver) = oneshot::channel();
        let expects_continue = !inner.is_http2() && inner.req_header().headers.contains_key(http::header::EXPECT);
        let held = Self {
            inner: Some(Box::new(inner)),
            back: Some(back),
            signals,
            timer: None,
            head: None,
            ended: None,
            expects_continue,
            streams: false,
            written: Instant::now(),
            quiet: None,
            commenting: false,
        };
        (ServerSession::new_custom(Box::new(held)), receiver)
    }

    fn session(&self) -> &ServerSession {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("the session leaves only in drop"),
        }
    }

    fn session_mut(&mut self) -> &mut ServerSession {
        match &mut self.inner {
            Some(inner) => inner,
            None => unreachable!("the session leaves only in drop"),
        }
    }

    /// Writes a released piece; the header goes with the first.
    async fn release(&mut self, data: Option<Bytes>, end: bool) -> Result<()> {
        self.unbroken()?;
        self.put(data, end).await
    }

    /// Says that the stream is alive; the header goes with the first comment, too.
    async fn comment(&mut self) -> Result<()> {
        self.unbroken()?;
        self.commenting = true;
        let written = self.put(Some(Bytes::from_static(COMMENT)), false).await;
        self.commenting = false;
        written
    }

    /// Nothing may follow half a comment.
    fn unbroken(&self) -> Result<()> {
        if !self.commenting {
            return Ok(());
        }
        self.signals.spoil();
        Err(Error::explain(ErrorType::WriteError, "a comment was cut off").into_down())
    }

    async fn put(&mut self, data: Option<Bytes>, end: bool) -> Result<()> {
        let mut tasks = Vec::with_capacity(2);
        if let Some(mut head) = self.head.take() {
            self.note_drain();
            if end {
                head.remove_header("transfer-encoding");
                head.insert_header("content-length", data.as_ref().map_or(0, Bytes::len))?;
            }
            tasks.push(HttpTask::Header(head, false));
        }
        tasks.push(HttpTask::Body(data, end));
        self.session_mut().response_duplex_vec(tasks).await?;
        self.written = Instant::now();
        self.note_end(end);
        Ok(())
    }

    fn note_end(&mut self, end: bool) {
        if end {
            self.ended.get_or_insert_with(Instant::now);
        }
    }

    /// A head that leaves while the gateway stops says that the connection ends with its answer.
    fn note_drain(&mut self) {
        if self.signals.is_draining() {
            self.session_mut().set_keepalive(None);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let (Some(inner), Some(back)) = (self.inner.take(), self.back.take()) {
            // A failed send means that the edge is gone with its connection.
            let _ = back.send(inner);
        }
    }
}

#[async_trait]
impl Session for Held {
    fn req_header(&self) -> &RequestHeader {
        self.session().req_header()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.session_mut().req_header_mut()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        if std::mem::take(&mut self.expects_continue) {
            self.session_mut().write_continue_response().await?;
        }
        self.session_mut().read_request_body().await
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.session_mut().drain_request_body().await
    }

    async fn write_response_header(&mut self, resp: Box<ResponseHeader>, end: bool) -> Result<()> {
        self.unbroken()?;
        self.head = None;
        self.note_end(end);
        let closes = resp.headers.get(http::header::CONNECTION).is_some_and(|value| value == "close");
        // A client that was not told to go on may send its body or not: what follows could not be read.
        if closes || self.expects_continue {
            self.session_mut().set_keepalive(None);
            self.signals.spoil();
        }
        self.note_drain();
        self.session_mut().write_response_header(resp).await
    }

    async fn write_response_header_ref(&mut self, resp: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(resp.clone()), end).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.unbroken()?;
        self.note_end(end);
        self.session_mut().write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        Ok(())
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        for task in tasks {
            match task {
                HttpTask::Header(head, end) => {
                    if head.status.is_informational() {
                        continue;
                    }
                    if end {
                        return Error::e_explain(UNFINISHED, "a response without a body");
                    }
                    self.streams = self.signals.is_call()
                        && head.headers.get(http::header::CONTENT_TYPE).is_some_and(|value| value == SSE);
                    self.head = Some(head);
                }
                HttpTask::Body(data, end) => {
                    let data = data.filter(|data| !data.is_empty());
                    let answers = self.signals.take_piece();
                    let last = end || answers;
                    if self.ended.is_some() {
                        // The answer is out: only the server's end is awaited.
                        if end {
                            return Ok(true);
                        }
                    } else if last || data.is_some() {
                        self.release(data, last).await?;
                    }
                    if end {
                        return Ok(true);
                    }
                }
                HttpTask::Failed(error) => return Err(error),
                HttpTask::Trailer(_) | HttpTask::Done => {
                    if self.ended.is_some() {
                        return Ok(true);
                    }
                    return Error::e_explain(UNFINISHED, "a response that ended without its last piece");
                }
                HttpTask::UpgradedBody(..) => return Error::e_explain(UNFINISHED, "an upgraded response"),
            }
        }
        Ok(false)
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.session_mut().set_read_timeout(timeout);
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.session().get_read_timeout()
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.session_mut().set_write_timeout(timeout);
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.session().get_write_timeout()
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.session_mut().set_total_drain_timeout(timeout);
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.session().get_total_drain_timeout()
    }

    fn request_summary(&self) -> String {
        String::new()
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.session().response_written()
    }

    async fn shutdown(&mut self, _code: u32, _ctx: &str) {
        self.signals.spoil();
    }

    fn is_body_done(&mut self) -> bool {
        true
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_body_empty(&mut self) -> bool {
        false
    }

    async fn read_body_or_idle(&mut self, _no_body_expected: bool) -> Result<Option<Bytes>> {
        if let Some(since) = self.ended {
            wait(&mut self.timer, || Some(since + LINGER)).await;
            return Error::e_explain(ANSWERED, "the server goes on after its answer");
        }
        loop {
            let comment = self.streams.then(|| self.written + KEEP_ALIVE);
            let Some(inner) = &mut self.inner else { return Error::e_explain(DEADLINE, "no session") };
            tokio::select! {
                biased;
                () = self.signals.over(&mut self.timer) => {
                    return Error::e_explain(DEADLINE, "the call's time limit");
                }
                () = wait(&mut self.quiet, || comment) => {}
                idle = inner.read_body_or_idle(true) => return idle,
            }
            self.comment().await?;
        }
    }

    fn body_bytes_sent(&self) -> usize {
        self.session().body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.session().body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.session().digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.session_mut().digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.session().client_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.session().server_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        Bytes::new()
    }

    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        // Its content is never sent: `request_body_filter` replaces it by the checked body.
        Some(Bytes::from_static(b"x"))
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(
        &mut self,
    ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
        None
    }

    fn restore_custom_message_reader(
        &mut self,
        _reader: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
    ) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(&mut self, _writer: Box<dyn CustomMessageWrite>) -> Result<()> {
        Ok(())
    }
}
