//! Every code of contract §9, and what a refused change leaves behind: nothing.

use serde_json::{Value, json};

use super::api::Api;
use crate::support::{
    gateway::{Gateway, Gw},
    run,
    upstream::{Up, Upstream},
};

fn object() -> Value {
    json!({ "type": "object" })
}

async fn fixture() -> (Gw, Api, Up) {
    let up = Upstream::new().tool("echo", object()).tool("gone", object()).run().await;
    let gw = Gateway::new().run().await;
    let api = Api::of(&gw);
    api.register("demo", &up).await;
    (gw, api, up)
}

/// Everything that a refused call must leave alone.
async fn state(gw: &Gw, api: &Api) -> Value {
    let mut tools = Vec::new();
    for server in api.pages("/v1/servers", "servers").await {
        let path = format!("/v1/servers/{}/tools?organization=acme", server["slug"].as_str().unwrap());
        tools.extend(api.pages(&path, "tools").await);
    }
    json!({
        "servers": api.pages("/v1/servers", "servers").await,
        "keys": api.pages("/v1/keys", "keys").await,
        "guardrails": api.pages("/v1/guardrails", "guardrails").await,
        "organizations": api.pages("/v1/organizations", "organizations").await,
        "projects": api.pages("/v1/projects", "projects").await,
        "tools": tools,
        "audit": api.pages("/v1/audit", "audit").await.len(),
        "revision": api.revision().await,
        "snapshot": gw.metrics().await.sum("toolgate_snapshot_revision", &[]),
    })
}

#[test]
fn every_refusal_has_its_code_and_changes_nothing() {
    run(async {
        let (gw, api, up) = fixture().await;
        api.key("bot").await;
        api.key("gone").await;
        api.grant("gone", "demo", "read").await.ok();
        api.act("/v1/keys/gone/revoke").await.ok();
        up.remove_tool("gone");
        api.act("/v1/servers/demo/discover").await.ok();
        let other = Upstream::new().tool("b_echo", object()).run().await;
        let clashing = Upstream::new().tool("echo", object()).run().await;
        api.register("a", &other).await;
        let stale = "0".repeat(64);
        let silent = format!("http://127.0.0.1:{}/mcp", crate::support::free_port());
        let url = clashing.url();
        let rows: Vec<(&str, &str, Value, u16, &str)> = vec![
            // URLs and credentials have lines of their own in bad_inputs.rs
            (
                "POST",
                "/v1/servers",
                json!({ "slug": "x", "url": "ftp://127.0.0.1/mcp" }),
                400,
                "invalid_mcp_server_url",
            ),
            (
                "POST",
                "/v1/servers",
                json!({ "slug": "x", "url": "http://10.0.0.1/mcp" }),
                400,
                "invalid_mcp_server_url",
            ),
            (
                "POST",
                "/v1/servers",
                json!({ "slug": "x", "url": format!("http://{}/gateway/mcp", gw.target().address) }),
                400,
                "invalid_mcp_server_url",
            ),
            (
                "POST",
                "/v1/servers",
                json!({ "slug": "x", "url": url, "credential": { "Host": { "credential": "c" } } }),
                400,
                "invalid_mcp_credential",
            ),
            (
                "POST",
                "/v1/servers",
                json!({ "slug": "x", "url": url, "credential": { "X-Key": { "env": "HOME" } } }),
                400,
                "invalid_mcp_credential",
            ),
            (
                "POST",
                "/v1/servers",
                json!({ "slug": "x", "url": url, "credential": { "X-Key": { "credential": "nope" } } }),
                400,
                "invalid_mcp_credential",
            ),
            ("POST", "/v1/servers", json!({ "slug": "x", "url": silent }), 400, "mcp_discovery_failed"),
            ("POST", "/v1/servers", json!({ "slug": "demo", "url": url }), 400, "mcp_server_slug_taken"),
            ("POST", "/v1/servers", json!({ "slug": "a_b", "url": url }), 400, "mcp_tool_name_clash"),
            ("POST", "/v1/servers", json!({ "slug": "Bad Slug", "url": url }), 400, "invalid_request"),
            ("POST", "/v1/servers", json!({ "slug": "x", "url": url, "colour": 1 }), 400, "invalid_request"),
            ("POST", "/v1/servers", json!({ "slug": "x", "url": url, "projects": ["nope"] }), 400, "invalid_request"),
            ("POST", "/v1/servers", json!({ "slug": "x", "url": url, "organization": "nope" }), 400, "invalid_request"),
            ("PATCH", "/v1/servers/demo", json!({ "url": "http://10.0.0.1/mcp" }), 400, "invalid_mcp_server_url"),
            ("PATCH", "/v1/servers/demo", json!({ "url": silent }), 400, "mcp_discovery_failed"),
            ("PATCH", "/v1/servers/demo", json!({ "slug": "other" }), 400, "invalid_request"),
            ("PATCH", "/v1/servers/demo", json!({ "timeout": 30 }), 400, "invalid_request"),
            ("PATCH", "/v1/servers/nope", json!({}), 404, "not_found"),
            ("DELETE", "/v1/servers/nope", Value::Null, 404, "not_found"),
            ("POST", "/v1/servers/nope/discover", Value::Null, 404, "not_found"),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "expected_sha256": stale, "class": "read", "labels": [] }),
                400,
                "mcp_tool_definition_stale",
            ),
            (
                "POST",
                "/v1/servers/demo/tools/gone/approve",
                json!({ "expected_sha256": stale, "class": "read", "labels": [] }),
                400,
                "mcp_tool_removed",
            ),
            ("POST", "/v1/servers/demo/tools/gone/approve", json!({ "class": 7 }), 400, "mcp_tool_removed"),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "class": "read", "labels": [] }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "expected_sha256": stale, "labels": [] }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "expected_sha256": stale, "class": "read" }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "expected_sha256": "xyz", "class": "read", "labels": [] }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "expected_sha256": stale, "class": "read", "labels": ["secret"] }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/servers/demo/tools/nope/approve",
                json!({ "expected_sha256": stale, "class": "read", "labels": [] }),
                404,
                "not_found",
            ),
            ("POST", "/v1/servers/demo/tools/nope/block", Value::Null, 404, "not_found"),
            ("PATCH", "/v1/servers/demo/tools/echo", json!({ "class": "read" }), 400, "mcp_tool_not_approved"),
            (
                "PATCH",
                "/v1/servers/demo/tools/echo",
                json!({ "class": "purple", "x": 1 }),
                400,
                "mcp_tool_not_approved",
            ),
            ("PATCH", "/v1/servers/demo/tools/gone", json!({ "class": "read" }), 400, "mcp_tool_not_approved"),
            ("PUT", "/v1/keys/gone/grants/a", json!({ "access": "read" }), 400, "key_revoked"),
            ("PUT", "/v1/keys/gone/grants/demo", json!({ "access": "write" }), 400, "key_revoked"),
            ("PUT", "/v1/keys/nope/grants/demo", json!({ "access": "read" }), 404, "not_found"),
            ("PUT", "/v1/keys/bot/grants/nope", json!({ "access": "read" }), 404, "not_found"),
            ("PUT", "/v1/keys/bot/grants/demo", json!({ "access": "selected" }), 400, "invalid_request"),
            ("PUT", "/v1/keys/bot/grants/demo", json!({ "access": "read", "tools": ["echo"] }), 400, "invalid_request"),
            ("PUT", "/v1/keys/bot/grants/demo", json!({ "access": "admin" }), 400, "invalid_request"),
            (
                "PUT",
                "/v1/keys/bot/grants/demo",
                json!({ "access": "read", "confirm_trifecta": "true" }),
                400,
                "invalid_request",
            ),
            ("PUT", "/v1/keys/bot/grants/demo", json!({ "access": "read", "key": "other" }), 400, "invalid_request"),
            ("DELETE", "/v1/keys/bot/grants/demo", Value::Null, 404, "not_found"),
            ("POST", "/v1/keys/gone/rotate", Value::Null, 400, "key_revoked"),
            ("POST", "/v1/keys/bot/rotate", json!({ "overlap": 60 }), 400, "invalid_request"),
            ("POST", "/v1/keys/bot/rotate", json!({ "overlap": "2161h" }), 400, "invalid_request"),
            ("POST", "/v1/keys/nope/revoke", Value::Null, 404, "not_found"),
            (
                "POST",
                "/v1/keys",
                json!({ "id": "bot", "project": "support", "environment": "e" }),
                400,
                "invalid_request",
            ),
            ("POST", "/v1/keys", json!({ "id": "k", "project": "nope", "environment": "e" }), 400, "invalid_request"),
            (
                "POST",
                "/v1/keys",
                json!({ "id": "k", "project": "support", "environment": "e", "expires": "soon" }),
                400,
                "invalid_request",
            ),
            ("PATCH", "/v1/keys/bot", json!({ "sha256": stale }), 400, "invalid_request"),
            ("PATCH", "/v1/keys/gone", json!({ "revoked": false }), 400, "invalid_request"),
            ("PATCH", "/v1/keys/nope", json!({}), 404, "not_found"),
            (
                "POST",
                "/v1/guardrails",
                json!({ "name": "g", "stage": "input", "detector": "pattern", "action": "block", "patterns": ["("] }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/guardrails",
                json!({ "name": "g", "stage": "input", "detector": "secrets", "action": "block", "servers": ["nope"] }),
                400,
                "invalid_request",
            ),
            ("DELETE", "/v1/guardrails/nope", Value::Null, 404, "not_found"),
            ("POST", "/v1/projects", json!({ "id": "p", "organization": "nope" }), 400, "invalid_request"),
            (
                "POST",
                "/v1/organizations",
                json!({ "id": "acme", "plan": "business", "status": "active", "subscription": "active" }),
                400,
                "invalid_request",
            ),
            (
                "POST",
                "/v1/explain",
                json!({ "key": "nope", "endpoint": "/gateway/mcp", "tool": "x", "arguments": {} }),
                404,
                "not_found",
            ),
            ("POST", "/v1/explain", json!({ "key": "bot", "tool": "x", "arguments": {} }), 400, "invalid_request"),
            ("GET", "/v1/servers?organisation=acme", Value::Null, 400, "invalid_request"),
            ("GET", "/v1/servers?limit=0", Value::Null, 400, "invalid_request"),
            ("GET", "/v1/servers?limit=1001", Value::Null, 400, "invalid_request"),
            ("GET", "/v1/servers/demo/tools?status=odd", Value::Null, 400, "invalid_request"),
            ("GET", "/v1/servers/%FF", Value::Null, 400, "invalid_request"),
            ("GET", "/v1/nothing", Value::Null, 404, "not_found"),
            ("GET", "/gateway/mcp", Value::Null, 404, "not_found"),
            ("GET", "/metrics", Value::Null, 404, "not_found"),
            ("PUT", "/v1/servers", json!({}), 405, ""),
        ];
        let before = state(&gw, &api).await;
        let seen = clashing.seen().len();
        for (method, path, body, status, code) in rows {
            let body = (!body.is_null()).then(|| body.to_string());
            let what = format!("{method} {path} {}", body.clone().unwrap_or_default());
            let reply = api.send(method, path, body, &[]).await;
            assert_eq!(reply.status, status, "{what}: {}", reply.body);
            let message = reply.refused(status, code);
            if code == "mcp_tool_name_clash" {
                assert!(message.contains("a_b_echo") && message.contains("`a/b_echo`"), "{message}");
            }
            assert_eq!(state(&gw, &api).await, before, "{what} changed something");
        }
        assert!(clashing.calls().is_empty() && up.calls().is_empty());
        assert_eq!(clashing.of("tools/list").len(), 1, "only the clash was worth a question");
        assert!(clashing.seen().len() > seen);
    });
}

#[test]
fn bodies_are_read_strictly() {
    run(async {
        let (gw, api, _up) = fixture().await;
        let before = state(&gw, &api).await;
        let project = r#"{"id":"p"}"#;
        let rows: Vec<(String, &[(&str, &str)], u16, &str)> = vec![
            (r#"{"id":"a","id":"b"}"#.to_owned(), &[], 400, "invalid_request"),
            (r#"{"id":"p","x":{"a":1,"a":2}}"#.to_owned(), &[], 400, "invalid_request"),
            ("[]".to_owned(), &[], 400, "invalid_request"),
            ("{".to_owned(), &[], 400, "invalid_request"),
            (String::new(), &[], 400, "invalid_request"),
            (format!("{project} "), &[("content-type", "text/plain")], 415, "unsupported_media_type"),
            (
                project.to_owned(),
                &[("content-type", "application/x-www-form-urlencoded")],
                415,
                "unsupported_media_type",
            ),
            (format!(r#"{{"id":"{}"}}"#, "x".repeat(1 << 20)), &[], 413, "request_too_large"),
            (project.to_owned(), &[("if-match", "\"odd\"")], 400, "invalid_request"),
        ];
        for (body, headers, status, code) in rows {
            let what = body.chars().take(40).collect::<String>();
            let reply = api.send("POST", "/v1/projects", Some(body), headers).await;
            assert_eq!(reply.status, status, "{what}: {}", reply.body);
            reply.refused(status, code);
        }
        assert_eq!(state(&gw, &api).await, before);
        let json = &[("content-type", "Application/JSON; charset=utf-8")];
        api.send("POST", "/v1/projects", Some(project.to_owned()), json).await.made();
    });
}

#[test]
fn a_change_for_another_revision_is_refused() {
    run(async {
        let (_gw, api, _up) = fixture().await;
        let seen = api.get("/v1/projects").await;
        let tag = seen.headers["etag"].to_str().unwrap().to_owned();
        let project = |id: &str| Some(json!({ "id": id }).to_string());
        let made = api.send("POST", "/v1/projects", project("one"), &[("if-match", &tag)]).await;
        made.made();
        assert_ne!(made.headers["etag"].to_str().unwrap(), tag);
        let message = api
            .send("POST", "/v1/projects", project("two"), &[("if-match", &tag)])
            .await
            .refused(409, "revision_conflict");
        assert!(message.contains(tag.trim_matches('"')), "{message}");
        let revision = api.revision().await;
        api.send("POST", &format!("/v1/projects?expected_revision={}", revision - 1), project("two"), &[])
            .await
            .refused(409, "revision_conflict");
        api.send("POST", &format!("/v1/projects?expected_revision={revision}"), project("two"), &[]).await.made();
        assert_eq!(api.revision().await, revision + 1);
    });
}

#[test]
fn names_may_hold_anything_that_a_path_can_carry() {
    run(async {
        let odd = "münze/50% off?#x";
        let up = Upstream::new().tool(odd, object()).run().await;
        let gw = Gateway::new().run().await;
        let api = Api::of(&gw);
        api.register("demo", &up).await;
        let id = "schlüssel/one two";
        api.post("/v1/keys", json!({ "id": id, "project": "support", "environment": "production" })).await.made();
        let segment =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        assert_eq!(api.get(&format!("/v1/keys/{}", segment(id))).await.ok()["id"], id);
        let tool = api.get(&format!("/v1/servers/demo/tools/{}", segment(odd))).await.ok();
        assert_eq!((tool["name"].as_str(), tool["status"].as_str()), (Some(odd), Some("pending")));
        api.approve("demo", &segment(odd), "read", &[]).await.ok();
        api.put(&format!("/v1/keys/{}/grants/demo", segment(id)), json!({ "access": "selected", "tools": [odd] }))
            .await
            .ok();
        let grants = api.pages(&format!("/v1/keys/{}/grants", segment(id)), "grants").await;
        assert_eq!(grants[0]["tools"], json!([odd]));
    });
}

#[test]
fn an_organization_is_named_where_two_have_the_name() {
    run(async {
        let up = Upstream::new().tool("echo", object()).run().await;
        let gw = Gateway::new().run().await;
        let api = Api::of(&gw);
        api.register("demo", &up).await;
        api.post(
            "/v1/organizations",
            json!({ "id": "zeta", "plan": "business", "status": "active", "subscription": "trial" }),
        )
        .await
        .made();
        api.get("/v1/servers/demo").await.ok();
        api.post("/v1/servers", json!({ "slug": "demo", "url": up.url() })).await.refused(400, "invalid_request");
        api.post("/v1/servers?organization=zeta", json!({ "slug": "demo", "url": up.url() })).await.made();
        api.post("/v1/projects", json!({ "id": "support" })).await.refused(400, "invalid_request");
        api.post("/v1/projects", json!({ "id": "support", "organization": "zeta" })).await.made();
        let twice = json!({ "id": "p", "organization": "zeta" });
        api.post("/v1/projects?organization=acme", twice).await.refused(400, "invalid_request");
        for path in
            ["/v1/servers/demo", "/v1/servers/demo/tools", "/v1/servers/demo/tools/echo", "/v1/projects/support"]
        {
            let message = api.get(path).await.refused(400, "invalid_request");
            assert!(message.contains("organization"), "{message}");
            for home in ["acme", "zeta"] {
                api.get(&format!("{path}?organization={home}")).await.ok();
            }
            api.get(&format!("{path}?organization=nope")).await.refused(404, "not_found");
        }
        assert_eq!(api.pages("/v1/servers?organization=zeta", "servers").await.len(), 1);
        assert_eq!(api.pages("/v1/servers", "servers").await.len(), 2);
        api.delete("/v1/organizations/zeta").await.refused(400, "invalid_request");
        api.delete("/v1/servers/demo?organization=zeta").await.ok();
        api.delete("/v1/projects/support?organization=zeta").await.ok();
        api.delete("/v1/organizations/zeta").await.ok();
        api.get("/v1/servers/demo").await.ok();
    });
}

#[test]
fn lists_page() {
    run(async {
        let names: Vec<String> = (0..7).map(|n| format!("tool_{n}")).collect();
        let up = names.iter().fold(Upstream::new(), |up, name| up.tool(name, object())).run().await;
        let gw = Gateway::new().run().await;
        let api = Api::of(&gw);
        api.register("demo", &up).await;
        let all = api.get("/v1/servers/demo/tools").await.ok();
        assert!(all.get("next").is_none());
        assert_eq!(all["tools"].as_array().unwrap().len(), 7);
        for limit in [1, 2, 6, 7, 8] {
            let first = api.get(&format!("/v1/servers/demo/tools?limit={limit}&organization=acme")).await.ok();
            assert_eq!(first["tools"].as_array().unwrap().len(), limit.min(7));
            assert_eq!(first.get("next").is_some(), limit < 7, "{limit}");
            let paged = api.pages(&format!("/v1/servers/demo/tools?limit={limit}&organization=acme"), "tools").await;
            assert_eq!(json!(paged), all["tools"], "{limit}");
        }
        let audit = api.pages("/v1/audit?limit=1", "audit").await;
        let numbers: Vec<u64> = audit.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (1..=u64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    });
}

#[test]
fn the_api_is_not_on_the_gateways_listener() {
    run(async {
        let (gw, _api, _up) = fixture().await;
        for path in ["/v1/servers", "/v1/status", "/v1/openapi.json"] {
            let request = gw.nobody().calling("x", "{}").to(path);
            gw.nobody().send(request).await.http_refused(404, "not_found", Some("not_found"));
        }
    });
}
