//! How a tool is called on the aggregated endpoint (contract §1).

use sha2::{Digest, Sha256};

use super::id::encode_hex;

/// The longest exposed name, in bytes.
pub const EXPOSED_NAME_MAX: usize = 64;

/// The exposed name of `tool` on the server `slug`.
///
/// `<slug>_<tool>` with characters outside `[A-Za-z0-9_-]` replaced by `_`; longer than 64 it is cut to 55,
/// then `_` and the first 8 hex digits of the SHA-256 of `<slug>_<tool>` as it was before any replacement.
#[must_use]
pub fn exposed(slug: &str, tool: &str) -> String {
    let whole = format!("{slug}_{tool}");
    let mut name: String =
        whole.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    if name.len() > EXPOSED_NAME_MAX {
        name.truncate(55);
        name.push('_');
        let digest = encode_hex(&Sha256::digest(whole.as_bytes()));
        name.extend(digest.chars().take(8));
    }
    name
}
