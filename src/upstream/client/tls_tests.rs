//! Tests of the client over TLS: whom it believes, and how it proves who it is. Never falls back to unverified.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::mpsc,
};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};

use super::{
    super::{mock::target, target::TlsOptions},
    *,
};
use crate::model::mcp::Revision;

/// A private authority.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
struct Identity {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a private authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        Arc::new(roots)
    }
}

/// What the server saw of a connection.
#[derive(Debug, PartialEq)]
struct Met {
    alpn: Option<String>,
    sni: Option<String>,
    client_certificate: bool,
}

/// A server for one connection; says what it met once it has answered. `clients`: whose certificates it demands.
fn serve(identity: &Identity, clients: Option<&Authority>) -> (u16, mpsc::Receiver<Met>) {
    install_crypto();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
    let builder = match clients {
        Some(authority) => ServerConfig::builder()
            .with_client_cert_verifier(WebPkiClientVerifier::builder(authority.roots()).build().unwrap()),
        None => ServerConfig::builder().with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(vec![identity.certificate.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (met, meeting) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let mut head = Vec::new();
        while !head.ends_with(b"{}") {
            let mut piece = [0; 1024];
            match tls.read(&mut piece)? {
                0 => break,
                n => head.extend_from_slice(&piece[..n]),
            }
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let _ = met.send(Met {
            alpn: tls.conn.alpn_protocol().map(text),
            sni: tls.conn.server_name().map(str::to_owned),
            client_certificate: tls.conn.peer_certificates().is_some(),
        });
        tls.write_all(b"HTTP/1.1 202 X\r\nContent-Length: 0\r\n\r\n")?;
        tls.flush()
    });
    (port, meeting)
}

async fn call(port: u16, tls: TlsOptions) -> Result<u16, ClientError> {
    let client = Client::new(Resolver::table([("h.example".to_owned(), vec![[127, 0, 0, 1].into()])]));
    let target = Target { tls: Arc::new(tls), ..target(&format!("https://h.example:{port}/mcp")) };
    let headers = Headers {
        revision: Some(Revision::MODERN),
        method: "tools/list",
        name: None,
        params: &[],
        session: None,
        credential: target.credential.headers(),
    };
    let limits = Limits { body_bytes_max: 1000, timeout: Duration::from_secs(10) };
    Ok(client.post(&target, &headers, b"{}".to_vec(), limits).await?.status)
}

fn trusting(authority: &Authority) -> TlsOptions {
    TlsOptions { ca_pem: Some(authority.certificate.pem().into_bytes()), identity_pem: None }
}

#[tokio::test]
async fn a_private_authority_vouches_for_its_servers() {
    let authority = Authority::new();
    let (port, met) = serve(&authority.issue("h.example", |_| {}), None);
    assert_eq!(call(port, trusting(&authority)).await, Ok(202));
    let expected = Met { alpn: Some("http/1.1".into()), sni: Some("h.example".into()), client_certificate: false };
    assert_eq!(met.recv().unwrap(), expected);
}

#[tokio::test]
async fn a_certificate_that_does_not_verify_gets_no_credential() {
    let authority = Authority::new();
    let check = async |identity: Identity, what: &str| {
        let (port, met) = serve(&identity, None);
        assert_eq!(call(port, trusting(&authority)).await, Err(ClientError::Tls), "{what}");
        assert!(met.recv().is_err(), "{what}: no request was read");
    };
    check(authority.issue("other.example", |_| {}), "another name").await;
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    check(authority.issue("h.example", expired), "expired").await;
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 1, 1);
    check(authority.issue("h.example", early), "not valid yet").await;
    check(Authority::new().issue("h.example", |_| {}), "another authority").await;
    let (port, met) = serve(&authority.issue("h.example", |_| {}), None);
    let platform = call(port, TlsOptions::default()).await;
    assert!(
        matches!(platform, Err(ClientError::Tls | ClientError::Setup)),
        "the platform does not know it: {platform:?}"
    );
    assert!(met.recv().is_err());
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_demanded() {
    let authority = Authority::new();
    let ours = authority.issue("toolgate", |_| {});
    let pem = (ours.certificate.pem().into_bytes(), ours.key.serialize_pem().into_bytes());
    let (port, met) = serve(&authority.issue("h.example", |_| {}), Some(&authority));
    let with = TlsOptions { identity_pem: Some(pem), ..trusting(&authority) };
    assert_eq!(call(port, with).await, Ok(202));
    assert!(met.recv().unwrap().client_certificate);
    let (port, met) = serve(&authority.issue("h.example", |_| {}), Some(&authority));
    let without = call(port, trusting(&authority)).await;
    assert!(matches!(without, Err(ClientError::Tls | ClientError::Interrupted)), "{without:?}");
    assert!(met.recv().is_err());
    let broken = TlsOptions { identity_pem: Some((b"x".to_vec(), b"y".to_vec())), ..trusting(&authority) };
    assert_eq!(call(1, broken).await, Err(ClientError::Setup));
}

#[tokio::test]
async fn targets_with_other_tls_share_no_connection() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (port, _met) = serve(&ours.issue("h.example", |_| {}), None);
    let client = Client::new(Resolver::table([]));
    let base = target(&format!("https://127.0.0.1:{port}/mcp"));
    for tls in [trusting(&ours), trusting(&theirs), TlsOptions::default(), trusting(&ours)] {
        let _ = client.pool(&Target { tls: Arc::new(tls), ..base.clone() }).await;
    }
    let pools = client.pools.lock().await.len();
    assert!((2..=3).contains(&pools), "two private authorities, and the platform's where there is one: {pools}");
}
