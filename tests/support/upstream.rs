//! The mock MCP server: what it offers, how it answers, and what it saw.
//!
//! [`Upstream`] builds one, [`Up`] is one that runs. It speaks every era, over HTTP/1.1 or HTTP/2, plain or TLS, and can answer any bytes.
//! It also judges how it is spoken to ([`Up::faults`]): a gateway that forwards a header too many is caught in every test.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{WAIT_LIMIT, http::Head, mock, tls::Identity};

/// Which protocol the mock server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// 2026-07-28, stateless.
    Modern,
    /// 2025-11-25 with sessions.
    Legacy,
    /// 2025-11-25 without sessions.
    StatelessLegacy,
    /// Modern, and legacy without sessions for who asks so.
    Dual,
}

/// How the mock server answers a call: one JSON object or an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `application/json`
    Json,
    /// `text/event-stream`
    Sse,
}

/// What a legacy server answers to a session id that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// 404, as the specification says.
    NotFound,
    /// 400 with a JSON-RPC error, as many servers do.
    BadRequest,
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// It is served.
    Serve,
    /// It is reset at once.
    Reset,
    /// It is closed at once.
    Close,
    /// Nothing is ever read or written.
    Silence,
}

/// How one call is answered. Texts may hold the macros of [`super::script`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// A result whose only text block is the arguments as they arrived, byte for byte.
    Echo,
    /// This result object.
    Result(String),
    /// This JSON-RPC error object.
    Error(String),
    /// This JSON-RPC message.
    Message(String),
    /// A good message of exactly that many bytes.
    Sized(usize),
    /// `200` with this `application/json` body.
    Body(Vec<u8>),
    /// `200` with this `text/event-stream` body.
    Events(Vec<u8>),
    /// These bytes, from the status line on.
    Raw(Vec<u8>),
    /// Another reply, in this form whatever the server's own is.
    In(Form, Box<Reply>),
    /// Another reply as an event stream, after these messages; a text `${gate NAME}` among them waits.
    After(Vec<String>, Box<Reply>),
}

impl Reply {
    /// Raw bytes from a text.
    pub fn raw(text: impl AsRef<[u8]>) -> Self {
        Self::Raw(text.as_ref().to_vec())
    }

    /// A result with one text block.
    pub fn text(text: &str) -> Self {
        Self::Result(json!({ "content": [{ "type": "text", "text": text }] }).to_string())
    }

    /// A status with a body.
    pub fn status(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::raw(format!("HTTP/1.1 {status} Status\r\n{headers}Content-Length: {length}\r\n\r\n{body}"))
    }
}

/// A request that the mock server read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Number of the connection, from 0.
    pub connection: usize,
    /// The request head.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
    /// The body as JSON; null when it is none.
    pub message: Value,
    /// When it was complete.
    pub at: Instant,
}

impl Seen {
    /// The JSON-RPC method; empty when there is none.
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// `params.name`
    pub fn tool(&self) -> &str {
        self.message["params"]["name"].as_str().unwrap_or_default()
    }

    /// `params.arguments`, byte for byte as received; empty when absent.
    pub fn arguments(&self) -> String {
        mock::raw_arguments(&self.body)
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }
}

/// Something that happened at the mock server, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection was accepted.
    Accepted(usize),
    /// A request was read completely; its index in [`Up::seen`].
    Request(usize),
    /// Its answer was written completely.
    Answered(usize),
    /// The peer closed or reset the connection.
    PeerClosed(usize),
}

/// Builds a mock server.
pub struct Upstream {
    pub(super) state: State,
    pub(super) identity: Option<Identity>,
}

/// What a running mock server knows.
pub struct State {
    pub(super) speaks: Speaks,
    pub(super) form: Form,
    pub(super) revision: &'static str,
    pub(super) lost: Lost,
    pub(super) priming: bool,
    pub(super) page: Option<usize>,
    pub(super) credential: Option<(String, String)>,
    pub(super) tools: Vec<Value>,
    pub(super) list: Option<Reply>,
    pub(super) hello: Option<String>,
    pub(super) replies: HashMap<String, Reply>,
    pub(super) next: VecDeque<Reply>,
    pub(super) accept: Accept,
    pub(super) sessions: HashSet<String>,
    pub(super) minted: usize,
    pub(super) gates: HashSet<String>,
    pub(super) connections: usize,
    pub(super) seen: Vec<Seen>,
    pub(super) events: Vec<(Instant, Event)>,
    pub(super) faults: Vec<String>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self::new()
    }
}

impl Upstream {
    /// A modern server without a tool, which answers JSON and echoes arguments.
    pub fn new() -> Self {
        let state = State {
            speaks: Speaks::Modern,
            form: Form::Json,
            revision: "2025-11-25",
            lost: Lost::NotFound,
            priming: false,
            page: None,
            credential: None,
            tools: Vec::new(),
            list: None,
            hello: None,
            replies: HashMap::new(),
            next: VecDeque::new(),
            accept: Accept::Serve,
            sessions: HashSet::new(),
            minted: 0,
            gates: HashSet::new(),
            connections: 0,
            seen: Vec::new(),
            events: Vec::new(),
            faults: Vec::new(),
        };
        Self { state, identity: None }
    }

    /// Offers a tool with this input schema.
    pub fn tool(self, name: &str, schema: Value) -> Self {
        self.definition(json!({ "name": name, "description": format!("The tool {name}."), "inputSchema": schema }))
    }

    /// Offers a tool with an input and an output schema.
    pub fn tool_out(self, name: &str, schema: Value, output: Value) -> Self {
        self.definition(json!({ "name": name, "description": format!("The tool {name}."), "inputSchema": schema, "outputSchema": output }))
    }

    /// Offers a tool by its whole definition.
    pub fn definition(mut self, definition: Value) -> Self {
        self.state.tools.push(definition);
        self
    }

    /// How calls of this tool are answered; [`Reply::Echo`] unless told.
    pub fn reply(mut self, tool: &str, reply: Reply) -> Self {
        self.state.replies.insert(tool.to_owned(), reply);
        self
    }

    /// Which protocol it speaks.
    pub fn speaks(mut self, speaks: Speaks) -> Self {
        self.state.speaks = speaks;
        self
    }

    /// The revision that a legacy server settles on.
    pub fn revision(mut self, revision: &'static str) -> Self {
        self.state.revision = revision;
        self
    }

    /// JSON or SSE.
    pub fn form(mut self, form: Form) -> Self {
        self.state.form = form;
        self
    }

    /// What an unknown session id is answered.
    pub fn lost(mut self, lost: Lost) -> Self {
        self.state.lost = lost;
        self
    }

    /// Starts each event stream with an event that has an id and no data, as SDKs do.
    pub fn priming(mut self) -> Self {
        self.state.priming = true;
        self
    }

    /// Lists so many tools on a page.
    pub fn page(mut self, size: usize) -> Self {
        self.state.page = Some(size);
        self
    }

    /// The header that the gateway must send with each request.
    pub fn credential(mut self, header: &str, value: &str) -> Self {
        self.state.credential = Some((header.to_owned(), value.to_owned()));
        self
    }

    /// Speaks TLS; `h2` and `http/1.1` are offered.
    pub fn tls(mut self, identity: &Identity) -> Self {
        self.identity = Some(identity.clone());
        self
    }

    /// Starts it on a free port of 127.0.0.1.
    pub async fn run(self) -> Up {
        mock::start(self).await
    }
}

/// A running mock server; it stops when the last handle is dropped.
#[derive(Clone)]
pub struct Up {
    pub(super) address: SocketAddr,
    pub(super) tls: bool,
    pub(super) shared: Arc<Shared>,
    pub(super) listener: Arc<mock::Listening>,
}

/// What the handle and the connections share.
pub struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Notify,
}

impl Shared {
    /// The state; held for a moment only, never over an await.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes that something happened and wakes who waits.
    pub(super) fn note(&self, event: Event) {
        self.state().events.push((Instant::now(), event));
        self.changed.notify_waiters();
    }

    /// Waits until `probe` has a value; none after `limit`.
    pub(super) async fn wait<T>(&self, limit: Duration, mut probe: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(value) = probe(&self.state()) {
                return Some(value);
            }
            if tokio::time::timeout_at(end, changed).await.is_err() {
                return None;
            }
        }
    }
}

impl Up {
    /// The URL of its MCP endpoint.
    pub fn url(&self) -> String {
        format!("{}://{}/mcp", if self.tls { "https" } else { "http" }, self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The definitions that it lists now.
    pub fn tools(&self) -> Vec<Value> {
        self.shared.state().tools.clone()
    }

    /// Adds a tool, or replaces the one of that name: the way to make a definition drift.
    pub fn set_tool(&self, definition: Value) {
        let mut state = self.shared.state();
        match state.tools.iter_mut().find(|tool| tool["name"] == definition["name"]) {
            Some(tool) => *tool = definition,
            None => state.tools.push(definition),
        }
    }

    /// Lists that tool no longer.
    pub fn remove_tool(&self, name: &str) {
        self.shared.state().tools.retain(|tool| tool["name"] != name);
    }

    /// Answers `tools/list` with this instead.
    pub fn list_with(&self, reply: Option<Reply>) {
        self.shared.state().list = reply;
    }

    /// Answers `initialize` and `server/discover` with these raw bytes instead.
    pub fn slow_hello(&self, raw: Option<&str>) {
        self.shared.state().hello = raw.map(str::to_owned);
    }

    /// Answers calls of this tool so from now on.
    pub fn on(&self, tool: &str, reply: Reply) {
        self.shared.state().replies.insert(tool.to_owned(), reply);
    }

    /// Answers the next call so, whatever its tool; several are used in order.
    pub fn next(&self, reply: Reply) {
        self.shared.state().next.push_back(reply);
    }

    /// Answers JSON or SSE from now on.
    pub fn set_form(&self, form: Form) {
        self.shared.state().form = form;
    }

    /// Forgets every session.
    pub fn lose_sessions(&self) {
        self.shared.state().sessions.clear();
    }

    /// How many sessions it minted.
    pub fn minted(&self) -> usize {
        self.shared.state().minted
    }

    /// What happens to new connections from now on.
    pub fn accept(&self, accept: Accept) {
        self.shared.state().accept = accept;
    }

    /// Closes every connection, and meets new ones so from now on.
    pub async fn restart(&self, accept: Accept) {
        self.refuse(true).await;
        self.accept(accept);
        self.refuse(false).await;
    }

    /// Closes its port, or opens it again.
    pub async fn refuse(&self, refuse: bool) {
        mock::refuse(self, refuse).await;
    }

    /// Shows another certificate to new connections; the open ones are closed.
    pub async fn show(&self, identity: &Identity) {
        mock::show(self, identity).await;
    }

    /// Opens a gate: scripts that wait for it go on.
    pub fn open(&self, gate: &str) {
        self.shared.state().gates.insert(gate.to_owned());
        self.shared.changed.notify_waiters();
    }

    /// Every request that it read.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.state().seen.clone()
    }

    /// The requests of one JSON-RPC method.
    pub fn of(&self, method: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method() == method).collect()
    }

    /// Every `tools/call` that it read.
    pub fn calls(&self) -> Vec<Seen> {
        self.of("tools/call")
    }

    /// What happened, in order.
    pub fn events(&self) -> Vec<(Instant, Event)> {
        self.shared.state().events.clone()
    }

    /// How many connections it accepted.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// What the gateway did wrong towards this server, by the specification and the contract.
    pub fn faults(&self) -> Vec<String> {
        self.shared.state().faults.clone()
    }

    /// Panics when the gateway did something wrong towards this server.
    pub fn assert_spoken_to_well(&self) {
        let faults = self.faults();
        assert!(faults.is_empty(), "spoken to wrongly:\n{}", faults.join("\n"));
    }

    /// Waits until `count` calls were read, and gives them.
    pub async fn until_calls(&self, count: usize) -> Vec<Seen> {
        let enough = |state: &State| {
            let calls = state.seen.iter().filter(|seen| seen.method() == "tools/call").count();
            (calls >= count).then_some(())
        };
        let came = self.shared.wait(WAIT_LIMIT, enough).await;
        assert!(came.is_some(), "{count} calls did not come; seen: {:?}", self.calls().len());
        self.calls()
    }

    /// Waits until a request of this method was read, and gives it.
    pub async fn until(&self, method: &str) -> Seen {
        let found = |state: &State| state.seen.iter().find(|seen| seen.method() == method).cloned();
        let came = self.shared.wait(WAIT_LIMIT, found).await;
        came.unwrap_or_else(|| panic!("no {method} came"))
    }

    /// Waits until the gateway closed that connection.
    pub async fn until_closed(&self, connection: usize) -> Instant {
        let closed = |state: &State| {
            state.events.iter().find(|(_, event)| *event == Event::PeerClosed(connection)).map(|(at, _)| *at)
        };
        let came = self.shared.wait(WAIT_LIMIT, closed).await;
        came.unwrap_or_else(|| panic!("connection {connection} was not closed"))
    }

    /// Whether the gateway closed that connection.
    pub fn peer_closed(&self, connection: usize) -> bool {
        self.events().iter().any(|(_, event)| *event == Event::PeerClosed(connection))
    }
}
