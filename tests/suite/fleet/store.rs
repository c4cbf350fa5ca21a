//! One policy for many nodes: several gateways on a real PostgreSQL.

use std::process::Command;

use serde_json::{Value, json};

use crate::{
    admin::api::Api,
    support::{
        answer::Era,
        client::Client,
        eventually,
        gateway::{Gateway, Gw},
        policy::Access::Read,
        postgres::Postgres,
        run,
        upstream::{Up, Upstream},
    },
};

/// A node that is not started yet: the server `demo`, whose tools are approved in its policy file, and the key `ann`.
pub(super) fn node(up: &Up, name: &str, url: &str) -> Gateway {
    let gateway = Gateway::new().server("demo", up).grant("ann", "demo", Read).approve_all();
    gateway.conf(&format!("[store]\nurl = '{url}'\nnode = '{name}'\n[log]\nlevel = 'debug'"))
}

/// Nodes that are ready and see each other.
pub(super) async fn nodes(count: usize, url: &str) -> (Vec<Gw>, Up) {
    let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
    let mut gws = Vec::new();
    for number in 0..count {
        gws.push(node(&up, &format!("node-{number}"), url).run().await);
    }
    for gw in &gws {
        until_live(gw, count).await;
    }
    (gws, up)
}

/// Waits until a node sees so many live ones.
async fn until_live(gw: &Gw, count: usize) {
    let api = Api::of(gw);
    eventually("the nodes see each other", async || {
        let nodes = api.get("/v1/nodes").await;
        let live = nodes.body["nodes"].as_array()?.iter().filter(|node| node["live"] == true).count();
        (live == count).then_some(())
    })
    .await;
}

/// Makes a key that may read `demo`; a client with it for each node.
pub(super) async fn make_key(gws: &[Gw], id: &str) -> Vec<Client> {
    let api = Api::of(&gws[0]);
    let token = api.key(id).await;
    api.grant(id, "demo", "read").await.ok();
    gws.iter().map(|gw| gw.client("ann").token(Some(&token))).collect()
}

/// Waits until a client's call goes through.
pub(super) async fn until_served(client: &Client) {
    eventually("the key is known", async || {
        // The key is known before its grant.
        let answer = client.call("demo_echo", json!({})).await;
        (answer.status == 200 && !answer.text().contains("tool_not_allowed")).then(|| drop(answer.ok().clone()))
    })
    .await;
}

#[test]
fn what_one_node_changes_is_live_on_every_node() {
    run(async {
        let Some(postgres) = Postgres::start() else { return };
        let (gws, up) = nodes(3, &postgres.url()).await;
        let clients = make_key(&gws, "late").await;
        for client in &clients {
            until_served(client).await;
        }
        // Also where the announcement is lost: the revision is polled.
        postgres.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'");
        let more = make_key(&gws, "later").await;
        for client in &more {
            until_served(client).await;
        }
        // A revocation's answer waits for every node: from then on no node takes the key.
        let before = up.calls().len();
        let revoked = Api::of(&gws[1]).act("/v1/keys/late/revoke?wait=20s").await.ok();
        assert_eq!(revoked["behind"], json!([]), "{revoked}");
        for client in &clients {
            assert_eq!(client.call("demo_echo", json!({})).await.status, 401);
        }
        assert_eq!(up.calls().len(), before);
        // A node that does not answer is named.
        gws[2].signal("STOP");
        let revoked = Api::of(&gws[0]).act("/v1/keys/later/revoke?wait=3s").await.ok();
        gws[2].signal("CONT");
        assert_eq!(revoked["behind"], json!(["node-2"]), "{revoked}");
        eventually("the node catches up", async || {
            (more[2].call("demo_echo", json!({})).await.status == 401).then_some(())
        })
        .await;
        let wrong = Api::of(&gws[0]).act("/v1/keys/later/revoke?wait=2h").await;
        wrong.refused(400, "invalid_request");
    });
}

#[test]
fn writers_on_every_node_lose_nothing() {
    run(async {
        let Some(postgres) = Postgres::start() else { return };
        let (gws, _up) = nodes(3, &postgres.url()).await;
        let write = |gw: usize| {
            let api = Api::of(&gws[gw]);
            async move {
                let mut made = Vec::new();
                for number in 0..8 {
                    let id = format!("key-{gw}-{number}");
                    let key = json!({ "id": id, "project": "support", "environment": "production" });
                    // One that lost the race too often says so, and has written nothing.
                    let reply = api.post("/v1/keys", key).await;
                    match reply.status {
                        201 => made.push(id),
                        status => assert_eq!(status, 503, "{reply:?}"),
                    }
                }
                made
            }
        };
        let made = futures::future::join_all((0..3).map(write)).await;
        let mut made: Vec<String> = made.into_iter().flatten().collect();
        assert!(made.len() >= 8, "{made:?}");
        made.sort();
        for gw in &gws {
            let api = Api::of(gw);
            eventually("every key on every node", async || {
                let keys = api.get("/v1/keys").await.ok();
                let ids = keys["keys"].as_array()?.iter().filter_map(|key| key["id"].as_str());
                let mut ids: Vec<String> = ids.filter(|id| id.starts_with("key-")).map(str::to_owned).collect();
                ids.sort();
                (ids == made).then_some(())
            })
            .await;
        }
        let audit = Api::of(&gws[0]).pages("/v1/audit", "audit").await;
        let created = audit.iter().filter(|row| row["what"] == "key.create").count();
        assert_eq!(created, made.len());
    });
}

#[test]
fn nodes_whose_files_differ_say_so() {
    run(async {
        let Some(postgres) = Postgres::start() else { return };
        let (gws, up) = nodes(1, &postgres.url()).await;
        let other = node(&up, "other", &postgres.url()).grant("bob", "demo", Read).run().await;
        for (gw, name) in [(&gws[0], "other"), (&other, "node-0")] {
            let words = "the policy files of these nodes are not this node's";
            let said = async || {
                let log = gw.log_text();
                log.lines().any(|line| line.contains(words) && line.contains(name)).then_some(())
            };
            eventually("the difference is said", said).await;
        }
        let shown = toolgate(&gws[0], &["fleet"]);
        assert!(shown.contains("other") && shown.contains("The policy files of these nodes differ"), "{shown}");
        let listed: Value = serde_json::from_str(&toolgate(&gws[0], &["fleet", "--json"])).unwrap();
        assert_eq!(listed["nodes"].as_array().unwrap().len(), 2, "{listed}");
        // One that stops leaves.
        drop(other);
        until_live(&gws[0], 1).await;
        assert!(!toolgate(&gws[0], &["fleet"]).contains("other"));
    });
}

#[test]
fn a_store_moves_between_the_engines() {
    run(async {
        let Some(postgres) = Postgres::start() else { return };
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let mut gw = node(&up, "one", "sqlite:toolgate.db").run().await;
        let token = Api::of(&gw).key("late").await;
        Api::of(&gw).grant("late", "demo", "read").await.ok();
        let revision = Api::of(&gw).revision().await;
        gw.signal("TERM");
        gw.until_ended().await;
        let said = toolgate(&gw, &["store", "copy", "--to", &postgres.url()]);
        assert!(said.contains(&format!("revision {revision}")), "{said}");
        let again = command(&gw, &["store", "copy", "--to", &postgres.url()]);
        assert!(!again.status.success());
        assert!(String::from_utf8_lossy(&again.stderr).contains("is in use"), "{again:?}");
        let moved = node(&up, "two", &postgres.url()).run().await;
        let client = moved.client("ann").token(Some(&token));
        client.call("demo_echo", json!({})).await.ok();
        // And back.
        let back = gw.folder().join("back.db");
        toolgate(&moved, &["store", "copy", "--to", &format!("sqlite:{}", back.display())]);
        // All of the copy is in the one file.
        let beside = |name: &str| gw.folder().join(name);
        assert!(!beside("back.db-wal").exists(), "{:?}", std::fs::read_dir(gw.folder()).unwrap().collect::<Vec<_>>());
        std::fs::rename(&back, beside("toolgate.db")).unwrap();
        for rest in ["toolgate.db-wal", "toolgate.db-shm"] {
            let _ = std::fs::remove_file(beside(rest));
        }
        gw.restart().await;
        gw.client("ann").token(Some(&token)).call("demo_echo", json!({})).await.ok();
        let told = Api::of(&gw).pages("/v1/audit", "audit").await;
        assert!(told.iter().any(|row| row["what"] == "key.create"), "{told:?}");
    });
}

fn command(gw: &Gw, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(arguments).arg("--conf").arg(gw.folder().join("toolgate.toml")).output().unwrap()
}

/// What the command line prints.
fn toolgate(gw: &Gw, arguments: &[&str]) -> String {
    let output = command(gw, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The file with a node's last good policy, once it holds `text`.
pub(super) async fn last_good(gw: &Gw, text: &str) -> String {
    let path = gw.folder().join("toolgate.last-good");
    eventually("the last good policy is kept", async || {
        std::fs::read_to_string(&path).ok().filter(|kept| kept.contains(text))
    })
    .await
}

#[test]
fn the_last_good_policy_is_for_its_owner_and_holds_no_credential() {
    run(async {
        use std::os::unix::fs::PermissionsExt;
        let Some(mut postgres) = Postgres::start() else { return };
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).credential("X-Key", "s3cret").run().await;
        let gateway =
            Gateway::new().file("demo-key", "s3cret").conf("[admin]\nsecrets = '.'\n[egress]\nallow_http = true");
        let mut gw = gateway.conf(&format!("[store]\nurl = '{}'", postgres.url())).run().await;
        let server =
            json!({ "slug": "demo", "url": up.url(), "credential": { "X-Key": { "credential": "demo-key" } } });
        let api = Api::of(&gw);
        api.post("/v1/servers", server).await.made();
        let token = api.key("late").await;
        let kept = last_good(&gw, "\"late\"").await;
        assert!(kept.contains("demo-key") && !kept.contains("s3cret") && !kept.contains(&token));
        let path = gw.folder().join("toolgate.last-good");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Changed by hand: not taken.
        postgres.stop();
        gw.signal("TERM");
        gw.until_ended().await;
        std::fs::write(&path, kept.replace("\"late\"", "\"fate\"")).unwrap();
        assert_eq!(start(&gw), (Some(69), true));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(start(&gw), (Some(69), false));
        postgres.begin();
        gw.restart().await;
    });
}

#[test]
fn past_max_age_everything_is_refused_on_both_endpoints_in_both_eras_and_reaches_nobody() {
    run(async {
        let Some(mut postgres) = Postgres::start() else { return };
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = node(&up, "alone", &postgres.url()).conf("[store]\nmax_age = '3s'").run().await;
        let clients: Vec<Client> = [None, Some("demo")]
            .into_iter()
            .flat_map(|slug| [Era::Modern, Era::Legacy].map(|era| (slug, era)))
            .map(|(slug, era)| match slug {
                Some(slug) => gw.client("ann").era(era).server(slug),
                None => gw.client("ann").era(era),
            })
            .collect();
        for client in &clients {
            client.call(&client.named("demo", "echo"), json!({})).await.ok();
        }
        last_good(&gw, "demo").await;
        postgres.stop();
        eventually("the policy is withdrawn", async || gw.ops("/readyz").await.filter(|answer| answer.status == 503))
            .await;
        let before = up.calls().len();
        assert_eq!(before, clients.len());
        for client in &clients {
            let requests = [
                client.calling(&client.named("demo", "echo"), "{}"),
                client.asking("tools/list", json!({})),
                client.posting("no JSON"),
                client.calling("nobody_knows", "{}"),
            ];
            for request in requests {
                let answer = client.send(request).await;
                answer.http_refused(503, "internal_error", Some("policy_unavailable"));
                assert_eq!(answer.retry_after(), 1);
            }
            let stranger = client.clone().token(Some("tgk_nobody")).call("demo_echo", json!({})).await;
            stranger.http_refused(503, "internal_error", Some("policy_unavailable"));
        }
        assert_eq!(up.calls().len(), before, "a refused call reaches nobody");
        // It is live again with the store, and no budget, breaker or session is in the way.
        postgres.begin();
        eventually("it is back", async || gw.ops("/readyz").await.filter(|answer| answer.text() == "ready\n")).await;
        for client in &clients {
            client.call(&client.named("demo", "echo"), json!({})).await.ok();
        }
        up.assert_spoken_to_well();
    });
}

/// Starts a node that does not come up: its exit code, and whether it speaks of the file.
fn start(gw: &Gw) -> (Option<i32>, bool) {
    let done = command(gw, &["serve"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    (done.status.code(), said.contains("its checksum is wrong"))
}
