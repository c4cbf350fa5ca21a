//! TLS listeners: certificates are changed by a reload, without a restart and without a failed call.

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::CertificateDer};
use serde_json::json;
use tokio::net::TcpStream;

use super::{
    load::{Load, Uses},
    reload::agree,
};
use crate::support::{
    client::{Client, Target},
    gateway::{Gateway, Gw, Reloaded, token},
    policy::Access::Read,
    run,
    tls::{Identity, Leaf},
    upstream::{Up, Upstream},
};

/// `make test-life` says more.
fn changes() -> usize {
    super::count("CERTIFICATES", 5)
}

async fn gateway(identity: &Identity) -> (Gw, Up) {
    let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
    let gateway = Gateway::new().tls(identity).server("demo", &up).grant("ann", "demo", Read);
    (gateway.approve_all().run().await, up)
}

/// A client of the gateway with other TLS settings.
fn client(gw: &Gw, tls: &Arc<ClientConfig>) -> Client {
    Client::new(Target { tls: Some(Arc::clone(tls)), ..gw.target().clone() }, Some(token("ann")))
}

fn write(gw: &Gw, certificate: &str, key: &str) {
    std::fs::write(gw.folder().join("gateway.pem"), certificate).unwrap();
    std::fs::write(gw.folder().join("gateway.key"), key).unwrap();
}

/// The certificate and the protocol that a new connection gets.
async fn shown(gw: &Gw, tls: &Arc<ClientConfig>, alpn: &[&str]) -> (CertificateDer<'static>, String) {
    let mut config = (**tls).clone();
    // a resumed session is shown nothing
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let tcp = TcpStream::connect(gw.target().address).await.unwrap();
    let name = gw.target().address.ip().into();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    let session = stream.get_ref().1;
    let protocol = String::from_utf8_lossy(session.alpn_protocol().unwrap_or_default()).into_owned();
    (session.peer_certificates().unwrap()[0].clone().into_owned(), protocol)
}

#[test]
fn certificates_change_under_load_without_a_failed_call() {
    run(async {
        let identities: Vec<Identity> = (0..4).map(|_| Identity::new(Leaf::Good)).collect();
        let (gw, up) = gateway(&identities[0]).await;
        let tls = Identity::client_of(&identities, None);
        let uses = [Uses::Kept, Uses::Fresh, Uses::Fresh, Uses::Http2];
        let clients = uses.map(|uses| match uses {
            Uses::Http2 => (client(&gw, &tls).http2(), uses),
            _ => (client(&gw, &tls), uses),
        });
        let load = Load::start(clients, &["demo_echo"]);
        up.until_calls(10).await;
        for n in 1..=changes() {
            let identity = &identities[n % identities.len()];
            write(&gw, &identity.certificate_pem, &identity.key_pem);
            assert_eq!(gw.hang_up().await, Reloaded::Applied, "{}", gw.log_text());
            assert_eq!(shown(&gw, &tls, &[]).await.0, *identity.leaf(), "change {n}");
        }
        let called = up.calls().len();
        up.until_calls(called + 4).await;
        let answers = load.stop().await;
        for (_, answer) in &answers {
            answer.ok();
        }
        agree(&gw, &answers).await;
    });
}

#[test]
fn http2_is_settled_by_alpn() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let (gw, _up) = gateway(&identity).await;
        let tls = Identity::client_of(std::slice::from_ref(&identity), None);
        for (offered, settled) in [
            (&["h2", "http/1.1"] as &[&str], "h2"),
            (&["http/1.1", "h2"], "h2"),
            (&["http/1.1"], "http/1.1"),
            (&[], ""),
        ] {
            assert_eq!(shown(&gw, &tls, offered).await.1, settled, "{offered:?}");
        }
    });
}

#[test]
fn a_pair_that_does_not_fit_rejects_the_reload_and_changes_nothing() {
    run(async {
        let (good, other) = (Identity::new(Leaf::Good), Identity::new(Leaf::Good));
        let (gw, _up) = gateway(&good).await;
        let tls = Identity::client_of(&[good.clone(), other.clone()], None);
        let rows: [(&str, &str, &str, &str); 6] = [
            ("the key of another", &good.certificate_pem, &other.key_pem, "gateway.key: not the key of"),
            ("only one file replaced", &other.certificate_pem, &good.key_pem, "gateway.key: not the key of"),
            ("an empty certificate", "", &good.key_pem, "gateway.pem: no certificate"),
            ("no PEM", "certificate", &good.key_pem, "gateway.pem: no certificate"),
            ("no key", &good.certificate_pem, &good.certificate_pem, "gateway.key: no private key"),
            ("a cut certificate", &good.certificate_pem[..100], &good.key_pem, "gateway.pem: no certificate"),
        ];
        let before = gw.policy();
        for (what, certificate, key, word) in rows {
            write(&gw, certificate, key);
            let mut policy = before.clone();
            policy.edit("key", "ann", "disabled = true");
            assert_eq!(gw.reload(&policy).await, Reloaded::Rejected, "{what}");
            assert!(gw.log_text().contains(word), "{what}: {word} in {}", gw.log_text());
            assert_eq!(shown(&gw, &tls, &[]).await.0, *good.leaf(), "{what}");
            client(&gw, &tls).call("demo_echo", json!({})).await.ok();
        }
        std::fs::remove_file(gw.folder().join("gateway.key")).unwrap();
        assert_eq!(gw.hang_up().await, Reloaded::Rejected, "a file that is gone");
        write(&gw, &other.certificate_pem, &other.key_pem);
        assert_eq!(gw.reload(&before).await, Reloaded::Applied);
        assert_eq!(shown(&gw, &tls, &[]).await.0, *other.leaf());
        client(&gw, &tls).call("demo_echo", json!({})).await.ok();
        let log = gw.log_text();
        assert!(log.lines().any(|line| line.contains("\"reloaded\"") && line.contains("gateway.pem")), "{log}");
        assert!(!log.contains("PRIVATE KEY"), "no key material in the log");
    });
}

#[test]
fn a_listener_without_a_usable_certificate_does_not_start() {
    run(async {
        let (good, other) = (Identity::new(Leaf::Good), Identity::new(Leaf::Good));
        for (key, word) in [(other.key_pem.as_str(), "not the key of"), ("", "no private key")] {
            let gw = Gateway::new().tls(&good).file("gateway.key", key).start();
            assert_eq!(gw.until_ended().await, Some(78), "{}", gw.log_text());
            assert!(gw.log_text().contains(word), "{}", gw.log_text());
        }
    });
}

#[test]
fn expiry_is_a_metric_and_a_warning() {
    run(async {
        let (good, expired) = (Identity::new(Leaf::Good), Identity::new(Leaf::Expired));
        let (gw, _up) = gateway(&good).await;
        let file = gw.folder().join("gateway.pem").display().to_string();
        let name = "toolgate_certificate_expiry_timestamp_seconds";
        let expiry = async || gw.metrics().await.sum(name, &[("certificate", &file)]);
        assert!(expiry().await > 4_000_000_000.0, "{}", expiry().await);
        assert!(!gw.log_text().contains("expired"), "{}", gw.log_text());
        write(&gw, &expired.certificate_pem, &expired.key_pem);
        assert_eq!(gw.hang_up().await, Reloaded::Applied);
        assert_eq!(expiry().await, 1_009_843_200.0, "2002-01-01");
        assert!(gw.log_text().contains("this certificate has expired"), "{}", gw.log_text());
    });
}

#[test]
fn with_client_ca_only_clients_with_a_certificate_come_in() {
    run(async {
        let (own, clients, stranger) =
            (Identity::new(Leaf::Good), Identity::new(Leaf::Good), Identity::new(Leaf::Good));
        let gateway = Gateway::new().tls(&own).file("clients.pem", &clients.ca_pem);
        let listen = crate::support::free_port();
        let gateway = gateway.conf(&format!(
            "[gateway]\nlisten = [{{ address = '127.0.0.1:{listen}', tls = {{ certificate = 'gateway.pem', key = 'gateway.key', client_ca = 'clients.pem' }} }}]"
        ));
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = gateway.server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        let address = ([127, 0, 0, 1], listen).into();
        let ask = async |shows: Option<&Identity>| {
            let tls = Some(Identity::client_of(std::slice::from_ref(&own), shows));
            let client = Client::new(Target { address, tls, ..gw.target().clone() }, Some(token("ann"))).fresh();
            let mut connection = client.connect().await.ok()?;
            let request = client.calling("demo_echo", "{}");
            connection.write(&request.bytes()).await.ok()?;
            Some(connection.exchange(request.asked).finish().await.0).filter(|answer| answer.status != 0)
        };
        ask(Some(&clients)).await.expect("a client with a certificate").ok();
        assert!(ask(None).await.is_none(), "no certificate");
        assert!(ask(Some(&stranger)).await.is_none(), "a certificate of somebody else's");
        assert_eq!(up.calls().len(), 1);
    });
}
