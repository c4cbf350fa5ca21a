//! An answer of the gateway, read to its end, and the whole shape that the contract gives it (§2, §3, §4).

use std::time::Duration;

use serde_json::{Value, json};

use super::http::{Head, latin1};

/// Which dialect a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2026-07-28.
    Modern,
    /// 2025-xx-xx.
    Legacy,
}

/// The type of each code of a tool refusal (contract §4).
pub const REFUSALS: &[(&str, &str)] = &[
    ("tool_not_allowed", "permission_denied"),
    ("tool_not_approved", "permission_denied"),
    ("tool_definition_changed", "permission_denied"),
    ("credential_required", "permission_denied"),
    ("invalid_tool_arguments", "invalid_request_error"),
    ("guardrail_blocked", "permission_denied"),
    ("guardrail_unavailable", "permission_denied"),
    ("upstream_unavailable", "upstream_error"),
    ("upstream_timeout", "request_timeout"),
    ("upstream_rejected", "upstream_error"),
    ("tool_result_too_large", "upstream_error"),
    ("tool_result_invalid", "upstream_error"),
];

/// What was asked, as far as an answer must fit it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request's id; null when it had none.
    pub id: Value,
    /// Its dialect.
    pub era: Era,
    /// The tool as the caller named it.
    pub tool: Option<String>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What it answers.
    pub asked: Asked,
    /// The status; 0 when the connection ended without an answer.
    pub status: u16,
    /// Status line and headers.
    pub head: Head,
    /// The body, framing removed.
    pub body: Vec<u8>,
    /// The JSON body, or each event of the stream, as text.
    pub texts: Vec<String>,
    /// The same, parsed.
    pub messages: Vec<Value>,
    /// The gateway closed the connection after it.
    pub closed: bool,
    /// The body ended before its framing said so.
    pub cut: bool,
    /// From the last byte of the request to the last byte of the answer.
    pub took: Duration,
}

impl Answer {
    /// Reads the messages out of a head and a body.
    pub fn new(asked: Asked, head: Head, body: Vec<u8>) -> Self {
        let texts = match head.get("content-type").unwrap_or_default() {
            "application/json" => vec![String::from_utf8_lossy(&body).into_owned()],
            "text/event-stream" => events(&String::from_utf8_lossy(&body)),
            _ => Vec::new(),
        };
        let messages = texts.iter().map(|text| serde_json::from_str(text).unwrap_or(Value::Null)).collect();
        let status = head.status();
        Self { asked, status, head, body, texts, messages, closed: false, cut: false, took: Duration::ZERO }
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Everything that came over the wire, for the searches that must find nothing.
    pub fn wire(&self) -> String {
        let headers: Vec<String> = self.head.headers.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        format!("{}\n{}\n{}", self.head.start, headers.join("\n"), latin1(&self.body))
    }

    /// The answer as an event stream.
    pub fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The request id; panics when the answer has none.
    #[track_caller]
    pub fn request_id(&self) -> &str {
        let id = self.header("x-request-id").unwrap_or_else(|| panic!("no X-Request-Id: {}", self.wire()));
        assert!(id.starts_with("req_") && id.len() > 8, "X-Request-Id: {id}");
        id
    }

    /// The last message, which must be the one answer to our id; those before it must be notifications.
    #[track_caller]
    pub fn response(&self) -> &Value {
        self.request_id();
        assert!(!self.cut, "the body was cut: {}", self.wire());
        let (last, before) = self.messages.split_last().unwrap_or_else(|| panic!("no message: {}", self.wire()));
        for message in before {
            assert!(message.get("method").is_some() && message.get("id").is_none(), "no notification: {message}");
        }
        assert_eq!(last["jsonrpc"], "2.0", "no JSON-RPC message: {:.1000}", self.wire());
        assert_eq!(last["id"], self.asked.id, "the id is not ours: {last}");
        assert_eq!(
            last.get("result").is_some(),
            last.get("error").is_none(),
            "either result or error, not both, not neither: {last}"
        );
        last
    }

    /// The result of our request, with what each era adds to it.
    #[track_caller]
    pub fn result(&self) -> &Value {
        assert_eq!(self.status, 200, "{}", self.wire());
        let response = self.response();
        let result = response.get("result").unwrap_or_else(|| panic!("no result: {response}"));
        let server = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        if self.asked.era == Era::Modern {
            assert!(result["resultType"].is_string(), "a modern result without resultType: {result}");
            assert!(server["name"].is_string(), "a modern result without server info: {result}");
            assert_ne!(server["name"], "mock", "the upstream's server info leaked: {result}");
        } else {
            assert!(result.get("resultType").is_none(), "a legacy result with resultType: {result}");
        }
        result
    }

    /// The result of a call that went through: no refusal, no error of the server's.
    #[track_caller]
    pub fn ok(&self) -> &Value {
        let result = self.result();
        assert_ne!(result["isError"], true, "{result}");
        assert!(result["_meta"].get("toolgate/refusal").is_none(), "{result}");
        result
    }

    /// The text of the first content block of a call that went through.
    #[track_caller]
    pub fn said(&self) -> &str {
        self.ok()["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text block: {}", self.text()))
    }

    /// A tool refusal with that code, in the whole shape of contract §4; gives its message.
    #[track_caller]
    pub fn refused(&self, code: &str) -> &str {
        let result = self.result();
        let refusal = &result["_meta"]["toolgate/refusal"];
        assert_eq!(refusal["code"], code, "another code: {}", self.text());
        let kind = REFUSALS.iter().find(|(c, _)| *c == code).unwrap_or_else(|| panic!("{code} is no refusal")).1;
        let message = result["structuredContent"]["error"]["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "no message: {result}");
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["content"], json!([{ "type": "text", "text": message }]));
        assert_eq!(result["structuredContent"], json!({ "error": { "type": kind, "code": code, "message": message } }));
        assert_eq!(refusal, &json!({ "code": code, "request_id": self.request_id() }), "{result}");
        if self.asked.era == Era::Modern {
            assert_eq!(result["resultType"], "complete");
        } else {
            assert_eq!(result["_meta"].as_object().map(serde_json::Map::len), Some(1), "{result}");
        }
        let mut members: Vec<&str> = result.as_object().expect("an object").keys().map(String::as_str).collect();
        members.retain(|m| *m != "resultType");
        members.sort_unstable();
        assert_eq!(members, ["_meta", "content", "isError", "structuredContent"]);
        self.worded(message);
        message
    }

    /// The words of a refusal: at most three sentences, and the tool by the name that the caller sent.
    #[track_caller]
    fn worded(&self, message: &str) {
        if let Some(tool) = &self.asked.tool {
            let cut: String = tool.chars().take(128).collect();
            assert!(message.contains(&format!("`{cut}`")), "`{cut}` is not named: {message}");
        }
    }

    /// A JSON-RPC error with that HTTP status and code; gives the error.
    #[track_caller]
    pub fn rpc_error(&self, status: u16, code: i64) -> &Value {
        assert_eq!(self.status, status, "{}", self.wire());
        let response = self.response();
        let error = &response["error"];
        assert_eq!(error["code"], code, "{}", self.text());
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "no message: {error}");
        error
    }

    /// An HTTP refusal in the whole shape of contract §2; gives its message.
    #[track_caller]
    pub fn http_refused(&self, status: u16, kind: &str, code: Option<&str>) -> &str {
        assert_eq!(self.status, status, "{}", self.wire());
        self.request_id();
        assert_eq!(self.header("content-type"), Some("application/json"), "{}", self.wire());
        let body = self.messages.first().unwrap_or_else(|| panic!("no body: {}", self.wire()));
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(!message.is_empty(), "no message: {body}");
        assert_eq!(body, &json!({ "error": { "type": kind, "code": code, "message": message } }));
        message
    }

    /// `Retry-After`, which must be whole seconds, at least 1.
    #[track_caller]
    pub fn retry_after(&self) -> u64 {
        let value = self.header("retry-after").unwrap_or_else(|| panic!("no Retry-After: {}", self.wire()));
        let seconds = value.parse().unwrap_or_else(|_| panic!("Retry-After: {value}"));
        assert!(seconds >= 1, "Retry-After: {value}");
        seconds
    }

    /// The answer without what may differ between two refusals of the same kind: the request id, and the date.
    pub fn anonymous(&self) -> String {
        let headers: Vec<String> = self
            .head
            .headers
            .iter()
            .filter(|(n, _)| !n.eq_ignore_ascii_case("x-request-id") && !n.eq_ignore_ascii_case("date"))
            .map(|(n, v)| format!("{n}: {v}"))
            .collect();
        format!("{}\n{}\n\n{}", self.head.start, headers.join("\n"), self.text())
    }
}

/// The data of each complete event.
pub fn events(text: &str) -> Vec<String> {
    let text = text.replace("\r\n", "\n");
    let mut blocks: Vec<&str> = text.split("\n\n").collect();
    blocks.pop(); // what follows the last blank line is no event
    blocks
        .into_iter()
        .filter_map(|block| {
            let data: Vec<&str> = block
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(|data| data.strip_prefix(' ').unwrap_or(data))
                .collect();
            (!data.is_empty()).then(|| data.join("\n"))
        })
        .collect()
}
