//! Tests of `exchange.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use super::*;

#[test]
fn messages_are_judged_by_method_then_by_id() {
    let result = |raw: &str| Incoming::Answer(Rpc::Result(raw.as_bytes().to_vec()));
    let error = |code| Incoming::Answer(Rpc::Error { code, message: "m".into(), data: None });
    let request = |id: &str, method: &str| Incoming::Request { id: id.into(), method: method.into() };
    let check = |text: &str, refused: bool, expected: Incoming| {
        assert_eq!(judge(text.as_bytes(), OurId(1), refused), expected, "{text} ({refused})");
    };
    check(r#"{"jsonrpc":"2.0","id":"g1","result":{ "a":1.0 }}"#, false, result(r#"{ "a":1.0 }"#));
    check(r#"{"jsonrpc":"2.0","id":"g1","result":null}"#, true, result("null"));
    check(r#"{"jsonrpc":"2.0","id":"g1","error":{"code":-5,"message":"m"}}"#, false, error(-5));
    let with_data = Rpc::Error { code: 1, message: "m".into(), data: Some(b"[ 1 ]".to_vec()) };
    let text = r#"{"jsonrpc":"2.0","id":"g1","error":{"code":1,"message":"m","data":[ 1 ]}}"#;
    check(text, false, Incoming::Answer(with_data));
    for id in [r#""id":null,"#, r#""id":"server-error","#, ""] {
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-5,"message":"m"}}}}"#);
        check(&text, true, error(-5));
        check(&text, false, Incoming::NotMcp);
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"result":{{}}}}"#);
        check(&text, true, Incoming::NotMcp);
    }
    check(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, false, request("0", "ping"));
    check(r#"{"jsonrpc":"2.0","id":"g1","method":"a","result":{}}"#, false, request("\"g1\"", "a"));
    let notification = Incoming::Notification { method: "n".into() };
    check(r#"{"jsonrpc":"2.0","method":"n","params":{}}"#, false, notification);
    for other in [
        "",
        "x",
        "[]",
        "{}",
        "null",
        r#"[{"jsonrpc":"2.0","id":"g1","result":{}}]"#,
        r#"{"id":"g1","result":{}}"#,
        r#"{"jsonrpc":"1.0","id":"g1","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"g1"}"#,
        r#"{"jsonrpc":"2.0","id":"g2","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"g1","result":{},"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":"g1","error":{"code":"x","message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":"g1","error":"m"}"#,
        r#"{"jsonrpc":"2.0","id":"g1","error":{"code":1}}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#,
        r#"{"jsonrpc":"2.0","method":1}"#,
        r#"{"jsonrpc":"2.0","id":"g1","id":"g1","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"g1","result":{"a":1,"a":2}}"#,
        r#"{"jsonrpc":"2.0","id":"g1","result":{}} x"#,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"g1\",\"result\":{}}",
    ] {
        check(other, false, Incoming::NotMcp);
    }
}

#[test]
fn statuses_mean_what_they_say() {
    let of = |status, rpc| Answer { status, session_id: None, rpc, list_changed: false }.into_result();
    let good = || Some(Rpc::Result(b"{}".to_vec()));
    let bad = || Some(Rpc::Error { code: -32601, message: "canary".into(), data: None });
    assert_eq!(of(200, good()), Ok(b"{}".to_vec()));
    assert_eq!(of(200, bad()), Err(AskError::Rejected { code: -32601 }));
    assert_eq!(of(404, bad()), Err(AskError::Rejected { code: -32601 }));
    assert_eq!(of(200, None), Err(AskError::NotMcp));
    assert_eq!(of(202, None), Err(AskError::NotMcp));
    assert_eq!(of(404, None), Err(AskError::Status { status: 404 }));
    assert_eq!(of(404, good()), Err(AskError::Status { status: 404 }));
    for status in [401, 403] {
        assert_eq!(of(status, good()), Err(AskError::Credential { status }));
    }
    assert_eq!(of(429, bad()), Err(AskError::RateLimited));
    assert_eq!(of(302, good()), Err(AskError::Redirect { status: 302 }));
    assert_eq!(of(503, good()), Err(AskError::ServerFault { status: 503 }));
}
