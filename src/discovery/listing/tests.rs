//! Tests of `listing.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::upstream::{
    dns::Resolver,
    mock::{Act, Mock, Seen},
    target::Credential,
};

const PAGE: &str =
    r#"{"tools":[{ "name":"a" , "inputSchema":{"type":"object"},"x":1.0},{"name":"b","_meta":{"n":1}}]}"#;

async fn run(protocol: Protocol, script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Run {
    let mock = Mock::start(script).await;
    let got = list_tools(&Client::new(Resolver::table([])), &mock.target(), protocol).await;
    Run { got, mock }
}

struct Run {
    got: Result<Listing, DiscoveryError>,
    mock: Mock,
}

impl Run {
    fn names(&self) -> Vec<&str> {
        self.got.as_ref().unwrap().tools.iter().map(|tool| tool.name.as_str()).collect()
    }
}

/// The answer to this request with a result that is spliced in as it stands.
fn raw_result(seen: &Seen, result: &str) -> Act {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, seen.json()["id"]);
    Act::with(200, "Content-Type: application/json\r\n", body.as_bytes())
}

fn modern(list: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    move |seen| match seen.call().as_str() {
        "server/discover" => seen.result(json!({"supportedVersions": ["2026-07-28"], "resultType": "complete"})),
        "tools/list" => list(seen),
        _ => Act::empty(404),
    }
}

/// A legacy server that demands its session, unless it is stateless.
fn old(session: Option<&'static str>) -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    move |seen| match seen.call().as_str() {
        "initialize" => {
            let act = seen.result(json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}));
            match session {
                Some(id) => act.header(&format!("Mcp-Session-Id: {id}")),
                None => act,
            }
        }
        _ if seen.header("mcp-session-id") != session => seen.error(400, -32000),
        "tools/list" => seen.stream("id: 1\ndata: \n\n: quiet\n\n", serde_json::from_str(PAGE).unwrap()),
        "DELETE" => Act::empty(405),
        _ => Act::empty(202),
    }
}

#[tokio::test]
async fn modern_servers_are_listed_byte_for_byte() {
    let run = run(Protocol::Auto, modern(|seen| raw_result(seen, PAGE))).await;
    let listing = run.got.as_ref().unwrap();
    assert_eq!((listing.revision, listing.dropped), (Revision::MODERN, 0));
    assert_eq!(&*listing.tools[0].json, r#"{ "name":"a" , "inputSchema":{"type":"object"},"x":1.0}"#);
    assert_eq!(listing.tools[0].pin, Pin::of_definition(listing.tools[0].json.as_bytes()).unwrap());
    assert_eq!(listing.tools[1].pin, Pin::of_definition(br#"{"name":"b"}"#).unwrap(), "_meta is not pinned");
    assert_eq!(run.mock.calls(), ["server/discover", "tools/list"]);
    let seen = run.mock.seen();
    assert_eq!(seen[1].header("mcp-method"), Some("tools/list"));
    assert_eq!(seen[1].json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

#[tokio::test]
async fn modern_servers_may_stream_the_list() {
    let before = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n";
    let script = modern(move |seen| seen.stream(before, json!({"tools": [{"name": "a"}], "resultType": "complete"})));
    assert_eq!(run(Protocol::Auto, script).await.names(), ["a"]);
}

#[tokio::test]
async fn legacy_servers_are_listed_on_a_session_of_their_own() {
    let run = run(Protocol::Auto, old(Some("s1"))).await;
    assert_eq!(run.names(), ["a", "b"]);
    assert_eq!(run.got.as_ref().unwrap().revision, Revision::V2025_06_18);
    let expected = ["server/discover", "initialize", "notifications/initialized", "tools/list", "DELETE"];
    assert_eq!(run.mock.calls(), expected);
    let seen = run.mock.seen();
    assert_eq!(seen[3].json()["params"], json!({}));
    for later in &seen[2..] {
        assert_eq!(later.header("mcp-session-id"), Some("s1"));
        assert_eq!(later.header("mcp-protocol-version"), Some("2025-06-18"));
    }
}

#[tokio::test]
async fn stateless_legacy_servers_are_listed_without_a_session() {
    let run = run(Protocol::Auto, old(None)).await;
    assert_eq!(run.names(), ["a", "b"]);
    assert_eq!(run.mock.calls(), ["server/discover", "initialize", "notifications/initialized", "tools/list"]);
}

#[tokio::test]
async fn a_fixed_protocol_is_not_probed() {
    let modern = run(Protocol::Fixed(Revision::MODERN), modern(|seen| raw_result(seen, PAGE))).await;
    assert_eq!(modern.mock.calls(), ["tools/list"]);
    let legacy = run(Protocol::Fixed(Revision::V2025_03_26), old(Some("s1"))).await;
    assert_eq!(legacy.mock.calls()[0], "initialize");
    assert_eq!(legacy.mock.seen()[0].json()["params"]["protocolVersion"], "2025-03-26");
    assert_eq!(legacy.got.unwrap().revision, Revision::V2025_06_18, "what the server settled on");
}

#[tokio::test]
async fn a_server_that_asks_back_is_declined_and_still_listed() {
    let base = old(Some("s1"));
    let script = move |seen: &Seen| match seen.call().as_str() {
        "tools/list" => seen.stream(
            "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"sampling/createMessage\",\"params\":{}}\n\n\
             data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n",
            json!({"tools": [{"name": "a"}]}),
        ),
        _ => base(seen),
    };
    let run = run(Protocol::Auto, script).await;
    assert_eq!(run.names(), ["a"]);
}

#[tokio::test]
async fn a_server_that_waits_for_its_own_request_gets_its_answer() {
    let base = old(Some("s1"));
    let script = move |seen: &Seen| match seen.call().as_str() {
        // The stream asks and never answers: only the decline comes back.
        "tools/list" => Act::Close(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n\
              data: {\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"elicitation/create\"}\n\n"
                .to_vec(),
        ),
        _ => base(seen),
    };
    let run = run(Protocol::Auto, script).await;
    assert_eq!(run.got, Err(AskError::NotMcp.into()), "a stream that ends without its answer");
    let declined = run.mock.seen().into_iter().find(|seen| seen.json()["error"]["code"] == -32601).unwrap();
    assert_eq!(declined.json()["id"], 0);
    assert_eq!(declined.header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn pages_are_followed_and_bad_entries_dropped() {
    let script = modern(|seen| match seen.json()["params"]["cursor"].as_str() {
        None => raw_result(seen, r#"{"tools":[{"name":"a"},{"name":1},7,null,{}],"nextCursor":""}"#),
        Some("") => raw_result(seen, r#"{"tools":[{"name":"a"},{"name":"\u0000"},{"name":""}],"nextCursor":"c2"}"#),
        Some(_) => raw_result(seen, r#"{"tools":[],"nextCursor":null}"#),
    });
    let run = run(Protocol::Auto, script).await;
    assert_eq!(run.names(), ["a", "a", "\0", ""], "names are judged by the policy, not here");
    assert_eq!(run.got.as_ref().unwrap().dropped, 4);
    assert_eq!(run.mock.calls().len(), 4);
}

#[tokio::test]
async fn lists_that_never_end_are_refused() {
    let same = run(Protocol::Auto, modern(|seen| raw_result(seen, r#"{"tools":[],"nextCursor":"x"}"#))).await;
    assert_eq!(same.got, Err(DiscoveryError::Endless));
    assert_eq!(same.mock.calls().len(), 3);
    let turn = AtomicUsize::new(0);
    let cycle = modern(move |seen| {
        let at = turn.fetch_add(1, Ordering::SeqCst) % 3;
        raw_result(seen, &format!(r#"{{"tools":[],"nextCursor":"{at}"}}"#))
    });
    assert_eq!(run(Protocol::Auto, cycle).await.got, Err(DiscoveryError::Endless));
    let counting = |pages: usize| {
        let turn = AtomicUsize::new(1);
        modern(move |seen| {
            let at = turn.fetch_add(1, Ordering::SeqCst);
            let next = if at < pages { json!(at.to_string()) } else { Value::Null };
            raw_result(seen, &json!({"tools": [], "nextCursor": next}).to_string())
        })
    };
    assert!(run(Protocol::Auto, counting(PAGES_MAX)).await.got.is_ok());
    assert_eq!(run(Protocol::Auto, counting(PAGES_MAX + 1)).await.got, Err(DiscoveryError::TooManyPages));
}

#[tokio::test]
async fn tools_are_capped() {
    let many = |count: usize| {
        let list: Vec<Value> = (0..count).map(|_| json!({"name": "t", "inputSchema": {"type": "object"}})).collect();
        modern(move |seen| raw_result(seen, &json!({"tools": list}).to_string()))
    };
    assert_eq!(run(Protocol::Auto, many(TOOLS_MAX)).await.names().len(), TOOLS_MAX);
    assert_eq!(run(Protocol::Auto, many(TOOLS_MAX + 1)).await.got, Err(DiscoveryError::TooManyTools));
    assert_eq!(run(Protocol::Auto, many(100_000)).await.got, Err(DiscoveryError::TooManyTools));
}

#[tokio::test]
async fn bytes_are_capped_over_all_pages() {
    let blob = "a".repeat(LISTING_BYTES_MAX / 2);
    let script = modern(move |seen| {
        let next = seen.json()["params"]["cursor"].as_str().map_or(0, str::len) + 1;
        raw_result(seen, &format!(r#"{{"tools":[{{"name":"a","d":"{blob}"}}],"nextCursor":"{}"}}"#, "c".repeat(next)))
    });
    let run = run(Protocol::Auto, script).await;
    assert_eq!(run.got, Err(DiscoveryError::TooLarge));
    assert_eq!(run.mock.calls().len(), 3, "the second page is one too many");
}

#[tokio::test]
async fn what_is_no_list_is_an_error_and_no_empty_list() {
    for result in [
        "{}",
        "[]",
        "null",
        r#"{"tools":{}}"#,
        r#"{"tools":null}"#,
        r#"{"tools":[],"nextCursor":1}"#,
        r#"{"tools":[],"resultType":"input_required"}"#,
        r#"{"tools":[],"resultType":1}"#,
    ] {
        let run = run(Protocol::Auto, modern(move |seen| raw_result(seen, result))).await;
        assert_eq!(run.got, Err(DiscoveryError::NotAList), "{result}");
    }
    let twice = run(Protocol::Auto, modern(|seen| raw_result(seen, r#"{"tools":[{"name":"a","name":"b"}]}"#))).await;
    assert_eq!(twice.got, Err(AskError::NotMcp.into()), "a duplicate member is not MCP (contract §3)");
}

#[tokio::test]
async fn errors_of_a_server_are_no_verdict_on_its_era() {
    let cases: [(Act, AskError); 8] = [
        (Act::empty(401), AskError::Credential { status: 401 }),
        (Act::empty(403), AskError::Credential { status: 403 }),
        (Act::empty(429), AskError::RateLimited),
        (Act::text(500, "Authorization: Bearer canary-secret"), AskError::ServerFault { status: 500 }),
        (Act::empty(503), AskError::ServerFault { status: 503 }),
        (Act::empty(302).header("Location: http://127.0.0.1:1/"), AskError::Redirect { status: 302 }),
        (Act::with(200, "Content-Encoding: gzip\r\n", b"x"), AskError::Client(ClientError::Encoded)),
        (Act::Close(Vec::new()), AskError::Client(ClientError::Interrupted)),
    ];
    for (act, expected) in cases {
        let run = run(Protocol::Auto, move |_| act.clone()).await;
        assert_eq!(run.got, Err(expected.into()));
        assert_eq!(run.mock.calls(), ["server/discover"]);
    }
}

#[tokio::test]
async fn a_silent_or_dripping_server_times_out() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{".to_vec();
    for act in [Act::Hang, Act::Drip(head, vec![b' '; 10_000], Duration::from_millis(5))] {
        let mock = Mock::start(move |_| act.clone()).await;
        let target = Target { timeout: Duration::from_millis(200), ..(*mock.target()).clone() };
        let got = list_tools(&Client::new(Resolver::table([])), &target, Protocol::Auto).await;
        assert_eq!(got, Err(AskError::Client(ClientError::TimedOut).into()));
    }
}

#[tokio::test]
async fn a_2024_server_is_told_apart() {
    let run = run(Protocol::Auto, |_| Act::text(404, "Not Found")).await;
    assert_eq!(run.got, Err(AskError::OldTransport.into()));
    assert!(run.got.unwrap_err().to_string().contains("2024-11-05"));
}

#[tokio::test]
async fn a_session_that_is_lost_at_once_is_an_error() {
    let base = old(Some("s1"));
    let script = move |seen: &Seen| match seen.call().as_str() {
        "tools/list" => seen.error(404, -32001),
        _ => base(seen),
    };
    assert_eq!(run(Protocol::Auto, script).await.got, Err(AskError::Rejected { code: -32001 }.into()));
}

#[tokio::test]
async fn errors_never_repeat_what_the_server_said() {
    let faults = [
        run(Protocol::Auto, modern(|seen| seen.error(200, -32603))).await.got.unwrap_err(),
        run(Protocol::Auto, |_| Act::text(500, "canary-secret")).await.got.unwrap_err(),
        run(Protocol::Auto, |_| Act::text(418, "canary-secret")).await.got.unwrap_err(),
    ];
    for fault in faults {
        let shown = format!("{fault} {fault:?}");
        assert!(!shown.contains("canary") && !shown.contains("127.0.0.1"), "{shown}");
    }
}

#[tokio::test]
async fn the_credential_is_in_no_listing() {
    let token = ["tok", "0123456789", "en"].concat();
    let list = json!({ "tools": [
        { "name": "says", "description": format!("Called with Bearer {token}."), "inputSchema": { "type": "object" } },
        { "name": "quiet", "inputSchema": { "type": "object" } },
        { "name": format!("named-{token}") },
        { "name": "escaped", "title": token.replace('t', "\\\\u0074") },
    ] });
    let mock = Mock::start(modern(move |seen| seen.result(list.clone()))).await;
    let credential = Credential::new([("Authorization", format!("Bearer {token}").as_bytes())], "").unwrap();
    let target = Target { credential, ..(*mock.target()).clone() };
    let listing = list_tools(&Client::new(Resolver::table([])), &target, Protocol::Auto).await.unwrap();
    let of = |name: &str| listing.tools.iter().find(|tool| tool.name == name).unwrap();
    assert_eq!((listing.tools.len(), listing.dropped), (3, 1));
    assert!(!format!("{listing:?}").contains(&token), "{listing:?}");
    assert!(of("says").json.contains("Called with [redacted:credential].") && of("escaped").json.contains("[redacted"));
    // The hash is of what was sent: that the server says another thing is still seen.
    let sent = json!({ "name": "says", "description": format!("Called with Bearer {token}."), "inputSchema": { "type": "object" } });
    let raw = sent.to_string();
    let mut scratch = Vec::new();
    let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
    assert_eq!(of("says").pin, Pin::of_value(&document.spanned_root()).unwrap());
}
