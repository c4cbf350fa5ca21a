//! The inside of the mock server: it accepts, reads, notes and answers. [`super::upstream`] is its face.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use serde_json::{Value, value::RawValue};
use tokio::{
    io::{AsyncWriteExt, ReadHalf, WriteHalf},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};

use super::{
    answering::{self, Plan},
    h2wire,
    http::{Head, Reader},
    judge,
    script::{self, Step},
    stream::Stream,
    tls::Identity,
    upstream::{Accept, Event, Seen, Shared, Up, Upstream},
};

/// The largest piece that is written at once.
const PIECE: usize = 64 * 1024;

/// The accepting task; ends with the last handle.
pub struct Listening {
    task: Mutex<Option<(JoinHandle<()>, oneshot::Sender<()>)>>,
    tls: Mutex<Option<tokio_rustls::TlsAcceptor>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((task, _)) = self.task.lock().expect("no panic holds it").take() {
            task.abort();
        }
    }
}

impl Listening {
    /// Closes the port and every connection, and waits until they are closed.
    async fn stop(&self) {
        let running = self.task.lock().expect("no panic holds it").take();
        if let Some((task, stop)) = running {
            drop(stop);
            task.await.expect("the accepting task ends");
        }
    }
}

/// Starts a mock server.
pub async fn start(builder: Upstream) -> Up {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    let tls = builder.identity.map(|identity| tokio_rustls::TlsAcceptor::from(identity.server(&["h2", "http/1.1"])));
    let shared = Arc::new(Shared { state: Mutex::new(builder.state), changed: tokio::sync::Notify::new() });
    let up = Up {
        address,
        tls: tls.is_some(),
        shared,
        listener: Arc::new(Listening { task: Mutex::new(None), tls: Mutex::new(tls) }),
    };
    listen(&up, listener);
    up
}

/// Closes the port and every connection, or opens the port again.
pub async fn refuse(up: &Up, refuse: bool) {
    up.listener.stop().await;
    if refuse {
        let gone = async || TcpStream::connect(up.address).await.is_err().then_some(());
        super::eventually("the port closed", gone).await;
    } else {
        let bind = async || TcpListener::bind(up.address).await.ok();
        listen(up, super::eventually("the port bound again", bind).await);
    }
}

/// Starts to listen again with another certificate.
pub async fn show(up: &Up, identity: &Identity) {
    let acceptor = tokio_rustls::TlsAcceptor::from(identity.server(&["h2", "http/1.1"]));
    *up.listener.tls.lock().expect("no panic holds it") = Some(acceptor);
    refuse(up, true).await;
    refuse(up, false).await;
}

fn listen(up: &Up, listener: TcpListener) {
    let (shared, tls) = (Arc::clone(&up.shared), up.listener.tls.lock().expect("no panic holds it").clone());
    let (stop, mut stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! { accepted = listener.accept() => accepted, _ = &mut stopped => break };
            let Ok((socket, _)) = accepted else { continue };
            let number = {
                let mut state = shared.state();
                state.connections += 1;
                state.connections - 1
            };
            shared.note(Event::Accepted(number));
            connections.spawn(connection(socket, tls.clone(), Arc::clone(&shared), number));
        }
        drop(listener);
        connections.shutdown().await;
    });
    *up.listener.task.lock().expect("no panic holds it") = Some((task, stop));
}

async fn connection(socket: TcpStream, tls: Option<tokio_rustls::TlsAcceptor>, shared: Arc<Shared>, number: usize) {
    socket.set_nodelay(true).expect("a live socket");
    let accept = shared.state().accept;
    match accept {
        Accept::Serve => {}
        Accept::Reset => return Stream::Plain(socket).reset(),
        Accept::Close => return,
        Accept::Silence => {
            let mut reader = Reader::new(socket);
            gone(&mut reader).await;
            return shared.note(Event::PeerClosed(number));
        }
    }
    let stream = match tls {
        None => Stream::Plain(socket),
        Some(acceptor) => match acceptor.accept(socket).await {
            Ok(stream) => Stream::Tls(Box::new(stream.into())),
            Err(_) => return,
        },
    };
    let http2 = matches!(&stream, Stream::Tls(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2".as_slice()));
    if http2 {
        h2wire::serve(stream, shared, number).await;
    } else {
        let (reader, writer) = tokio::io::split(stream);
        Conversation { reader: Reader::new(reader), writer, shared, number }.serve().await;
    }
}

/// Notes a request and plans its answer.
pub fn take(shared: &Shared, connection: usize, head: Head, body: Vec<u8>) -> (usize, Plan) {
    let message = read(&body);
    let seen = Seen { connection, head, body, message, at: Instant::now() };
    let mut state = shared.state();
    let faults = judge::faults(&state, &seen);
    state.faults.extend(faults);
    let plan = answering::plan(&mut state, &seen);
    state.seen.push(seen);
    let index = state.seen.len() - 1;
    drop(state);
    shared.note(Event::Request(index));
    (index, plan)
}

/// A message, also when its arguments are deeper than a JSON library reads: then they are left out.
pub fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let (text, arguments) = (String::from_utf8_lossy(body), raw_arguments(body));
        if arguments.is_empty() {
            return Value::Null;
        }
        let shallow = text.replacen(&arguments, "{}", 1);
        serde_json::from_str(&shallow).unwrap_or(Value::Null)
    })
}

/// `params.arguments` as written.
pub fn raw_arguments(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        params: Option<Params<'a>>,
    }
    #[derive(serde::Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let message: Option<Message<'_>> = serde_json::from_slice(body).ok();
    message.and_then(|m| m.params).and_then(|p| p.arguments).map(|a| a.get().to_owned()).unwrap_or_default()
}

/// Waits until the peer has closed; what it sends meanwhile stays buffered.
async fn gone<R: tokio::io::AsyncRead + Unpin>(reader: &mut Reader<R>) {
    while matches!(reader.fill().await, Ok(n) if n > 0) {}
}

/// How an answer ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Complete; the connection can carry another.
    Orderly,
    /// The script closes the connection.
    Close,
    /// The script resets it.
    Reset,
    /// The peer went away.
    Gone,
}

struct Conversation {
    reader: Reader<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
    shared: Arc<Shared>,
    number: usize,
}

impl Conversation {
    async fn serve(mut self) {
        loop {
            let Ok(Some(head)) = self.reader.head().await else { break };
            let Ok(body) = self.reader.body(head.framing(false)).await else { break };
            let (index, plan) = take(&self.shared, self.number, head, body);
            match self.answer(plan).await {
                End::Orderly => self.shared.note(Event::Answered(index)),
                End::Gone => break,
                End::Close => {
                    self.shared.note(Event::Answered(index));
                    let _ = self.writer.shutdown().await;
                    return;
                }
                End::Reset => return self.reader.into_inner().unsplit(self.writer).reset(),
            }
        }
        self.shared.note(Event::PeerClosed(self.number));
    }

    async fn answer(&mut self, plan: Plan) -> End {
        let chunked = !plan.raw && script::length(&plan.body).is_none_or(|_| plan.stream);
        if !plan.raw {
            let head = plan.head(chunked);
            if let Some(end) = self.write(head.as_bytes(), false).await {
                return end;
            }
        }
        for step in plan.body {
            if let Some(end) = self.step(step, chunked).await {
                return end;
            }
        }
        if chunked {
            return self.write(b"0\r\n\r\n", false).await.unwrap_or(End::Orderly);
        }
        if plan.until_close { End::Close } else { End::Orderly }
    }

    /// Does one step; none when the script goes on.
    async fn step(&mut self, step: Step, chunked: bool) -> Option<End> {
        match step {
            Step::Bytes(bytes) => return self.write(&bytes, chunked).await,
            Step::Repeat(times, bytes) => {
                let at_once = (PIECE / bytes.len().max(1)).clamp(1, times.max(1));
                let piece = bytes.repeat(at_once);
                for _ in 0..times / at_once {
                    if let Some(end) = self.write(&piece, chunked).await {
                        return Some(end);
                    }
                }
                let rest = bytes.repeat(times % at_once);
                return if rest.is_empty() { None } else { self.write(&rest, chunked).await };
            }
            Step::Bytewise(bytes) => {
                for byte in bytes {
                    if let Some(end) = self.write(&[byte], chunked).await {
                        return Some(end);
                    }
                }
            }
            Step::Drip(ms, bytes) if bytes.is_empty() => return self.every(ms, b" ", chunked).await,
            Step::Drip(ms, bytes) => {
                for byte in bytes {
                    if let Some(end) = self.write(&[byte], chunked).await {
                        return Some(end);
                    }
                    if let Some(end) = self.pause(tokio::time::sleep(std::time::Duration::from_millis(ms))).await {
                        return Some(end);
                    }
                }
            }
            Step::Every(ms, bytes) => return self.every(ms, &bytes, chunked).await,
            Step::Gate(name) => {
                let shared = Arc::clone(&self.shared);
                let opened = async {
                    let limit = super::WAIT_LIMIT * 4;
                    shared.wait(limit, |state| state.gates.contains(&name).then_some(())).await;
                };
                return self.pause(opened).await;
            }
            Step::Stall => return self.pause(std::future::pending::<()>()).await,
            Step::Close => return Some(End::Close),
            Step::Reset => return Some(End::Reset),
        }
        None
    }

    async fn every(&mut self, ms: u64, bytes: &[u8], chunked: bool) -> Option<End> {
        loop {
            if let Some(end) = self.write(bytes, chunked).await {
                return Some(end);
            }
            if let Some(end) = self.pause(tokio::time::sleep(std::time::Duration::from_millis(ms))).await {
                return Some(end);
            }
        }
    }

    async fn pause<F: Future>(&mut self, wait: F) -> Option<End> {
        tokio::select! {
            _ = wait => None,
            () = gone(&mut self.reader) => Some(End::Gone),
        }
    }

    async fn write(&mut self, bytes: &[u8], chunked: bool) -> Option<End> {
        let framed;
        let out = if chunked {
            framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
            &framed
        } else {
            bytes
        };
        let write = async {
            self.writer.write_all(out).await?;
            self.writer.flush().await
        };
        tokio::select! {
            biased;
            done = write => done.is_err().then_some(End::Gone),
            () = gone(&mut self.reader) => Some(End::Gone),
        }
    }
}

/// Where a mock server listens.
pub fn local(up: &Up) -> SocketAddr {
    up.address
}
