//! The certificates of the TLS listeners: read at the start and with each reload, shown by their newest state to each new connection.
//!
//! A reload reads them before it takes anything, so that a certificate without its key, or one of two files that are being replaced,
//! rejects the reload as a faulty policy does; what is shown stays. Connections that stand keep what they were shown.

use std::{fs, path::Path, sync::Arc};

use pingora::listeners::tls::TlsSettings;
use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};

use crate::{
    conf::{Address, Conf, Tls},
    policy::live::Slot,
};

/// The identities of all TLS listeners, in the order of the conf.
#[derive(Debug, Default)]
pub(super) struct Identities(Vec<Identity>);

/// One listener's.
#[derive(Debug)]
struct Identity {
    address: String,
    files: Tls,
    shown: Arc<Shown>,
}

/// What was read of all listeners and is not shown yet.
pub(super) struct Fresh(Vec<Pair>);

/// A certificate chain with its key, which fit.
#[derive(Clone, Debug)]
struct Pair {
    key: Arc<CertifiedKey>,
    /// When the first certificate of the chain ends, in seconds since 1970.
    expires: i64,
}

/// What new connections are shown.
#[derive(Debug)]
struct Shown(Slot<Pair>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().key))
    }
}

impl Identities {
    /// Reads every certificate and key of the conf.
    ///
    /// # Errors
    /// What is wrong with the first one, with its listener and file.
    pub(super) fn read(conf: &Conf) -> Result<Self, String> {
        let mut all = Vec::new();
        for listen in &conf.gateway.listen {
            let Some(files) = &listen.tls else { continue };
            let address = listen.address.to_string();
            let pair = read_pair(files).map_err(|why| at(&address, &why))?;
            all.push(Identity { address, files: files.clone(), shown: Arc::new(Shown(Slot::new(pair))) });
        }
        Ok(Self(all))
    }

    /// Reads every file anew; shows nothing of it yet.
    ///
    /// # Errors
    /// As [`Identities::read`].
    pub(super) fn read_again(&self) -> Result<Fresh, String> {
        let read = |identity: &Identity| read_pair(&identity.files).map_err(|why| at(&identity.address, &why));
        self.0.iter().map(read).collect::<Result<_, _>>().map(Fresh)
    }

    /// Shows what was read to connections from now on; gives the files whose certificate is another one than before.
    pub(super) fn show(&self, fresh: Fresh) -> Vec<String> {
        let mut changed = Vec::new();
        for (identity, pair) in self.0.iter().zip(fresh.0) {
            if identity.shown.0.load().key.cert != pair.key.cert {
                changed.push(identity.files.certificate.display().to_string());
            }
            identity.shown.0.store(pair);
        }
        changed
    }

    /// Each certificate's file, and when it ends in seconds since 1970.
    pub(super) fn expiries(&self) -> impl Iterator<Item = (String, i64)> {
        self.0
            .iter()
            .map(|identity| (identity.files.certificate.display().to_string(), identity.shown.0.load().expires))
    }

    /// Pingora's settings of the listener at `address`: TLS 1.2 and 1.3, HTTP/2 by ALPN.
    ///
    /// # Errors
    /// What is wrong with its `client_ca`.
    pub(super) fn settings(&self, address: &Address) -> Result<Option<TlsSettings>, String> {
        let address = address.to_string();
        let Some(identity) = self.0.iter().find(|identity| identity.address == address) else { return Ok(None) };
        let unusable = || at(&address, "the listener cannot be set up");
        let mut settings = TlsSettings::intermediate("", "").map_err(|_| unusable())?;
        settings.set_cert_resolver(Arc::clone(&identity.shown) as Arc<dyn ResolvesServerCert>);
        settings.enable_h2();
        if let Some(path) = &identity.files.client_ca {
            let roots = read_roots(path).map_err(|why| at(&address, &why))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()));
            settings.set_client_cert_verifier(verifier.build().map_err(|_| unusable())?);
        }
        Ok(Some(settings))
    }
}

/// Says what an operator should know of certificates that could be read: those that ended, or that end soon.
pub(super) fn warn_of_expiry(identities: &Identities) {
    const SOON_DAYS: i64 = 14;
    let now = jiff::Timestamp::now().as_second();
    for (certificate, expires) in identities.expiries() {
        match expires - now {
            left @ ..=0 => tracing::warn!(certificate, days = -left / 86_400, "this certificate has expired"),
            left if left < SOON_DAYS * 86_400 => {
                tracing::warn!(certificate, days = left / 86_400, "this certificate expires soon");
            }
            _ => {}
        }
    }
}

fn at(address: &str, why: &str) -> String {
    format!("gateway.listen: {address}: tls: {why}")
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

fn read_pair(files: &Tls) -> Result<Pair, String> {
    let (certificate, key) = (files.certificate.display(), files.key.display());
    let chain = read_chain(&files.certificate)?;
    let expires = chain.first().and_then(expiry).ok_or_else(|| format!("{certificate}: no X.509 certificate"))?;
    let pem = fs::read(&files.key).map_err(|why| format!("{key}: {why}"))?;
    let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| format!("{key}: no private key in PEM"))?;
    let pair = CertifiedKey::from_der(chain, secret, &provider()).map_err(|why| match why {
        rustls::Error::InconsistentKeys(_) => format!("{key}: not the key of {certificate}"),
        _ => format!("{key}: a key that cannot be used"),
    })?;
    Ok(Pair { key: Arc::new(pair), expires })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = fs::read(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(format!("{}: no certificate in PEM", path.display())),
    }
}

fn read_roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(path)? {
        roots.add(certificate).map_err(|_| format!("{}: no X.509 certificate", path.display()))?;
    }
    Ok(roots)
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
