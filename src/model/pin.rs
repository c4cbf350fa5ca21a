//! Pins: SHA-256 over the RFC 8785 form of a tool definition (contract §6).

use std::fmt;

use super::id::{decode_hex32, encode_hex};

/// The hash by which an approval names the exact definition that a person reviewed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(pub [u8; 32]);

impl Pin {
    /// Parses 64 hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        decode_hex32(text).map(Self)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_hex(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
