//! Plays `tests/cases/bad_inputs.jsonl`, line by line: what must be refused is, with the code of the contract, and the server is reached or it is not.
//!
//! Where a line marked `judgement` and the contract differ, the contract wins: [`CONTRACT`] says what it demands.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::support::{
    Faults,
    answer::{Answer, Era},
    case_file,
    client::{Client, Request},
    gateway::{Gateway, Gw, token},
    http::{bytes_of_latin1, find},
    policy::Access::{Read, Write},
    run, script,
    tls::{Identity, Leaf},
    upstream::{Accept, Reply, Speaks, Up, Upstream},
};

/// What stands behind the credential's shape in the lines that echo it.
const CREDENTIAL_TAIL: &str = "9f8e7d6c5b4";
/// An address that the key of `C006` is allowed from, and the test is not.
const ALLOWED_IP: &str = "10.1.2.3";

/// Lines for the management API: `admin/bad_inputs.rs` plays them.
const MANAGEMENT: [&str; 2] = ["ADMIN", "ADMIN_NOAUTH"];

/// What the contract demands where the line's own judgement differs: ids, what may come, why.
const CONTRACT: &[(&[&str], &[Outcome], &str)] = &[
    (
        &["C012"],
        &[Outcome::Http(404, Some("not_found")), Outcome::Http(404, Some("mcp_server_not_found"))],
        "§2 row 2: the path is no endpoint, or row 13 for who decodes it first",
    ),
    (&["C026", "C027"], &[Outcome::Closed(400)], "§2 row 0: any transfer coding but one chunked is 400"),
    (
        &["C072", "C074"],
        &[Outcome::Rpc(400, -32600), Outcome::Success],
        "§3 refuses equal names only; the other member is never forwarded, which the mock server checks",
    ),
    (
        &["C081"],
        &[Outcome::Rpc(200, -32602), Outcome::Rpc(400, -32020)],
        "§3: in a modern request the headers come first",
    ),
    (
        &["C082"],
        &[Outcome::Rpc(200, -32602), Outcome::Http(431, Some("request_too_large"))],
        "the body is below the limit",
    ),
    (
        &["C098"],
        &[Outcome::Success, Outcome::Http(413, None)],
        "the body is below the limit; ids have none of their own",
    ),
    (&["C100"], &[Outcome::Rpc(400, -32600)], "§3: a posted response is -32600"),
    (&["C101"], &[Outcome::Rpc(404, -32601), Outcome::Rpc(200, -32601)], "§3: 404 modern, 200 legacy"),
    (&["C113"], &[Outcome::Rpc(400, -32700)], "§3: a number beyond the range of a double"),
    (&["U027"], &[Outcome::Tool("upstream_unavailable")], "§3: any other Content-Encoding is upstream_unavailable"),
];

/// What a line may end in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The call went through, or the server's own error did.
    Success,
    /// A tool refusal.
    Tool(&'static str),
    /// A JSON-RPC error with that HTTP status.
    Rpc(u16, i64),
    /// An HTTP refusal; none: any code.
    Http(u16, Option<&'static str>),
    /// Any answer of that status, and then the connection is closed.
    Closed(u16),
}

struct Line {
    id: String,
    what: String,
    input: Vec<u8>,
    expect: Value,
}

impl Line {
    fn all() -> Vec<Self> {
        case_file("bad_inputs.jsonl")
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line).expect("a JSON line");
                let text = line["input"].as_str().expect("an input");
                let input = if text.starts_with("ADMIN") { text.as_bytes().to_vec() } else { bytes_of_latin1(text) };
                let text = |name: &str| line[name].as_str().expect("a text").to_owned();
                Self { id: text("id"), what: text("what"), input, expect: line["expect"].clone() }
            })
            .collect()
    }

    /// The form of the input and what follows its colon.
    fn split(&self) -> (&str, &[u8]) {
        let at = self.input.iter().position(|&b| b == b':').expect("a form");
        (std::str::from_utf8(&self.input[..at]).expect("a form"), &self.input[at + 1..])
    }

    /// What may come, by the contract.
    fn outcomes(&self) -> Vec<Outcome> {
        if let Some((_, outcomes, _)) = CONTRACT.iter().find(|(ids, ..)| ids.contains(&self.id.as_str())) {
            return outcomes.to_vec();
        }
        let status = self.expect["http"].as_u64().map_or(0, |s| u16::try_from(s).expect("a status"));
        let code = self.expect["code"].as_str().map(|code| &*Box::leak(code.to_owned().into_boxed_str()));
        match self.expect["kind"].as_str().expect("a kind") {
            "success" => vec![Outcome::Success],
            "tool_error" => vec![Outcome::Tool(code.expect("a code"))],
            "rpc_error" => vec![Outcome::Rpc(status, self.expect["code"].as_i64().expect("a code"))],
            "http_error" => vec![Outcome::Http(status, code)],
            "http_error_then_close" => vec![Outcome::Closed(status)],
            other => panic!("{other} has its own way"),
        }
    }
}

struct Fixture {
    gw: Gw,
    /// Behind `gh`.
    up: Up,
    /// Behind `secret` and the other organization.
    hidden: Up,
}

fn object() -> Value {
    json!({ "type": "object" })
}

async fn gh() -> Up {
    let echo = json!({
        "type": "object", "properties": { "text": { "type": "string" }, "n": { "type": "integer" } },
        "required": ["text"], "additionalProperties": false
    });
    let out = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let up = ["write", "any", "pending", "blocked", "drift"]
        .iter()
        .fold(Upstream::new(), |up, name| up.tool(name, object()));
    up.tool("echo", echo)
        .tool_out("out", object(), out)
        .credential("Authorization", &format!("Bearer sk-live-{CREDENTIAL_TAIL}"))
        .run()
        .await
}

async fn fixture(more: &str, guardrails: &[&str]) -> Fixture {
    let up = gh().await;
    let hidden = Upstream::new().tool("tool", object()).tool("pending", object()).run().await;
    let definition = |name: &str| up.tools().into_iter().find(|tool| tool["name"] == name).expect("a tool");
    let blocked = crate::support::pin::pin(&definition("blocked"));
    let mut gateway = Gateway::new()
        .conf("[discovery]\ninterval = '300ms'\n[gateway]\nallowed_origins = ['https://ok.test']")
        .env("GH_AUTH", &format!("Bearer sk-live-{CREDENTIAL_TAIL}"))
        .server_with(
            "gh",
            &up,
            &format!("timeout = '2s'\ncredential = {{ Authorization = {{ env = 'GH_AUTH' }} }}\n{more}"),
        )
        .server("secret", &hidden)
        .grant("k", "gh", Read)
        .key("far", &format!("allow_ips = ['{ALLOWED_IP}/32']"))
        .key("off", "disabled = true")
        .object("organization", "id = 'other'\nplan = 'enterprise'\nstatus = 'active'\nsubscription = 'active'")
        .object("server", &format!("organization = 'other'\nslug = 'othr'\nurl = '{}'", hidden.url()))
        .object(
            "approval",
            &format!(
                "organization='acme'\nserver='gh'\ntool='blocked'\nsha256='{blocked}'\nlabels=[]\nclass='read'\nstatus='blocked'"
            ),
        )
        .approve("gh", &definition("write"), "write")
        .approve("gh", &json!({ "name": "removed", "inputSchema": object() }), "read")
        .approve("secret", &hidden.tools()[0], "read");
    for name in ["echo", "any", "drift", "out"] {
        gateway = gateway.approve("gh", &definition(name), "read");
    }
    for (n, guardrail) in guardrails.iter().enumerate() {
        gateway = gateway
            .object("guardrail", &format!("name = 'g{n}'\norganization = 'acme'\naction = 'block'\n{guardrail}"));
    }
    let gw = gateway.run().await;
    up.set_tool(json!({ "name": "drift", "inputSchema": object(), "description": "Drifted." }));
    gw.until_tools("gh", "changed", 1.0).await;
    Fixture { gw, up, hidden }
}

const GUARDRAILS: &[&str] = &[
    "stage = 'both'\ndetector = 'secrets'",
    "stage = 'input'\ndetector = 'personal_data'\ntypes = []",
    "stage = 'input'\ndetector = 'invisible_text'",
    "stage = 'output'\ndetector = 'urls'\ndeny = ['evil.test']",
];

fn client_of(fixture: &Fixture, state: &str) -> Client {
    fixture.gw.client(if state == "key_disabled" { "off" } else { "k" }).fresh()
}

/// Puts the `_meta` of a modern request into params, as text, so that nothing else changes.
fn with_meta(body: &[u8]) -> Vec<u8> {
    let meta =
        r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
    let text = [(&b"\"_meta\":{"[..], format!("{meta},")), (&b"\"params\":{"[..], format!("\"_meta\":{{{meta}}},"))];
    for (mark, insert) in text {
        if let Some(at) = find(body, mark) {
            let at = at + mark.len();
            return [&body[..at], insert.as_bytes(), &body[at..]].concat();
        }
    }
    let whole = serde_json::from_slice::<Value>(body).is_ok_and(|m| m["method"].is_string());
    match body.iter().rposition(|&b| b == b'}') {
        Some(end) if whole => [&body[..end], format!(",\"params\":{{\"_meta\":{{{meta}}}}}}}").as_bytes()].concat(),
        _ => body.to_vec(),
    }
}

/// `BODY:` lines, once in each era.
fn bodies(client: &Client, body: &[u8]) -> Vec<(String, Request)> {
    let plain = script::expand(body);
    let mut modern = client.posting(with_meta(&plain));
    if !modern.headers.iter().any(|(name, _)| name == "Mcp-Method") {
        modern = modern.set("Mcp-Method", "tools/call").set("Mcp-Name", "gh_echo");
    }
    let legacy = client.clone().legacy("2025-11-25").posting(plain);
    let mut out = vec![("legacy".to_owned(), legacy)];
    if !modern.headers.iter().any(|(_, value)| value.len() > 60_000) {
        out.push(("modern".to_owned(), modern));
    }
    out
}

/// `RAW:` lines of clients; a modern message gets its `_meta`, and the length that goes with it.
fn raw_request(input: &[u8], key: &str) -> Vec<u8> {
    let text = script::substitute(
        input,
        &[("K", token(key).as_bytes()), ("ALLOWED_IP", ALLOWED_IP.as_bytes()), ("close", b"")],
    );
    let Some(at) = find(&text, b"\r\n\r\n") else { return text };
    let (head, body) = (String::from_utf8_lossy(&text[..at]).into_owned(), &text[at + 4..]);
    let length = format!("Content-Length: {}", body.len());
    if !head.contains(&length) || !head.contains("MCP-Protocol-Version: 2026-07-28") {
        return text;
    }
    let body = with_meta(body);
    let head = head.replace(&length, &format!("Content-Length: {}", body.len()));
    [head.as_bytes(), b"\r\n\r\n", &body].concat()
}

#[track_caller]
fn check_outcome(answer: &Answer, outcomes: &[Outcome]) {
    let fits = |outcome: &Outcome| match *outcome {
        Outcome::Success => answer.status == 200 && is_success(answer),
        Outcome::Tool(code) => {
            answer.messages.last().is_some_and(|m| m["result"]["_meta"]["toolgate/refusal"]["code"] == code)
        }
        Outcome::Rpc(status, code) => {
            answer.status == status && answer.messages.last().is_some_and(|m| m["error"]["code"] == code)
        }
        Outcome::Http(status, code) => {
            let same = |m: &Value| code.is_none_or(|code| m["error"]["code"] == code);
            answer.status == status && answer.messages.first().is_some_and(same)
        }
        Outcome::Closed(status) => answer.status == status && answer.closed,
    };
    let found = outcomes.iter().find(|outcome| fits(outcome));
    let found =
        found.unwrap_or_else(|| panic!("not one of {outcomes:?}: closed {}: {:.600}", answer.closed, answer.wire()));
    if let Outcome::Tool(code) = found {
        answer.refused(code);
    }
}

fn is_success(answer: &Answer) -> bool {
    answer
        .messages
        .last()
        .is_some_and(|m| m.get("result").is_some() && m["result"]["_meta"].get("toolgate/refusal").is_none())
}

/// Plays a client's line; the answers that came.
async fn play_client(fixture: &Fixture, line: &Line) -> Vec<(String, Answer)> {
    let (form, input) = line.split();
    if form == "RAW" {
        let key = if line.id == "C006" { "far" } else { "k" };
        let era = if find(input, b"MCP-Protocol-Version: 2024").is_some() { Era::Legacy } else { Era::Modern };
        let bytes = raw_request(input, key);
        let client = fixture.gw.client(key).era(era);
        return vec![("raw".to_owned(), client.raw(&bytes).await)];
    }
    let state = form.split_once('@').map_or("", |(_, state)| state);
    let client = client_of(fixture, state);
    let mut answers = Vec::new();
    for (era, request) in bodies(&client, input) {
        answers.push((era, client.send(request).await));
    }
    answers
}

async fn check_client(fixture: &Fixture, line: &Line) {
    let before = fixture.up.calls().len() + fixture.hidden.calls().len();
    let answers = play_client(fixture, line).await;
    let reached = fixture.up.calls().len() + fixture.hidden.calls().len() - before;
    let mut passed = 0;
    for (era, answer) in &answers {
        let mut answer = answer.clone();
        answer.asked.era = if era == "legacy" { Era::Legacy } else { answer.asked.era };
        check_outcome(&answer, &line.outcomes());
        passed += usize::from(is_success(&answer));
        if let Some(header) = line.expect["must_have"].as_str() {
            let (name, value) = header.split_once(": ").unwrap_or((header, ""));
            assert!(answer.header(name).is_some_and(|have| have.contains(value)), "{header} is missing");
        }
    }
    assert_eq!(reached, passed, "calls that reached a server");
    if line.expect.get("log_must_not_contain").is_some() {
        assert!(!fixture.gw.log_text().contains(&token("k")), "the key is in the log");
    }
}

/// The tool whose call a server's line answers.
fn tool_of(line: &Line) -> (&'static str, &'static str) {
    if ["U046", "U047", "U048"].contains(&line.id.as_str()) {
        ("gh_out", "{}")
    } else {
        ("gh_echo", r#"{"text":"hi"}"#)
    }
}

async fn check_server(fixture: &Fixture, line: &Line) {
    let (form, input) = line.split();
    let input = script::substitute(input, &[("CRED_TAIL", CREDENTIAL_TAIL.as_bytes())]);
    let (tool, arguments) = tool_of(line);
    for era in [Era::Modern, Era::Legacy] {
        let client = fixture.gw.client("k").era(era).fresh();
        let before = fixture.up.calls().len();
        fixture.up.next(match form {
            "RAW" => Reply::Raw(input.clone()),
            "RESP" => Reply::Body(input.clone()),
            "SSE" => Reply::Events(input.clone()),
            other => panic!("{other} is no answer"),
        });
        let answer = client.call_text(tool, arguments).await;
        check_outcome(&answer, &line.outcomes());
        assert_eq!(fixture.up.calls().len() - before, 1, "sent exactly once");
        let wire = answer.wire();
        for name in ["message_must_not_contain", "client_headers_must_not_contain"] {
            let words = &line.expect[name];
            for word in words.as_array().unwrap_or(&vec![words.clone()]).iter().filter_map(Value::as_str) {
                assert!(!wire.contains(word), "{word:?} leaked: {wire}");
            }
        }
        client.call_text("gh_echo", r#"{"text":"next"}"#).await.ok();
    }
}

/// Why an `ACT:` line is played here or elsewhere.
async fn check_act(line: &Line) {
    let (_, act) = line.split();
    let identity = match act {
        b"tls_wrong_name" => Some(Identity::new(Leaf::WrongName)),
        b"tls_expired" => Some(Identity::new(Leaf::Expired)),
        _ => None,
    };
    let good = Identity::new(Leaf::Good);
    let up = Upstream::new().tool("echo", object());
    let up = if identity.is_some() { up.tls(&good) } else { up }.run().await;
    let gateway = Gateway::new().file("ca.pem", &good.ca_pem);
    let gateway = gateway.server_with("gh", &up, if identity.is_some() { "ca = 'ca.pem'" } else { "" });
    let gw = gateway.grant("k", "gh", Write).approve_all().run().await;
    match (identity, act) {
        (Some(identity), _) => up.show(&identity).await,
        (None, b"accept_rst") => up.restart(Accept::Reset).await,
        (None, b"accept_close") => up.restart(Accept::Close).await,
        (None, other) => panic!("{}", String::from_utf8_lossy(other)),
    }
    check_outcome(&gw.client("k").call("gh_echo", json!({})).await, &line.outcomes());
    assert!(up.calls().is_empty());
}

/// `TOOLS:` lines: the server lists these beside a good tool, and the good one goes on.
async fn check_listing(line: &Line) {
    let (form, input) = line.split();
    let text = String::from_utf8(script::expand(input)).expect("UTF-8").replace("},]", "}]");
    let page = if form == "TOOLS" { format!(r#"{{"tools":{text}}}"#) } else { text };
    let listed: Value = serde_json::from_str(&page).expect("a listing");
    let near = Upstream::new().tool("near", object()).run().await;
    let up = Upstream::new().speaks(Speaks::Modern).run().await;
    up.list_with(Some(Reply::Result(page)));
    let mut gateway =
        Gateway::new().server("gh", &up).server("near", &near).grant("k", "gh", Write).grant("k", "near", Write);
    let tools: Vec<Value> = listed["tools"].as_array().expect("tools").iter().take(3).cloned().collect();
    for (n, tool) in tools.iter().enumerate() {
        if tool["name"].is_string() && !tools[..n].iter().any(|t| t["name"] == tool["name"]) {
            gateway = gateway.approve("gh", tool, "read");
        }
    }
    let gw = gateway.approve_all().run().await;
    gw.client("k").call("near_near", json!({})).await.ok();
    let names = gw.client("k").listed().await;
    let exposed: Vec<&String> = names.iter().filter(|name| name.starts_with("gh_")).collect();
    match line.expect["kind"].as_str().expect("a kind") {
        "discovery_fault" | "discovery_skip" | "admin_error" => assert!(exposed.is_empty(), "{exposed:?} is listed"),
        "tool_error" => {
            gw.client("k").call("gh_a", json!({ "a": 1 })).await.refused(line.expect["code"].as_str().expect("a code"));
        }
        "discovery_warning" => assert_eq!(exposed.len(), 2, "{exposed:?}"),
        "discovery_bound" => {
            let long = json!({ "t": format!("{}!", "a".repeat(50_000)) });
            let answer = gw.client("k").call("gh_a", long).await;
            if line.id == "U091" {
                answer.refused("invalid_tool_arguments");
            }
            assert!(answer.took < std::time::Duration::from_secs(2), "{:?}", answer.took);
        }
        other => panic!("{other} has no way"),
    }
    assert!(up.calls().len() <= 1);
}

async fn check_cut(fixture: &Fixture, line: &Line) {
    let bytes = raw_request(line.split().1, "k");
    let mut connection = fixture.gw.client("k").connect().await.expect("a connection");
    connection.write(&bytes).await.expect("written");
    drop(connection);
    fixture.gw.client("k").call("gh_echo", json!({ "text": "next" })).await.ok();
}

#[test]
fn every_bad_input_is_met_as_the_contract_says() {
    run(async {
        let whole = fixture("", GUARDRAILS).await;
        let closed = format!("http://127.0.0.1:{}/engine", crate::support::free_port());
        let engine = format!("stage = 'input'\ndetector = 'engine'\nurl = '{closed}'\ntimeout = '300ms'");
        let engine_down = fixture("", &[&engine]).await;
        let limited = fixture("rate_limit = '1/hour'", &[]).await;
        limited.gw.client("k").call("gh_echo", json!({ "text": "the one" })).await.ok();
        let mut faults = Faults::default();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut played = 0;
        for line in Line::all() {
            let form = line.split().0.to_owned();
            if MANAGEMENT.contains(&form.as_str()) {
                continue;
            }
            played += 1;
            let name = format!("{} {}", line.id, line.what);
            *counts
                .entry(format!("{form}, {}", if line.id.starts_with('C') { "client" } else { "server" }))
                .or_default() += 1;
            match (line.id.chars().next(), form.as_str()) {
                _ if line.expect["kind"] == "connection_closed" => faults.row(name, check_cut(&whole, &line)).await,
                (Some('C'), "BODY@engine_down") => faults.row(name, check_client(&engine_down, &line)).await,
                (Some('C'), "BODY@server_rate") => faults.row(name, check_client(&limited, &line)).await,
                (Some('C'), _) => faults.row(name, check_client(&whole, &line)).await,
                (_, "ACT") => faults.row(name, check_act(&line)).await,
                (_, "TOOLS" | "TOOLS_PAGED") => faults.row(name, check_listing(&line)).await,
                _ => faults.row(name, check_server(&whole, &line)).await,
            }
        }
        show(&counts, played, faults.count());
        whole.up.assert_spoken_to_well();
        assert!(whole.gw.is_alive(), "{}", whole.gw.log_text());
        assert!(!whole.gw.log_text().contains(CREDENTIAL_TAIL), "the credential is in the log");
        faults.assert_none(played);
    });
}

fn show(counts: &BTreeMap<String, usize>, played: usize, failed: usize) {
    let mut table = format!("bad inputs: {played} played, {failed} failed\n");
    for (name, count) in counts {
        let _ = writeln!(table, "{count:>5}  {name}");
    }
    eprintln!("{table}");
}

#[test]
fn the_exceptions_name_lines_that_exist_and_say_why() {
    let lines = Line::all();
    for (ids, outcomes, why) in CONTRACT {
        assert!(!outcomes.is_empty() && !why.is_empty());
        for id in *ids {
            let line = lines.iter().find(|line| line.id == *id).unwrap_or_else(|| panic!("no line {id}"));
            assert_ne!(line.expect["basis"], "contract", "{id} is the contract's own: it has no exception");
        }
    }
}
