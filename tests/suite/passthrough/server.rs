//! A server that answers the methods beside tools as a test tells it, and keeps what it was asked.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// How one request is answered; `${ID}` is the id that the gateway sent.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
    /// Never answered.
    pub silent: bool,
}

impl Reply {
    pub fn result(result: &str) -> Self {
        Self::json(200, &format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"result":{result}}}"#))
    }

    pub fn error(status: u16, error: &str) -> Self {
        Self::json(status, &format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"error":{error}}}"#))
    }

    pub fn json(status: u16, body: &str) -> Self {
        Self { status, content_type: "application/json", body: body.to_owned(), silent: false }
    }

    /// The same messages as a stream.
    pub fn stream(messages: &[&str]) -> Self {
        let body = messages.iter().map(|message| format!("event: message\ndata: {message}\n\n")).collect();
        Self { status: 200, content_type: "text/event-stream", body, silent: false }
    }

    pub fn silence() -> Self {
        Self { silent: true, ..Self::json(200, "") }
    }
}

/// One request beside tools.
#[derive(Clone, Debug)]
pub struct Seen {
    pub headers: HeaderMap,
    pub text: String,
    pub message: Value,
}

struct Inner {
    modern: bool,
    replies: Mutex<HashMap<String, Reply>>,
    seen: Mutex<Vec<Seen>>,
}

/// The running server.
#[derive(Clone)]
pub struct Server {
    pub url: String,
    inner: Arc<Inner>,
}

impl Server {
    pub async fn run(modern: bool) -> Self {
        let inner = Arc::new(Inner { modern, replies: Mutex::default(), seen: Mutex::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, inner }
    }

    /// Answers that method so from now on.
    pub fn on(&self, method: &str, reply: Reply) -> &Self {
        self.inner.replies.lock().unwrap().insert(method.to_owned(), reply);
        self
    }

    /// What it was asked beside tools.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().unwrap().clone()
    }
}

async fn answer(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let text = String::from_utf8_lossy(&body).into_owned();
    let message: Value = serde_json::from_str(&text).unwrap_or_default();
    let id = message["id"].clone();
    let known = |result: Value| axum::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response();
    let refused = |status, code: i64| {
        let error = json!({ "code": code, "message": "no" });
        (status, axum::Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))).into_response()
    };
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    match method.as_str() {
        "server/discover" if inner.modern => known(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "ttlMs": 0,
            "cacheScope": "private"
        })),
        "server/discover" => refused(StatusCode::OK, -32601),
        "initialize" => known(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" }
        })),
        "tools/list" => known(json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] })),
        "" | "notifications/initialized" | "notifications/cancelled" => StatusCode::ACCEPTED.into_response(),
        _ => {
            inner.seen.lock().unwrap().push(Seen { headers, text, message });
            let Some(reply) = inner.replies.lock().unwrap().get(&method).cloned() else {
                return refused(StatusCode::NOT_FOUND, -32601);
            };
            if reply.silent {
                std::future::pending::<()>().await;
            }
            let status = StatusCode::from_u16(reply.status).unwrap();
            (status, [("content-type", reply.content_type)], reply.body.replace("${ID}", &id.to_string()))
                .into_response()
        }
    }
}
