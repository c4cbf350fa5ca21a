//! The traffic of the benches: calls of about 1 KiB that pass every check, and answers that do.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::policy::Checks;

/// Text of an ordinary ticket; nothing in it is a secret or personal.
const PROSE: &str = "The export job of the reporting service stops after the third page when the filter names more than one \
    region. Steps: open the report, choose two regions, press export, wait until the progress bar shows page three. Expected: \
    the file has all pages. Seen: the job ends without a message and the file is cut. It began with the release of last week; \
    the build before it is fine. Please have a look at how the cursor is passed on, and tell the team which branch holds the fix.";

/// A request as it arrives, and what its server answers.
pub struct Call {
    /// Path of the endpoint.
    pub path: String,
    /// The head.
    pub head: HeaderMap,
    /// The body, about 1 KiB.
    pub body: Vec<u8>,
    /// The server's answer to it, about 1 KiB.
    pub answer: Vec<u8>,
}

/// The token of the key of that number.
pub fn token(n: usize) -> String {
    format!("toolgate_live_k{n:07}_Zk3rW8pTq1LxV6nB9yHs2JdM5cGf7AeU4oXi0bRv")
}

/// The call of the key of that number, to the tool of that number.
pub fn call(n: usize, checks: Checks) -> Call {
    let name = format!("server-{n:06}_create_issue");
    let body = json!({
        "jsonrpc": "2.0", "id": n + 1, "method": "tools/call", "params": {
            "name": name,
            "arguments": {
                "title": format!("Export stops at page three, case {n}"),
                "body": PROSE, "labels": ["export", "regression", "reporting"], "priority": "high",
                "assignees": [{"id": 42, "team": "reports"}, {"id": 7}], "notify": true, "estimate": 2.5
            },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
                "io.modelcontextprotocol/clientCapabilities": {}
            }
        }
    });
    let structured = json!({
        "number": 4711, "state": "open", "url": "https://tracker.example.com/issues/4711",
        "labels": ["export", "regression"], "score": 0.75
    });
    let mut result = json!({
        "resultType": "complete",
        "content": [{"type": "text", "text": format!("Created issue 4711. {PROSE}")}, {"type": "text", "text": structured.to_string()}]
    });
    if checks.schema_out {
        result["structuredContent"] = structured;
    }
    let answer = json!({"jsonrpc": "2.0", "id": "g7", "result": result});
    let head = [
        ("host", "gateway.example.com".to_owned()),
        ("authorization", format!("Bearer {}", token(n))),
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", "tools/call".to_owned()),
        ("mcp-name", name),
        ("user-agent", "bench/1.0".to_owned()),
        ("x-toolgate-user", "ann".to_owned()),
    ];
    let pair = |(name, value): &(&str, String)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    Call {
        path: "/gateway/mcp".to_owned(),
        head: head.iter().map(pair).collect(),
        body: body.to_string().into_bytes(),
        answer: answer.to_string().into_bytes(),
    }
}
