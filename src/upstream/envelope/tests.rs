//! Tests of `envelope.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use serde_json::{Value, json};

use super::*;
use crate::model::jsonrpc::Document;

fn value(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(bytes)))
}

fn meta(extra: Value) -> Value {
    let mut all = json!({
        META_PROTOCOL_VERSION: "2026-07-28", META_CLIENT_CAPABILITIES: {},
        META_CLIENT_INFO: {"name": "toolgate", "version": CLIENT_VERSION},
    });
    all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    all
}

#[test]
fn arguments_are_spliced_byte_for_byte() {
    let arguments = br#"{ "n": 1.000000000000000005, "big":123456789012345678901234567890 , "s":"\u0041\/" }"#;
    for revision in Revision::ALL {
        let body = call_body(revision, OurId(7), "a\"b", arguments, &CallMeta::default());
        assert!(body.windows(arguments.len()).any(|window| window == arguments), "{revision}");
        let mut scratch = Vec::new();
        let document = Document::parse(&body, &mut scratch).unwrap();
        let params = document.spanned_root().get("params").unwrap();
        assert_eq!(params.get("arguments").unwrap().raw(), arguments);
        assert_eq!(params.get("name").unwrap().text(), r#""a\"b""#);
    }
}

#[test]
fn call_bodies_have_the_shape_of_their_era() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = TraceContext::read(PARENT, Some("x=\"y"));
    let full = CallMeta {
        progress_token: Some(b"\"p\""),
        trace: trace.as_ref(),
        client_capabilities: Some(br#"{"elicitation":{}}"#),
        request_state: Some(br#""s\u0041""#),
        input_responses: Some(br#"{"k":{"action":"accept"}}"#),
    };
    let check = |revision, meta: &CallMeta<'_>, params: Value| {
        let body = value(&call_body(revision, OurId(7), "t", b"{}", meta));
        assert_eq!(body, json!({"jsonrpc": "2.0", "id": "g7", "method": "tools/call", "params": params}));
    };
    check(Revision::MODERN, &CallMeta::default(), json!({"name": "t", "arguments": {}, "_meta": meta(json!({}))}));
    check(
        Revision::MODERN,
        &full,
        json!({"name": "t", "arguments": {}, "requestState": "sA", "inputResponses": {"k": {"action": "accept"}},
            "_meta": meta(json!({"progressToken": "p", "traceparent": PARENT, "tracestate": "x=\"y",
                META_CLIENT_CAPABILITIES: {"elicitation": {}}}))}),
    );
    check(Revision::V2025_11_25, &CallMeta::default(), json!({"name": "t", "arguments": {}}));
    check(Revision::V2025_03_26, &full, json!({"name": "t", "arguments": {}, "_meta": {"progressToken": "p"}}));
}

#[test]
fn the_other_bodies_are_exact() {
    let check = |body: &[u8], expected: Value| assert_eq!(value(body), expected);
    let request =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": "g1", "method": method, "params": params});
    check(&list_body(Revision::V2025_06_18, OurId(1), None), request("tools/list", json!({})));
    check(&list_body(Revision::V2025_06_18, OurId(1), Some("a\"")), request("tools/list", json!({"cursor": "a\""})));
    check(&list_body(Revision::MODERN, OurId(1), None), request("tools/list", json!({"_meta": meta(json!({}))})));
    let next = request("tools/list", json!({"cursor": "", "_meta": meta(json!({}))}));
    check(&list_body(Revision::MODERN, OurId(1), Some("")), next);
    check(&discover_body(OurId(1)), request("server/discover", json!({"_meta": meta(json!({}))})));
    let info = json!({"name": "toolgate", "version": CLIENT_VERSION});
    check(
        &initialize_body(OurId(1), Revision::V2025_11_25),
        request("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})),
    );
    check(INITIALIZED_BODY, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    check(
        &cancelled_body(OurId(3), "gone\n"),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "g3", "reason": "gone\n"}}),
    );
    check(&answer_body(b"0", "ping"), json!({"jsonrpc": "2.0", "id": 0, "result": {}}));
    check(
        &answer_body(b"\"x\"", "sampling/createMessage"),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -32601, "message": "Method not found"}}),
    );
}

#[test]
fn only_our_id_is_our_id() {
    let check = |raw: &str, expected: bool| {
        let mut scratch = Vec::new();
        let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
        assert_eq!(OurId(10).is(document.root()), expected, "{raw}");
    };
    check("\"g10\"", true);
    check("\"g\\u0031\\u0030\"", true);
    for other in ["10", "\"10\"", "\"g010\"", "\"g+10\"", "\"G10\"", "\"g10 \"", "null", "10.0", "\"g1\"", "[\"g10\"]"]
    {
        check(other, false);
    }
}

#[test]
fn headers_are_those_of_the_era() {
    let credential = [(HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer s"))];
    let params = [("Region", Cow::Borrowed("us-west1")), ("Ort", Cow::Borrowed("Köln"))];
    let check = |revision, expected: &[(&str, &str)]| {
        let headers = Headers {
            revision,
            method: "tools/call",
            name: Some("t"),
            params: &params,
            session: Some("sid"),
            credential: &credential,
        };
        let mut got = Vec::new();
        put_headers(&headers, &mut |name, value| {
            got.push((name.to_owned(), String::from_utf8(value.to_vec()).unwrap()));
        });
        let mut all = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("accept-encoding", "identity"),
        ];
        all.extend_from_slice(expected);
        all.push(("authorization", "Bearer s"));
        let all: Vec<_> = all.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        assert_eq!(got, all, "{revision:?}");
    };
    check(None, &[]);
    check(Some(Revision::V2025_03_26), &[("mcp-session-id", "sid")]);
    check(Some(Revision::V2025_06_18), &[("mcp-protocol-version", "2025-06-18"), ("mcp-session-id", "sid")]);
    check(
        Some(Revision::MODERN),
        &[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "t"),
            ("mcp-param-Region", "us-west1"),
            ("mcp-param-Ort", "=?base64?S8O2bG4=?="),
        ],
    );
}

#[test]
fn header_values_are_encoded_when_ambiguous() {
    for plain in ["", "t", "a b", "~!{}", "a=?base64?eA==?="] {
        assert_eq!(header_text(plain), plain);
    }
    for odd in [" a", "a ", "a\tb", "a\r\nX: y", "é", "=?base64?eA==?=", "=?base64?", "\u{7f}", "\u{0}"] {
        let encoded = header_text(odd);
        let inner = encoded.strip_prefix("=?base64?").unwrap().strip_suffix("?=").unwrap();
        assert_eq!(STANDARD.decode(inner).unwrap(), odd.as_bytes());
    }
}

#[test]
fn argument_values_become_header_text() {
    let check = |raw: &str, expected: Option<&str>| {
        let mut scratch = Vec::new();
        let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
        assert_eq!(param_text(document.root()).as_deref(), expected, "{raw}");
    };
    check("\"a\\n\"", Some("a\n"));
    check("true", Some("true"));
    check("-5", Some("-5"));
    check("42.0", Some("42"));
    check("-0.0", Some("0"));
    check("18446744073709551615", Some("18446744073709551615"));
    for none in ["null", "1.5", "1e300", "[]", "{}"] {
        check(none, None);
    }
}
