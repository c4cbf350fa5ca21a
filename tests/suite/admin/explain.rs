//! `explain` says what a call then gets, names the check and the object that decided, and asks no server.

use serde_json::{Value, json};

use super::api::Api;
use crate::support::{
    client::Client,
    gateway::Gateway,
    policy::Access::{Read, Selected, Write},
    run,
    upstream::Upstream,
};

#[test]
fn what_is_explained_is_what_a_call_gets() {
    run(async {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" }, "t": {} }, "additionalProperties": false });
        let up = Upstream::new()
            .tool("echo", schema.clone())
            .tool("write", schema.clone())
            .tool("pending", schema.clone())
            .tool("blocked", schema.clone())
            .tool("drift", schema.clone())
            .run()
            .await;
        let definition = |name: &str| up.tools().into_iter().find(|tool| tool["name"] == name).unwrap();
        let gateway = Gateway::new()
            .server("gh", &up)
            .grant("k", "gh", Read)
            .grant("w", "gh", Write)
            .grant("s", "gh", Selected(&["echo"]))
            .key("none", "")
            .key("off", "disabled = true")
            .key("old", "expires = 2020-01-01T00:00:00Z")
            .key("gone", "revoked = true")
            .key("far", "allow_ips = ['10.1.2.3/32']")
            .object("guardrail", "name='no-zebra'\norganization='acme'\nstage='input'\ndetector='keywords'\naction='block'\nwords=['zebra']")
            .object("guardrail", "name='no-lion'\norganization='acme'\nstage='input'\ndetector='keywords'\naction='redact'\nwords=['lion']")
            .approve("gh", &definition("echo"), "read")
            .approve("gh", &definition("write"), "write")
            .approve("gh", &definition("blocked"), "read")
            .approve("gh", &definition("drift"), "read")
            .edit("approval", "blocked", "status = 'blocked'");
        let gw = gateway.run().await;
        let api = Api::of(&gw);
        let mut drifted = definition("drift");
        drifted["description"] = json!("drifted");
        up.set_tool(drifted);
        api.act("/v1/servers/gh/discover").await.ok();
        let big = "x".repeat(262_144);
        let rows: Vec<(&str, &str, &str, Value, &str, &str)> = vec![
            ("k", "", "gh_echo", json!({ "n": 1 }), "", ""),
            ("k", "gh", "echo", json!({ "n": 1 }), "", ""),
            ("s", "", "gh_echo", json!({}), "", ""),
            ("k", "", "gh_echo", json!({ "n": "x" }), "arguments", ""),
            ("k", "", "gh_echo", json!({ "m": 1 }), "arguments", ""),
            ("k", "", "gh_echo", json!(null), "arguments", ""),
            ("k", "", "gh_echo", json!({ "t": big }), "arguments", ""),
            ("k", "", "gh_echo", json!({ "t": "a zebra" }), "guardrails", "no-zebra"),
            ("k", "", "gh_echo", json!({ "t": "a lion" }), "", ""),
            ("k", "", "gh_echo", json!({ "n": 1, "lion": 1 }), "arguments", ""),
            ("k", "", "gh_write", json!({}), "grant", "policy.toml"),
            ("s", "", "gh_write", json!({}), "grant", "policy.toml"),
            ("w", "", "gh_write", json!({}), "", ""),
            ("none", "", "gh_echo", json!({}), "grant", "no grant"),
            ("none", "gh", "echo", json!({}), "server", "no grant"),
            ("k", "nope", "echo", json!({}), "server", ""),
            ("k", "", "gh_pending", json!({}), "approval", "nobody has decided"),
            ("k", "", "gh_blocked", json!({}), "approval", "policy.toml"),
            ("k", "", "gh_drift", json!({}), "approval", "policy.toml"),
            ("k", "", "gh_nope", json!({}), "tool", ""),
            ("off", "", "gh_echo", json!({}), "standing", "key `off`"),
            ("old", "", "gh_echo", json!({}), "key", "key `old`"),
            ("gone", "", "gh_echo", json!({}), "key", "key `gone`"),
        ];
        for (key, slug, tool, arguments, check, decided_by) in rows {
            let what = format!("{key} {slug} {tool} {}", arguments.to_string().chars().take(40).collect::<String>());
            let endpoint = if slug.is_empty() { "/gateway/mcp".to_owned() } else { format!("/gateway/{slug}/mcp") };
            let calls = up.calls().len();
            let body = json!({ "key": key, "endpoint": endpoint, "tool": tool, "arguments": arguments });
            let told = api.post("/v1/explain", body).await.ok();
            assert_eq!(up.calls().len(), calls, "{what}: nobody is asked");
            let client = gw.client(key).legacy("2025-11-25");
            let client: Client = if slug.is_empty() { client } else { client.server(slug) };
            let answer = client.call_text(tool, &arguments.to_string()).await;
            let checks = told["checks"].as_array().unwrap();
            let refused: Vec<&Value> = checks.iter().filter(|check| check["verdict"] == "refused").collect();
            if check.is_empty() {
                assert_eq!((told["verdict"].as_str(), refused.len()), (Some("allowed"), 0), "{what}: {told}");
                answer.ok();
                continue;
            }
            assert_eq!((told["verdict"].as_str(), refused.len()), (Some("refused"), 1), "{what}: {told}");
            assert_eq!(refused[0]["check"], check, "{what}: {told}");
            assert_eq!(checks.last(), Some(refused[0]), "{what}: nothing is told after the refusal");
            let by = refused[0]["decided_by"].as_str().unwrap_or_default();
            assert!(by.contains(decided_by), "{what}: decided by {by:?}");
            match told["surface"].as_str().unwrap() {
                "tool_result" => assert_eq!(answer.refused(told["code"].as_str().unwrap()), told["message"], "{what}"),
                "http" => {
                    assert_eq!(told["number"], answer.status, "{what}");
                    assert_eq!(told["message"], answer.messages[0]["error"]["message"], "{what}");
                }
                "rpc" => assert_eq!(answer.messages[0]["error"]["code"], told["number"], "{what}"),
                other => panic!("{other}"),
            }
            assert_eq!(up.calls().len(), calls);
        }
    });
}

#[test]
fn explaining_spends_nothing_and_judges_addresses_only_when_told_one() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server_with("gh", &up, "rate_limit = '1/hour'\nmax_in_flight = 1");
        let gateway =
            gateway.key("k", "rate_limit = '1/hour'").grant("k", "gh", Read).key("far", "allow_ips = ['10.1.2.3/32']");
        let gw = gateway.grant("far", "gh", Read).approve_all().run().await;
        let api = Api::of(&gw);
        let body = json!({ "key": "k", "endpoint": "/gateway/mcp", "tool": "gh_echo", "arguments": {} });
        for _ in 0..5 {
            assert_eq!(api.post("/v1/explain", body.clone()).await.ok()["verdict"], "allowed");
        }
        gw.client("k").call("gh_echo", json!({})).await.ok();
        gw.client("k").call("gh_echo", json!({})).await.http_refused(429, "rate_limit_exceeded", None);
        let far = |ip: Value| json!({ "key": "far", "endpoint": "/gateway/mcp", "tool": "gh_echo", "arguments": {}, "client_ip": ip });
        let of = |told: &Value, name: &str| {
            let checks = told["checks"].as_array().unwrap();
            checks.iter().find(|check| check["check"] == name).map(|check| check["verdict"].clone())
        };
        let told = api.post("/v1/explain", far(json!(null))).await.ok();
        assert_eq!((told["verdict"].as_str(), of(&told, "address")), (Some("allowed"), Some(json!("not_judged"))));
        let told = api.post("/v1/explain", far(json!("10.1.2.3"))).await.ok();
        assert_eq!(of(&told, "address"), Some(json!("passed")));
        let told = api.post("/v1/explain", far(json!("10.1.2.4"))).await.ok();
        assert_eq!((told["code"].as_str(), of(&told, "address")), (Some("ip_not_allowed"), Some(json!("refused"))));
        api.post("/v1/explain", far(json!("here"))).await.refused(400, "invalid_request");
        let told =
            api.post("/v1/explain", json!({ "key": "k", "endpoint": "/elsewhere", "tool": "gh_echo" })).await.ok();
        assert_eq!((told["code"].as_str(), told["number"].as_u64()), (Some("not_found"), Some(404)));
        assert!(
            api.post(
                "/v1/explain",
                json!({ "key": "k", "endpoint": "/gateway/mcp", "tool": "gh_echo", "arguments": 1 })
            )
            .await
            .ok()["code"]
                == "invalid_tool_arguments"
        );
    });
}
