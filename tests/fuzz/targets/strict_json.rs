//! The strict JSON parser against another one: what it takes is JSON, names no member twice, and every span is the text of its value.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use toolgate::model::{
    jsonrpc::{Document, Kind, Spanned},
    pin::write_canonical,
};

fuzz_target!(|data: &[u8]| {
    let mut scratch = Vec::new();
    let Ok(document) = Document::parse(data, &mut scratch) else { return };
    serde_json::from_slice::<serde::de::IgnoredAny>(data).expect("what is taken is JSON");
    let root = document.spanned_root();
    walk(&root, 0);
    for leaf in root.leaves() {
        assert!(leaf.text.len() <= data.len() * 3);
    }
    let mut once = Vec::new();
    write_canonical(&mut once, &root);
    let mut scratch = Vec::new();
    let again = Document::parse(&once, &mut scratch).expect("the canonical form is JSON");
    let mut twice = Vec::new();
    write_canonical(&mut twice, &again.spanned_root());
    assert_eq!(once, twice, "the canonical form is its own");
});

fn walk(value: &Spanned<'_>, depth: usize) {
    assert!(depth <= 128, "deeper than the limit");
    let raw = value.raw();
    assert!(!raw.is_empty() && !raw.first().is_some_and(u8::is_ascii_whitespace), "a span starts at its value");
    match value.node.kind() {
        Kind::Object => {
            let mut names = HashSet::new();
            for member in value.members() {
                assert!(names.insert(member.name), "a member twice");
                assert_eq!(value.get(member.name).map(|v| v.span), Some(member.value.span.clone()));
                walk(&member.value, depth + 1);
            }
            assert_eq!((raw.first(), raw.last()), (Some(&b'{'), Some(&b'}')));
        }
        Kind::Array => {
            value.items().for_each(|item| walk(&item, depth + 1));
            assert_eq!((raw.first(), raw.last()), (Some(&b'['), Some(&b']')));
        }
        Kind::String => {
            let text: String = serde_json::from_slice(raw).expect("a string");
            assert_eq!(value.node.as_str(), Some(text.as_str()));
        }
        Kind::Number => assert!(value.node.as_f64().is_some_and(f64::is_finite)),
        Kind::Bool | Kind::Null => {}
    }
}
