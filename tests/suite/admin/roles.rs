//! The TCP listener: a token with a role for every call, and the socket's file mode.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use super::api::Api;
use crate::support::{gateway::Gateway, pin::hex, run, upstream::Upstream};

#[test]
fn every_call_over_tcp_needs_a_token_with_its_role() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::free_port()));
        let tokens: Vec<String> = ["viewer", "approver", "admin"]
            .iter()
            .map(|role| {
                format!(
                    "{{ name = 'the-{role}', role = '{role}', sha256 = '{}' }}",
                    hex(format!("tok-{role}").as_bytes())
                )
            })
            .collect();
        let gw =
            Gateway::new().conf(&format!("[admin]\nlisten = '{address}'\ntokens = [{}]", tokens.join(","))).run().await;
        let socket = Api::of(&gw);
        let mode = std::fs::metadata(gw.folder().join("toolgate.sock")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        socket.register("demo", &up).await;
        let sha256 = socket.get("/v1/servers/demo/tools/echo").await.ok()["sha256"].clone();
        let terms = json!({ "expected_sha256": sha256, "class": "read", "labels": [] });
        let rows: Vec<(&str, &str, Value, usize)> = vec![
            ("GET", "/v1/servers", json!(null), 0),
            ("GET", "/v1/servers/demo/tools/echo", json!(null), 0),
            ("GET", "/v1/keys", json!(null), 0),
            ("GET", "/v1/audit", json!(null), 0),
            ("GET", "/v1/status", json!(null), 0),
            ("GET", "/v1/nodes", json!(null), 0),
            ("GET", "/v1/openapi.json", json!(null), 0),
            ("POST", "/v1/servers/demo/discover", json!(null), 1),
            ("POST", "/v1/servers/demo/tools/echo/approve", terms, 1),
            ("PATCH", "/v1/servers/demo/tools/echo", json!({ "class": "write" }), 1),
            ("POST", "/v1/servers/demo/tools/echo/block", json!(null), 1),
            ("POST", "/v1/reload", json!(null), 2),
            ("POST", "/v1/projects", json!({ "id": "p" }), 2),
            ("PATCH", "/v1/projects/p", json!({ "archived": true }), 2),
            ("DELETE", "/v1/projects/p", json!(null), 2),
            ("POST", "/v1/keys", json!({ "id": "bot", "project": "support", "environment": "e" }), 2),
            ("PATCH", "/v1/keys/bot", json!({ "disabled": true }), 2),
            ("POST", "/v1/keys/bot/rotate", json!(null), 2),
            ("PUT", "/v1/keys/bot/grants/demo", json!({ "access": "read" }), 2),
            ("DELETE", "/v1/keys/bot/grants/demo", json!(null), 2),
            ("POST", "/v1/keys/bot/revoke", json!(null), 2),
            ("PATCH", "/v1/servers/demo", json!({ "http2": false }), 2),
            ("GET", "/v1/servers/demo/credentials", json!(null), 0),
            ("DELETE", "/v1/servers/demo", json!(null), 2),
        ];
        let revision = socket.revision().await;
        for token in [None, Some("tok-nobody"), Some(""), Some("TOK-ADMIN")] {
            for (method, path, body, _) in &rows {
                let body = (!body.is_null()).then(|| body.to_string());
                let reply = Api::tcp(address, token).send(method, path, body, &[]).await;
                reply.refused(401, "");
                assert_eq!(reply.headers["www-authenticate"], "Bearer");
            }
            Api::tcp(address, token).get("/nothing").await.refused(401, "");
        }
        for headers in [
            vec![("authorization", "Basic dG9rLWFkbWlu")],
            vec![("authorization", "Bearer tok-admin"), ("authorization", "Bearer tok-admin")],
            vec![("x-api-key", "tok-admin")],
            vec![("cookie", "token=tok-admin")],
        ] {
            Api::tcp(address, None).send("GET", "/v1/status", None, &headers).await.refused(401, "");
        }
        Api::tcp(address, None).get("/v1/status?token=tok-admin").await.refused(401, "");
        assert_eq!(socket.revision().await, revision, "nobody changed anything");
        for (method, path, body, needed) in &rows {
            let body = (!body.is_null()).then(|| body.to_string());
            for (rank, role) in ["viewer", "approver", "admin"].iter().enumerate() {
                let api = Api::tcp(address, Some(&format!("tok-{role}")));
                let refused = rank < *needed;
                if refused || rank == *needed {
                    let reply = api.send(method, path, body.clone(), &[]).await;
                    assert_eq!(reply.status == 403, refused, "{method} {path} as {role}: {}", reply.body);
                    if refused {
                        reply.refused(403, "role_required");
                    }
                    assert!(reply.status < 404, "{method} {path} as {role}: {}", reply.body);
                }
            }
        }
        let audit = socket.pages("/v1/audit", "audit").await;
        let by = |what: &str| audit.iter().find(|record| record["what"] == what).unwrap()["who"].clone();
        assert_eq!(by("tool.approve"), "token the-approver");
        assert_eq!(by("key.revoke"), "token the-admin");
    });
}

#[test]
fn tokens_change_with_a_reload_and_failures_are_limited() {
    run(async {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::free_port()));
        let token =
            |text: &str| format!("tokens = [{{ name = 'a', role = 'admin', sha256 = '{}' }}]", hex(text.as_bytes()));
        let conf = format!("[admin]\nlisten = '{address}'\n{}\n[rate_limits]\nfailed_auth = '3/hour'", token("one"));
        let gw = Gateway::new().conf(&conf).run().await;
        let (one, two) = (Api::tcp(address, Some("one")), Api::tcp(address, Some("two")));
        one.get("/v1/status").await.ok();
        let path = gw.folder().join("toolgate.toml");
        let text = std::fs::read_to_string(&path).unwrap().replace(&hex(b"one"), &hex(b"two"));
        std::fs::write(&path, text).unwrap();
        Api::of(&gw).act("/v1/reload").await.ok();
        for _ in 0..3 {
            one.get("/v1/status").await.refused(401, "");
        }
        let limited = one.get("/v1/status").await;
        limited.refused(429, "");
        assert!(limited.headers.contains_key("retry-after"));
        two.get("/v1/status").await.ok();
    });
}

#[test]
fn a_socket_that_somebody_holds_is_not_taken() {
    run(async {
        let gw = Gateway::new().run().await;
        let other = Gateway::new()
            .conf(&format!("[admin]\nsocket = '{}'", gw.folder().join("toolgate.sock").display()))
            .start();
        assert_ne!(other.until_ended().await, Some(0));
        assert!(other.log_text().contains("somebody listens there"), "{}", other.log_text());
        Api::of(&gw).get("/v1/status").await.ok();
        // one that is left behind is replaced
        let again = super::files::restart(&gw).await;
        Api::of(&gw).get("/v1/status").await.ok();
        drop(again);
    });
}
