//! Identifiers that are parsed once and then trusted: request ids, key digests, slugs.

use std::fmt;

use sha2::{Digest, Sha256};

/// SHA-256 of a bearer token. The only form in which a key exists in memory, store or log (contract §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest(pub [u8; 32]);

impl KeyDigest {
    /// Digests the token of an `Authorization: Bearer` header.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// Parses 64 hex digits, as `sha256` of a `[[key]]` is written.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        decode_hex32(text).map(Self)
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

/// Decodes exactly 64 hex digits of either case.
#[must_use]
pub fn decode_hex32(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 {
        return None;
    }
    let mut out = [0u8; 32];
    for (slot, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        let [hi, lo] = pair else { return None };
        *slot = (hex_digit(*hi)? << 4) | hex_digit(*lo)?;
    }
    Some(out)
}

/// Writes bytes as lower-case hex.
#[must_use]
pub fn encode_hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).filter_map(|n| DIGITS.get(usize::from(n))).collect()
}

fn hex_digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

/// The id of one request to the gateway, `req_` and 32 hex digits; sent as `X-Request-Id` (contract §1).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(u128);

impl RequestId {
    /// Makes the id of 128 bits that the caller drew at random.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "req_{:032x}", self.0)
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether `text` is a server slug: `[a-z0-9][a-z0-9_-]{0,39}` (contract §5).
#[must_use]
pub fn is_slug(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 40
        && bytes.next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        && bytes.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-')
}
