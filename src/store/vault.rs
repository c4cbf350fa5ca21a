//! Credentials of users, as the store keeps them: sealed with a key that the store does not hold (`store.key`).
//!
//! AES-256-GCM under SHA-256 of the key's bytes; whose credential it is and for which server is bound in, so that a row that is
//! moved to another user opens nothing. A pure codec: knows no table.

use std::fmt;

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{Aead, Payload},
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The fewest bytes that `store.key` may have: what `openssl rand -base64 32` prints is enough, a password is not.
pub const KEY_BYTES_MIN: usize = 32;

/// Marks what was sealed here, and its format.
const PREFIX: &str = "tgc1.";
const NONCE_BYTES: usize = 12;

/// Header names and values of a credential.
pub type Headers = Vec<(String, Vec<u8>)>;

/// Seals and opens.
#[derive(Clone)]
pub struct Vault {
    cipher: Aes256Gcm,
    fingerprint: [u8; 32],
}

/// Whose credential it is, and for which server.
#[derive(Clone, Copy, Debug)]
pub struct Place<'p> {
    /// The server's organization.
    pub organization: &'p str,
    /// The server's slug.
    pub server: &'p str,
    /// The user.
    pub user: &'p str,
}

/// Why something cannot be sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VaultFault {
    /// The key is shorter than [`KEY_BYTES_MIN`].
    #[error("it is shorter than 32 bytes")]
    Weak,
    /// Not sealed with this key for this user and server.
    #[error("it was not sealed with this key, or not for this user and server")]
    Foreign,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// A vault of that key.
    ///
    /// # Errors
    /// [`VaultFault::Weak`]
    pub fn new(key: &[u8]) -> Result<Self, VaultFault> {
        if key.len() < KEY_BYTES_MIN {
            return Err(VaultFault::Weak);
        }
        let digest = |role: &[u8]| -> [u8; 32] { Sha256::new().chain_update(role).chain_update(key).finalize().into() };
        let derived = digest(b"toolgate credentials of users: cipher\0");
        Ok(Self {
            cipher: Aes256Gcm::new(&derived.into()),
            fingerprint: digest(b"toolgate credentials of users: name\0"),
        })
    }

    /// Tells keys apart without showing them.
    #[must_use]
    pub const fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Seals a credential.
    ///
    /// # Errors
    /// [`VaultFault::Foreign`]: the cipher failed.
    pub fn seal(&self, place: Place<'_>, headers: &Headers) -> Result<String, VaultFault> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let mut plain = Vec::new();
        for part in headers.iter().flat_map(|(name, value)| [name.as_bytes(), value]) {
            put(&mut plain, part);
        }
        let sealed = self.cipher.encrypt(&nonce.into(), Payload { msg: &plain, aad: &bound(place) });
        let mut packed = nonce.to_vec();
        packed.extend_from_slice(&sealed.map_err(|_| VaultFault::Foreign)?);
        Ok(format!("{PREFIX}{}", STANDARD_NO_PAD.encode(packed)))
    }

    /// Opens what [`Self::seal`] gave for the same place.
    ///
    /// # Errors
    /// [`VaultFault::Foreign`]
    pub fn open(&self, place: Place<'_>, sealed: &str) -> Result<Headers, VaultFault> {
        let opened = || -> Option<Headers> {
            let packed = STANDARD_NO_PAD.decode(sealed.strip_prefix(PREFIX)?).ok()?;
            let (nonce, sealed) = packed.split_at_checked(NONCE_BYTES)?;
            let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
            let plain = self.cipher.decrypt(&nonce.into(), Payload { msg: sealed, aad: &bound(place) }).ok()?;
            let mut rest = plain.as_slice();
            let mut headers = Vec::new();
            while !rest.is_empty() {
                let name = String::from_utf8(take(&mut rest)?.to_vec()).ok()?;
                headers.push((name, take(&mut rest)?.to_vec()));
            }
            Some(headers)
        };
        opened().ok_or(VaultFault::Foreign)
    }
}

fn bound(place: Place<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in [place.organization, place.server, place.user] {
        put(&mut out, part.as_bytes());
    }
    out
}

/// A part after its length, so that parts are told apart whatever is in them.
fn put(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(part);
}

fn take<'r>(rest: &mut &'r [u8]) -> Option<&'r [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (part, after) = after.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    const ANN: Place<'_> = Place { organization: "acme", server: "github", user: "ann" };

    fn headers() -> Headers {
        vec![("authorization".into(), b"Bearer canary-1".to_vec()), ("x-b".into(), vec![0xff, 0])]
    }

    #[test]
    fn a_credential_comes_back_for_its_own_place_and_key_only() {
        let vault = Vault::new(KEY).unwrap();
        let sealed = vault.seal(ANN, &headers()).unwrap();
        assert!(!sealed.contains("canary") && !sealed.contains("Y2FuYXJ5"), "{sealed}");
        assert_eq!(vault.open(ANN, &sealed), Ok(headers()));
        assert_ne!(vault.seal(ANN, &headers()).unwrap(), sealed, "each has a nonce of its own");
        let moved = [
            Place { user: "bob", ..ANN },
            Place { server: "gitlab", ..ANN },
            Place { organization: "other", ..ANN },
            Place { server: "githuba", user: "nn", ..ANN },
        ];
        for place in moved {
            assert_eq!(vault.open(place, &sealed), Err(VaultFault::Foreign), "{place:?}");
        }
        let other = Vault::new(b"another key, which is long enough too").unwrap();
        assert_eq!(other.open(ANN, &sealed), Err(VaultFault::Foreign));
        assert_ne!(other.fingerprint(), vault.fingerprint());
    }

    #[test]
    fn what_was_altered_is_not_opened() {
        let vault = Vault::new(KEY).unwrap();
        let sealed = vault.seal(ANN, &headers()).unwrap();
        for at in [0, PREFIX.len(), PREFIX.len() + 20, sealed.len() - 1] {
            let mut altered = sealed.clone().into_bytes();
            altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(vault.open(ANN, std::str::from_utf8(&altered).unwrap()), Err(VaultFault::Foreign), "at {at}");
        }
        for text in ["", PREFIX, "tgc1.AAAA", "x"] {
            assert_eq!(vault.open(ANN, text), Err(VaultFault::Foreign), "{text}");
        }
    }

    #[test]
    fn a_short_key_is_none() {
        assert_eq!(Vault::new(&KEY[1..]).map(|_| ()), Err(VaultFault::Weak));
        assert!(!format!("{:?}", Vault::new(KEY).unwrap()).contains("0123"));
    }
}
