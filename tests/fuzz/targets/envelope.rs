//! Headers and envelope: a request that passes both says the same in both, and nothing that looks like another envelope passes.
//! The input is header values, a line each, an empty line, and the body.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use toolgate::{
    call::{
        attribution, headers,
        parse::{self, Message},
    },
    model::{jsonrpc::Document, mcp::Era},
};

const NAMES: [&str; 6] =
    ["mcp-protocol-version", "mcp-method", "mcp-name", "x-toolgate-user", "x-toolgate-tag-a", "x-toolgate-trace-id"];

fuzz_target!(|data: &[u8]| {
    let at = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(0);
    let (head, body) = data.split_at(at);
    let body = body.strip_prefix(b"\n\n").unwrap_or(body);
    let mut map = HeaderMap::new();
    for (name, value) in NAMES.iter().cycle().zip(head.split(|byte| *byte == b'\n')).take(12) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            map.append(*name, value);
        }
    }
    let _ = attribution::read(&map, std::str::from_utf8(head).ok(), "x-toolgate-");
    let mut scratch = Vec::new();
    let Ok(document) = Document::parse(body, &mut scratch) else { return };
    let mut id = None;
    let Ok(Message::Request(request)) = parse::message(&document, &map, &mut id) else { return };
    assert_eq!(id.as_deref(), Some(request.id));
    let written: serde_json::Value = serde_json::from_slice(request.id).expect("an id is JSON");
    assert!(written.is_string() || written.is_number(), "an id is a string or an integer");
    assert!(!request.id.iter().any(|byte| b".eE".contains(byte)) || written.is_string());
    if headers::agree(&map, &request).is_err() {
        return;
    }
    let said = map.get("mcp-method").and_then(|value| value.to_str().ok()).map(|text| text.trim_matches([' ', '\t']));
    assert!(said.is_none_or(|said| said == request.method), "the header says another method");
    if request.era == Era::Modern {
        assert!(said.is_some() && request.meta.is_some());
        assert!(map.get_all("mcp-method").iter().count() == 1);
    }
});
