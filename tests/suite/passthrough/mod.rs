//! Resources, prompts and completion: passed through on a server's own endpoint where its policy opts in, and nowhere else.

mod both_ways;
mod refusals;
mod server;

use serde_json::{Value, json};

use crate::support::{
    Faults,
    answer::{Answer, Era},
    client::{Client, header_value},
    gateway::{Gateway, Gw},
    policy::Access::{self, Read, Selected},
    run,
};
use server::{Reply, Server};

const ALL: &str = "passthrough = ['resources', 'prompts', 'completion']";

/// Each method with good params and a good result; the word by which a server opts in to it.
fn methods() -> [(&'static str, &'static str, Value, &'static str); 6] {
    [
        (
            "resources/list",
            "resources",
            json!({ "cursor": "c-1" }),
            r#"{"resources":[{"uri":"a:b","name":"n"}], "nextCursor":"c-2"}"#,
        ),
        ("resources/templates/list", "resources", json!({}), r#"{"resourceTemplates":[]}"#),
        (
            "resources/read",
            "resources",
            json!({ "uri": "a:b" }),
            r#"{"contents":[{"uri":"a:b","text":"\u00e4 1.50"}]}"#,
        ),
        ("prompts/list", "prompts", json!({}), r#"{"prompts":[{"name":"p"}]}"#),
        (
            "prompts/get",
            "prompts",
            json!({ "name": "p", "arguments": { "n": "1" } }),
            r#"{"messages":[{"role":"user","content":{"type":"text","text":"t"}}],"x":1.0}"#,
        ),
        (
            "completion/complete",
            "completion",
            json!({ "ref": { "type": "ref/prompt", "name": "p" }, "argument": { "name": "n", "value": "1" }, "context": { "arguments": {} } }),
            r#"{"completion":{"values":["a"],"total":1}}"#,
        ),
    ]
}

async fn gateway_with(server: &Server, members: &str, build: impl FnOnce(Gateway) -> Gateway) -> Gw {
    let object = format!("organization = 'acme'\nslug = 'demo'\nurl = '{}'\n{members}", server.url);
    build(Gateway::new().object("server", &object)).run().await
}

async fn gateway(server: &Server, members: &str) -> Gw {
    gateway_with(server, members, |gateway| gateway.grant("ann", "demo", Read)).await
}

/// Asks on the server's own endpoint, with the headers that a client sends.
async fn ask(client: &Client, method: &str, params: Value) -> Answer {
    let name = params["name"].as_str().or(params["uri"].as_str()).map(header_value);
    let request = client.asking(method, params);
    client
        .send(match name.filter(|_| client.speaks() == Era::Modern) {
            Some(name) => request.and("Mcp-Name", &name),
            None => request,
        })
        .await
}

/// Asks for input that may be given in another round.
const INPUT: &str = r#"{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?"}}},"requestState":"their \u0073tate"}"#;

/// The refusal of a request that is passed through; gives its message.
#[track_caller]
fn refused<'a>(answer: &'a Answer, kind: &str, code: &str) -> &'a str {
    let error = answer.rpc_error(200, -31000);
    let message = error["message"].as_str().unwrap();
    assert_eq!(error["data"], json!({ "error": { "type": kind, "code": code, "message": message } }));
    assert!(!message.contains(" tool"), "no tool was called: {message}");
    message
}

fn both(gw: &Gw) -> [Client; 2] {
    [Era::Modern, Era::Legacy].map(|era| gw.client("ann").server("demo").era(era))
}

#[test]
fn only_what_is_opted_in_is_there() {
    run(async {
        let mut faults = Faults::default();
        let mut rows = 0;
        for opted in ["", "resources", "prompts", "completion"] {
            let server = Server::run(true).await;
            for (method, _, _, result) in methods() {
                server.on(method, Reply::result(result));
            }
            let list = if opted.is_empty() { String::new() } else { format!("passthrough = ['{opted}']") };
            let gw = gateway(&server, &list).await;
            for (method, needs, params, _) in methods() {
                for client in both(&gw) {
                    rows += 1;
                    let (here, server) = (needs == opted, server.clone());
                    let aggregated = gw.client("ann").era(client.speaks());
                    let params = params.clone();
                    let row = async move {
                        let status = if client.speaks() == Era::Modern { 404 } else { 200 };
                        let before = server.seen().len();
                        ask(&aggregated, method, params.clone()).await.rpc_error(status, -32601);
                        let answer = ask(&client, method, params).await;
                        if here {
                            answer.result();
                        } else {
                            answer.rpc_error(status, -32601);
                        }
                        assert_eq!(server.seen().len() - before, usize::from(here), "asked though not opted in");
                    };
                    faults.row(format!("{method} of `{opted}`"), row).await;
                }
            }
            for method in ["resources/subscribe", "resources/unsubscribe", "logging/setLevel", "tasks/get", "prompts/x"]
            {
                let [modern, legacy] = both(&gw);
                ask(&modern, method, json!({ "uri": "a:b" })).await.rpc_error(404, -32601);
                ask(&legacy, method, json!({ "uri": "a:b" })).await.rpc_error(200, -32601);
            }
        }
        faults.assert_none(rows);
    });
}

#[test]
fn what_is_served_is_declared() {
    run(async {
        for (list, expected) in [
            ("", json!({ "tools": {} })),
            (ALL, json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} })),
            ("passthrough = ['prompts']", json!({ "tools": {}, "prompts": {} })),
        ] {
            let gw = gateway(&Server::run(true).await, list).await;
            let [modern, legacy] = both(&gw);
            let declared = |answer: Answer| answer.result()["capabilities"].clone();
            let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
            // A modern client can subscribe to changes of its list.
            let mut subscribable = expected.clone();
            subscribable["tools"] = json!({ "listChanged": true });
            assert_eq!(declared(modern.rpc("server/discover", json!({})).await), subscribable);
            assert_eq!(declared(legacy.rpc("initialize", hello.clone()).await), expected);
            let tools = json!({ "tools": {} });
            let subscribable = json!({ "tools": { "listChanged": true } });
            assert_eq!(declared(gw.client("ann").rpc("server/discover", json!({})).await), subscribable, "aggregated");
            assert_eq!(declared(gw.client("ann").era(Era::Legacy).rpc("initialize", hello).await), tools, "aggregated");
        }
    });
}

#[test]
fn requests_and_results_pass_byte_for_byte_between_all_eras() {
    run(async {
        for modern in [true, false] {
            let server = Server::run(modern).await;
            let gw = gateway(&server, ALL).await;
            for (method, _, params, result) in methods() {
                server.on(method, Reply::result(result));
                for client in both(&gw) {
                    let mut extra = params.clone();
                    extra["unknown"] = json!(1);
                    extra["_meta"] = json!({ "vendor/x": 1 });
                    let answer = ask(&client, method, extra).await;
                    let inner = result.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
                    assert!(answer.text().contains(inner), "{method}: {} lacks {inner}", answer.text());
                    let got = answer.result();
                    let cached =
                        client.speaks() == Era::Modern && method != "prompts/get" && method != "completion/complete";
                    assert_eq!(
                        (got.get("ttlMs").is_some(), got.get("cacheScope").is_some()),
                        (cached, cached),
                        "{method}"
                    );
                    assert!(!cached || (got["ttlMs"] == 0 && got["cacheScope"] == "private"), "{got}");

                    let seen = server.seen().pop().unwrap();
                    let mut sent = seen.message["params"].clone();
                    let meta = sent.as_object_mut().unwrap().remove("_meta").unwrap_or_default();
                    assert_eq!(sent, params, "{method}: only what is known is passed on");
                    assert!(meta.get("vendor/x").is_none(), "{meta}");
                    assert_eq!(meta.get("io.modelcontextprotocol/protocolVersion").is_some(), modern);
                    let header = |name| seen.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                    let named = params["uri"].as_str().or(params["name"].as_str()).filter(|_| modern).map(header_value);
                    assert_eq!(header("mcp-name"), named, "{method}");
                    assert_eq!(header("mcp-method").as_deref(), modern.then_some(method));
                    assert_eq!(header("authorization"), None);
                }
            }
        }
    });
}

#[test]
fn written_values_are_not_rewritten() {
    run(async {
        let server = Server::run(true).await;
        server.on("prompts/get", Reply::result(r#"{"messages":[]}"#));
        let gw = gateway(&server, ALL).await;
        let client = gw.client("ann").server("demo");
        let arguments = r#"{ "a" : "\u0041\/", "b":1.0E2 }"#;
        let request = client.asking("prompts/get", json!({ "name": "p", "arguments": "HERE" }));
        let body = String::from_utf8(request.body.clone()).unwrap().replace("\"HERE\"", arguments);
        client.send(client.posting(body).and("Mcp-Name", "p")).await.result();
        assert!(server.seen()[0].text.contains(&format!(r#""arguments":{arguments}"#)), "{}", server.seen()[0].text);
    });
}

#[test]
fn a_server_may_say_how_long_but_not_for_whom() {
    run(async {
        let server = Server::run(true).await;
        let gw = gateway(&server, ALL).await;
        for (said, expected) in [("60000", 60_000), ("-1", 0), ("1.5", 0), ("\"5\"", 0)] {
            let result = format!(r#"{{"resultType":"complete","prompts":[],"ttlMs":{said},"cacheScope":"public"}}"#);
            server.on("prompts/list", Reply::result(&result));
            let [modern, legacy] = both(&gw);
            let answer = ask(&modern, "prompts/list", json!({})).await;
            assert_eq!(
                (&answer.result()["ttlMs"], &answer.result()["cacheScope"]),
                (&json!(expected), &json!("private"))
            );
            let answer = ask(&legacy, "prompts/list", json!({})).await;
            assert_eq!(answer.result(), &json!({ "prompts": [] }));
        }
    });
}

#[test]
fn any_grant_lets_through_and_none_hides_the_server() {
    run(async {
        let server = Server::run(true).await;
        server.on("prompts/list", Reply::result(r#"{"prompts":[]}"#));
        let grants: [(&str, Access); 3] = [("a", Read), ("b", Access::Write), ("c", Selected(&["no_such_tool"]))];
        let build = |gateway: Gateway| {
            let gateway = gateway.key("nobody", "");
            grants.iter().fold(gateway, |gateway, (key, access)| gateway.grant(key, "demo", access.clone()))
        };
        let gw = gateway_with(&server, ALL, build).await;
        for (key, _) in &grants {
            ask(&gw.client(key).server("demo"), "prompts/list", json!({})).await.result();
        }
        let stranger = ask(&gw.client("nobody").server("demo"), "prompts/list", json!({})).await;
        stranger.http_refused(404, "not_found", Some("mcp_server_not_found"));
        let unknown = gw.client("a").server("demo").token(Some("no key"));
        ask(&unknown, "prompts/list", json!({})).await.http_refused(401, "authentication_error", None);
        assert_eq!(server.seen().len(), grants.len());
    });
}

#[test]
fn progress_of_a_request_beside_tools_passes() {
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let last = r#"{"jsonrpc":"2.0","id":${ID},"result":{"contents":[]}}"#;
    run(async move {
        let server = Server::run(true).await;
        server.on("resources/read", Reply::stream(&[log, progress, last]));
        let gw = gateway(&server, ALL).await;
        for client in both(&gw) {
            let answer = ask(&client.progress(json!("p")), "resources/read", json!({ "uri": "a:b" })).await;
            answer.result();
            assert_eq!(answer.messages.len(), 2, "{:?}", answer.texts);
            assert_eq!(answer.messages[0]["params"]["progressToken"], "p");
        }
    });
}

#[test]
fn the_oldest_revision_gets_no_resource_link() {
    run(async {
        let server = Server::run(true).await;
        let link = r#"{"role":"user","content":{"type":"resource_link","uri":"a:b","name":"n"}}"#;
        server.on("prompts/get", Reply::result(&format!(r#"{{"messages":[{link}]}}"#)));
        let gw = gateway(&server, ALL).await;
        for (revision, kind) in
            [("2025-03-26", "text"), ("2025-06-18", "resource_link"), ("2025-11-25", "resource_link")]
        {
            let client = gw.client("ann").server("demo").legacy(revision);
            let answer = ask(&client, "prompts/get", json!({ "name": "p" })).await;
            assert_eq!(answer.result()["messages"][0]["content"]["type"], kind, "{revision}");
        }
    });
}
