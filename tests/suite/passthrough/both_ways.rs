//! What goes both ways: more input where the protocol lets a server ask for it, and guardrails.

use serde_json::{Value, json};

use super::{
    ALL, INPUT, ask, gateway_with, refused,
    server::{Reply, Server},
};
use crate::support::{answer::Era, policy::Access::Read, run};

#[test]
fn input_may_be_required_where_the_protocol_has_it() {
    run(async {
        let server = Server::run(true).await;
        let gw = gateway_with(&server, ALL, |g| g.grant("ann", "demo", Read).grant("bob", "demo", Read)).await;
        let capable = |key: &str| gw.client(key).server("demo").capable(json!({ "elicitation": {} }));
        let ann = capable("ann");
        let rows = [
            ("prompts/get", json!({ "name": "p", "arguments": { "a": "1" } }), r#"{"messages":[]}"#),
            ("resources/read", json!({ "uri": "a:b" }), r#"{"contents":[]}"#),
        ];
        for (method, params, result) in rows.clone() {
            server.on(method, Reply::result(INPUT));
            let answer = ask(&ann, method, params.clone()).await;
            let first = answer.result();
            let state = first["requestState"].as_str().unwrap().to_owned();
            assert_eq!(first["inputRequests"]["k"]["method"], "elicitation/create");
            assert!(!state.contains("their"), "the state is sealed: {state}");
            server.on(method, Reply::result(result));
            let before = server.seen().len();
            let with = |params: &Value, state: &str| {
                let mut params = params.clone();
                params["requestState"] = json!(state);
                params["inputResponses"] = json!({ "k": { "action": "accept" } });
                params
            };
            ask(&ann, method, with(&params, &state)).await.result();
            let seen = server.seen().pop().unwrap();
            assert!(seen.text.contains(r#""requestState":"their \u0073tate""#), "{}", seen.text);
            assert_eq!(seen.message["params"]["inputResponses"], json!({ "k": { "action": "accept" } }));

            let mut other = params.clone();
            let member = if method == "prompts/get" { "name" } else { "uri" };
            other[member] = json!("other");
            ask(&ann, method, with(&other, &state)).await.rpc_error(200, -32602);
            ask(&capable("bob"), method, with(&params, &state)).await.rpc_error(200, -32602);
            ask(&ann, method, with(&params, &format!("{state}A"))).await.rpc_error(200, -32602);
            let (wrong, wrong_params, _) = rows.iter().find(|(name, _, _)| *name != method).unwrap().clone();
            ask(&ann, wrong, with(&wrong_params, &state)).await.rpc_error(200, -32602);
            assert_eq!(server.seen().len() - before, 1, "a bad state reaches nobody");
        }
        for (method, params) in
            [("prompts/list", json!({})), ("completion/complete", json!({ "ref": {}, "argument": {} }))]
        {
            server.on(method, Reply::result(INPUT));
            refused(&ask(&ann, method, params.clone()).await, "upstream_error", "upstream_unavailable");
        }
        server.on("prompts/get", Reply::result(INPUT));
        let uncapable = ask(&gw.client("ann").server("demo"), "prompts/get", json!({ "name": "p" })).await;
        refused(&uncapable, "upstream_error", "upstream_unavailable");
        let legacy =
            ask(&gw.client("ann").server("demo").era(Era::Legacy), "prompts/get", json!({ "name": "p" })).await;
        refused(&legacy, "upstream_error", "upstream_unavailable");
    });
}

#[test]
fn guardrails_on_the_way_in_hold_too() {
    run(async {
        let rule = |name: &str, word: &str, more: &str| {
            format!(
                "name = '{name}'\norganization = 'acme'\nstage = 'both'\ndetector = 'keywords'\nwords = ['{word}']\n{more}"
            )
        };
        let server = Server::run(true).await;
        let gw = gateway_with(&server, ALL, |gateway| {
            gateway
                .grant("ann", "demo", Read)
                .object("guardrail", &rule("block", "badword", "action = 'block'"))
                .object("guardrail", &rule("redact", "secretword", "action = 'redact'"))
                .object("guardrail", &rule("elsewhere", "toolword", "action = 'block'\ntools = ['t']"))
        })
        .await;
        server.on(
            "prompts/get",
            Reply::result(r#"{"messages":[{"role":"user","content":{"type":"text","text":"a secretword b"}}]}"#),
        );
        server.on("resources/read", Reply::result(r#"{"contents":[]}"#));
        let client = gw.client("ann").server("demo");
        let get = |name: &str, value: &str| json!({ "name": name, "arguments": { "a": value } });
        for (method, params) in [
            ("prompts/get", get("p", "a badword")),
            ("prompts/get", get("badword", "a")),
            ("prompts/get", get("secretword", "a")),
            ("resources/read", json!({ "uri": "a:badword" })),
            ("resources/read", json!({ "uri": "a:secretword" })),
            ("prompts/get", json!({ "name": "p", "inputResponses": { "k": "badword" } })),
        ] {
            let answer = ask(&client, method, params.clone()).await;
            let message = refused(&answer, "permission_denied", "guardrail_blocked");
            assert!(message.contains("keywords") && !answer.wire().contains("badword"), "{params}: {message}");
        }
        assert_eq!(server.seen().len(), 0);
        let answer = ask(&client, "prompts/get", get("p", "a secretword b")).await;
        assert_eq!(answer.result()["messages"][0]["content"]["text"], "a [redacted:keywords] b");
        assert_eq!(server.seen()[0].message["params"]["arguments"]["a"], "a [redacted:keywords] b");
        ask(&client, "prompts/get", get("p", "a toolword: the rule is of a tool")).await.result();
    });
}
