//! A server that takes its time: it answers each call with the call's own mark, after a delay and in a form that follow from the mark.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// The longest delay before an answer, and between the messages of a stream.
const DELAY_MAX_MS: u64 = 8;

/// The definition of its one tool.
pub fn tool() -> Value {
    json!({ "name": "mark", "inputSchema": { "type": "object", "required": ["key", "mark"] } })
}

/// What it saw.
#[derive(Default)]
pub struct Seen {
    /// How often each mark came.
    pub marks: HashMap<String, usize>,
    /// The keys that came on each session.
    pub sessions: HashMap<String, HashSet<String>>,
    minted: usize,
}

/// Starts it; gives its URL and what it sees.
pub async fn run(modern: bool) -> (String, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state((modern, Arc::clone(&seen)));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, seen)
}

async fn answer(State((modern, seen)): State<(bool, Arc<Mutex<Seen>>)>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(id) = message.get("id").cloned() else { return StatusCode::ACCEPTED.into_response() };
    let session = headers.get("mcp-session-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let result = |result: Value| axum::Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response();
    match message["method"].as_str().unwrap_or_default() {
        "server/discover" if modern => result(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} }, "ttlMs": 0,
            "cacheScope": "private"
        })),
        "initialize" if !modern => {
            let mut seen = seen.lock().unwrap();
            seen.minted += 1;
            let hello = json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "s", "version": "1" }
            });
            ([("mcp-session-id", format!("s-{}", seen.minted))], result(hello)).into_response()
        }
        "tools/list" => result(json!({ "tools": [tool()] })),
        "tools/call" => {
            let arguments = &message["params"]["arguments"];
            let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
            let mark = text("mark");
            {
                let mut seen = seen.lock().unwrap();
                *seen.marks.entry(mark.clone()).or_default() += 1;
                if !session.is_empty() {
                    seen.sessions.entry(session).or_default().insert(text("key"));
                }
            }
            call(&id, &message["params"]["_meta"]["progressToken"], &mark).await
        }
        _ => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            (StatusCode::OK, axum::Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))).into_response()
        }
    }
}

async fn call(id: &Value, token: &Value, mark: &str) -> Response {
    let chance = chance(mark);
    let delay = move |n: u64| Duration::from_millis((chance >> (8 * n)) % (DELAY_MAX_MS + 1));
    let last = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": mark }] } });
    tokio::time::sleep(delay(0)).await;
    if chance % 2 == 0 {
        return axum::Json(last).into_response();
    }
    let mut messages = Vec::new();
    if !token.is_null() {
        for progress in 0..chance % 3 {
            let params = json!({ "progressToken": token, "progress": progress, "message": mark });
            messages.push(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
        }
    }
    messages.push(last);
    let events = futures::stream::unfold(messages.into_iter().enumerate(), move |mut left| async move {
        let (n, message) = left.next()?;
        tokio::time::sleep(delay(n as u64 + 1)).await;
        Some((Ok::<_, Infallible>(format!("event: message\ndata: {message}\n\n")), left))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
}

/// A number that follows from a mark.
pub fn chance(mark: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    mark.hash(&mut hash);
    hash.finish()
}
