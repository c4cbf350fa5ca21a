//! What the gateway needs to know of a server to speak to it: where, with which credential, over which TLS.
//!
//! Built by the control plane from the policy and the secrets, read by the data path and by side calls.
//! Knows no policy object.
//!
//! **Invariant.** No `Debug`, error text or fingerprint of this room gives a credential away.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::egress::{EgressRules, Endpoint};

/// The most headers of one credential (contract §9).
pub const CREDENTIAL_HEADERS_MAX: usize = 8;
/// The longest name of one credential header, in bytes.
pub const CREDENTIAL_NAME_BYTES_MAX: usize = 128;
/// The longest value of one credential header, in bytes.
pub const CREDENTIAL_VALUE_BYTES_MAX: usize = 8192;

/// How to verify a private server, and how to prove who we are. The default is the platform's roots and no certificate of ours.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsOptions {
    /// `ca`: a PEM bundle that replaces the platform's roots.
    pub ca_pem: Option<Vec<u8>>,
    /// `client_certificate` and `client_key`, both PEM.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("private_ca", &self.ca_pem.is_some())
            .field("client_certificate", &self.identity_pem.is_some())
            .finish()
    }
}

/// The headers that carry the credential we hold, checked. Clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential(Arc<[(HeaderName, HeaderValue)]>);

/// Why a credential is refused: `invalid_mcp_credential` (contract §9). The text never repeats a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CredentialFault {
    /// More than [`CREDENTIAL_HEADERS_MAX`] headers.
    #[error("a credential has at most 8 headers")]
    TooMany,
    /// Not a header name.
    #[error("credential header {position}: not a valid header name")]
    Name {
        /// Which one, counted from 1.
        position: usize,
    },
    /// The gateway or the protocol owns this header.
    #[error("the header `{name}` is reserved and cannot carry a credential")]
    Reserved {
        /// The header's name in lower case.
        name: String,
    },
    /// The same header twice.
    #[error("the header `{name}` is given twice")]
    Twice {
        /// The header's name in lower case.
        name: String,
    },
    /// Empty, too long, or with bytes that a header cannot carry.
    #[error(
        "the value of the header `{name}` is empty, longer than 8192 bytes, or holds characters that a header cannot carry"
    )]
    Value {
        /// The header's name in lower case.
        name: String,
    },
}

impl Credential {
    /// Checks the headers of a credential. `own_prefix` is `attribution.prefix`; its headers are ours.
    ///
    /// # Errors
    /// [`CredentialFault`]
    pub fn new<'h>(
        headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
        own_prefix: &str,
    ) -> Result<Self, CredentialFault> {
        let mut checked: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (index, (name, value)) in headers.into_iter().enumerate() {
            if index == CREDENTIAL_HEADERS_MAX {
                return Err(CredentialFault::TooMany);
            }
            let header = HeaderName::from_bytes(name.as_bytes())
                .ok()
                .filter(|header| header.as_str().len() <= CREDENTIAL_NAME_BYTES_MAX)
                .ok_or(CredentialFault::Name { position: index + 1 })?;
            let name = header.as_str().to_owned();
            if is_reserved(&name, own_prefix) {
                return Err(CredentialFault::Reserved { name });
            }
            if checked.iter().any(|(other, _)| *other == header) {
                return Err(CredentialFault::Twice { name });
            }
            let usable = !value.is_empty()
                && value.len() <= CREDENTIAL_VALUE_BYTES_MAX
                && value.first() != Some(&b' ')
                && value.last() != Some(&b' ')
                && value.iter().all(|byte| matches!(byte, 0x20..=0x7e | 0x80..));
            let Some(mut value) = usable.then(|| HeaderValue::from_bytes(value).ok()).flatten() else {
                return Err(CredentialFault::Value { name });
            };
            value.set_sensitive(true);
            checked.push((header, value));
        }
        Ok(Self(checked.into()))
    }

    /// The headers, in the order given.
    #[must_use]
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0
    }

    /// SHA-256 over names and values: tells credentials apart without showing them.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (name, value) in self.0.iter() {
            for part in [name.as_str().as_bytes(), value.as_bytes()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        hash.finalize().into()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.iter().map(|(name, _)| (name.as_str(), "[credential]"))).finish()
    }
}

/// Headers that the gateway, HTTP or MCP own (security 1.8). `Cookie` may carry a credential.
#[must_use]
pub fn is_reserved(name: &str, own_prefix: &str) -> bool {
    const NAMES: [&str; 19] = [
        "accept",
        "accept-encoding",
        "baggage",
        "connection",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "last-event-id",
        "origin",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-real-ip",
        "x-request-id",
    ];
    const PREFIXES: [&str; 5] = ["content-", "mcp-", "proxy-", "x-forwarded-", "x-toolgate-"];
    let name = name.to_ascii_lowercase();
    let own_prefix = own_prefix.to_ascii_lowercase();
    NAMES.contains(&name.as_str())
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || (!own_prefix.is_empty() && name.starts_with(&own_prefix))
}

/// A server as the gateway's own client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The judged URL.
    pub endpoint: Endpoint,
    /// The rules by which every address is judged again at connect time.
    pub rules: Arc<EgressRules>,
    /// The credential that we hold.
    pub credential: Credential,
    /// TLS options.
    pub tls: Arc<TlsOptions>,
    /// `timeouts.connect`: TCP and TLS.
    pub connect_timeout: Duration,
    /// Wall clock of one side call, to the last byte of its answer.
    pub timeout: Duration,
    /// Speak HTTP/2: by negotiation over TLS, by prior knowledge without.
    pub http2: bool,
}

/// Splits a PEM bundle into its certificates.
///
/// # Errors
/// When it holds none, or one that cannot be read.
pub fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadPem> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| BadPem)?;
    if found.is_empty() { Err(BadPem) } else { Ok(found) }
}

/// A certificate or key file that is not usable PEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the certificate or key is not usable PEM")]
pub struct BadPem;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    #[test]
    fn reserved_and_bad_headers_carry_no_credential() {
        let check = |name: &str, value: &[u8], passes: bool| {
            assert_eq!(Credential::new([(name, value)], "X-Acme-").is_ok(), passes, "{name}: {value:?}");
        };
        for name in ["Authorization", "X-Api-Key", "Cookie", "api-key", "X-Acme"] {
            check(name, b"secret", true);
        }
        for name in [
            "Host",
            "Content-Type",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "Proxy-Authorization",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Accept",
            "Accept-Encoding",
            "Origin",
            "Mcp-Session-Id",
            "Mcp-Anything",
            "MCP-Protocol-Version",
            "Last-Event-ID",
            "Forwarded",
            "X-Forwarded-For",
            "X-Real-IP",
            "traceparent",
            "tracestate",
            "baggage",
            "X-Acme-User",
            "X-Toolgate-User",
            "",
            "a b",
            "a:",
            "a\r\nb",
            "é",
        ] {
            check(name, b"secret", false);
        }
        for value in [&b""[..], b" a", b"a ", b"a\r\nX: y", b"a\0", b"a\tb", b"\x7f"] {
            check("Authorization", value, false);
        }
        check("Authorization", &[b'a'; CREDENTIAL_VALUE_BYTES_MAX], true);
        check("Authorization", &[b'a'; CREDENTIAL_VALUE_BYTES_MAX + 1], false);
        check("Authorization", "Bearer \u{e9}".as_bytes(), true);
        check(&"x".repeat(CREDENTIAL_NAME_BYTES_MAX), b"secret", true);
        check(&"x".repeat(CREDENTIAL_NAME_BYTES_MAX + 1), b"secret", false);
    }

    #[test]
    fn at_most_eight_headers_and_none_twice() {
        let names: Vec<String> = (0..=CREDENTIAL_HEADERS_MAX).map(|n| format!("x-{n}")).collect();
        let take = |n: usize| Credential::new(names.iter().take(n).map(|name| (name.as_str(), &b"v"[..])), "");
        assert_eq!(take(CREDENTIAL_HEADERS_MAX).unwrap().headers().len(), CREDENTIAL_HEADERS_MAX);
        assert_eq!(take(CREDENTIAL_HEADERS_MAX + 1), Err(CredentialFault::TooMany));
        let twice = Credential::new([("X-Key", &b"a"[..]), ("x-key", &b"b"[..])], "");
        assert_eq!(twice, Err(CredentialFault::Twice { name: "x-key".into() }));
    }

    #[test]
    fn a_credential_never_shows_itself() {
        let secret = Credential::new([("Authorization", &b"Bearer canary-1"[..])], "").unwrap();
        let shown = format!("{secret:?} {:?}", secret.headers());
        assert!(!shown.contains("canary"), "{shown}");
        let fault = Credential::new([("Authorization", &b"canary\n"[..])], "").unwrap_err().to_string();
        assert!(!fault.contains("canary"), "{fault}");
        let tls = TlsOptions { ca_pem: None, identity_pem: Some((b"canary".to_vec(), b"canary".to_vec())) };
        assert!(!format!("{tls:?}").contains("canary"));
        let target = super::super::mock::target("https://127.0.0.1:1/mcp?key=canary");
        let target = Target { tls: Arc::new(tls), ..target };
        assert!(!format!("{target:?}").contains("canary"), "{target:?}");
    }

    #[test]
    fn fingerprints_tell_credentials_apart() {
        let of = |list: &[(&str, &str)]| {
            Credential::new(list.iter().map(|(n, v)| (*n, v.as_bytes())), "").unwrap().fingerprint()
        };
        assert_eq!(of(&[("A", "b")]), of(&[("a", "b")]));
        let all = [of(&[]), of(&[("a", "b")]), of(&[("a", "c")]), of(&[("a", "b"), ("c", "d")]), of(&[("ab", "c")])];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn bad_pem_is_told_from_good() {
        assert_eq!(read_certificates(b""), Err(BadPem));
        assert_eq!(read_certificates(b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"), Err(BadPem));
        let made = rcgen::generate_simple_self_signed(vec!["h.example".into()]).unwrap();
        assert_eq!(read_certificates(made.cert.pem().as_bytes()).unwrap().len(), 1);
    }
}
