//! The client: an agent that speaks either era over raw TCP, TLS or HTTP/2, and can send any bytes.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Mutex};

use super::{
    answer::{Answer, Asked, Era},
    exchange::{Connection, Exchange},
    h2wire,
    http::{Head, latin1},
    stream::Stream,
};

/// `Accept` of a client that takes both forms.
pub const BOTH: &str = "application/json, text/event-stream";

/// Where the gateway listens, and how.
#[derive(Clone)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// TLS, if the listener has it.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// `gateway.base_path`
    pub base: String,
}

/// A client with a key, a dialect and an endpoint. Cheap to clone; the clone has its own connection.
pub struct Client {
    target: Target,
    token: Option<String>,
    era: Era,
    revision: &'static str,
    accept: String,
    slug: Option<String>,
    capabilities: Value,
    progress: Option<Value>,
    extra: Vec<(String, String)>,
    http2: bool,
    fresh: bool,
    ids: Arc<AtomicU64>,
    pool: Mutex<Option<Connection>>,
}

impl Clone for Client {
    fn clone(&self) -> Self {
        Self {
            target: self.target.clone(),
            token: self.token.clone(),
            accept: self.accept.clone(),
            slug: self.slug.clone(),
            capabilities: self.capabilities.clone(),
            progress: self.progress.clone(),
            extra: self.extra.clone(),
            ids: Arc::clone(&self.ids),
            pool: Mutex::default(),
            ..*self
        }
    }
}

/// A request as it will be sent; every part can be replaced first.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method.
    pub method: String,
    /// The request target.
    pub path: String,
    /// Headers, without the framing.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Sends the body in chunks of that size, without `Content-Length`.
    pub chunk: Option<usize>,
    /// What the answer must fit.
    pub asked: Asked,
}

impl Request {
    /// Replaces a header, or adds it.
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.and(name, value)
    }

    /// Adds a header line, also when there is one of that name.
    pub fn and(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// Another request target.
    pub fn to(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// Another HTTP method.
    pub fn by(mut self, method: &str) -> Self {
        method.clone_into(&mut self.method);
        self
    }

    /// In chunks of that size.
    pub fn chunked(mut self, size: usize) -> Self {
        self.chunk = Some(size);
        self
    }

    /// The head as HTTP/1.1.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            out += &format!("{name}: {value}\r\n");
        }
        match self.chunk {
            Some(_) => out += "Transfer-Encoding: chunked\r\n",
            None if self.method == "GET" || self.method == "HEAD" => {}
            None => out += &format!("Content-Length: {}\r\n", self.body.len()),
        }
        super::http::bytes_of_latin1(&(out + "\r\n"))
    }

    /// The whole request as HTTP/1.1.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.head_bytes();
        match self.chunk {
            None => out.extend_from_slice(&self.body),
            Some(size) => {
                for piece in self.body.chunks(size) {
                    out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    out.extend_from_slice(piece);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
            }
        }
        out
    }
}

impl Client {
    /// A modern client of the aggregated endpoint that takes both forms.
    pub fn new(target: Target, token: Option<String>) -> Self {
        Self {
            target,
            token,
            era: Era::Modern,
            revision: "2025-11-25",
            accept: BOTH.to_owned(),
            slug: None,
            capabilities: json!({}),
            progress: None,
            extra: Vec::new(),
            http2: false,
            fresh: false,
            ids: Arc::new(AtomicU64::new(1)),
            pool: Mutex::default(),
        }
    }

    /// Speaks that dialect.
    pub fn era(mut self, era: Era) -> Self {
        self.era = era;
        self
    }

    /// Speaks a legacy revision; an empty one sends no version header.
    pub fn legacy(mut self, revision: &'static str) -> Self {
        self.revision = revision;
        self.era(Era::Legacy)
    }

    /// Uses one server's own endpoint.
    pub fn server(mut self, slug: &str) -> Self {
        self.slug = Some(slug.to_owned());
        self
    }

    /// Sends this `Accept`; empty: none.
    pub fn accept(mut self, accept: &str) -> Self {
        accept.clone_into(&mut self.accept);
        self
    }

    /// The token that it sends.
    pub fn bearer(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Sends another token.
    pub fn token(mut self, token: Option<&str>) -> Self {
        self.token = token.map(str::to_owned);
        self
    }

    /// Declares capabilities.
    pub fn capable(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Asks for progress under this token.
    pub fn progress(mut self, token: Value) -> Self {
        self.progress = Some(token);
        self
    }

    /// Sends one more header with each request.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.extra.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Opens a connection for each request.
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// Speaks HTTP/2: by ALPN on a TLS listener, else by prior knowledge.
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// The dialect.
    pub fn speaks(&self) -> Era {
        self.era
    }

    /// The path of the endpoint.
    pub fn path(&self) -> String {
        match &self.slug {
            Some(slug) => format!("{}/{slug}/mcp", self.target.base),
            None => format!("{}/mcp", self.target.base),
        }
    }

    /// How this endpoint calls that tool of that server.
    pub fn named(&self, slug: &str, tool: &str) -> String {
        if self.slug.is_some() { tool.to_owned() } else { format!("{slug}_{tool}") }
    }

    /// Calls a tool.
    pub async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.call_text(tool, &arguments.to_string()).await
    }

    /// Calls a tool with arguments as written.
    pub async fn call_text(&self, tool: &str, arguments: &str) -> Answer {
        self.send(self.calling(tool, arguments)).await
    }

    /// Lists the tools; every page.
    pub async fn list(&self) -> Vec<Value> {
        let mut tools = Vec::new();
        let mut cursor = None;
        loop {
            let params = cursor.map_or_else(|| json!({}), |cursor: Value| json!({ "cursor": cursor }));
            let answer = self.rpc("tools/list", params).await;
            let result = answer.ok();
            tools.extend(result["tools"].as_array().expect("tools").iter().cloned());
            match result.get("nextCursor") {
                Some(next) if !next.is_null() => cursor = Some(next.clone()),
                _ => return tools,
            }
        }
    }

    /// The names of the listed tools.
    pub async fn listed(&self) -> Vec<String> {
        self.list().await.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Sends any request of the protocol.
    pub async fn rpc(&self, method: &str, params: Value) -> Answer {
        self.send(self.asking(method, params)).await
    }

    /// The request of a call, to be changed before it is sent.
    pub fn calling(&self, tool: &str, arguments: &str) -> Request {
        let name = json!(tool);
        let meta = self.meta(&json!({}));
        let meta = if meta == json!({}) { String::new() } else { format!(r#","_meta":{meta}"#) };
        let id = self.next_id();
        self.posting(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name},"arguments":{arguments}{meta}}}}}"#
        ))
    }

    /// Any request of the protocol, to be changed before it is sent.
    pub fn asking(&self, method: &str, mut params: Value) -> Request {
        let meta = self.meta(&params["_meta"]);
        if meta != json!({}) {
            params["_meta"] = meta;
        }
        let id = self.next_id();
        self.posting(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
    }

    /// A POST of this body; the protocol headers are made from it as far as it can be read.
    pub fn posting(&self, body: impl Into<Vec<u8>>) -> Request {
        let body = body.into();
        let message = super::mock::read(&body);
        let mut request = Request {
            method: "POST".to_owned(),
            path: self.path(),
            headers: vec![("Host".to_owned(), self.target.address.to_string())],
            chunk: None,
            asked: Asked {
                id: message.get("id").cloned().unwrap_or(Value::Null),
                era: self.era,
                tool: (message["method"] == "tools/call")
                    .then(|| message["params"]["name"].as_str().map(str::to_owned))
                    .flatten(),
            },
            body,
        };
        request = request.and("Content-Type", "application/json");
        if !self.accept.is_empty() {
            request = request.and("Accept", &self.accept);
        }
        if let Some(token) = &self.token {
            request = request.and("Authorization", &format!("Bearer {token}"));
        }
        for (name, value) in protocol_headers(self.era, self.revision, &message) {
            request = request.and(name, &value);
        }
        for (name, value) in &self.extra {
            request = request.and(name, value);
        }
        request
    }

    /// Sends a request and reads the answer to its end.
    pub async fn send(&self, request: Request) -> Answer {
        if self.http2 {
            return self.send_http2(request).await;
        }
        let (answer, connection) = self.start(request).await.finish().await;
        if !self.fresh {
            *self.pool.lock().await = connection;
        }
        answer
    }

    /// Sends a request and leaves the answer to the caller.
    pub async fn start(&self, request: Request) -> Exchange {
        let mut connection = self.connection().await;
        // A gateway may answer and close before it has read everything.
        let _ = connection.write(&request.bytes()).await;
        connection.exchange(request.asked)
    }

    /// Sends bytes on a fresh connection and reads one answer.
    pub async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut connection = self.connect().await.expect("the gateway listens");
        let _ = connection.write(bytes).await;
        connection.exchange(self.asked_by(bytes)).finish().await.0
    }

    /// Sends bytes on a fresh connection and gives all that comes until the gateway closes.
    pub async fn raw_until_closed(&self, bytes: &[u8]) -> Vec<u8> {
        let mut connection = self.connect().await.expect("the gateway listens");
        let _ = connection.write(bytes).await;
        connection.until_closed().await
    }

    /// Opens a connection.
    pub async fn connect(&self) -> io::Result<Connection> {
        Ok(Connection::new(self.socket(&["http/1.1"]).await?))
    }

    /// What an answer to these bytes must fit.
    pub fn asked_by(&self, bytes: &[u8]) -> Asked {
        let body = super::http::find(bytes, b"\r\n\r\n").map(|at| &bytes[at + 4..]).unwrap_or_default();
        self.posting(body).asked
    }

    async fn connection(&self) -> Connection {
        if let Some(mut kept) = self.pool.lock().await.take()
            && !kept.is_stale().await
        {
            return kept;
        }
        self.connect().await.expect("the gateway listens")
    }

    async fn socket(&self, alpn: &[&str]) -> io::Result<Stream> {
        let tcp = TcpStream::connect(self.target.address).await?;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.target.tls else { return Ok(Stream::Plain(tcp)) };
        let mut config = (**tls).clone();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        let name = self.target.address.ip().into();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    /// A socket on which HTTP/2 was settled, or is about to be spoken.
    pub async fn http2_socket(&self) -> Stream {
        self.socket(&["h2"]).await.expect("the gateway listens")
    }

    /// The head of a request for HTTP/2.
    pub fn http2_head(&self, request: &Request) -> http::Request<()> {
        let scheme = if self.target.tls.is_some() { "https" } else { "http" };
        let uri = format!("{scheme}://{}{}", self.target.address, request.path);
        let mut head = http::Request::builder().method(request.method.as_str()).uri(uri);
        for (name, value) in request.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            head = head.header(name.to_ascii_lowercase(), value);
        }
        if request.chunk.is_none() && !request.body.is_empty() {
            head = head.header("content-length", request.body.len());
        }
        head.body(()).expect("a head")
    }

    async fn send_http2(&self, request: Request) -> Answer {
        let (stream, head) = (self.http2_socket().await, self.http2_head(&request));
        let sent = Instant::now();
        let exchange = h2wire::request(stream, head, request.body);
        match super::within("an answer", exchange).await {
            Ok((head, body)) => {
                let mut answer = Answer::new(request.asked, head, body);
                answer.took = sent.elapsed();
                answer
            }
            Err(error) => {
                let mut answer = Answer::new(request.asked, Head::default(), error.to_string().into_bytes());
                answer.cut = true;
                answer
            }
        }
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn meta(&self, given: &Value) -> Value {
        let mut meta = if given.is_object() { given.clone() } else { json!({}) };
        if self.era == Era::Modern {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        }
        if let Some(token) = &self.progress {
            meta["progressToken"] = token.clone();
        }
        meta
    }
}

/// The headers by which a client repeats what its body says.
fn protocol_headers(era: Era, revision: &'static str, message: &Value) -> Vec<(&'static str, String)> {
    let method = message["method"].as_str().unwrap_or_default();
    match era {
        Era::Legacy if revision.is_empty() || method == "initialize" => Vec::new(),
        Era::Legacy => vec![("MCP-Protocol-Version", revision.to_owned())],
        Era::Modern => {
            let mut headers = vec![("MCP-Protocol-Version", "2026-07-28".to_owned())];
            if !method.is_empty() {
                headers.push(("Mcp-Method", header_value(method)));
            }
            if method == "tools/call"
                && let Some(name) = message["params"]["name"].as_str()
            {
                headers.push(("Mcp-Name", header_value(name)));
            }
            headers
        }
    }
}

/// A value as a header can carry it: as it is, or in the `=?base64?…?=` form.
pub fn header_value(text: &str) -> String {
    use base64::Engine;
    let plain = text.bytes().all(|b| (0x21..0x7f).contains(&b)) && !text.starts_with("=?") && !text.is_empty();
    if plain {
        return text.to_owned();
    }
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(text))
}

/// A head and body as text, for messages.
pub fn show(bytes: &[u8]) -> String {
    latin1(bytes)
}
