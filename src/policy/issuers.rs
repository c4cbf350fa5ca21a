//! Issuers of OAuth tokens: their public keys, and whether a token (a JWT) is theirs and for us.
//!
//! Only asymmetric signatures are taken, by `ring`, which the process uses for TLS as well. Time comes in as an argument, the keys
//! through a slot that the background fills: judging a token takes no lock and waits for nobody.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey, Validation,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    dangerous, decode, decode_header,
    errors::{Error, ErrorKind},
    jwk::{JwkSet, PublicKeyUse},
    signature::{Error as SignatureError, Verifier},
};
use ring::signature as ring_signature;
use serde_json::{Map, Value as Json};

use super::live::Slot;
use crate::{conf::TokenIssuer, upstream::target::Target};

/// The longest token that is looked at, in bytes.
pub const TOKEN_BYTES_MAX: usize = 8192;
/// How far the clocks of issuer and gateway may differ, in seconds.
pub const CLOCK_SKEW_SECONDS: i64 = 30;
/// The most keys of one issuer that are held.
pub const ISSUER_KEYS_MAX: usize = 64;

/// An issuer.
#[derive(Debug)]
pub struct Issuer {
    conf: TokenIssuer,
    audience: String,
    /// Where its keys are asked for.
    pub jwks: Arc<Target>,
    keys: Slot<Keys>,
    /// A token named a key that is not held.
    wanted: AtomicBool,
    /// When its keys were asked for last, in milliseconds of the caller's clock; 0: not yet.
    asked_ms: AtomicU64,
    /// When they were last had.
    had_ms: AtomicU64,
}

/// By key id; a key without one is under the empty id.
type Keys = HashMap<String, Vec<PublicKey>>;

#[derive(Debug)]
struct PublicKey {
    key: DecodingKey,
    /// The only algorithm that it may be used with, if it says.
    algorithm: Option<Algorithm>,
}

/// Whom a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The value of the issuer's claim.
    pub key_id: String,
    /// The token is not valid from this moment on, in seconds since 1970.
    pub expires: i64,
}

/// How often keys are asked for anew, in milliseconds.
const REFRESH_MS: u64 = 300_000;
/// The shortest time between two questions to one issuer.
const REPEAT_MS: u64 = 10_000;

impl Issuer {
    /// An issuer none of whose keys is known yet.
    #[must_use]
    pub fn new(conf: TokenIssuer, audience: String, jwks: Arc<Target>) -> Self {
        install();
        let (keys, wanted) = (Slot::new(Keys::new()), AtomicBool::new(false));
        Self { conf, audience, jwks, keys, wanted, asked_ms: AtomicU64::new(0), had_ms: AtomicU64::new(0) }
    }

    /// Whether it is the issuer of that description.
    #[must_use]
    pub fn is_of(&self, conf: &TokenIssuer, audience: &str, jwks: &Target) -> bool {
        self.conf == *conf && self.audience == audience && *self.jwks == *jwks
    }

    /// `iss`
    #[must_use]
    pub fn name(&self) -> &str {
        &self.conf.issuer
    }

    /// The organization whose keys its tokens may stand for.
    #[must_use]
    pub fn organization(&self) -> &str {
        &self.conf.organization
    }

    /// How many of its keys are held.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.keys.load().values().map(Vec::len).sum()
    }

    /// Whether its keys are to be asked for now; says yes once.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let since = |at: &AtomicU64| match at.load(Ordering::Relaxed) {
            0 => u64::MAX,
            at => now_ms.saturating_sub(at),
        };
        let stale = since(&self.had_ms) >= REFRESH_MS || self.wanted.load(Ordering::Relaxed);
        let due = stale && since(&self.asked_ms) >= REPEAT_MS;
        if due {
            self.asked_ms.store(now_ms.max(1), Ordering::Relaxed);
            self.wanted.store(false, Ordering::Relaxed);
        }
        due
    }

    /// Takes its keys over; how many can be used.
    ///
    /// # Errors
    /// What was answered is no set of keys that we can use: those that are held stay.
    pub fn learn(&self, jwks: &[u8], now_ms: u64) -> Result<usize, &'static str> {
        let set: JwkSet = serde_json::from_slice(jwks).map_err(|_| "the answer is no JSON Web Key Set")?;
        let mut keys = Keys::new();
        let usable = set.keys.iter().filter(|jwk| !matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)));
        for jwk in usable.take(ISSUER_KEYS_MAX) {
            let algorithm = jwk.common.key_algorithm.map(Algorithm::try_from).transpose();
            let (Ok(key), Ok(algorithm)) = (DecodingKey::from_jwk(jwk), algorithm) else { continue };
            if key.family() != AlgorithmFamily::Hmac {
                let id = jwk.common.key_id.clone().unwrap_or_default();
                keys.entry(id).or_default().push(PublicKey { key, algorithm });
            }
        }
        let count = keys.values().map(Vec::len).sum();
        if count == 0 {
            return Err("none of its keys can be used");
        }
        self.keys.store(keys);
        self.had_ms.store(now_ms.max(1), Ordering::Relaxed);
        Ok(count)
    }

    /// Whom `token` stands for, if this issuer signed it for us and it is valid now.
    fn judge(&self, token: &[u8], now_unix: i64) -> Option<Subject> {
        let header = decode_header(token).ok()?;
        let keys = self.keys.load();
        let found = keys.get(header.kid.as_deref().unwrap_or_default());
        let Some(found) = found else {
            self.wanted.store(true, Ordering::Relaxed);
            return None;
        };
        let mut validation = Validation::new(header.alg);
        validation.validate_exp = false; // below, by the time that was handed in
        validation.validate_nbf = false;
        validation.set_required_spec_claims(&["iss", "aud", "exp"]);
        validation.set_issuer(&[&self.conf.issuer]);
        validation.set_audience(&[&self.audience]);
        let fits = |public: &&PublicKey| {
            header.alg.family() == public.key.family() && public.algorithm.is_none_or(|only| only == header.alg)
        };
        let claims: Map<String, Json> =
            found.iter().filter(fits).find_map(|public| decode(token, &public.key, &validation).ok())?.claims;
        let seconds = |name: &str| claims.get(name).map(|at| at.as_i64().or_else(|| whole(at.as_f64()?)));
        let expires = seconds("exp")??;
        let begins = seconds("nbf").map_or(Some(i64::MIN), |begins| begins)?;
        let valid = now_unix < expires.saturating_add(CLOCK_SKEW_SECONDS)
            && begins <= now_unix.saturating_add(CLOCK_SKEW_SECONDS);
        let key_id = claims.get(&self.conf.claim)?.as_str()?.to_owned();
        valid.then_some(Subject { key_id, expires: expires.saturating_add(CLOCK_SKEW_SECONDS) })
    }
}

/// What a bearer token turns out to be.
#[derive(Debug)]
pub enum Judged<'i> {
    /// No token of any of the issuers: it may be a key.
    Foreign,
    /// It claims to be an issuer's, and is not valid.
    Invalid,
    /// An issuer's, valid.
    Valid(&'i Issuer, Subject),
}

/// Judges a bearer token.
#[must_use]
pub fn judge<'i>(issuers: &'i [Arc<Issuer>], token: &[u8], now_unix: i64) -> Judged<'i> {
    let looks_so = token.starts_with(b"eyJ") && token.iter().filter(|byte| **byte == b'.').count() == 2;
    if issuers.is_empty() || !looks_so || token.len() > TOKEN_BYTES_MAX {
        return Judged::Foreign;
    }
    // Who it says it is from decides only by whose keys it is verified.
    let Ok(claims) = dangerous::insecure_decode_claims::<Map<String, Json>>(token) else { return Judged::Foreign };
    let named = claims.get("iss").and_then(Json::as_str);
    let Some(issuer) = issuers.iter().find(|issuer| Some(issuer.name()) == named) else { return Judged::Foreign };
    issuer.judge(token, now_unix).map_or(Judged::Invalid, |subject| Judged::Valid(issuer, subject))
}

/// A time that is written with a fraction, cut to whole seconds.
#[allow(clippy::cast_possible_truncation, reason = "bounded by the check before it")]
fn whole(seconds: f64) -> Option<i64> {
    (seconds.abs() < 1e12).then_some(seconds as i64)
}

/// Chooses how signatures are verified, once a process.
fn install() {
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: signs_nothing,
        verifier_factory: verifier,
        key_utils: KeyUtils::new_unimplemented(),
    };
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let _ = PROVIDER.install_default(); // Err: somebody chose already
    });
}

fn signs_nothing(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    if algorithm.family() != key.family() || algorithm.family() == AlgorithmFamily::Hmac {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Ring { algorithm: *algorithm, key: key.clone() }))
}

/// Verifies with `ring`.
struct Ring {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Ring {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let rsa: &'static ring_signature::RsaParameters = match self.algorithm {
            Algorithm::RS256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::RS384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::RS512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::PS256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::PS384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::PS512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::ES256 => return self.plain(&ring_signature::ECDSA_P256_SHA256_FIXED, message, signature),
            Algorithm::ES384 => return self.plain(&ring_signature::ECDSA_P384_SHA384_FIXED, message, signature),
            Algorithm::EdDSA => return self.plain(&ring_signature::ED25519, message, signature),
            _ => return Err(SignatureError::new()),
        };
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(rsa, message, signature).map_err(|_| SignatureError::new())
            }
            DecodingKeyKind::SecretOrDer(_) => self.plain(rsa, message, signature),
        }
    }
}

impl Ring {
    fn plain(
        &self,
        algorithm: &'static dyn ring_signature::VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureError> {
        let key = self.key.try_get_as_bytes().map_err(|_| SignatureError::new())?;
        let key = ring_signature::UnparsedPublicKey::new(algorithm, key);
        key.verify(message, signature).map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for Ring {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests;
