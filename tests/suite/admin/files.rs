//! Objects that files own: the API refuses to change them, except to narrow; what narrows is kept on top (contract §5).

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::api::Api;
use crate::support::{
    gateway::{Gateway, Gw, Reloaded},
    pin::pin,
    policy::Access::{Read, Write},
    run,
    upstream::{Up, Upstream},
};

const GUARD: &str = "name = 'guard'\norganization = 'acme'\nstage = 'input'\ndetector = 'secrets'\naction = 'block'";

fn object() -> Value {
    json!({ "type": "object" })
}

async fn fixture() -> (Gw, Api, Up) {
    let up = Upstream::new().tool("echo", object()).tool("free", object()).run().await;
    let definition = up.tools()[0].clone();
    let gateway = Gateway::new().server("demo", &up).grant("ann", "demo", Write).object("guardrail", GUARD);
    let gw = gateway.approve("demo", &definition, "read").run().await;
    let api = Api::of(&gw);
    (gw, api, up)
}

/// The gateway of a folder again, after it was ended.
pub struct Again(Child);

impl Again {
    pub async fn start(gw: &Gw) -> Self {
        let log = |name: &str| std::fs::File::create(gw.folder().join(name)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_toolgate"))
            .args(["serve", "--conf"])
            .arg(gw.folder().join("toolgate.toml"))
            .envs(gw.env().iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .stdin(Stdio::null())
            .stdout(log("stdout.again"))
            .stderr(log("stderr.again"))
            .spawn()
            .unwrap();
        let again = Self(child);
        crate::support::eventually("the gateway is ready again", async || {
            gw.ops("/readyz").await.filter(|answer| answer.status == 200)
        })
        .await;
        again
    }

    /// Waits for one that kills itself.
    pub fn until_killed(&mut self) {
        self.0.wait().unwrap();
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the gateway and starts it again on the same files.
pub async fn restart(gw: &Gw) -> Again {
    gw.signal("KILL");
    gw.until_ended().await;
    Again::start(gw).await
}

#[test]
fn what_a_file_owns_is_changed_in_the_file() {
    run(async {
        let (gw, api, up) = fixture().await;
        let sha256 = pin(&up.tools()[0]);
        let rows = [
            ("PATCH", "/v1/organizations/acme", json!({ "status": "suspended" })),
            ("DELETE", "/v1/organizations/acme", json!({})),
            ("PATCH", "/v1/projects/support", json!({ "archived": true })),
            ("DELETE", "/v1/projects/support", json!({})),
            ("PATCH", "/v1/servers/demo", json!({ "enabled": false })),
            ("PATCH", "/v1/servers/demo", json!({ "url": "http://10.0.0.1/mcp" })),
            ("DELETE", "/v1/servers/demo", json!({})),
            ("PATCH", "/v1/keys/ann", json!({ "disabled": true })),
            ("POST", "/v1/keys/ann/rotate", json!({})),
            ("PUT", "/v1/keys/ann/grants/demo", json!({ "access": "read" })),
            ("DELETE", "/v1/keys/ann/grants/demo", json!({})),
            ("PATCH", "/v1/guardrails/guard", json!({ "action": "observe" })),
            ("DELETE", "/v1/guardrails/guard", json!({})),
            ("PATCH", "/v1/servers/demo/tools/echo", json!({ "class": "write" })),
            (
                "POST",
                "/v1/servers/demo/tools/echo/approve",
                json!({ "expected_sha256": "1".repeat(64), "class": "read", "labels": [] }),
            ),
        ];
        let revision = api.revision().await;
        for (method, path, body) in rows {
            let reply = api.send(method, path, Some(body.to_string()), &[]).await;
            assert_eq!(reply.status, 409, "{method} {path}: {}", reply.body);
            reply.refused(409, "managed_by_file");
        }
        assert_eq!(api.revision().await, revision);
        for (path, name) in [("/v1/servers", "servers"), ("/v1/keys", "keys"), ("/v1/guardrails", "guardrails")] {
            assert!(api.pages(path, name).await.iter().all(|object| object["managed_by"] == "file"), "{path}");
        }
        let tool = api.get("/v1/servers/demo/tools/echo").await.ok();
        assert_eq!((tool["managed_by"].as_str(), tool["approved_sha256"].as_str()), (Some("file"), Some(&*sha256)));
        gw.client("ann").call("demo_echo", json!({})).await.ok();
    });
}

#[test]
fn block_and_revoke_work_on_what_files_own_and_stay_on_top() {
    run(async {
        let (gw, api, up) = fixture().await;
        let mut policy = gw.policy();
        policy.key("bob", &crate::support::gateway::token("bob"), "").grant("bob", "demo", &Read);
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        gw.client("bob").call("demo_echo", json!({})).await.ok();
        api.act("/v1/keys/bob/revoke").await.ok();
        gw.client("bob").call("demo_echo", json!({})).await.http_refused(401, "authentication_error", None);
        api.act("/v1/keys/bob/revoke").await.ok();
        api.act("/v1/servers/demo/tools/echo/block").await.ok();
        gw.client("ann").call("demo_echo", json!({})).await.refused("tool_not_approved");
        // a reload lifts neither, nor does a restart
        policy.add("project", "id = 'p'\norganization = 'acme'");
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        let check = async || {
            gw.client("bob").call("demo_echo", json!({})).await.http_refused(401, "authentication_error", None);
            gw.client("ann").call("demo_echo", json!({})).await.refused("tool_not_approved");
            assert_eq!(api.get("/v1/keys/bob").await.ok()["revoked"], true);
            assert_eq!(api.get("/v1/servers/demo/tools/echo").await.ok()["status"], "blocked");
        };
        check().await;
        let again = restart(&gw).await;
        check().await;
        // the file's own pin, named by its hash, lifts the block
        api.approve("demo", "echo", "read", &[]).await.ok();
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        assert_eq!(up.calls().len(), 2);
        drop(again);
    });
}

#[test]
fn a_files_pin_is_re_affirmed_by_its_hash() {
    run(async {
        let (gw, api, up) = fixture().await;
        let (good, mut bad) = (up.tools()[0].clone(), up.tools()[0].clone());
        bad["description"] = json!("something else");
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        up.set_tool(bad.clone());
        api.act("/v1/servers/demo/discover").await.ok();
        gw.client("ann").call("demo_echo", json!({})).await.refused("tool_definition_changed");
        let path = "/v1/servers/demo/tools/echo/approve";
        let body = |sha256: &str| json!({ "expected_sha256": sha256, "class": "read", "labels": [] });
        api.post(path, body(&pin(&bad))).await.refused(409, "managed_by_file");
        api.post(path, body(&pin(&good))).await.refused(400, "mcp_tool_definition_stale");
        up.set_tool(good.clone());
        api.act("/v1/servers/demo/discover").await.ok();
        gw.client("ann").call("demo_echo", json!({})).await.refused("tool_definition_changed");
        api.post(path, body(&pin(&good))).await.ok();
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        assert_eq!(up.calls().len(), 2);
    });
}

#[test]
fn the_api_builds_on_what_files_own_and_survives_its_going() {
    run(async {
        let (gw, api, _up) = fixture().await;
        api.approve("demo", "free", "read", &[]).await.ok();
        let token = api.key("bot").await;
        api.grant("bot", "demo", "read").await.ok();
        let rule = json!({ "name": "mine", "stage": "input", "detector": "keywords", "action": "block", "words": ["zebra"], "servers": ["demo"] });
        api.post("/v1/guardrails", rule).await.made();
        let bot = crate::support::client::Client::new(gw.target().clone(), Some(token));
        bot.call("demo_free", json!({})).await.ok();
        bot.call("demo_free", json!({ "a": "a zebra" })).await.refused("guardrail_blocked");
        // the file no longer has the server: what names it is left out, not lost, and the gateway goes on
        let whole = gw.policy();
        let mut without = gw.policy();
        without.remove("server", "demo").remove("grant", "ann").remove("approval", "echo");
        assert_eq!(gw.reload(&without).await, Reloaded::Applied);
        bot.call("demo_free", json!({})).await.rpc_error(200, -32602);
        let warnings = api.get("/v1/status").await.ok()["warnings"].to_string();
        assert!(warnings.contains("demo/bot") && warnings.contains("mine"), "{warnings}");
        let again = restart(&gw).await;
        bot.call("demo_free", json!({})).await.rpc_error(200, -32602);
        std::fs::write(gw.folder().join("policy/policy.toml"), whole.to_toml()).unwrap();
        api.act("/v1/reload").await.ok();
        crate::support::eventually("the grant is back", async || {
            bot.listed().await.contains(&"demo_free".to_owned()).then_some(())
        })
        .await;
        bot.call("demo_free", json!({ "a": "a zebra" })).await.refused("guardrail_blocked");
        drop(again);
    });
}

#[test]
fn reload_answers_with_what_came_of_it() {
    run(async {
        let (gw, api, _up) = fixture().await;
        let revision = api.revision().await;
        let done = api.act("/v1/reload").await.ok();
        assert!(done["revision"].as_u64().unwrap() > revision, "{done}");
        std::fs::write(gw.folder().join("policy/policy.toml"), "[[key]]\nid = 7").unwrap();
        let message = api.act("/v1/reload").await.refused(400, "invalid_request");
        assert!(message.contains("policy.toml:2:6"), "{message}");
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        // the API goes on beside a file that is at fault
        api.post("/v1/projects", json!({ "id": "p" })).await.made();
    });
}
