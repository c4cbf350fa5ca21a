//! OAuth (`auth.issuers`): a token of an issuer is taken for the key that it names; nothing of it shows without an issuer.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::support::{
    answer::Answer,
    client::Client,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Up, Upstream},
};

const RESOURCE: &str = "https://mcp.example.test/gateway";
const ISSUER: &str = "https://login.example.test/";
const METADATA: &str = "https://mcp.example.test/.well-known/oauth-protected-resource/gateway";

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Signs tokens, and says with which keys.
#[derive(Clone)]
struct Issuer {
    key: Arc<EcdsaKeyPair>,
    jwks: Arc<Mutex<String>>,
    address: SocketAddr,
}

impl Issuer {
    async fn run() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let jwks = Arc::new(Mutex::new(String::new()));
        let issuer = Self { key: Arc::new(key), jwks: Arc::clone(&jwks), address: listener.local_addr().unwrap() };
        issuer.publish("one");
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let body = jwks.lock().unwrap().clone();
                tokio::spawn(async move {
                    let mut head = [0u8; 4096];
                    let read = socket.read(&mut head).await.unwrap_or(0);
                    assert!(head[..read].starts_with(b"GET /keys HTTP/1.1\r\n"), "only a GET");
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    let _ = socket.write_all((head + &body).as_bytes()).await;
                    let _ = socket.shutdown().await;
                });
            }
        });
        issuer
    }

    /// From now on the key is called `id`.
    fn publish(&self, id: &str) {
        let point = self.key.public_key().as_ref();
        let jwk = json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": text(&point[1..33]), "y": text(&point[33..]) });
        *self.jwks.lock().unwrap() = json!({ "keys": [jwk] }).to_string();
    }

    fn token(&self, id: &str, azp: &str, more: &Value) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({ "iss": ISSUER, "aud": RESOURCE, "azp": azp, "exp": now + 600 });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let header = json!({ "alg": "ES256", "kid": id, "typ": "JWT" });
        let message = format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", text(signature.as_ref()))
    }

    async fn gateway(&self) -> (Gw, Up) {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let conf = format!(
            "[auth]\nresource = '{RESOURCE}'\nissuers = [{{ issuer = '{ISSUER}', jwks_url = 'http://{}/keys', organization = 'acme', claim = 'azp' }}]",
            self.address
        );
        let other = "id = 'other'\nplan = 'business'\nstatus = 'active'\nsubscription = 'active'";
        let gateway =
            Gateway::new().conf(&conf).server("demo", &up).grant("bot", "demo", Read).key("off", "disabled = true");
        let gateway = gateway.key("gone", "revoked = true").object("organization", other);
        let gateway = gateway.object("project", "id = 'p'\norganization = 'other'").object(
            "key",
            &format!(
                "id = 'foreign'\norganization = 'other'\nproject = 'p'\nenvironment = 'e'\nsha256 = '{}'",
                "a".repeat(64)
            ),
        );
        let gw = gateway.approve_all().run().await;
        gw.until_metric("toolgate_issuer_keys", &[("issuer", ISSUER)], |keys| keys == 1.0).await;
        (gw, up)
    }
}

fn bearing(gw: &Gw, token: &str) -> Client {
    gw.nobody().token(Some(token))
}

#[track_caller]
fn challenged(answer: &Answer) -> String {
    answer.http_refused(401, "authentication_error", None);
    let challenge = answer.header("www-authenticate").expect("a challenge").to_owned();
    assert_eq!(challenge, format!("Bearer resource_metadata=\"{METADATA}\""));
    answer.anonymous()
}

#[test]
fn a_token_of_the_issuer_is_taken_for_the_key_that_it_names() {
    run(async {
        let issuer = Issuer::run().await;
        let (gw, up) = issuer.gateway().await;
        let good = issuer.token("one", "bot", &json!({}));
        for client in [bearing(&gw, &good), bearing(&gw, &good).server("demo"), gw.client("bot")] {
            let answer = client.call(&client.named("demo", "t"), json!({})).await;
            answer.ok();
            assert_eq!(gw.access_line(answer.request_id()).await["key_id"], "bot");
        }
        assert_eq!(up.calls().len(), 3);
        assert!(up.calls().iter().all(|seen| seen.header("authorization").is_none()), "it goes no further");
        assert!(!gw.log_text().contains(&good), "it is in no log");
        bearing(&gw, &issuer.token("one", "off", &json!({}))).rpc("tools/list", json!({})).await.http_refused(
            403,
            "permission_denied",
            Some("key_disabled"),
        );
        let mut bad = vec![
            issuer.token("one", "nobody", &json!({})),
            issuer.token("one", "gone", &json!({})),
            issuer.token("one", "foreign", &json!({})),
            issuer.token("one", "bot", &json!({ "aud": "https://other.test" })),
            issuer.token("one", "bot", &json!({ "exp": 1_000_000_000 })),
            issuer.token("one", "bot", &json!({ "iss": "https://evil.test/" })),
            Issuer::run().await.token("one", "bot", &json!({})),
            "no key at all".to_owned(),
        ];
        let at = good.len() - 20;
        let other = if good[at..].starts_with('A') { "B" } else { "A" };
        bad.push(format!("{}{other}{}", &good[..at], &good[at + 1..]));
        let told: std::collections::BTreeSet<String> = {
            let mut told = std::collections::BTreeSet::new();
            for token in &bad {
                told.insert(challenged(&bearing(&gw, token).call("demo_t", json!({})).await));
            }
            told.insert(challenged(&gw.nobody().call("demo_t", json!({})).await));
            told
        };
        assert_eq!(told.len(), 1, "the same whatever the cause: {told:#?}");
        assert_eq!(up.calls().len(), 3);
        // A key that is revoked ends its tokens.
        gw.reload(gw.policy().edit("key", "bot", "revoked = true")).await;
        challenged(&bearing(&gw, &good).call("demo_t", json!({})).await);
    });
}

#[test]
fn a_new_key_of_the_issuer_is_learnt_when_a_token_names_it() {
    run(async {
        let issuer = Issuer::run().await;
        let (gw, _up) = issuer.gateway().await;
        issuer.publish("two");
        let token = issuer.token("two", "bot", &json!({}));
        challenged(&bearing(&gw, &token).call("demo_t", json!({})).await);
        crate::support::eventually("the new key is taken", async || {
            (bearing(&gw, &token).call("demo_t", json!({})).await.status == 200).then_some(())
        })
        .await;
        challenged(&bearing(&gw, &issuer.token("one", "bot", &json!({}))).call("demo_t", json!({})).await);
    });
}

#[test]
fn clients_are_told_where_to_get_a_token() {
    run(async {
        let issuer = Issuer::run().await;
        let (gw, _up) = issuer.gateway().await;
        for path in ["", "/gateway", "/gateway/mcp", "/gateway/demo/mcp", "/gateway/unknown/mcp"] {
            let client = gw.nobody();
            let request = client.posting("").by("GET").to(&format!("/.well-known/oauth-protected-resource{path}"));
            let answer = client.send(request).await;
            assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{path}");
            let told: Value = serde_json::from_str(&answer.text()).unwrap();
            assert_eq!((&told["resource"], &told["authorization_servers"]), (&json!(RESOURCE), &json!([ISSUER])));
        }
        for (method, path) in [
            ("POST", "/.well-known/oauth-protected-resource"),
            ("GET", "/.well-known/oauth-protected-resources"),
            ("GET", "/.well-known/oauth-authorization-server"),
        ] {
            let client = gw.nobody();
            let answer = client.send(client.posting("").by(method).to(path)).await;
            answer.http_refused(404, "not_found", Some("not_found"));
        }
    });
}
