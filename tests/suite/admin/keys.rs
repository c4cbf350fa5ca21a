//! Keys: the token shown once, rotation with both alive, expiry, revocation that holds from the answer on.

use serde_json::{Value, json};

use super::api::Api;
use crate::support::{
    client::Client,
    gateway::{Gateway, Gw},
    pin::hex,
    run,
    upstream::{Up, Upstream},
};

async fn fixture() -> (Gw, Api, Up) {
    let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
    let gw = Gateway::new().run().await;
    let api = Api::of(&gw);
    api.register("demo", &up).await;
    api.approve("demo", "echo", "read", &[]).await.ok();
    (gw, api, up)
}

fn client(gw: &Gw, token: &str) -> Client {
    Client::new(gw.target().clone(), Some(token.to_owned()))
}

async fn works(gw: &Gw, token: &str) -> bool {
    let answer = client(gw, token).call("demo_echo", json!({})).await;
    match answer.status {
        200 => true,
        _ => {
            answer.http_refused(401, "authentication_error", None);
            false
        }
    }
}

#[test]
fn a_token_is_shown_once_and_kept_as_a_digest() {
    run(async {
        let (gw, api, _up) = fixture().await;
        let made = api
            .post("/v1/keys", json!({ "id": "bot", "project": "support", "environment": "production" }))
            .await
            .made();
        let token = made["token"].as_str().unwrap();
        let parts: Vec<&str> = token.split('_').collect();
        assert_eq!((parts.len(), parts[0], parts[1], parts[2]), (5, "toolgate", "production", "bot"), "{token}");
        assert_eq!(made["sha256"], hex(token.as_bytes()));
        api.grant("bot", "demo", "read").await.ok();
        assert!(works(&gw, token).await);
        assert!(!works(&gw, &token.to_uppercase()).await);
        for path in ["/v1/keys", "/v1/keys/bot", "/v1/audit?limit=1000", "/v1/status"] {
            let body = api.get(path).await.ok().to_string();
            assert!(!body.contains(token) && !body.contains("\"token\""), "{path}");
        }
        assert!(!gw.log_text().contains(token));
        for file in ["toolgate.db", "toolgate.db-wal"] {
            let bytes = std::fs::read(gw.folder().join(file)).unwrap_or_default();
            assert!(crate::support::http::find(&bytes, token.as_bytes()).is_none(), "{file}");
        }
        // one's own token, by its digest
        let own =
            json!({ "id": "own", "project": "support", "environment": "production", "sha256": hex(b"my own token") });
        assert!(api.post("/v1/keys", own).await.made().get("token").is_none());
        api.grant("own", "demo", "read").await.ok();
        assert!(works(&gw, "my own token").await);
        let same =
            json!({ "id": "two", "project": "support", "environment": "production", "sha256": hex(b"my own token") });
        api.post("/v1/keys", same).await.refused(400, "invalid_request");
    });
}

#[test]
fn a_rotation_keeps_the_old_token_for_a_while() {
    run(async {
        let (gw, api, _up) = fixture().await;
        let first = api.key("bot").await;
        api.grant("bot", "demo", "read").await.ok();
        let token = |reply: Value| reply["token"].as_str().unwrap().to_owned();
        let rotated = api.act("/v1/keys/bot/rotate").await.ok();
        assert_eq!(rotated["previous_sha256"], hex(first.as_bytes()));
        assert!(rotated["previous_expires"].is_string());
        let second = token(rotated);
        assert!(works(&gw, &first).await && works(&gw, &second).await, "both are alive");
        let third = token(api.post("/v1/keys/bot/rotate", json!({ "overlap": "1h" })).await.ok());
        assert!(!works(&gw, &first).await, "two tokens are alive at most");
        assert!(works(&gw, &second).await && works(&gw, &third).await);
        let fourth = token(api.post("/v1/keys/bot/rotate", json!({ "overlap": "0s" })).await.ok());
        assert!(!works(&gw, &third).await && works(&gw, &fourth).await);
    });
}

#[test]
fn a_revocation_holds_from_the_answer_on() {
    run(async {
        let (gw, api, up) = fixture().await;
        for round in 0..5 {
            let id = format!("bot{round}");
            let token = api.key(&id).await;
            api.grant(&id, "demo", "read").await.ok();
            let busy = client(&gw, &token);
            busy.call("demo_echo", json!({})).await.ok();
            api.act(&format!("/v1/keys/{id}/revoke")).await.ok();
            let seen = up.calls().len();
            // on the connection that is open, and on a new one
            busy.call("demo_echo", json!({})).await.http_refused(401, "authentication_error", None);
            assert!(!works(&gw, &token).await);
            assert_eq!(up.calls().len(), seen);
            api.patch(&format!("/v1/keys/{id}"), json!({ "revoked": false })).await.refused(400, "invalid_request");
            assert_eq!(api.act(&format!("/v1/keys/{id}/revoke")).await.ok()["revoked"], true);
        }
    });
}

#[test]
fn members_of_a_key_can_be_changed() {
    run(async {
        let (gw, api, _up) = fixture().await;
        let token = api.key("bot").await;
        api.grant("bot", "demo", "read").await.ok();
        let call = async || client(&gw, &token).call("demo_echo", json!({})).await;
        api.patch("/v1/keys/bot", json!({ "disabled": true })).await.ok();
        call().await.http_refused(403, "permission_denied", Some("key_disabled"));
        api.patch("/v1/keys/bot", json!({ "disabled": false, "allow_ips": ["10.0.0.0/8"] })).await.ok();
        call().await.http_refused(403, "permission_denied", Some("ip_not_allowed"));
        api.patch("/v1/keys/bot", json!({ "allow_ips": null, "expires": "2020-01-01T00:00:00Z" })).await.ok();
        call().await.http_refused(401, "authentication_error", None);
        let shown = api.patch("/v1/keys/bot", json!({ "expires": null, "rate_limit": "1/hour" })).await.ok();
        assert_eq!((shown["rate_limit"].as_str(), shown.get("expires")), (Some("1/hour"), None));
        call().await.ok();
        call().await.http_refused(429, "rate_limit_exceeded", None);
        // a change of something else gives no token back
        api.patch("/v1/keys/bot", json!({ "environment": "test" })).await.ok();
        call().await.http_refused(429, "rate_limit_exceeded", None);
    });
}
