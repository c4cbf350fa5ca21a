//! The trifecta (contract §9, security 1.5): asked for at every change that closes it, confirmed by the boolean alone, kept with the key.

use serde_json::{Value, json};

use super::api::{Api, Reply};
use crate::support::{
    gateway::{Gateway, Gw, Reloaded},
    policy::Access::Write,
    run,
    upstream::{Up, Upstream},
};

const LEGS: [(&str, &str, &str); 3] =
    [("crm", "read_customer", "private_data"), ("web", "fetch", "untrusted_content"), ("mail", "send", "sends_out")];

async fn fixture() -> (Gw, Api, Vec<Up>) {
    let gw = Gateway::new().object("project", "id = 'sales'\norganization = 'acme'").run().await;
    let api = Api::of(&gw);
    let mut ups = Vec::new();
    for (slug, tool, label) in LEGS {
        let up = Upstream::new()
            .tool(tool, json!({ "type": "object" }))
            .tool("plain", json!({ "type": "object" }))
            .run()
            .await;
        api.register(slug, &up).await;
        api.approve(slug, tool, "write", &[label]).await.ok();
        api.approve(slug, "plain", "read", &[]).await.ok();
        ups.push(up);
    }
    api.key("bot").await;
    (gw, api, ups)
}

/// Refused as it stands, and when "true" is a string; names the key and the tools. Then confirmed.
async fn closes(api: &Api, method: &str, path: &str, body: Value) -> Value {
    let send = async |confirm: Option<Value>| -> Reply {
        let mut body = body.clone();
        if let Some(confirm) = confirm {
            body["confirm_trifecta"] = confirm;
        }
        api.send(method, path, Some(body.to_string()), &[]).await
    };
    let before = (api.revision().await, api.pages("/v1/audit", "audit").await.len());
    for wrong in [None, Some(json!(false)), Some(json!("true")), Some(json!(1)), Some(json!([true])), Some(json!(null))]
    {
        let message = send(wrong.clone()).await.refused(400, "mcp_trifecta_unconfirmed");
        for name in ["`bot`", "private data", "untrusted content", "send data out"] {
            assert!(message.contains(name), "{path} {wrong:?}: {name} in {message}");
        }
        assert_eq!((api.revision().await, api.pages("/v1/audit", "audit").await.len()), before, "nothing was changed");
    }
    let done = send(Some(json!(true))).await.ok();
    assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], true);
    let audit = api.pages("/v1/audit", "audit").await;
    assert!(audit.iter().any(|record| record["what"] == "trifecta.confirm" && record["target"] == "bot"));
    done
}

#[test]
fn a_grant_that_closes_it_is_confirmed_by_the_boolean_alone() {
    run(async {
        let (_gw, api, _ups) = fixture().await;
        api.grant("bot", "crm", "write").await.ok();
        api.grant("bot", "web", "write").await.ok();
        api.grant("bot", "mail", "read").await.ok();
        assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], false);
        let grant = closes(&api, "PUT", "/v1/keys/bot/grants/mail", json!({ "access": "write" })).await;
        assert_eq!(grant["confirm_trifecta"], true);
        // confirmed once, it is not asked for again by what closes nothing
        api.grant("bot", "web", "read").await.ok();
        // open again, a new third leg is asked for
        assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], false);
        closes(&api, "PUT", "/v1/keys/bot/grants/web", json!({ "access": "selected", "tools": ["plain", "fetch"] }))
            .await;
        api.delete("/v1/keys/bot/grants/crm").await.ok();
        closes(&api, "PUT", "/v1/keys/bot/grants/crm", json!({ "access": "selected", "tools": ["read_customer"] }))
            .await;
    });
}

#[test]
fn an_approval_a_label_and_a_project_close_it_too() {
    run(async {
        let (_gw, api, _ups) = fixture().await;
        let mail = "/v1/servers/mail/tools/send";
        for (slug, ..) in LEGS {
            if slug != "mail" {
                api.grant("bot", slug, "write").await.ok();
            }
        }
        let sha256 = api.get(mail).await.ok()["sha256"].clone();
        // the approval
        api.act(&format!("{mail}/block")).await.ok();
        api.grant("bot", "mail", "write").await.ok();
        let approve = json!({ "expected_sha256": sha256, "class": "write", "labels": ["sends_out"] });
        closes(&api, "POST", &format!("{mail}/approve"), approve).await;
        // the labels
        api.patch(mail, json!({ "labels": [] })).await.ok();
        assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], false);
        closes(&api, "PATCH", mail, json!({ "labels": ["sends_out"] })).await;
        // the class, under a read grant
        api.grant("bot", "mail", "read").await.ok();
        assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], false);
        closes(&api, "PATCH", mail, json!({ "class": "read" })).await;
        // the server's projects
        api.patch("/v1/servers/mail", json!({ "projects": ["sales"] })).await.ok();
        assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], false);
        closes(&api, "PATCH", "/v1/servers/mail", json!({ "projects": ["sales", "support"] })).await;
        // its environments
        api.patch("/v1/servers/mail", json!({ "environments": ["test"] })).await.ok();
        closes(&api, "PATCH", "/v1/servers/mail", json!({ "environments": [] })).await;
        // and the key's own project
        api.patch("/v1/servers/mail", json!({ "projects": ["sales"] })).await.ok();
        closes(&api, "PATCH", "/v1/keys/bot", json!({ "project": "sales" })).await;
    });
}

#[test]
fn what_the_api_closed_is_kept_and_never_a_fault_of_a_file() {
    run(async {
        let ups = [Upstream::new(), Upstream::new(), Upstream::new()];
        let mut gateway = Gateway::new().key("bot", "");
        let mut kept = Vec::new();
        for ((slug, tool, label), up) in LEGS.into_iter().zip(ups) {
            let up = up.tool(tool, json!({ "type": "object" })).run().await;
            gateway = gateway.server(slug, &up).approve(slug, &up.tools()[0], "write");
            gateway = gateway.edit("approval", tool, &format!("labels = ['{label}']"));
            kept.push(up);
        }
        let gw = gateway.grant("bot", "crm", Write).grant("bot", "web", Write).run().await;
        let api = Api::of(&gw);
        closes(&api, "PUT", "/v1/keys/bot/grants/mail", json!({ "access": "write" })).await;
        let mut policy = gw.policy();
        policy.add("project", "id = 'more'\norganization = 'acme'");
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        assert_eq!(api.get("/v1/keys/bot").await.ok()["trifecta"], true);
        assert_eq!(api.get("/v1/status").await.ok()["trifecta_keys"], json!(["bot"]));
        gw.client("bot").call("mail_send", json!({})).await.ok();
        // in files alone it is a fault, until every grant that brings a leg says so
        api.delete("/v1/keys/bot/grants/mail").await.ok();
        policy.grant("bot", "mail", &Write);
        assert_eq!(gw.reload(&policy).await, Reloaded::Rejected);
        assert!(gw.log_text().contains("lethal trifecta"), "{}", gw.log_text());
        let mut confirmed = gw.policy();
        confirmed.remove("grant", "bot");
        for (slug, ..) in LEGS {
            confirmed
                .add("grant", &format!("key = 'bot'\nserver = '{slug}'\naccess = 'write'\nconfirm_trifecta = true"));
        }
        assert_eq!(gw.reload(&confirmed).await, Reloaded::Applied);
        gw.client("bot").call("mail_send", json!({})).await.ok();
        // what files confirmed is not asked for by the API: blocking and re-affirming
        api.act("/v1/servers/mail/tools/send/block").await.ok();
        api.approve("mail", "send", "write", &["sends_out"]).await.ok();
        assert_eq!(kept[2].calls().len(), 2);
    });
}
