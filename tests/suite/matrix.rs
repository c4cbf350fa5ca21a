//! Contract §4: each refusal x endpoint x era x transport. What the caller gets is the same everywhere, and the server is reached or it is not.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::{
    Faults,
    answer::{Answer, Era},
    client::{BOTH, Client},
    gateway::{Gateway, Gw},
    policy::Access::{Read, Selected, Write},
    run,
    upstream::{Form, Reply, Up, Upstream},
};

/// One refusal and how to come by it.
pub struct Row {
    pub name: &'static str,
    pub code: &'static str,
    pub server: &'static str,
    pub tool: &'static str,
    pub arguments: &'static str,
    /// Whether the server sees the call.
    reached: bool,
    /// What the message must say, besides what all say.
    says: &'static [&'static str],
    /// The row exists on the aggregated endpoint only: on the other the path itself is 404.
    aggregated_only: bool,
}

const fn row(name: &'static str, code: &'static str, tool: &'static str, arguments: &'static str) -> Row {
    Row { name, code, server: "demo", tool, arguments, reached: false, says: &[], aggregated_only: false }
}

impl Row {
    const fn on(mut self, server: &'static str) -> Self {
        self.server = server;
        self
    }

    const fn reached(mut self) -> Self {
        self.reached = true;
        self
    }

    const fn says(mut self, says: &'static [&'static str]) -> Self {
        self.says = says;
        self
    }

    const fn aggregated(mut self) -> Self {
        self.aggregated_only = true;
        self
    }
}

const LONG: &str = r#"{"text":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;

pub const ROWS: &[Row] = &[
    row("a write tool under a read grant", "tool_not_allowed", "write", "{}"),
    row("not named in a selected grant", "tool_not_allowed", "other", "{}").on("chosen"),
    row("no grant on the server", "tool_not_allowed", "echo", "{}").on("hidden").aggregated(),
    row("a disabled server", "tool_not_allowed", "echo", "{}").on("dark").aggregated(),
    row("a server of another project", "tool_not_allowed", "echo", "{}").on("elsewhere").aggregated(),
    row("the grant before the approval", "tool_not_allowed", "pending", "{}").on("hidden").aggregated(),
    row("pending", "tool_not_approved", "pending", "{}"),
    row("blocked", "tool_not_approved", "blocked", "{}"),
    row("removed", "tool_not_approved", "removed", "{}"),
    row("changed", "tool_definition_changed", "drift", "{}"),
    row("the approval before the arguments", "tool_not_approved", "pending", "null"),
    row("an account that is not connected", "credential_required", "echo", "{}")
        .on("personal")
        .says(&["https://connect.test/demo", "Ask the person"]),
    row("the account before the arguments", "credential_required", "typed", "null").on("personal"),
    row("an argument of the wrong type", "invalid_tool_arguments", "typed", r#"{"n":"secret-value"}"#).says(&["/n"]),
    row("a missing argument", "invalid_tool_arguments", "typed", "{}"),
    row("a member too many", "invalid_tool_arguments", "typed", r#"{"n":1,"secret-value":2}"#),
    row("arguments that are null", "invalid_tool_arguments", "typed", "null"),
    row("arguments over the limit", "invalid_tool_arguments", "any", LONG),
    row("a schema on the network", "invalid_tool_arguments", "remote", "{}"),
    row("a schema that is no object", "invalid_tool_arguments", "scalar", "{}"),
    row("a word in the arguments", "guardrail_blocked", "any", r#"{"a":"zebra-9"}"#).says(&["keywords"]),
    row("an engine for the arguments fails", "guardrail_unavailable", "engine_in", "{}"),
    row("500", "upstream_unavailable", "s500", "{}").reached(),
    row("a redirect", "upstream_unavailable", "s307", "{}").reached(),
    row("no MCP", "upstream_unavailable", "html", "{}").reached(),
    row("401", "upstream_unavailable", "s401", "{}").reached().says(&["admin"]),
    row("403", "upstream_unavailable", "s403", "{}").reached().says(&["admin"]),
    row("429", "upstream_unavailable", "s429", "{}").reached(),
    row("silence", "upstream_timeout", "silent", "{}").on("slow").reached(),
    row("a JSON-RPC error", "upstream_rejected", "rpc_error", "{}").reached().says(&["no such row"]),
    row("a JSON-RPC error in a 404", "upstream_rejected", "rpc_404", "{}").reached().says(&["no such page"]),
    row("a large result", "tool_result_too_large", "large", "{}").reached().says(&["4"]),
    row("structuredContent that does not fit", "tool_result_invalid", "out_wrong", "{}").reached(),
    row("structuredContent missing", "tool_result_invalid", "out_missing", "{}").reached(),
    row("content missing", "tool_result_invalid", "no_content", "{}").reached(),
    row("a word in the result", "guardrail_blocked", "leak", "{}").reached().says(&["keywords"]),
    row("an engine for the result fails", "guardrail_unavailable", "engine_out", "{}").reached(),
    row("an engine for an error's message fails", "guardrail_unavailable", "engine_err", "{}").reached(),
];

/// What no refusal may ever repeat: values of arguments, matches, text of results, other servers.
const NEVER_SAID: &[&str] =
    &["secret-value", "zebra-9", "leak-7", "hunter-2", "xxxxxxxx", "hidden_server", "127.0.0.1"];

async fn upstream() -> Up {
    let object = || json!({ "type": "object" });
    let out = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let typed = json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false
    });
    let rpc = r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":-32602,"message":"no such page"}}"#;
    let rpc_404 =
        format!("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: ${{LEN}}\r\n\r\n{rpc}");
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 18\r\n\r\n<html>hunter-2</ht";
    let replies: Vec<(&str, Reply)> = vec![
        ("s500", Reply::status(500, "", "hunter-2")),
        ("s307", Reply::status(307, "Location: /mcp2\r\n", "")),
        ("html", Reply::raw(html)),
        ("s401", Reply::status(401, "WWW-Authenticate: Bearer\r\n", "")),
        ("s403", Reply::status(403, "", "")),
        ("s429", Reply::status(429, "Retry-After: 30\r\n", "")),
        ("silent", Reply::raw("${stall}")),
        ("rpc_error", Reply::Error(r#"{"code":-32000,"message":"no such row","data":{"x":"hunter-2"}}"#.to_owned())),
        ("rpc_404", Reply::raw(rpc_404)),
        ("large", Reply::Result(r#"{"content":[{"type":"text","text":"${rep 5000 x}"}]}"#.to_owned())),
        ("no_content", Reply::Result(r#"{"structuredContent":{"a":"hunter-2"}}"#.to_owned())),
        ("leak", Reply::text("the word is leak-7")),
        ("engine_err", Reply::Error(r#"{"code":-32000,"message":"hunter-2"}"#.to_owned())),
    ];
    let names = ["echo", "any", "write", "other", "pending", "blocked", "drift", "engine_in", "engine_out"];
    let mut up = names.iter().fold(Upstream::new(), |up, name| up.tool(name, object()));
    for (name, reply) in replies {
        up = up.tool(name, object()).reply(name, reply);
    }
    up.tool("typed", typed)
        .tool("remote", json!({ "type": "object", "properties": { "a": { "$ref": "https://schemas.test/a.json" } } }))
        .tool("scalar", json!({ "type": "string" }))
        .tool_out("out_wrong", object(), out.clone())
        .reply("out_wrong", Reply::Result(r#"{"content":[],"structuredContent":{"n":"hunter-2"}}"#.to_owned()))
        .tool_out("out_missing", object(), out)
        .reply("out_missing", Reply::text("hunter-2"))
        .run()
        .await
}

async fn gateway() -> (Gw, Up) {
    gateway_with("").await
}

/// The gateway of the matrix, with more conf.
pub async fn gateway_with(conf: &str) -> (Gw, Up) {
    let up = upstream().await;
    let definition = |name: &str| up.tools().into_iter().find(|tool| tool["name"] == name).unwrap();
    let closed = format!("http://127.0.0.1:{}/judge", crate::support::free_port());
    let mut gateway = Gateway::new()
        .conf(conf)
        .conf("[limits]\narguments = '100B'\nresult = '4KiB'\n[discovery]\ninterval = '300ms'")
        .object("project", "id = 'sales'\norganization = 'acme'")
        .server("demo", &up)
        .server("chosen", &up)
        .server("hidden", &up)
        .server_with("slow", &up, "timeout = '500ms'")
        .server_with("dark", &up, "enabled = false")
        .server_with("elsewhere", &up, "projects = ['sales']")
        .server_with("personal", &up, "credential_mode = 'per_user'\nconnect_url = 'https://connect.test/demo'")
        .grant("ann", "demo", Read)
        .grant("ann", "chosen", Selected(&["echo"]))
        .grant("ann", "slow", Write)
        .grant("ann", "personal", Read)
        .grant("ann", "dark", Read)
        .grant("ann", "elsewhere", Read)
        .approve("demo", &definition("write"), "write")
        .approve("demo", &json!({ "name": "removed", "inputSchema": { "type": "object" } }), "read");
    for name in ["engine_in", "engine_out", "engine_err"] {
        let stage = if name == "engine_in" { "input" } else { "output" };
        gateway = gateway.object(
            "guardrail",
            &format!("name = '{name}'\norganization = 'acme'\nstage = '{stage}'\ndetector = 'engine'\naction = 'block'\nservers = ['demo']\ntools = ['{name}']\nurl = '{closed}'\ntimeout = '300ms'"),
        );
    }
    for (n, (stage, word)) in [("input", "zebra-9"), ("output", "leak-7")].into_iter().enumerate() {
        gateway = gateway.object(
            "guardrail",
            &format!("name = 'words-{n}'\norganization = 'acme'\nstage = '{stage}'\ndetector = 'keywords'\naction = 'block'\nwords = ['{word}']"),
        );
    }
    for tool in up.tools() {
        let name = tool["name"].as_str().unwrap();
        for server in ["demo", "chosen", "slow", "dark", "elsewhere", "hidden", "personal"] {
            let pinned = name == "pending" || (server == "demo" && ["write", "blocked"].contains(&name));
            if !pinned {
                gateway = gateway.approve(server, &tool, "read");
            }
        }
    }
    let blocked = format!(
        "organization = 'acme'\nserver = 'demo'\ntool = 'blocked'\nsha256 = '{}'\nlabels = []\nclass = 'read'\nstatus = 'blocked'",
        crate::support::pin::pin(&definition("blocked"))
    );
    let gw = gateway.object("approval", &blocked).run().await;
    up.set_tool(json!({ "name": "drift", "inputSchema": { "type": "object" }, "description": "Drifted." }));
    gw.until_tools("demo", "changed", 1.0).await;
    (gw, up)
}

/// A form of transport: what the caller accepts, and how the server answers.
const TRANSPORTS: &[(&str, Form)] =
    &[(BOTH, Form::Json), (BOTH, Form::Sse), ("application/json", Form::Sse), ("text/event-stream", Form::Json)];

/// Every way in of a row: both eras, both endpoints.
pub fn clients(gw: &Gw, row: &Row) -> Vec<(String, Client)> {
    let mut clients = Vec::new();
    for era in [Era::Modern, Era::Legacy] {
        for aggregated in [true, false] {
            if row.aggregated_only && !aggregated {
                continue;
            }
            let client = gw.client("ann").era(era);
            let client = if aggregated { client } else { client.server(row.server) };
            clients.push((format!("{era:?}, {}", client.path()), client));
        }
    }
    clients
}

/// The rows of the table of refusals that make a tool result, by their code.
#[test]
fn every_code_of_a_tool_refusal_has_rows_here() {
    let rows: BTreeSet<&str> = ROWS.iter().map(|row| row.code).collect();
    let all: BTreeSet<&str> = crate::support::answer::REFUSALS.iter().map(|(code, _)| *code).collect();
    assert_eq!(rows, all);
}

#[track_caller]
fn check(row: &Row, answer: &Answer, accept: &str) -> String {
    let message = answer.refused(row.code).to_owned();
    let ran = message.contains("have run");
    assert_eq!(ran, row.reached, "says that it may have run, or does not: {message}");
    for word in row.says {
        assert!(message.contains(word), "{word:?} is not said: {message}");
    }
    for word in NEVER_SAID {
        assert!(!answer.wire().contains(word), "{word:?} is said: {}", answer.wire());
    }
    if row.code.starts_with("tool_not") || ["tool_definition_changed", "credential_required"].contains(&row.code) {
        assert!(message.contains("retry"), "{message}");
    }
    let sentences = message.replace("e.g.", "").matches(". ").count() + 1;
    assert!(sentences <= 3, "{sentences} sentences: {message}");
    match accept {
        "application/json" => assert!(!answer.is_stream()),
        "text/event-stream" => assert!(answer.is_stream()),
        _ => {}
    }
    message
}

#[test]
fn each_refusal_is_the_same_on_every_way_in() {
    run(async {
        let (gw, up) = gateway().await;
        let gw = std::sync::Arc::new(gw);
        let mut faults = Faults::default();
        let mut cells = 0;
        for row in ROWS {
            let mut messages = BTreeSet::new();
            for (way, client) in clients(&gw, row) {
                for (accept, form) in TRANSPORTS {
                    cells += 1;
                    up.set_form(*form);
                    let client = client.clone().accept(accept);
                    let before = up.calls().len();
                    let name = client.named(row.server, row.tool);
                    let answer = client.call_text(&name, row.arguments).await;
                    let reached = up.calls().len() - before;
                    let said = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
                    let out = std::sync::Arc::clone(&said);
                    let check = async move {
                        assert_eq!(
                            reached,
                            usize::from(row.reached),
                            "calls that reached the server: {}",
                            answer.wire()
                        );
                        *out.lock().unwrap() = check(row, &answer, accept).replace(&format!("`{name}`"), "`TOOL`");
                    };
                    faults.row(format!("{}: {way}, {accept}, {form:?}", row.name), check).await;
                    messages.insert(said.lock().unwrap().clone());
                    if row.code == "upstream_timeout" {
                        gw.client("ann").call("slow_echo", json!({})).await.ok(); // five in a row would open the breaker
                    }
                }
            }
            messages.remove("");
            let name = row.name;
            faults.row(name, async move { assert!(messages.len() <= 1, "different words: {messages:#?}") }).await;
        }
        up.assert_spoken_to_well();
        assert!(gw.is_alive(), "{}", gw.log_text());
        faults.assert_none(cells);
    });
}

#[test]
fn each_refusal_is_counted_once_under_its_code_and_server() {
    run(async {
        let (gw, _up) = gateway().await;
        let mut faults = Faults::default();
        for row in ROWS {
            let labels = [("code", row.code), ("server", row.server)];
            let before = gw.metrics().await.sum("toolgate_refusals_total", &labels);
            let client = gw.client("ann");
            let answer = client.call_text(&client.named(row.server, row.tool), row.arguments).await;
            let line = gw.access_line(answer.request_id()).await;
            let after = gw.until_metric("toolgate_refusals_total", &labels, |n| n > before).await;
            let check = async move {
                assert_eq!(after - before, 1.0);
                assert_eq!(line["outcome"], row.code, "{line}");
                assert_eq!((&line["server"], &line["key_id"]), (&json!(row.server), &json!("ann")), "{line}");
                assert_eq!(
                    (&line["endpoint"], &line["era"], &line["method"]),
                    (&json!("aggregated"), &json!("modern"), &json!("tools/call"))
                );
                for word in NEVER_SAID.iter().filter(|word| **word != "127.0.0.1") {
                    assert!(!line.to_string().contains(word), "{word:?} is in the access log: {line}");
                }
            };
            faults.row(row.name, check).await;
        }
        faults.assert_none(ROWS.len());
    });
}

#[test]
fn a_tool_on_a_path_that_the_key_cannot_see_is_404() {
    run(async {
        let (gw, up) = gateway().await;
        let before = up.calls().len();
        for row in ROWS.iter().filter(|row| row.aggregated_only) {
            let answer = gw.client("ann").server(row.server).call(row.tool, json!({})).await;
            answer.http_refused(404, "not_found", Some("mcp_server_not_found"));
        }
        let unknown = gw.client("ann").call("hidden_nothing", json!({})).await;
        unknown.rpc_error(200, -32602);
        assert_eq!(up.calls().len(), before);
    });
}
