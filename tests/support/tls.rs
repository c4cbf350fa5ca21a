//! Certificates made for the run, and the TLS settings of the mock server and the client.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// A certificate authority and a leaf that it signed.
#[derive(Clone)]
pub struct Identity {
    /// The authority, as PEM.
    pub ca_pem: String,
    /// The leaf, as PEM.
    pub certificate_pem: String,
    /// The leaf's key, as PEM.
    pub key_pem: String,
    ca: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    key: Vec<u8>,
}

/// What may be wrong with a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Nothing.
    Good,
    /// It is for another name.
    WrongName,
    /// It expired long ago.
    Expired,
}

impl Identity {
    /// Makes an authority and a leaf for 127.0.0.1.
    pub fn new(leaf: Leaf) -> Self {
        let mut authority = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "Toolgate test authority");
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("an authority");

        let name = if leaf == Leaf::WrongName { "other.test" } else { "127.0.0.1" };
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "Toolgate test server");
        if leaf == Leaf::Expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &authority).expect("a leaf");
        Self {
            ca_pem: authority.as_ref().pem(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            ca: authority.as_ref().der().clone(),
            leaf: certificate.der().clone(),
            key: key.serialize_der(),
        }
    }

    /// Settings of a server that shows the leaf and speaks `alpn`.
    pub fn server(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.leaf.clone()], key)
            .expect("a certificate");
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// The leaf.
    pub fn leaf(&self) -> &CertificateDer<'static> {
        &self.leaf
    }

    /// Settings of a client that trusts the authorities of all of these; it shows the leaf of `own`, if there is one.
    pub fn client_of(all: &[Self], own: Option<&Self>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for identity in all {
            roots.add(identity.ca.clone()).expect("an authority");
        }
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.key.clone()));
                builder.with_client_auth_cert(vec![own.leaf.clone()], key).expect("a certificate")
            }
        })
    }

    /// Settings of a client that trusts the authority and speaks `alpn`.
    pub fn client(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).expect("an authority");
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
