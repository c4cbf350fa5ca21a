//! What the mock server answers to which request, in each era.

use serde_json::{Value, json};

use super::{
    http::latin1,
    script::{self, Step},
    upstream::{Form, Lost, Reply, Seen, Speaks, State},
};

/// `_meta` key of the protocol version.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// An answer that is ready to be performed.
pub struct Plan {
    /// The status; unused when raw.
    pub status: u16,
    /// Headers but for the framing; unused when raw.
    pub headers: Vec<(String, String)>,
    /// The body, or all bytes when raw.
    pub body: Vec<Step>,
    /// The body is the whole answer, from the status line on.
    pub raw: bool,
    /// The body is an event stream: chunked whatever its length.
    pub stream: bool,
    /// The answer ends with the connection.
    pub until_close: bool,
}

impl Plan {
    /// A status without a body.
    fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), raw: false, stream: false, until_close: false }
    }

    /// A JSON body.
    fn json(status: u16, body: Vec<Step>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { headers, body, ..Self::empty(status) }
    }

    /// An event stream.
    fn events(body: Vec<Step>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "text/event-stream".to_owned())];
        Self { headers, body, stream: true, ..Self::empty(200) }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The head for HTTP/1.1.
    pub fn head(&self, chunked: bool) -> String {
        let mut head = format!("HTTP/1.1 {} Status\r\n", self.status);
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        match script::length(&self.body) {
            Some(length) if !chunked => head += &format!("Content-Length: {length}\r\n"),
            _ => head += "Transfer-Encoding: chunked\r\n",
        }
        head + "\r\n"
    }
}

/// Plans the answer to a request.
pub fn plan(state: &mut State, seen: &Seen) -> Plan {
    if let Some((name, value)) = &state.credential
        && seen.header(name) != Some(value)
    {
        return Plan::empty(401).with("WWW-Authenticate", "Bearer");
    }
    match seen.head.start.split(' ').next() {
        Some("POST") => {}
        Some("DELETE") => {
            state.sessions.remove(seen.header("mcp-session-id").unwrap_or_default());
            return Plan::empty(204);
        }
        _ => return Plan::empty(405).with("Allow", "POST"),
    }
    let Some(id) = seen.message.get("id") else {
        return if seen.message.is_object() {
            Plan::empty(202)
        } else {
            error(400, &Value::Null, -32700, "Parse error")
        };
    };
    if seen.message.get("method").is_none() {
        return Plan::empty(202);
    }
    if let ("initialize" | "server/discover", Some(raw)) = (seen.method(), state.hello.clone()) {
        return compose(state, &Reply::raw(raw), seen, id);
    }
    let modern = seen.message["params"]["_meta"].get(PROTOCOL_VERSION).is_some();
    match state.speaks {
        Speaks::Modern => self::modern(state, seen, id),
        Speaks::Dual if modern => self::modern(state, seen, id),
        Speaks::Dual | Speaks::StatelessLegacy | Speaks::Legacy => legacy(state, seen, id),
    }
}

fn modern(state: &mut State, seen: &Seen, id: &Value) -> Plan {
    match seen.method() {
        "server/discover" => result(
            id,
            &json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                "ttlMs": 0, "cacheScope": "private"
            }),
        ),
        "tools/list" => list(state, seen, id, json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" })),
        "tools/call" => call(state, seen, id),
        _ => error(404, id, -32601, "Method not found"),
    }
}

fn legacy(state: &mut State, seen: &Seen, id: &Value) -> Plan {
    let stateful = state.speaks == Speaks::Legacy;
    if seen.method() == "initialize" {
        let body = json!({
            "protocolVersion": state.revision, "capabilities": { "tools": {} }, "serverInfo": { "name": "mock", "version": "1" }
        });
        if !stateful {
            return result(id, &body);
        }
        state.minted += 1;
        let session = format!("sess-{}", state.minted);
        state.sessions.insert(session.clone());
        return result(id, &body).with("Mcp-Session-Id", &session);
    }
    if stateful {
        match seen.header("mcp-session-id") {
            Some(session) if state.sessions.contains(session) => {}
            None => return error(400, &Value::Null, -32000, "Bad Request: Server not initialized"),
            Some(_) if state.lost == Lost::NotFound => return error(404, &Value::Null, -32001, "Session not found"),
            Some(_) => return error(400, &Value::Null, -32000, "Bad Request: No valid session ID provided"),
        }
    }
    match seen.method() {
        "ping" => result(id, &json!({})),
        "tools/list" => list(state, seen, id, json!({})),
        "tools/call" => call(state, seen, id),
        _ => error(200, id, -32601, "Method not found"),
    }
}

fn list(state: &mut State, seen: &Seen, id: &Value, mut page: Value) -> Plan {
    if let Some(reply) = state.list.clone() {
        return compose(state, &reply, seen, id);
    }
    let from: usize = seen.message["params"]["cursor"].as_str().and_then(|c| c.parse().ok()).unwrap_or(0);
    let size = state.page.unwrap_or(usize::MAX);
    let tools: Vec<Value> = state.tools.iter().skip(from).take(size).cloned().collect();
    if from + tools.len() < state.tools.len() {
        page["nextCursor"] = json!((from + tools.len()).to_string());
    }
    page["tools"] = Value::Array(tools);
    result(id, &page)
}

fn call(state: &mut State, seen: &Seen, id: &Value) -> Plan {
    let reply = match state.next.pop_front() {
        Some(reply) => reply,
        None => state.replies.get(seen.tool()).cloned().unwrap_or(Reply::Echo),
    };
    compose(state, &reply, seen, id)
}

/// Turns a reply into steps, in the server's form unless the reply has its own.
fn compose(state: &State, reply: &Reply, seen: &Seen, id: &Value) -> Plan {
    let text = |template: &str| fill(template.as_bytes(), seen, id);
    match reply {
        Reply::Raw(bytes) => {
            let bytes = script::fill_length(&fill(bytes, seen, id));
            let until_close = !latin1(&bytes).to_ascii_lowercase().contains("content-length")
                && !latin1(&bytes).to_ascii_lowercase().contains("transfer-encoding");
            Plan { raw: true, until_close, body: script::parse(&bytes), ..Plan::empty(200) }
        }
        Reply::Body(bytes) => Plan::json(200, script::parse(&fill(bytes, seen, id))),
        Reply::Events(bytes) => Plan::events(script::parse(&fill(bytes, seen, id))),
        Reply::In(..) | Reply::After(..) => {
            let (form, before, inner) = unwrap(reply, state.form);
            answer(state, form, &before.iter().map(|m| text(m)).collect::<Vec<_>>(), message(state, inner, seen, id))
        }
        _ => answer(state, state.form, &[], message(state, reply, seen, id)),
    }
}

fn unwrap(reply: &Reply, form: Form) -> (Form, &[String], &Reply) {
    match reply {
        Reply::In(form, inner) => {
            let (_, before, inner) = unwrap(inner, *form);
            (*form, before, inner)
        }
        Reply::After(messages, inner) => (Form::Sse, messages, inner),
        other => (form, &[], other),
    }
}

/// The JSON-RPC message of a reply, as steps.
fn message(state: &State, reply: &Reply, seen: &Seen, id: &Value) -> Vec<Step> {
    match reply {
        Reply::Echo => {
            let mut result = json!({ "content": [{ "type": "text", "text": seen.arguments() }] });
            if state.speaks == Speaks::Modern {
                result["resultType"] = json!("complete");
                result["_meta"] = json!({ "io.modelcontextprotocol/serverInfo": { "name": "mock", "version": "1" } });
            }
            vec![Step::Bytes(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string().into_bytes())]
        }
        Reply::Result(result) => template(&format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{result}}}"#), seen, id),
        Reply::Error(error) => template(&format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"error":{error}}}"#), seen, id),
        Reply::Message(message) => template(message, seen, id),
        Reply::Sized(size) => {
            let mut text =
                json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": "" }] } })
                    .to_string();
            let at = text.rfind(r#""""#).expect("an empty text") + 1;
            text.insert_str(at, &"x".repeat(size - text.len()));
            vec![Step::Bytes(text.into_bytes())]
        }
        other => panic!("{other:?} cannot be put into another form"),
    }
}

fn template(text: &str, seen: &Seen, id: &Value) -> Vec<Step> {
    script::parse(&fill(text.as_bytes(), seen, id))
}

fn answer(state: &State, form: Form, before: &[Vec<u8>], message: Vec<Step>) -> Plan {
    if form == Form::Json {
        return Plan::json(200, message);
    }
    let mut steps = Vec::new();
    if state.priming {
        steps.push(Step::Bytes(b"id: 1\nretry: 60000\ndata: \n\n".to_vec()));
    }
    for text in before {
        if text.starts_with(b"${") {
            steps.extend(script::parse(text));
        } else {
            steps.push(Step::Bytes([b"event: message\ndata: ", text.as_slice(), b"\n\n"].concat()));
        }
    }
    steps.push(Step::Bytes(b"event: message\ndata: ".to_vec()));
    steps.extend(message);
    steps.push(Step::Bytes(b"\n\n".to_vec()));
    Plan::events(steps)
}

/// Fills in the id, and the progress token that the gateway sent.
fn fill(text: &[u8], seen: &Seen, id: &Value) -> Vec<u8> {
    let token = seen.message["params"]["_meta"]["progressToken"].to_string();
    script::substitute(text, &[("ID", id.to_string().as_bytes()), ("TOKEN", token.as_bytes())])
}

fn result(id: &Value, result: &Value) -> Plan {
    let text = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
    Plan::json(200, vec![Step::Bytes(text.into_bytes())])
}

fn error(status: u16, id: &Value, code: i64, message: &str) -> Plan {
    let text = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }).to_string();
    Plan::json(status, vec![Step::Bytes(text.into_bytes())])
}
