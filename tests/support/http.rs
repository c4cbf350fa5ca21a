//! HTTP/1.1 read by hand, so that a test sees every byte: the mock server and the client both stand on it.
//!
//! Reads what a peer sent and judges nothing: what is odd is kept for the test to look at.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The head of a request or an answer.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The request line or the status line.
    pub start: String,
    /// Names as sent, values trimmed, both as Latin-1; in order.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// Reads a head without its final blank line.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = latin1(bytes);
        let mut lines = text.split('\n').map(|line| line.trim_end_matches('\r'));
        let start = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        Self { start, headers }
    }

    /// The values of every header line of that name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    /// The value of the first header line of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// The status of an answer; 0 when the line is none.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// How the body of this message is framed; `answer` is true for answers.
    pub fn framing(&self, answer: bool) -> Framing {
        let status = self.status();
        if answer && (status == 204 || status == 304 || (100..200).contains(&status)) {
            return Framing::Done;
        }
        if self.all("transfer-encoding").iter().any(|v| v.to_ascii_lowercase().contains("chunked")) {
            return Framing::Chunked { left: None };
        }
        match self.get("content-length").and_then(|v| v.parse().ok()) {
            Some(0) => Framing::Done,
            Some(left) => Framing::Length { left },
            None if answer => Framing::Eof,
            None => Framing::Done,
        }
    }
}

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By `Content-Length`.
    Length {
        /// Bytes still to come.
        left: usize,
    },
    /// By chunks.
    Chunked {
        /// Bytes of the current chunk still to come; none between chunks.
        left: Option<usize>,
    },
    /// Until the peer closes.
    Eof,
    /// Nothing more.
    Done,
}

/// A buffered reader of HTTP/1.1 messages. Every method may be cancelled without losing a byte.
pub struct Reader<R> {
    inner: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Wraps a socket.
    pub fn new(inner: R) -> Self {
        Self { inner, buffer: Vec::new() }
    }

    /// Gives the socket back; what was read ahead is lost.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// What was read and not yet taken.
    pub fn ahead(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads once; 0 when the peer closed.
    pub async fn fill(&mut self) -> io::Result<usize> {
        let mut piece = vec![0; 16 * 1024];
        let n = self.inner.read(&mut piece).await?;
        self.buffer.extend_from_slice(&piece[..n]);
        Ok(n)
    }

    /// Reads until at least `count` bytes are buffered; false when the peer closed before.
    pub async fn want(&mut self, count: usize) -> io::Result<bool> {
        while self.buffer.len() < count {
            if self.fill().await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a head; none when the peer closed before its end. Takes bare LF line ends as well.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            let end = find(&self.buffer, b"\r\n\r\n").map(|at| at + 4).or(find(&self.buffer, b"\n\n").map(|at| at + 2));
            if let Some(end) = end {
                let bytes: Vec<u8> = self.buffer.drain(..end).collect();
                return Ok(Some(Head::parse(bytes.trim_ascii_end())));
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next piece of the body; none at its end. A body cut short is an [`io::ErrorKind::UnexpectedEof`].
    pub async fn piece(&mut self, framing: &mut Framing) -> io::Result<Option<Vec<u8>>> {
        match *framing {
            Framing::Done => Ok(None),
            Framing::Eof => {
                if self.buffer.is_empty() && self.fill().await? == 0 {
                    *framing = Framing::Done;
                    return Ok(None);
                }
                Ok(Some(std::mem::take(&mut self.buffer)))
            }
            Framing::Length { left } => {
                self.need(1).await?;
                let take = left.min(self.buffer.len());
                *framing = if take == left { Framing::Done } else { Framing::Length { left: left - take } };
                Ok(Some(self.buffer.drain(..take).collect()))
            }
            Framing::Chunked { left: Some(left) } => {
                self.need(1).await?;
                let take = left.min(self.buffer.len());
                *framing = Framing::Chunked { left: (take < left).then_some(left - take) };
                Ok(Some(self.buffer.drain(..take).collect()))
            }
            Framing::Chunked { left: None } => self.chunk(framing).await,
        }
    }

    /// The whole body.
    pub async fn body(&mut self, mut framing: Framing) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(&mut framing).await? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    async fn chunk(&mut self, framing: &mut Framing) -> io::Result<Option<Vec<u8>>> {
        let mut line = self.line().await?;
        if line.is_empty() {
            line = self.line().await?; // the end of the chunk before
        }
        let digits = latin1(&line);
        let digits = digits.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).map_err(|_| io::Error::other(format!("chunk size {digits:?}")))?;
        if size > 0 {
            *framing = Framing::Chunked { left: Some(size) };
            return Box::pin(self.piece(framing)).await;
        }
        while !self.line().await?.is_empty() {}
        *framing = Framing::Done;
        Ok(None)
    }

    async fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.iter().position(|&b| b == b'\n') {
                let mut line: Vec<u8> = self.buffer.drain(..=at).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            self.need(self.buffer.len() + 1).await?;
        }
    }

    async fn need(&mut self, count: usize) -> io::Result<()> {
        if self.want(count).await? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// Where `needle` first occurs.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Bytes as characters, one each.
pub fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

/// Characters of a Latin-1 text as bytes; panics at any other.
pub fn bytes_of_latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("a Latin-1 character")).collect()
}
