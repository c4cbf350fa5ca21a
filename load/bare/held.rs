//! The downstream session of the shape `held`: keeps the header until the answer is there and writes both at once, with an exact
//! `Content-Length`; and the application that puts it around each session. No limits, no streams, no drain: those are the product's.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use http::HeaderMap;
use pingora::{
    Result,
    apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream},
    http::{RequestHeader, ResponseHeader},
    protocols::{
        Digest,
        http::{
            HttpTask, ServerSession,
            custom::{CustomMessageWrite, server::Session},
        },
        l4::socket::SocketAddr,
    },
    proxy::HttpProxy,
    server::ShutdownWatch,
};
use tokio::sync::{oneshot, watch};

use super::Checked;

/// A connection's requests, one by one.
pub(super) struct Edge {
    proxy: Arc<HttpProxy<Checked>>,
    options: HttpServerOptions,
    quiet: ShutdownWatch,
}

impl Edge {
    pub(super) fn new(proxy: HttpProxy<Checked>) -> Self {
        Self { proxy: Arc::new(proxy), options: HttpServerOptions::default(), quiet: watch::channel(false).1 }
    }
}

#[async_trait]
impl HttpServerApp for Edge {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        session.set_keepalive(Some(60));
        if !session.read_request().await.ok()? {
            return None;
        }
        let (back, mut returned) = oneshot::channel();
        let held = Held { inner: Some(Box::new(session)), back: Some(back), head: None };
        self.proxy.process_new_http(ServerSession::new_custom(Box::new(held)), &self.quiet).await;
        let session = *returned.try_recv().ok()?;
        let persistent = HttpPersistentSettings::for_session(&session);
        let reusable = session.finish().await.ok().flatten()?;
        Some(ReusedHttpStream::from_reusable_stream(reusable, persistent))
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}

struct Held {
    /// Taken when this is dropped.
    inner: Option<Box<ServerSession>>,
    back: Option<oneshot::Sender<Box<ServerSession>>>,
    head: Option<Box<ResponseHeader>>,
}

impl Held {
    fn session(&self) -> &ServerSession {
        self.inner.as_ref().expect("the session leaves only in drop")
    }

    fn session_mut(&mut self) -> &mut ServerSession {
        self.inner.as_mut().expect("the session leaves only in drop")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let (Some(inner), Some(back)) = (self.inner.take(), self.back.take()) {
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
        self.session_mut().read_request_body().await
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.session_mut().drain_request_body().await
    }

    async fn write_response_header(&mut self, resp: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.session_mut().write_response_header(resp).await
    }

    async fn write_response_header_ref(&mut self, resp: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(resp.clone()), end).await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.session_mut().write_response_body(data, end).await
    }

    async fn write_trailers(&mut self, _trailers: HeaderMap) -> Result<()> {
        Ok(())
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        for task in tasks {
            match task {
                HttpTask::Header(head, false) => self.head = Some(head),
                HttpTask::Body(data, true) => {
                    let mut tasks = Vec::with_capacity(2);
                    if let Some(mut head) = self.head.take() {
                        head.remove_header("transfer-encoding");
                        head.insert_header("content-length", data.as_ref().map_or(0, Bytes::len))?;
                        tasks.push(HttpTask::Header(head, false));
                    }
                    tasks.push(HttpTask::Body(data, true));
                    return self.session_mut().response_duplex_vec(tasks).await;
                }
                HttpTask::Failed(error) => return Err(error),
                _ => {}
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

    async fn shutdown(&mut self, _code: u32, _ctx: &str) {}

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
        self.session_mut().read_body_or_idle(true).await
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
        // Never sent: `request_body_filter` puts the checked body in its place.
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
