//! Exposed names: of the right letters and length, the same each time, and different tools of a long name differ by their hash.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use toolgate::model::name::{EXPOSED_NAME_MAX, exposed};

fuzz_target!(|data: (String, String)| {
    let (slug, tool) = data;
    let name = exposed(&slug, &tool);
    assert!(name.len() <= EXPOSED_NAME_MAX && !name.is_empty());
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'));
    let whole = format!("{slug}_{tool}");
    if whole.chars().count() <= EXPOSED_NAME_MAX {
        assert_eq!(name.len(), whole.chars().count());
    } else {
        let hash: String = Sha256::digest(whole.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        assert!(name.len() == EXPOSED_NAME_MAX && name.ends_with(&format!("_{hash}")));
    }
});
