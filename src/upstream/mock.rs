//! A scripted server on 127.0.0.1 for the tests of this room and of discovery: one closure answers each request, and what it
//! saw is kept.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used, clippy::disallowed_types)]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use super::{
    egress::{EgressRules, judge_url},
    target::{Credential, Target, TlsOptions},
};

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case; repeated headers joined by `|`.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The JSON-RPC method, or the HTTP method where there is none.
    pub(crate) fn call(&self) -> String {
        self.json()["method"].as_str().map_or_else(|| self.method.clone(), str::to_owned)
    }

    /// A JSON answer with this request's id.
    pub(crate) fn result(&self, result: Value) -> Act {
        Act::json(200, json!({"jsonrpc": "2.0", "id": self.json()["id"], "result": result}))
    }

    /// A JSON-RPC error with this request's id.
    pub(crate) fn error(&self, status: u16, code: i64) -> Act {
        let error = json!({"code": code, "message": "canary-message"});
        Act::json(status, json!({"jsonrpc": "2.0", "id": self.json()["id"], "error": error}))
    }

    /// The same answer as an event stream, after `before`.
    pub(crate) fn stream(&self, before: &str, result: Value) -> Act {
        let message = json!({"jsonrpc": "2.0", "id": self.json()["id"], "result": result});
        Act::sse(&format!("{before}event: message\ndata: {message}\n\n"))
    }
}

/// What the server does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// These bytes, then the next request on the same connection.
    Raw(Vec<u8>),
    /// These bytes, then closes.
    Close(Vec<u8>),
    /// The first bytes at once, the rest one at a time with a pause before each.
    Drip(Vec<u8>, Vec<u8>, Duration),
    /// Never answers.
    Hang,
}

impl Act {
    pub(crate) fn with(status: u16, headers: &str, body: &[u8]) -> Self {
        let mut raw = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        raw.extend_from_slice(body);
        Self::Raw(raw)
    }

    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self::with(status, "Content-Type: application/json; charset=utf-8\r\n", body.to_string().as_bytes())
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self::with(status, "Content-Type: text/plain\r\n", body.as_bytes())
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self::with(status, "", b"")
    }

    /// A stream that stays open after `events`, as some servers leave it.
    pub(crate) fn sse(events: &str) -> Self {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        Self::Raw(format!("{head}{:x}\r\n{events}\r\n", events.len()).into_bytes())
    }

    /// Adds a header line to the answer.
    pub(crate) fn header(self, line: &str) -> Self {
        match self {
            Self::Raw(raw) => {
                let end = raw.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
                Self::Raw([&raw[..end], line.as_bytes(), b"\r\n", &raw[end..]].concat())
            }
            other => other,
        }
    }
}

/// A running server; ends when dropped.
pub(crate) struct Mock {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Mock {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, log) = (Arc::new(script), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                connections.spawn(async move {
                    let _ = serve(stream, &*script, &log).await;
                });
            }
        });
        Self { address, seen, task }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The JSON-RPC methods that came, in order.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.seen().iter().map(Seen::call).collect()
    }

    pub(crate) fn target(&self) -> Arc<Target> {
        Arc::new(target(&format!("http://{}/mcp", self.address)))
    }
}

/// A target behind rules that open loopback.
pub(crate) fn target(url: &str) -> Target {
    let rules = EgressRules {
        allow_http: true,
        allow_networks: vec!["127.0.0.0/8".parse().unwrap()],
        own_addresses: Vec::new(),
    };
    Target {
        endpoint: judge_url(url, &rules).unwrap(),
        rules: Arc::new(rules),
        credential: Credential::new([("Authorization", &b"Bearer canary-secret"[..])], "").unwrap(),
        tls: Arc::new(TlsOptions::default()),
        connect_timeout: Duration::from_secs(5),
        timeout: Duration::from_secs(10),
        http2: false,
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &(dyn Fn(&Seen) -> Act + Send + Sync),
    log: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let Some(seen) = read_request(&mut stream, &mut buffer).await? else { return Ok(()) };
        log.lock().unwrap().push(seen.clone());
        match script(&seen) {
            Act::Raw(bytes) => stream.write_all(&bytes).await?,
            Act::Close(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Act::Drip(first, rest, pause) => {
                stream.write_all(&first).await?;
                for byte in rest {
                    tokio::time::sleep(pause).await;
                    stream.write_all(&[byte]).await?;
                }
            }
            Act::Hang => std::future::pending().await,
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Seen>> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default().to_owned(), first.next().unwrap_or_default().to_owned());
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        let slot = headers.entry(name.to_ascii_lowercase()).or_default();
        *slot = if slot.is_empty() { value.trim().to_owned() } else { format!("{slot}|{}", value.trim()) };
    }
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while buffer.len() < end + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[end..end + length].to_vec();
    buffer.drain(..end + length);
    Ok(Some(Seen { method, path, headers, body }))
}
