//! `credential_mode = "per_user"`: each call goes out with the credential of the user that its attribution names, or not at all;
//! no user meets another's credential, session or connection; and nothing that was stored is ever shown.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json};

use super::{api::Api, cli::Cli};
use crate::support::{
    Faults,
    answer::Era,
    client::Client,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Reply, Speaks, Up, Upstream},
};

const KEY: &str = "a key of the store, for tests only: 0123456789abcdef";
const PER_USER: &str = "credential_mode = 'per_user'\nconnect_url = 'https://connect.test/demo'";

async fn gateway(speaks: Speaks) -> (Gw, Api, Up) {
    let object = || json!({ "type": "object" });
    let up = Upstream::new().tool("t", object()).tool("u", object()).speaks(speaks).run().await;
    let gw = Gateway::new()
        .file("store.key", KEY)
        .conf("[store]\nkey = { file = 'store.key' }")
        .server_with("demo", &up, PER_USER)
        .server("plain", &up)
        .grant("k", "demo", Read)
        .grant("k", "plain", Read)
        .approve_all()
        .run()
        .await;
    let api = Api::of(&gw);
    (gw, api, up)
}

fn secret(user: &str) -> String {
    format!("canary-of-{user}-3141592653")
}

async fn connect(api: &Api, user: &str) -> Value {
    let body = json!({ "headers": { "Authorization": format!("Bearer {}", secret(user)) } });
    api.put(&format!("/v1/servers/demo/credentials/{user}"), body).await.ok()
}

fn of(gw: &Gw, user: &str) -> Client {
    gw.client("k").header("X-Toolgate-User", user)
}

#[test]
fn each_call_goes_out_with_the_credential_of_its_user_or_not_at_all() {
    run(async {
        for speaks in [Speaks::Modern, Speaks::Legacy] {
            let (gw, api, up) = gateway(speaks).await;
            connect(&api, "ann").await;
            connect(&api, "bob").await;
            let begun = up.seen().len();
            let calls = (0..24).map(|n| {
                let user = ["ann", "bob"][n % 2];
                let client = if n % 4 < 2 { of(&gw, user) } else { of(&gw, user).server("demo") };
                let client = client.era(if n % 3 == 0 { Era::Legacy } else { Era::Modern }).fresh();
                async move {
                    let answer = client.call(&client.named("demo", "t"), json!({ "of": user })).await;
                    answer.ok();
                }
            });
            futures::future::join_all(calls).await;
            let (mut sessions, mut connections) = (HashMap::new(), HashMap::new());
            for seen in up.seen().iter().skip(begun).filter(|seen| seen.method() == "tools/call") {
                let user = seen.message["params"]["arguments"]["of"].as_str().unwrap().to_owned();
                let sent = format!("Bearer {}", secret(&user));
                assert_eq!(seen.header("authorization"), Some(sent.as_str()), "{}", seen.head.start);
                assert_eq!(connections.entry(seen.connection).or_insert_with(|| user.clone()), &user);
                if let Some(id) = seen.header("mcp-session-id") {
                    assert_eq!(sessions.entry(id.to_owned()).or_insert_with(|| user.clone()), &user);
                }
            }
            if matches!(speaks, Speaks::Legacy) {
                let users: BTreeSet<&String> = sessions.values().collect();
                assert_eq!((sessions.len(), users.len()), (2, 2), "a session for each user: {sessions:?}");
            }
            assert_eq!(up.calls().len(), 24);
            for client in [of(&gw, "eve"), gw.client("k"), of(&gw, "ANN")] {
                for client in [client.clone(), client.clone().server("demo"), client.era(Era::Legacy)] {
                    let answer = client.call(&client.named("demo", "t"), json!({})).await;
                    let message = answer.refused("credential_required");
                    assert!(message.contains("https://connect.test/demo"), "{message}");
                }
            }
            assert_eq!(up.calls().len(), 24, "a refused call reaches nobody");
            api.delete("/v1/servers/demo/credentials/bob").await.ok();
            of(&gw, "bob").call("demo_t", json!({})).await.refused("credential_required");
            // Where the server's own credential is everybody's, a user changes nothing.
            of(&gw, "eve").call("plain_t", json!({})).await.ok();
            assert_eq!(up.calls().last().unwrap().header("authorization"), None);
            // The mock server knows no users: their credentials are the only thing that it may wonder about.
            let faults: Vec<String> = up.faults();
            let wondered = faults.iter().all(|fault| fault.contains("header authorization: Bearer canary-of-"));
            assert!(wondered, "{faults:#?}");
        }
    });
}

#[test]
fn what_a_server_says_of_a_users_credential_is_taken_out() {
    run(async {
        let (gw, api, up) = gateway(Speaks::Modern).await;
        for user in ["ann", "bob"] {
            connect(&api, user).await;
        }
        for user in ["ann", "bob", "ann"] {
            let said = format!("you are {}", secret(user));
            for reply in [Reply::text(&said), Reply::Error(json!({ "code": -32000, "message": said }).to_string())] {
                up.next(reply);
                let answer = of(&gw, user).call("demo_t", json!({})).await;
                assert!(!answer.wire().contains("canary"), "{}", answer.wire());
                assert!(answer.wire().contains("[redacted:credential]"), "{}", answer.wire());
            }
        }
    });
}

#[test]
fn a_refused_account_is_to_be_connected_again() {
    run(async {
        let (gw, api, up) = gateway(Speaks::Modern).await;
        connect(&api, "ann").await;
        up.next(Reply::status(401, "", ""));
        let answer = of(&gw, "ann").call("demo_t", json!({})).await;
        let message = answer.refused("upstream_unavailable");
        assert!(message.contains("https://connect.test/demo") && message.contains("do not retry"), "{message}");
        up.next(Reply::status(401, "", ""));
        let plain = of(&gw, "ann").call("plain_t", json!({})).await;
        assert!(plain.refused("upstream_unavailable").contains("An admin must replace"), "{}", plain.wire());
    });
}

#[test]
fn nothing_that_was_stored_is_shown_and_it_outlives_a_restart_with_the_same_key_only() {
    run(async {
        let (mut gw, api, _up) = gateway(Speaks::Modern).await;
        let shown = connect(&api, "ann").await;
        assert_eq!((&shown["user"], &shown["headers"]), (&json!("ann"), &json!(["authorization"])), "{shown}");
        connect(&api, "ann").await;
        let listed = api.pages("/v1/servers/demo/credentials?limit=1", "credentials").await;
        assert_eq!((listed.len(), &listed[0]["user"]), (1, &json!("ann")));
        let audit = api.pages("/v1/audit", "audit").await;
        let stored = audit.iter().filter(|record| record["what"] == "credential.store").count();
        assert_eq!(stored, 2, "{audit:?}");
        gw.restart().await;
        of(&gw, "ann").call("demo_t", json!({})).await.ok();

        let mut looked = 0;
        for entry in std::fs::read_dir(gw.folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                assert!(!text.contains("canary"), "{} holds it", path.display());
                looked += 1;
            }
        }
        assert!(looked >= 4, "store, logs and conf were looked at");
        assert!(
            !Value::from(audit).to_string().contains("canary") && !Value::from(listed).to_string().contains("canary")
        );

        std::fs::write(gw.folder().join("store.key"), "another key of the store, which is long enough").unwrap();
        gw.restart().await;
        of(&gw, "ann").call("demo_t", json!({})).await.refused("credential_required");
        assert!(gw.log_text().contains("cannot be opened with `store.key`"), "{}", gw.log_text());
        connect(&Api::of(&gw), "ann").await;
        of(&gw, "ann").call("demo_t", json!({})).await.ok();
    });
}

#[test]
fn what_cannot_be_stored_is_refused_and_changes_nothing() {
    run(async {
        let (gw, api, _up) = gateway(Speaks::Modern).await;
        let good = json!({ "headers": { "Authorization": "Bearer x-1" } });
        let with = |name: &str, value: &str| json!({ "headers": { name: value } });
        let long = "u".repeat(129);
        let many: serde_json::Map<String, Value> = (0..9).map(|n| (format!("x-{n}"), json!("v"))).collect();
        let rows: Vec<(&str, &str, Value, u16, &str)> = vec![
            ("PUT", "plain/credentials/ann", good.clone(), 400, "invalid_request"),
            ("PUT", "nothing/credentials/ann", good.clone(), 404, "not_found"),
            ("PUT", "demo/credentials/a%20b", good.clone(), 400, "invalid_request"),
            ("PUT", "demo/credentials/%C3%A9", good, 400, "invalid_request"),
            ("PUT", "demo/credentials/ann", json!({}), 400, "invalid_mcp_credential"),
            ("PUT", "demo/credentials/ann", json!({ "headers": {} }), 400, "invalid_mcp_credential"),
            (
                "PUT",
                "demo/credentials/ann",
                json!({ "headers": { "Authorization": 1 } }),
                400,
                "invalid_mcp_credential",
            ),
            ("PUT", "demo/credentials/ann", json!({ "headers": {}, "x": 1 }), 400, "invalid_request"),
            ("PUT", "demo/credentials/ann", with("Host", "canary"), 400, "invalid_mcp_credential"),
            ("PUT", "demo/credentials/ann", with("X-Toolgate-User", "canary"), 400, "invalid_mcp_credential"),
            ("PUT", "demo/credentials/ann", with("X-Key", "canary\n"), 400, "invalid_mcp_credential"),
            ("PUT", "demo/credentials/ann", json!({ "headers": many }), 400, "invalid_mcp_credential"),
            ("DELETE", "demo/credentials/ann", Value::Null, 404, "not_found"),
        ];
        let mut faults = Faults::default();
        let revision = api.revision().await;
        let count = rows.len() + 1;
        for (method, path, body, status, code) in rows {
            let api = api.clone();
            let row = async move {
                let text = (!body.is_null()).then(|| body.to_string());
                let message = api.send(method, &format!("/v1/servers/{path}"), text, &[]).await.refused(status, code);
                assert!(!message.contains("canary"), "{message}");
            };
            faults.row(format!("{method} {path} {code}"), row).await;
        }
        let path = format!("/v1/servers/demo/credentials/{long}");
        let reply = api.put(&path, with("X-Key", "v")).await;
        faults.row("a long name", async move { drop(reply.refused(400, "invalid_request")) }).await;
        assert_eq!(api.revision().await, revision);
        assert!(!gw.log_text().contains("canary"));
        faults.assert_none(count);
    });
}

#[test]
fn without_a_key_nothing_is_stored_and_calls_are_refused() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        for (conf, why) in [("", "it is not set"), ("[store]\nkey = { file = 'store.key' }", "shorter than 32 bytes")] {
            let gateway = Gateway::new().file("store.key", "too short").conf(conf);
            let gw = gateway.server_with("demo", &up, PER_USER).grant("k", "demo", Read).approve_all().run().await;
            let body = json!({ "headers": { "Authorization": "Bearer x-1" } });
            let message =
                Api::of(&gw).put("/v1/servers/demo/credentials/ann", body).await.refused(400, "invalid_request");
            assert!(message.contains(why), "{message}");
            of(&gw, "ann").call("demo_t", json!({})).await.refused("credential_required");
            assert!(gw.log_text().contains(why), "{}", gw.log_text());
        }
    });
}

#[test]
fn a_state_of_one_user_is_not_anothers() {
    run(async {
        let (gw, api, up) = gateway(Speaks::Modern).await;
        connect(&api, "ann").await;
        connect(&api, "bob").await;
        let capable = |user: &str| of(&gw, user).capable(json!({ "elicitation": {} }));
        let asks = json!({ "q": { "method": "elicitation/create", "params": {
            "mode": "form", "message": "?", "requestedSchema": { "type": "object", "properties": {} } } } });
        let asking = json!({ "resultType": "input_required", "inputRequests": asks, "requestState": "s" });
        up.next(Reply::Result(asking.to_string()));
        let opened = capable("ann").call("demo_t", json!({})).await;
        let state = opened.ok()["requestState"].clone();
        let retry = |user: &str| {
            let answers = json!({ "q": { "action": "accept", "content": {} } });
            let params = json!({ "name": "demo_t", "arguments": {}, "requestState": state, "inputResponses": answers });
            let client = capable(user);
            async move { client.rpc("tools/call", params).await }
        };
        let calls = up.calls().len();
        retry("bob").await.rpc_error(200, -32602);
        assert_eq!(up.calls().len(), calls);
        retry("ann").await.ok();
    });
}

#[test]
fn users_go_with_their_server_and_explain_knows_them() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().file("store.key", KEY).conf("[store]\nkey = { file = 'store.key' }").run().await;
        let api = Api::of(&gw);
        let server = json!({
            "slug": "demo", "url": up.url(), "credential_mode": "per_user", "connect_url": "https://connect.test/demo"
        });
        api.post("/v1/servers", server.clone()).await.made();
        api.approve("demo", "t", "read", &[]).await.ok();
        api.key("k").await;
        api.grant("k", "demo", "read").await.ok();
        connect(&api, "ann").await;
        let explain = async |user: Value| {
            let body =
                json!({ "key": "k", "endpoint": "/gateway/mcp", "tool": "demo_t", "arguments": {}, "user": user });
            api.post("/v1/explain", body).await.ok()
        };
        assert_eq!(explain(json!("ann")).await["verdict"], "allowed");
        for user in [json!("bob"), json!(null)] {
            let told = explain(user).await;
            assert_eq!(
                (&told["code"], &told["surface"]),
                (&json!("credential_required"), &json!("tool_result")),
                "{told}"
            );
            assert!(told["message"].as_str().unwrap().contains("https://connect.test/demo"), "{told}");
        }
        assert_eq!(up.calls().len(), 0);
        api.delete("/v1/servers/demo").await.ok();
        api.post("/v1/servers", server).await.made();
        assert!(api.pages("/v1/servers/demo/credentials", "credentials").await.is_empty(), "they went with the server");
        for wrong in
            [json!({ "connect_url": null }), json!({ "session": "shared" }), json!({ "credential_mode": "none" })]
        {
            api.patch("/v1/servers/demo", wrong).await.refused(400, "invalid_request");
        }
    });
}

#[test]
fn the_command_line_stores_a_credential_that_no_argument_shows() {
    run(async {
        let (gw, api, up) = gateway(Speaks::Modern).await;
        let (cli, ann) = (Cli { gw: &gw }, secret("ann"));
        let words = ["credential", "set", "demo", "ann", "--header", "Authorization"];
        let stored = cli.fed(&words, &format!("Bearer {ann}\n")).await;
        assert!(stored.status.success(), "{stored:?}");
        let said = format!("{stored:?}");
        assert!(said.contains("authorization") && !said.contains(&ann), "{said}");
        of(&gw, "ann").call("demo_t", json!({})).await.ok();
        assert_eq!(up.calls().last().unwrap().header("authorization"), Some(format!("Bearer {ann}").as_str()));
        // From files, which replaces it; the second header comes from standard input.
        let file = gw.folder().join("of-ann");
        std::fs::write(&file, "from-a-file-2718281828").unwrap();
        let header = format!("X-Api-Key={}", file.display());
        let words = ["credential", "set", "demo", "ann", "--header", &header, "--header", "X-Other", "--json"];
        let stored = cli.fed(&words, "from-input-1414213562").await;
        let shown: Value = serde_json::from_slice(&stored.stdout).unwrap();
        assert_eq!((&shown["user"], &shown["headers"]), (&json!("ann"), &json!(["x-api-key", "x-other"])));
        of(&gw, "ann").call("demo_t", json!({})).await.ok();
        let call = up.calls().pop().unwrap();
        let sent = ["authorization", "x-api-key", "x-other"].map(|name| call.header(name));
        assert_eq!(sent, [None, Some("from-a-file-2718281828"), Some("from-input-1414213562")]);
        // What is listed is what the API lists.
        let listed = cli.json(&["credential", "list", "demo"]).await;
        assert_eq!(listed["credentials"], api.get("/v1/servers/demo/credentials").await.ok()["credentials"]);
        let table = cli.ok(&["credential", "list", "demo"]).await;
        assert!(table.lines().count() == 2 && table.contains("x-api-key,x-other"), "{table}");
        for (words, input, code, expected) in [
            (&["set", "demo", "ann"][..], "x", 64, "--header"),
            (
                &["set", "demo", "ann", "--header", "A", "--header", "B"],
                "x",
                64,
                "standard input holds the value of one",
            ),
            (&["set", "demo", "ann", "--header", "A"], "", 64, "--header A: standard input: it is empty"),
            (&["set", "demo", "ann", "--header", "A=/nowhere/x"], "x", 64, "--header A: /nowhere/x"),
            (&["set", "demo", "ann", "--header", "Host"], "x", 1, "invalid_mcp_credential"),
            (&["set", "demo", "ann", "--header", "Authorization"], "a\n\n", 1, "invalid_mcp_credential"),
            (&["set", "plain", "ann", "--header", "Authorization"], "x", 1, "per_user"),
            (&["set", "nope", "ann", "--header", "Authorization"], "x", 1, "not_found"),
            (&["delete", "demo", "bob"], "", 1, "not_found"),
        ] {
            let done = cli.fed(&[&["credential"], words].concat(), input).await;
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(code) && said.contains(expected), "{words:?}: {done:?}");
        }
        cli.ok(&["credential", "delete", "demo", "ann"]).await;
        of(&gw, "ann").call("demo_t", json!({})).await.refused("credential_required");
        assert_eq!(up.calls().len(), 2, "a refused call reaches nobody");
    });
}
