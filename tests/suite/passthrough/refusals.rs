//! Refusals of what is passed through: JSON-RPC errors, each with its code, and what a server may say in its own words.

use serde_json::{Value, json};

use super::{
    ALL, INPUT, ask, both, gateway, gateway_with, refused,
    server::{Reply, Server},
};
use crate::support::{Faults, answer::Era, client::BOTH, gateway::Gateway, policy::Access::Read, run};

#[test]
fn refusals_are_json_rpc_errors() {
    run(async move {
        let mut faults = Faults::default();
        let rows = answers();
        let count = rows.len();
        let server = Server::run(true).await;
        let members = format!("{ALL}\ntimeout = '500ms'\nresult_limit = '2KiB'");
        let gw = gateway_with(&server, &members, |gateway| {
            let rule = "name = 'r'\norganization = 'acme'\nstage = 'output'\ndetector = 'keywords'\nwords = ['badword']\naction = 'block'";
            gateway.grant("ann", "demo", Read).object("guardrail", rule)
        })
        .await;
        for (name, reply, kind, code) in rows {
            for accept in [BOTH, "application/json", "text/event-stream"] {
                for client in both(&gw) {
                    server.on("resources/read", reply.clone());
                    let client = client.accept(accept);
                    let row = async move {
                        let answer = ask(&client, "resources/read", json!({ "uri": "a:b" })).await;
                        let message = refused(&answer, kind, code);
                        assert_eq!(code == "upstream_rejected", message.contains("went wrong"), "{message}");
                        assert!(!answer.wire().contains("secret") && !answer.wire().contains("badword"));
                    };
                    faults.row(format!("{name}, {accept}"), row).await;
                }
                // the breaker must not open
                server.on("resources/read", Reply::result(r#"{"contents":[]}"#));
                ask(&gw.client("ann").server("demo"), "resources/read", json!({ "uri": "a:b" })).await.result();
            }
        }
        faults.assert_none(count);
        gw.until_metric("toolgate_refusals_total", &[("server", "demo"), ("code", "guardrail_blocked")], |n| n == 12.0)
            .await;
    });
}

/// What a server answers to `resources/read`, and the refusal that it leads to.
fn answers() -> Vec<(&'static str, Reply, &'static str, &'static str)> {
    let mine = |text: &str| Reply::json(200, text);
    vec![
        ("5xx", Reply::json(500, "{}"), "upstream_error", "upstream_unavailable"),
        ("401", Reply::json(401, "{}"), "upstream_error", "upstream_unavailable"),
        ("another id", mine(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), "upstream_error", "upstream_unavailable"),
        ("a member twice", Reply::result(r#"{"contents":[],"contents":[]}"#), "upstream_error", "upstream_unavailable"),
        (
            "an unknown kind",
            Reply::result(r#"{"resultType":"task","contents":[]}"#),
            "upstream_error",
            "upstream_unavailable",
        ),
        ("undeclared input", Reply::result(INPUT), "upstream_error", "upstream_unavailable"),
        ("silence", Reply::silence(), "request_timeout", "upstream_timeout"),
        ("no contents", Reply::result("{}"), "upstream_error", "tool_result_invalid"),
        ("other contents", Reply::result(r#"{"contents":{}}"#), "upstream_error", "tool_result_invalid"),
        (
            "too large",
            Reply::result(&format!(r#"{{"contents":[],"x":"{}"}}"#, "x".repeat(4096))),
            "upstream_error",
            "tool_result_too_large",
        ),
        (
            "an error",
            Reply::error(200, r#"{"code":-32603,"message":"went wrong","data":{"secret":1}}"#),
            "upstream_error",
            "upstream_rejected",
        ),
        (
            "an error of 400",
            Reply::error(400, r#"{"code":-31999,"message":"went wrong"}"#),
            "upstream_error",
            "upstream_rejected",
        ),
        (
            "an error in a stream",
            Reply::stream(&[r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":1,"message":"went wrong"}}"#]),
            "upstream_error",
            "upstream_rejected",
        ),
        ("a cut stream", Reply::stream(&[]), "upstream_error", "upstream_unavailable"),
        (
            "a match",
            Reply::result(r#"{"contents":[{"uri":"a:b","text":"a badword"}]}"#),
            "permission_denied",
            "guardrail_blocked",
        ),
        (
            "a match in base64",
            Reply::result(r#"{"contents":[{"uri":"a:b","mimeType":"text/plain","blob":"YSBiYWR3b3Jk"}]}"#),
            "permission_denied",
            "guardrail_blocked",
        ),
    ]
}

#[test]
fn what_a_server_says_of_the_params_stays_what_it_is() {
    run(async {
        let server = Server::run(true).await;
        let gw = gateway(&server, ALL).await;
        let [modern, legacy] = both(&gw);
        let uri = r#""data":{"uri":"a:b","path":"/etc"}"#;
        for (code, to_modern, to_legacy) in [(-32602, -32602, -32602), (-32002, -32602, -32002)] {
            server
                .on("resources/read", Reply::error(200, &format!(r#"{{"code":{code},"message":"not there",{uri}}}"#)));
            for (client, expected) in [(&modern, to_modern), (&legacy, to_legacy)] {
                let answer = ask(client, "resources/read", json!({ "uri": "a:b" })).await;
                let error = answer.rpc_error(200, expected);
                assert_eq!(error, &json!({ "code": expected, "message": "not there", "data": { "uri": "a:b" } }));
                let line = gw.access_line(answer.request_id()).await;
                assert_eq!(
                    (&line["method"], &line["outcome"]),
                    (&json!("resources/read"), &json!("upstream_rejected"))
                );
                assert_eq!((&line["tool"], &line["server"]), (&Value::Null, &json!("demo")));
            }
        }
        server.on(
            "prompts/get",
            Reply::error(
                200,
                r#"{"code":-32602,"message":"no\u0007 sk_live_4eC39HqLyjWDarjtT1zdp7dc","data":{"uri":"x"}}"#,
            ),
        );
        let answer = ask(&modern, "prompts/get", json!({ "name": "p" })).await;
        let error = answer.rpc_error(200, -32602);
        assert_eq!(error, &json!({ "code": -32602, "message": "no  [redacted:secrets]" }));
        server.on("prompts/get", Reply::error(404, r#"{"code":-32601,"message":"Method not found"}"#));
        ask(&modern, "prompts/get", json!({ "name": "p" })).await.rpc_error(404, -32601);
        ask(&legacy, "prompts/get", json!({ "name": "p" })).await.rpc_error(200, -32601);
        let needs = r#"{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}"#;
        server.on("prompts/get", Reply::error(400, needs));
        let error = ask(&modern, "prompts/get", json!({ "name": "p" })).await.rpc_error(400, -32021).clone();
        assert_eq!(error["data"], json!({ "requiredCapabilities": { "sampling": {} } }));
        refused(&ask(&legacy, "prompts/get", json!({ "name": "p" })).await, "upstream_error", "upstream_rejected");
    });
}

#[test]
fn bad_params_are_the_callers_fault() {
    run(async {
        let server = Server::run(true).await;
        let gw = gateway(&server, ALL).await;
        let rows = [
            ("resources/list", json!({ "cursor": 1 })),
            ("resources/read", json!({})),
            ("resources/read", json!({ "uri": 1 })),
            ("prompts/get", json!({ "arguments": {} })),
            ("prompts/get", json!({ "name": "p", "arguments": [] })),
            ("completion/complete", json!({ "argument": {} })),
            ("completion/complete", json!({ "ref": {}, "argument": "x" })),
            ("completion/complete", json!({ "ref": {}, "argument": {}, "context": 1 })),
            ("prompts/get", json!({ "name": "p", "_meta": { "progressToken": 1.5 } })),
        ];
        for (method, params) in rows {
            for client in both(&gw) {
                ask(&client, method, params.clone()).await.rpc_error(200, -32602);
            }
        }
        let client = gw.client("ann").server("demo");
        let other = client.asking("resources/read", json!({ "uri": "a:b" })).and("Mcp-Name", "a:c");
        client.send(other).await.rpc_error(400, -32020);
        let none = client.asking("prompts/get", json!({ "name": "p" }));
        client.send(none).await.rpc_error(400, -32020);
        assert_eq!(server.seen().len(), 0);
    });
}

#[test]
fn the_limit_on_arguments_holds() {
    run(async {
        let server = Server::run(true).await;
        server.on("resources/read", Reply::result(r#"{"contents":[]}"#));
        let build = |gateway: Gateway| gateway.grant("ann", "demo", Read).conf("[limits]\narguments = '100B'");
        let gw = gateway_with(&server, ALL, build).await;
        for client in both(&gw) {
            ask(&client, "resources/read", json!({ "uri": "x".repeat(98) })).await.result();
            let answer = ask(&client, "resources/read", json!({ "uri": "x".repeat(99) })).await;
            refused(&answer, "invalid_request_error", "invalid_tool_arguments");
        }
        assert_eq!(server.seen().len(), 2);
    });
}

#[test]
fn limits_of_the_server_hold() {
    run(async {
        let server = Server::run(true).await;
        server.on("prompts/list", Reply::result(r#"{"prompts":[]}"#));
        let gw = gateway(&server, &format!("{ALL}\nrate_limit = '1/hour'")).await;
        for client in both(&gw) {
            let answer = ask(&client, "prompts/list", json!({})).await;
            if client.speaks() == Era::Modern {
                answer.result();
            } else {
                answer.http_refused(429, "rate_limit_exceeded", Some("mcp_server_rate_limited"));
                answer.retry_after();
            }
        }
        assert_eq!(server.seen().len(), 1);
    });
}
