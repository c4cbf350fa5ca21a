//! The `ADMIN` lines of `tests/cases/bad_inputs.jsonl`: URLs, credentials, the trifecta, a missing token.

use serde_json::{Value, json};

use super::api::{Api, Reply};
use crate::support::{Faults, case_file, gateway::Gateway, run, upstream::Upstream};

#[test]
fn every_admin_line_is_refused_as_it_says() {
    run(async {
        let up = ["crm_read", "web_fetch", "mail_send"]
            .iter()
            .fold(Upstream::new(), |up, name| up.tool(name, json!({ "type": "object" })));
        let up = up.run().await;
        let open = Gateway::new().file("value", "x").conf("[admin]\nsecrets = '.'").run().await;
        let tcp = std::net::SocketAddr::from(([127, 0, 0, 1], crate::support::free_port()));
        // as it is shipped: nothing but public HTTPS
        let closed = Gateway::new()
            .conf(&format!("[admin]\nlisten = '{tcp}'\n[egress]\nallow_http = false\nallow_networks = []"));
        let closed = closed.run().await;
        let (open, gw) = (Api::of(&open), open);
        let mut faults = Faults::default();
        let mut played = 0;
        for line in case_file("bad_inputs.jsonl").lines() {
            let line: Value = serde_json::from_str(line).expect("a JSON line");
            let input = line["input"].as_str().expect("an input");
            let Some((form @ ("ADMIN" | "ADMIN_NOAUTH"), text)) = input.split_once(':') else { continue };
            played += 1;
            let body: Value = serde_json::from_str(text).expect("JSON");
            let name = format!("{} {}", line["id"], line["what"]);
            let reply = async {
                if form == "ADMIN_NOAUTH" {
                    return Api::tcp(tcp, None).post("/v1/servers", body).await;
                }
                if let Some(url) = body["url"].as_str() {
                    let itself = format!("http://{}/gateway/mcp", gw.target().address);
                    let (api, url) = match url {
                        "https://gw.test/gateway/mcp" => (&open, itself.as_str()),
                        url => (&Api::of(&closed), url),
                    };
                    // by itself, and in a whole object
                    let code = line["expect"]["code"].as_str().expect("a code");
                    api.post("/v1/servers", json!({ "url": url })).await.refused(400, code);
                    return api.post("/v1/servers", json!({ "slug": "x", "url": url })).await;
                }
                if let Some(credential) = body["credential"].as_object() {
                    let (header, value) = (credential["header"].as_str().expect("a header"), &credential["value"]);
                    std::fs::write(gw.folder().join("value"), value.as_str().expect("a value")).expect("a file");
                    let mut headers = serde_json::Map::new();
                    headers.insert(header.to_owned(), json!({ "credential": "value" }));
                    return open
                        .post("/v1/servers", json!({ "slug": "x", "url": up.url(), "credential": headers }))
                        .await;
                }
                trifecta(&open, &up, &body).await
            };
            let row = async {
                let reply = reply.await;
                let expect = &line["expect"];
                assert_eq!(u64::from(reply.status), expect["http"].as_u64().expect("a status"), "{}", reply.body);
                reply.refused(reply.status, expect["code"].as_str().unwrap_or_default());
            };
            faults.row(name, row).await;
        }
        assert!(up.calls().is_empty());
        faults.assert_none(played);
        assert_eq!(played, 22);
    });
}

/// Registers the server with the three tools once, and grants them all.
async fn trifecta(api: &Api, up: &crate::support::upstream::Up, body: &Value) -> Reply {
    if api.get("/v1/servers/demo").await.status == 404 {
        api.register("demo", up).await;
        api.key("bot").await;
        for (tool, label) in
            [("crm_read", "private_data"), ("web_fetch", "untrusted_content"), ("mail_send", "sends_out")]
        {
            api.approve("demo", tool, "write", &[label]).await.ok();
        }
    }
    let mut grant = json!({ "access": "selected", "tools": body["grants"] });
    if let Some(confirm) = body.get("confirm_trifecta") {
        grant["confirm_trifecta"] = confirm.clone();
    }
    api.put("/v1/keys/bot/grants/demo", grant).await
}
