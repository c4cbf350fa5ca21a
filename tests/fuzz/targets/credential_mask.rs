//! The credential mask: whatever stands around it, the credential is gone, and a document stays a document.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use toolgate::{
    model::jsonrpc::Document,
    policy::guard::{CredentialMask, apply_edits, clean_credentials, credential_edits},
};

const TOKEN: &str = "cNaRy-7f3+9/b==\"q";
static MASK: LazyLock<CredentialMask> =
    LazyLock::new(|| CredentialMask::new([&b"Bearer cNaRy-7f3+9/b==\"q"[..]]).expect("a mask"));

fuzz_target!(|data: (u16, String)| {
    let (at, mut text) = data;
    let at = (0..=usize::from(at).min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.insert_str(at, TOKEN);
    let masked = MASK.mask_text(&text).expect("it is there");
    assert!(!masked.contains(TOKEN), "{masked}");
    assert!(MASK.mask_bytes(text.as_bytes()).is_some());
    let _ = clean_credentials(&text);
    let json = serde_json::json!({ "a": [text], text: 1 }).to_string();
    let mut scratch = Vec::new();
    let document = Document::parse(json.as_bytes(), &mut scratch).expect("JSON");
    let root = document.spanned_root();
    let edits = MASK.edits(&document, &root);
    let out = apply_edits(document.raw(), root.span.clone(), &edits);
    let out: serde_json::Value = serde_json::from_slice(&out).expect("JSON after the edits");
    let texts = [out["a"][0].as_str(), out.as_object().and_then(|all| all.keys().find(|name| *name != "a")).map(String::as_str)];
    assert!(texts.iter().all(|text| text.is_some_and(|text| !text.contains(TOKEN))), "{out}");
    let edits = credential_edits(&document, &root);
    let out = apply_edits(document.raw(), root.span.clone(), &edits);
    serde_json::from_slice::<serde::de::IgnoredAny>(&out).expect("JSON after the edits");
});
