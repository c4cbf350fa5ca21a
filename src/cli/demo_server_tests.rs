//! The demo server over real connections, and the pins of `conf/demo/policy.toml`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use hyper::client::conn::http1 as client;
use sha2::{Digest, Sha256};

use super::*;
use crate::model::id::encode_hex;

/// A request as the specification wants it, which a test may then spoil.
struct Call {
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Call {
    fn new(method: &str, params: Value) -> Self {
        let mut body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        body["params"]["_meta"] = json!({ META_PROTOCOL_VERSION: "2026-07-28", META_CLIENT_CAPABILITIES: {} });
        let mut headers = vec![(HEADER_PROTOCOL_VERSION, "2026-07-28".to_owned()), (HEADER_METHOD, method.to_owned())];
        if let Some(name) = body["params"]["name"].as_str() {
            headers.push((HEADER_NAME, name.to_owned()));
        }
        Self { headers, body }
    }

    fn tool(name: &str, arguments: Value) -> Self {
        Self::new("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    fn without(mut self, header: &str) -> Self {
        self.headers.retain(|(name, _)| *name != header);
        self
    }

    fn header(mut self, header: &'static str, value: &str) -> Self {
        self = self.without(header);
        self.headers.push((header, value.to_owned()));
        self
    }

    fn meta(mut self, name: &str, value: Value) -> Self {
        self.body["params"]["_meta"][name] = value;
        self
    }
}

async fn post(server: &DemoServer, call: &Call) -> (u16, String) {
    let mut request = Request::post("/mcp").header(header::HOST, "localhost");
    for (name, value) in &call.headers {
        request = request.header(*name, value);
    }
    send(server, request.body(Full::new(Bytes::from(call.body.to_string()))).unwrap()).await
}

async fn send(server: &DemoServer, request: Request<Full<Bytes>>) -> (u16, String) {
    let socket = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    let (mut sender, connection) = client::handshake(TokioIo::new(socket)).await.unwrap();
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    driver.abort();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn result(server: &DemoServer, call: &Call) -> Value {
    let (status, body) = post(server, call).await;
    assert_eq!(status, 200, "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["id"], 7);
    assert_eq!(body["result"]["resultType"], "complete", "{body}");
    body["result"].clone()
}

fn pin(tool: &Value) -> String {
    let canonical = serde_json_canonicalizer::to_vec(tool).unwrap();
    encode_hex(&Sha256::digest(canonical))
}

#[tokio::test]
async fn discovery_and_lists_carry_what_the_specification_requires() {
    let server = start().await.unwrap();
    let hello = result(&server, &Call::new("server/discover", json!({}))).await;
    assert_eq!(hello["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(hello["capabilities"], json!({ "tools": {} }));
    let list = result(&server, &Call::new("tools/list", json!({}))).await;
    assert_eq!(list["tools"], json!(tools(false)));
    for answer in [hello, list] {
        assert!(answer["ttlMs"].is_u64() && answer["cacheScope"].is_string(), "{answer}");
        assert_eq!(answer["_meta"][META_SERVER_INFO]["name"], "toolgate-demo");
    }
}

#[tokio::test]
async fn every_tool_answers_and_keeps_its_output_schema() {
    let server = start().await.unwrap();
    let cases = [
        ("add", json!({ "a": 2, "b": 40 }), "{\"sum\":42}"),
        ("echo", json!({ "text": "caf\u{e9}" }), "caf\u{e9}"),
        ("write_note", json!({ "text": "n" }), "{\"note\":1}"),
        ("write_note", json!({ "text": "n" }), "{\"note\":2}"),
        ("count", json!({ "to": 2 }), "Counted to 2."),
        ("forecast", json!({ "city": "Bern" }), "{\"celsius\":21.5,\"city\":\"Bern\"}"),
    ];
    let count = u64::try_from(cases.len()).unwrap();
    for (name, arguments, text) in cases {
        let answer = result(&server, &Call::tool(name, arguments)).await;
        assert_eq!(answer["content"], json!([{ "type": "text", "text": text }]), "{name}");
        let tool = tools(false).into_iter().find(|t| t["name"] == name).unwrap();
        assert_eq!(tool.get("outputSchema").is_some(), answer.get("structuredContent").is_some(), "{name}");
        if let Some(schema) = tool.get("outputSchema") {
            let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(&answer["structuredContent"]), keys(&schema["properties"]), "{name}");
        }
    }
    assert_eq!(server.calls(), count);
}

#[tokio::test]
async fn what_disagrees_or_is_unknown_is_an_error_of_the_specification() {
    let server = start().await.unwrap();
    let add = || Call::tool("add", json!({ "a": 1, "b": 1 }));
    let cases = [
        ("no method header", add().without(HEADER_METHOD), 400, -32020),
        ("another name", add().header(HEADER_NAME, "echo"), 400, -32020),
        ("no name", add().without(HEADER_NAME), 400, -32020),
        ("no version header", add().without(HEADER_PROTOCOL_VERSION), 400, -32020),
        ("no capabilities", add().meta(META_CLIENT_CAPABILITIES, Value::Null), 400, -32602),
        ("no version in _meta", add().meta(META_PROTOCOL_VERSION, Value::Null), 400, -32602),
        (
            "a version of the future",
            add().header(HEADER_PROTOCOL_VERSION, "2099-01-01").meta(META_PROTOCOL_VERSION, json!("2099-01-01")),
            400,
            -32022,
        ),
        ("an unserved method", Call::new("resources/list", json!({})), 404, -32601),
        ("an unknown tool", Call::tool("subtract", json!({})), 200, -32602),
        ("arguments of another type", Call::tool("add", json!({ "a": "1", "b": 1 })), 200, -32602),
        ("an overflow", Call::tool("add", json!({ "a": i64::MAX, "b": 1 })), 200, -32602),
        ("one past the highest count", Call::tool("count", json!({ "to": COUNT_MAX + 1 })), 200, -32602),
    ];
    for (what, call, status, code) in cases {
        let (got, body) = post(&server, &call).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((got, body["error"]["code"].as_i64()), (status, Some(code)), "{what}: {body}");
    }
}

#[tokio::test]
async fn requests_that_are_no_calls_get_bare_answers() {
    let server = start().await.unwrap();
    let request = |method: Method, path: &str, body: Vec<u8>| {
        let builder = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        builder.body(Full::new(Bytes::from(body))).unwrap()
    };
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string().into_bytes();
    let cases = [
        (request(Method::GET, "/mcp", vec![]), 405),
        (request(Method::POST, "/elsewhere", vec![]), 404),
        (request(Method::POST, "/mcp", b"{nope".to_vec()), 400),
        (request(Method::POST, "/mcp", notification), 202),
        (request(Method::POST, "/mcp", vec![b' '; REQUEST_BYTES_MAX + 1]), 413),
    ];
    for (request, status) in cases {
        let what = format!("{} {}", request.method(), request.uri());
        assert_eq!(send(&server, request).await.0, status, "{what}");
    }
}

#[tokio::test]
async fn count_streams_progress_only_to_those_who_asked_and_take_it() {
    let server = start().await.unwrap();
    let call = || Call::tool("count", json!({ "to": 3 })).header("accept", "application/json, text/event-stream");
    let (_, plain) = post(&server, &call()).await;
    assert!(plain.starts_with('{'), "{plain}");
    let with_token = call().meta("progressToken", json!("p"));
    let (_, plain) = post(&server, &with_token.header("accept", "application/json")).await;
    assert!(plain.starts_with('{'), "{plain}");

    let (status, events) = post(&server, &call().meta("progressToken", json!("p"))).await;
    assert_eq!(status, 200);
    let events: Vec<Value> = events
        .split_terminator("\n\n")
        .map(|event| serde_json::from_str(event.strip_prefix("event: message\ndata: ").unwrap()).unwrap())
        .collect();
    let (end, steps) = events.split_last().unwrap();
    let progress: Vec<_> = steps.iter().map(|s| (&s["params"]["progress"], &s["params"]["progressToken"])).collect();
    assert_eq!(progress, [(&json!(1), &json!("p")), (&json!(2), &json!("p")), (&json!(3), &json!("p"))]);
    assert_eq!((&end["id"], &end["result"]["content"][0]["text"]), (&json!(7), &json!("Counted to 3.")));
}

#[tokio::test]
async fn a_flip_changes_the_definition_of_forecast_alone() {
    let server = start().await.unwrap();
    let flip = Request::post("/flip").header(header::HOST, "localhost").body(Full::new(Bytes::new())).unwrap();
    assert_eq!(send(&server, flip).await.0, 204);
    let list = result(&server, &Call::new("tools/list", json!({}))).await;
    for (before, after) in tools(false).iter().zip(list["tools"].as_array().unwrap()) {
        assert_eq!(pin(before) != pin(after), before["name"] == "forecast", "{after}");
    }
    server.flip_definition();
    let list = result(&server, &Call::new("tools/list", json!({}))).await;
    assert_eq!(list["tools"], json!(tools(false)));
}

#[tokio::test]
async fn dropping_the_handle_ends_the_server() {
    let server = start().await.unwrap();
    let addr = server.addr;
    drop(server);
    while tokio::net::TcpStream::connect(addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn the_demo_policy_pins_these_definitions_and_these_tokens() {
    let policy = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/conf/demo/policy.toml"));
    let policy: toml::Table = policy.parse().unwrap();
    let rows = |kind: &str| policy[kind].as_array().unwrap().clone();
    let pins: Vec<_> = rows("approval")
        .iter()
        .map(|a| (a["tool"].as_str().unwrap().to_owned(), a["sha256"].as_str().unwrap().to_owned()))
        .collect();
    let definitions: Vec<_> = tools(false).iter().map(|t| (t["name"].as_str().unwrap().to_owned(), pin(t))).collect();
    assert_eq!(pins, definitions, "conf/demo/policy.toml must pin what the demo server lists");
    for key in rows("key") {
        let token = format!("toolgate_demo_{}_key", key["id"].as_str().unwrap());
        assert_eq!(key["sha256"].as_str().unwrap(), encode_hex(&Sha256::digest(&token)), "{token}");
    }
}
