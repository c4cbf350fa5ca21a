//! One request and its answer over HTTP/1.1, step by step: a test can look at the first event while the server still works, or go away.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use super::{
    answer::{Answer, Asked, events},
    http::{Framing, Head, Reader},
    stream::Stream,
};

/// How long a gateway that said `Connection: close` may take to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A connection of the client.
pub struct Connection {
    reader: Reader<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
}

impl Connection {
    /// Takes a connected socket.
    pub fn new(stream: Stream) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader: Reader::new(reader), writer }
    }

    /// Whether the gateway has closed it meanwhile, or sent what nobody asked for.
    pub async fn is_stale(&mut self) -> bool {
        tokio::select! { biased; _ = self.reader.fill() => true, () = std::future::ready(()) => false }
    }

    /// Writes bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await
    }

    /// Closes the sending side, as a client does that is done.
    pub async fn finish_writing(&mut self) {
        let _ = self.writer.shutdown().await;
    }

    /// Closes with a reset.
    pub fn reset(self) {
        self.reader.into_inner().unsplit(self.writer).reset();
    }

    /// Waits until the gateway closes; gives what it sent before.
    pub async fn until_closed(&mut self) -> Vec<u8> {
        let wait = async { while matches!(self.reader.fill().await, Ok(n) if n > 0) {} };
        super::within("the close of the connection", wait).await;
        self.reader.ahead().to_vec()
    }

    /// Reads one head, such as `100 Continue`, and gives the connection back for what follows.
    pub async fn interim(mut self) -> (Head, Self) {
        let head = super::within("an interim answer", self.reader.head()).await;
        (head.ok().flatten().expect("a head"), self)
    }

    /// Starts to read an answer.
    pub fn exchange(self, asked: Asked) -> Exchange {
        Exchange {
            connection: self,
            asked,
            sent: Instant::now(),
            interim: Vec::new(),
            head: None,
            framing: Framing::Done,
            body: Vec::new(),
            given: 0,
            cut: false,
        }
    }
}

/// A request that was sent and whose answer is being read.
pub struct Exchange {
    connection: Connection,
    asked: Asked,
    sent: Instant,
    /// Interim heads, such as `100 Continue`.
    pub interim: Vec<Head>,
    head: Option<Head>,
    framing: Framing,
    body: Vec<u8>,
    given: usize,
    cut: bool,
}

impl Exchange {
    /// Waits for the head; none when the connection ended without one.
    pub async fn head(&mut self) -> Option<&Head> {
        while self.head.is_none() {
            let read = super::within("an answer", self.connection.reader.head()).await;
            let Ok(Some(head)) = read else { return None };
            if (100..200).contains(&head.status()) {
                self.interim.push(head);
                continue;
            }
            self.framing = head.framing(true);
            self.head = Some(head);
        }
        self.head.as_ref()
    }

    /// The next event of the stream as text; none at its end.
    pub async fn next_event(&mut self) -> Option<String> {
        self.head().await?;
        loop {
            let ready = events(&String::from_utf8_lossy(&self.body));
            if let Some(event) = ready.get(self.given) {
                self.given += 1;
                return Some(event.clone());
            }
            self.piece().await?;
        }
    }

    /// Reads another piece of the body; none at its end.
    async fn piece(&mut self) -> Option<()> {
        match super::within("the rest of the answer", self.connection.reader.piece(&mut self.framing)).await {
            Ok(Some(piece)) => self.body.extend_from_slice(&piece),
            Ok(None) => return None,
            Err(_) => {
                self.cut = true;
                return None;
            }
        }
        Some(())
    }

    /// Writes more of the request.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent = Instant::now();
        self.connection.write(bytes).await
    }

    /// Reads the answer to its end; gives the connection back when it can carry another.
    pub async fn finish(mut self) -> (Answer, Option<Connection>) {
        self.head().await;
        while self.head.is_some() && self.piece().await.is_some() {}
        let took = self.sent.elapsed();
        let closing = self.head.as_ref().is_none_or(|head| {
            head.get("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"))
                || head.start.starts_with("HTTP/1.0")
        });
        let mut answer = Answer::new(self.asked, self.head.unwrap_or_default(), self.body);
        (answer.took, answer.cut) = (took, self.cut);
        let mut connection = self.connection;
        if closing || answer.cut {
            let end = async { while matches!(connection.reader.fill().await, Ok(n) if n > 0) {} };
            answer.closed = tokio::time::timeout(CLOSE_LIMIT, end).await.is_ok();
            return (answer, None);
        }
        (answer, Some(connection))
    }

    /// Goes away with a FIN, in the middle of whatever happens.
    pub fn disconnect(self) {
        drop(self);
    }

    /// Goes away with a reset.
    pub fn reset(self) {
        self.connection.reset();
    }
}
