//! `toolgate apply`: a policy file through the API, once made and then unchanged; a pin is bound to its hash.

use serde_json::json;

use super::{api::Api, cli::Cli};
use crate::support::{gateway::Gateway, run, upstream::Upstream};

#[test]
fn a_file_is_made_once_and_then_unchanged() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).tool("b", json!({ "type": "object" }));
        let up = up.run().await;
        let gw = Gateway::new().run().await;
        let (cli, api) = (Cli { gw: &gw }, Api::of(&gw));
        let file = gw.folder().join("apply.toml");
        let write = |more: &str| {
            let text = format!(
                "[[organization]]\nid = 'zeta'\nplan = 'business'\nstatus = 'active'\nsubscription = 'trial'\n\
                 [[project]]\nid = 'zp'\norganization = 'zeta'\n\
                 [[server]]\nslug = 'demo'\norganization = 'zeta'\nurl = '{}'\nrate_limit = '600/min'\n\
                 [[key]]\nid = 'zk'\norganization = 'zeta'\nproject = 'zp'\nenvironment = 'e'\n\
                 sha256 = '{}'\nexpires = 2099-12-31T00:00:00Z\n\
                 [[grant]]\nkey = 'zk'\nserver = 'demo'\naccess = 'selected'\ntools = ['echo']\n\
                 [[guardrail]]\nname = 'g'\norganization = 'zeta'\nstage = 'input'\ndetector = 'secrets'\naction = 'block'\n{more}",
                up.url(),
                "5".repeat(64)
            );
            std::fs::write(&file, text).unwrap();
        };
        let apply = ["apply", file.to_str().unwrap()];
        write("");
        let results = async |words: &[&str]| {
            let applied = cli.json(words).await;
            let list = applied["applied"].as_array().unwrap().clone();
            list.iter().map(|row| row["result"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let revision = api.revision().await;
        assert_eq!(results(&[apply[0], apply[1], "--dry-run"]).await, ["made"; 6]);
        assert_eq!(api.revision().await, revision, "a dry run changes nothing");
        assert_eq!(results(&apply).await, ["made"; 6]);
        let revision = api.revision().await;
        assert_eq!(results(&apply).await, ["unchanged"; 6]);
        assert_eq!(api.revision().await, revision);
        // a pin, by its hash
        let path = "/v1/servers/demo/tools/echo?organization=zeta";
        let sha256 = api.get(path).await.ok()["sha256"].as_str().unwrap().to_owned();
        let pin = |sha256: &str, more: &str| {
            write(&format!(
                "[[approval]]\nserver = 'demo'\ntool = 'echo'\norganization = 'zeta'\nsha256 = '{sha256}'\nlabels = []\n{more}"
            ));
        };
        pin(&"0".repeat(64), "");
        let said = cli.fails(&apply, 1).await;
        assert!(said.contains("mcp_tool_definition_stale: approval `demo/echo`"), "{said}");
        pin(&sha256, "class = 'read'\n");
        assert_eq!(results(&apply).await[5], "changed");
        let tool = api.get(path).await.ok();
        assert_eq!((tool["status"].as_str(), tool["class"].as_str()), (Some("approved"), Some("read")));
        assert_eq!(results(&apply).await, ["unchanged"; 7]);
        pin(&sha256, "status = 'blocked'\n");
        cli.ok(&apply).await;
        assert_eq!(api.get(path).await.ok()["status"], "blocked");
        // what differs is changed, and only that
        write("");
        let text = std::fs::read_to_string(&file).unwrap().replace("600/min", "5/s");
        let text = text.replace("access = 'selected'\ntools = ['echo']", "access = 'read'");
        std::fs::write(&file, &text).unwrap();
        assert_eq!(results(&apply).await, ["unchanged", "unchanged", "changed", "unchanged", "unchanged", "changed"]);
        assert_eq!(api.get("/v1/servers/demo?organization=zeta").await.ok()["rate_limit"], "5/s");
        // a revocation too; a file that is none is told by its place
        std::fs::write(&file, text.replace("expires = ", "revoked = true\nexpires = ")).unwrap();
        cli.ok(&apply).await;
        assert_eq!(api.get("/v1/keys/zk").await.ok()["revoked"], true);
        std::fs::write(&file, "[[sever]]\nslug = 'x'\n").unwrap();
        assert!(cli.fails(&apply, 64).await.contains("`sever` is no kind of object"));
    });
}
