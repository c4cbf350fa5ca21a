//! Tokens of keys: made here, shown once, kept only as a digest.
//!
//! `toolgate_<environment>_<id>_<secret>_<crc32>`: the parts are `[a-z0-9-]`, the secret is 43 of `[0-9A-Za-z]` (256 bits), and the
//! last part is the CRC-32 of everything before its `_`, so that a scanner of leaked secrets can tell one without asking anybody.

use crate::model::id::KeyDigest;

/// A new token.
pub(super) struct Token {
    /// What the caller is given, once.
    pub(super) text: String,
    /// What is kept.
    pub(super) sha256: KeyDigest,
}

/// The longest environment and id in a token, in characters; what is longer is cut.
const PART_CHARS_MAX: usize = 24;
/// Characters of the secret: 62 to the 43rd is more than 2 to the 256th.
const SECRET_CHARS: usize = 43;

impl Token {
    /// Draws a token for a key.
    pub(super) fn draw(environment: &str, id: &str) -> Self {
        let body = format!("toolgate_{}_{}_{}", part(environment), part(id), secret());
        let text = format!("{body}_{:08x}", crc32(body.as_bytes()));
        let sha256 = KeyDigest::of(text.as_bytes());
        Self { text, sha256 }
    }
}

/// Draws 256 bits, as 43 characters of `[0-9A-Za-z]`.
pub(super) fn secret() -> String {
    (0..SECRET_CHARS).filter_map(|_| DIGITS.get(rand::random_range(0..DIGITS.len()))).collect()
}

/// A name as it stands in a token.
fn part(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let part: String = name.chars().take(PART_CHARS_MAX).map(plain).collect();
    if part.is_empty() { "key".to_owned() } else { part }
}

/// CRC-32 as in gzip, PNG and GitHub's tokens (ISO-HDLC).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

const DIGITS: [char; 62] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'I', 'J', 'K', 'L', 'M',
    'N', 'O', 'P', 'Q', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y', 'Z', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j',
    'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z',
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use super::{Token, crc32};

    #[test]
    fn the_checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_token_has_five_plain_parts_and_its_own_checksum() {
        for (environment, id) in [("production", "support-agent"), ("Prod EU", "Ünder_score"), ("", "")] {
            let token = Token::draw(environment, id).text;
            let (body, sum) = token.rsplit_once('_').unwrap();
            assert_eq!(sum, format!("{:08x}", crc32(body.as_bytes())));
            assert_eq!(token.split('_').count(), 5, "{token}");
            assert!(token.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-'), "{token}");
            assert_eq!(body.rsplit_once('_').unwrap().1.len(), 43);
        }
        assert_ne!(Token::draw("a", "b").text, Token::draw("a", "b").text);
    }
}
