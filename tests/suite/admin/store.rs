//! The store behind the API: a backup taken while the gateway runs, restored as docs/operations.md says; a store of a newer format.

use serde_json::json;

use super::{api::Api, cli::Cli, files::Again};
use crate::support::{client::Client, gateway::Gateway, run, upstream::Upstream};

#[test]
fn what_was_backed_up_is_what_is_restored() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().run().await;
        let (api, cli) = (Api::of(&gw), Cli { gw: &gw });
        api.register("demo", &up).await;
        api.approve("demo", "echo", "read", &[]).await.ok();
        let token = api.key("bot").await;
        api.grant("bot", "demo", "read").await.ok();
        let objects = async || {
            let mut all = Vec::new();
            for kind in ["servers", "keys", "organizations", "projects", "guardrails", "audit"] {
                all.push(api.pages(&format!("/v1/{kind}"), kind).await);
            }
            all.push(api.pages("/v1/servers/demo/tools", "tools").await);
            all.push(api.pages("/v1/keys/bot/grants", "grants").await);
            all
        };
        let before = objects().await;
        let copy = gw.folder().join("copy.db");
        cli.ok(&["backup", copy.to_str().unwrap()]).await;
        // what comes after the copy is not in it
        api.register("later", &up).await;
        api.act("/v1/servers/demo/tools/echo/block").await.ok();
        api.act("/v1/keys/bot/revoke").await.ok();
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0));
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(gw.folder().join(format!("toolgate.db{suffix}")));
        }
        std::fs::rename(&copy, gw.folder().join("toolgate.db")).unwrap();
        let again = Again::start(&gw).await;
        let mut after = objects().await;
        // the start itself is told of
        let audit = after[5].pop().unwrap();
        assert_eq!(audit["what"], "policy.load");
        assert_eq!(after, before);
        let bot = Client::new(gw.target().clone(), Some(token));
        bot.call("demo_echo", json!({})).await.ok();
        drop(again);
    });
}

#[test]
fn a_store_of_a_newer_format_is_refused_and_left_alone() {
    run(async {
        let gw = Gateway::new().run().await;
        Api::of(&gw).key("bot").await;
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0));
        let path = gw.folder().join("toolgate.db");
        let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        sqlx::query("UPDATE meta SET format = 99").execute(&pool).await.unwrap();
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&pool).await.unwrap();
        pool.close().await;
        let bytes = std::fs::read(&path).unwrap();
        let cli = Cli { gw: &gw };
        let said = cli.fails(&["serve"], 69).await;
        assert!(said.contains("99") && said.contains("newer version"), "{said}");
        let said = cli.fails(&["backup", gw.folder().join("copy.db").to_str().unwrap()], 1).await;
        assert!(said.contains("newer version"), "{said}");
        assert!(std::fs::read(&path).unwrap() == bytes, "the file is as it was");
    });
}
