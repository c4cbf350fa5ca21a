//! HTTP/2: the mock server's side, and one request of the client's side.

use std::{future::poll_fn, io, sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};

use super::{
    answering::Plan,
    http::Head,
    mock,
    script::Step,
    stream::Stream,
    upstream::{Event, Shared},
};

/// Serves one HTTP/2 connection of the mock server.
pub async fn serve(stream: Stream, shared: Arc<Shared>, number: usize) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(exchange(request, respond, Arc::clone(&shared), number));
    }
    shared.note(Event::PeerClosed(number));
}

async fn exchange(
    request: http::Request<h2::RecvStream>,
    respond: SendResponse<Bytes>,
    shared: Arc<Shared>,
    number: usize,
) {
    let (parts, mut stream) = request.into_parts();
    let mut head = Head { start: format!("{} {} HTTP/2", parts.method, parts.uri.path()), headers: Vec::new() };
    for (name, value) in &parts.headers {
        head.headers.push((name.to_string(), super::http::latin1(value.as_bytes())));
    }
    let Ok(body) = drain(&mut stream).await else { return };
    let (index, plan) = mock::take(&shared, number, head, body);
    if answer(respond, plan, &shared).await {
        shared.note(Event::Answered(index));
    } else {
        shared.note(Event::PeerClosed(number));
    }
}

/// Whether the answer was sent to its end.
async fn answer(mut respond: SendResponse<Bytes>, plan: Plan, shared: &Shared) -> bool {
    assert!(!plan.raw, "raw bytes are for HTTP/1.1");
    let mut response = http::Response::builder().status(plan.status);
    for (name, value) in &plan.headers {
        response = response.header(name.to_ascii_lowercase(), value);
    }
    let Ok(mut send) = respond.send_response(response.body(()).expect("a head"), false) else { return false };
    for step in plan.body {
        if !perform(&mut send, step, shared).await {
            return false;
        }
    }
    send.send_data(Bytes::new(), true).is_ok()
}

async fn perform(send: &mut SendStream<Bytes>, step: Step, shared: &Shared) -> bool {
    match step {
        Step::Bytes(bytes) => send.send_data(bytes.into(), false).is_ok(),
        Step::Repeat(times, bytes) => send.send_data(bytes.repeat(times).into(), false).is_ok(),
        Step::Bytewise(bytes) => bytes.iter().all(|&b| send.send_data(Bytes::from(vec![b]), false).is_ok()),
        Step::Drip(ms, bytes) => every(send, ms, if bytes.is_empty() { b" " } else { &bytes }).await,
        Step::Every(ms, bytes) => every(send, ms, &bytes).await,
        Step::Gate(name) => {
            let opened = shared.wait(super::WAIT_LIMIT, |state| state.gates.contains(&name).then_some(()));
            tokio::select! { done = opened => done.is_some(), _ = poll_fn(|cx| send.poll_reset(cx)) => false }
        }
        Step::Stall => {
            let _ = poll_fn(|cx| send.poll_reset(cx)).await;
            false
        }
        Step::Close | Step::Reset => {
            send.send_reset(Reason::INTERNAL_ERROR);
            false
        }
    }
}

async fn every(send: &mut SendStream<Bytes>, ms: u64, bytes: &[u8]) -> bool {
    while send.send_data(Bytes::copy_from_slice(bytes), false).is_ok() {
        let pause = tokio::time::sleep(Duration::from_millis(ms));
        tokio::select! { () = pause => {}, _ = poll_fn(|cx| send.poll_reset(cx)) => return false }
    }
    false
}

/// Sends one request on a fresh connection and reads the whole answer.
pub async fn request(stream: Stream, request: http::Request<()>, body: Vec<u8>) -> io::Result<(Head, Vec<u8>)> {
    let (send, connection) = h2::client::handshake(stream).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut send = send.ready().await.map_err(io::Error::other)?;
    let (response, mut stream) = send.send_request(request, body.is_empty()).map_err(io::Error::other)?;
    if !body.is_empty() {
        // A server may answer before it has read everything, and end the stream.
        let _ = stream.send_data(body.into(), true);
    }
    let (parts, mut stream) = response.await.map_err(io::Error::other)?.into_parts();
    let mut head = Head { start: format!("HTTP/2 {}", parts.status.as_u16()), headers: Vec::new() };
    for (name, value) in &parts.headers {
        head.headers.push((name.to_string(), super::http::latin1(value.as_bytes())));
    }
    let body = drain(&mut stream).await.map_err(io::Error::other)?;
    driver.abort();
    Ok((head, body))
}

async fn drain(stream: &mut h2::RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok(body)
}

/// A connection of the client's side that carries many requests.
pub struct Multiplexed {
    send: h2::client::SendRequest<Bytes>,
    client: super::client::Client,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Multiplexed {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Multiplexed {
    /// Opens a connection to where the client's requests go.
    pub async fn open(client: &super::client::Client) -> Self {
        let stream = client.http2_socket().await;
        let (send, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { send, client: client.clone(), driver }
    }

    /// Sends a request and leaves the answer to the caller.
    pub async fn start(&self, request: &super::client::Request) -> Pending {
        let mut send = self.send.clone().ready().await.expect("room for a stream");
        let (response, mut stream) = send.send_request(self.client.http2_head(request), false).expect("a request");
        stream.send_data(request.body.clone().into(), true).expect("a body");
        Pending { response, stream, asked: request.asked.clone() }
    }
}

/// A request of a [`Multiplexed`] connection whose answer is still to come.
pub struct Pending {
    response: h2::client::ResponseFuture,
    stream: SendStream<Bytes>,
    asked: super::answer::Asked,
}

impl Pending {
    /// Reads the answer to its end.
    pub async fn finish(self) -> super::answer::Answer {
        let read = async {
            let (parts, mut stream) = self.response.await?.into_parts();
            let mut head = Head { start: format!("HTTP/2 {}", parts.status.as_u16()), headers: Vec::new() };
            for (name, value) in &parts.headers {
                head.headers.push((name.to_string(), super::http::latin1(value.as_bytes())));
            }
            let body = drain(&mut stream).await?;
            Ok::<_, h2::Error>(super::answer::Answer::new(self.asked, head, body))
        };
        super::within("an answer", read).await.expect("an answer over HTTP/2")
    }

    /// Goes away from this request alone.
    pub fn reset(mut self) {
        self.stream.send_reset(Reason::CANCEL);
    }
}
