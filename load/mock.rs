//! A zero-latency MCP server for load tests: one thread, no work but to echo what proves the reply. Modern (2026-07-28), and legacy
//! without sessions for peers that speak nothing else.
//!
//! `toolgate-load-mock LISTEN` serves, by path:
//! - `/plain/mcp`, `/in/mcp`, `/full/mcp`: one tool `work`, with no real schema, with one for arguments, with both
//! - `/many/COUNT/mcp`: so many tools like full's
//! - `/sse/mcp`: like full, the answer as an event stream
//! - `/slow/MS/mcp`: like full, answered after so many milliseconds; `/stall/mcp`: never
//! - `/lognormal/MS/mcp`: answered after a lognormal time of that median
//! - `/drip/mcp`: the answer in eight pieces, a millisecond apart; `/error/mcp`: HTTP 500
//!
//! It answers the id that it was asked with, and the `marker` of the arguments in text of `answer` bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::indexing_slicing)]

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Tools on a page of `/many/COUNT/mcp`.
const PAGE: u64 = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let listen = std::env::args().nth(1).expect("usage: toolgate-load-mock LISTEN");
    let listener = TcpListener::bind(&listen).await.expect("the address can be bound");
    println!("ready {}", listener.local_addr().unwrap());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.pipeline_flush(true);
            let _ = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let profile = parts.next().unwrap_or("");
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    let id = raw_member(&body, b"\"id\":").unwrap_or(b"null");
    if !is_method(&body, "tools/call") {
        return Ok(match id {
            b"null" => build(202, "application/json", Full::default().boxed_unsync()),
            _ => json_response(200, wrap(id, &listing(profile, number(parts.next()), &body))),
        });
    }
    match profile {
        "error" => return Ok(json_response(500, Vec::new())),
        "stall" => std::future::pending::<()>().await,
        "slow" => tokio::time::sleep(Duration::from_millis(number(parts.next()))).await,
        "lognormal" => tokio::time::sleep(lognormal(number(parts.next()))).await,
        _ => {}
    }
    let message = wrap(id, &result(&body, profile));
    Ok(match profile {
        "sse" => {
            let event = [b"event: message\ndata: ", message.as_slice(), b"\n\n"].concat();
            build(200, "text/event-stream", Full::new(event.into()).boxed_unsync())
        }
        "drip" => {
            let piece = message.len().div_ceil(8).max(1);
            let pieces: Vec<Bytes> = message.chunks(piece).map(Bytes::copy_from_slice).collect();
            let stream = futures::stream::iter(pieces).then(|piece| async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(Frame::data(piece))
            });
            build(200, "application/json", StreamBody::new(stream).boxed_unsync())
        }
        _ => json_response(200, message),
    })
}

fn number(part: Option<&str>) -> u64 {
    part.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A lognormal time with the given median and a sigma of 0.5 (Irwin-Hall for the normal).
fn lognormal(median_ms: u64) -> Duration {
    let normal: f64 = (0..12).map(|_| rand::random::<f64>()).sum::<f64>() - 6.0;
    Duration::from_secs_f64(median_ms as f64 / 1e3 * (0.5 * normal).exp())
}

/// The `result` of a call: the marker, and text up to the size that was asked for.
fn result(body: &[u8], profile: &str) -> Vec<u8> {
    const PROSE: &[u8] =
        b" The export job ends after page three when the filter names two regions; the build before it is fine.";
    let marker = raw_member(body, b"\"marker\":").unwrap_or(b"\"\"");
    let size: usize = raw_member(body, b"\"answer\":")
        .and_then(|raw| std::str::from_utf8(raw).ok())
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut out = Vec::with_capacity(size + 256);
    out.extend_from_slice(b"{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":");
    out.extend_from_slice(marker.strip_suffix(b"\"").unwrap_or(b"\""));
    while out.len() < size {
        let left = (size - out.len()).min(PROSE.len());
        out.extend_from_slice(&PROSE[..left]);
    }
    out.extend_from_slice(b"\"}]");
    if profile != "plain" {
        out.extend_from_slice(b",\"structuredContent\":{\"marker\":");
        out.extend_from_slice(marker);
        out.extend_from_slice(
            b",\"number\":4711,\"state\":\"open\",\"labels\":[\"export\",\"regression\"],\"score\":0.75}",
        );
    }
    out.push(b'}');
    out
}

/// Everything but a call: discovery's questions, of both eras. `count` is the number of tools of `/many`.
fn listing(profile: &str, count: u64, body: &[u8]) -> Vec<u8> {
    let info = json!({"name": "mock", "version": "1"});
    let mut page = if is_method(body, "initialize") {
        let revision =
            raw_member(body, b"\"protocolVersion\":").and_then(|raw| serde_json::from_slice::<Value>(raw).ok());
        json!({"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info})
    } else if is_method(body, "server/discover") {
        json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "serverInfo": info, "ttlMs": 0, "cacheScope": "private"
        })
    } else {
        json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
    };
    if is_method(body, "tools/list") {
        let cursor = raw_member(body, b"\"cursor\":").and_then(|raw| std::str::from_utf8(raw).ok());
        let from = number(cursor.map(|text| text.trim_matches('"')));
        page["tools"] = match profile {
            "many" => (from..count.min(from + PAGE)).map(|n| tool(&format!("work_{n:05}"), profile)).collect(),
            _ => json!([tool("work", profile)]),
        };
        if profile == "many" && from + PAGE < count {
            page["nextCursor"] = (from + PAGE).to_string().into();
        }
    }
    page.to_string().into_bytes()
}

fn tool(name: &str, profile: &str) -> Value {
    if profile == "plain" {
        return json!({"name": name, "description": "Works.", "inputSchema": {"type": "object"}});
    }
    let mut tool = json!({
        "name": name, "description": "Works on a ticket and says what came of it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "marker": {"type": "string", "minLength": 1, "maxLength": 64},
                "answer": {"type": "integer", "minimum": 0, "maximum": 1_048_576},
                "title": {"type": "string", "minLength": 1, "maxLength": 200},
                "body": {"type": "string", "maxLength": 1_048_576},
                "labels": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 16},
                "priority": {"enum": ["low", "normal", "high"]},
                "estimate": {"type": "number", "minimum": 0}
            },
            "required": ["marker", "title", "body"], "additionalProperties": false
        }
    });
    if profile != "in" {
        tool["outputSchema"] = json!({
            "type": "object",
            "properties": {
                "marker": {"type": "string"}, "number": {"type": "integer"}, "state": {"enum": ["open", "closed"]},
                "labels": {"type": "array", "items": {"type": "string"}}, "score": {"type": "number"}
            },
            "required": ["marker", "number", "state"]
        });
    }
    tool
}

fn wrap(id: &[u8], result: &[u8]) -> Vec<u8> {
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"result\":", result, b"}"].concat()
}

fn json_response(status: u16, body: Vec<u8>) -> Response<Body> {
    build(status, "application/json", Full::new(body.into()).boxed_unsync())
}

fn build(status: u16, content_type: &'static str, body: Body) -> Response<Body> {
    Response::builder().status(status).header("content-type", content_type).body(body).unwrap()
}

fn is_method(body: &[u8], method: &str) -> bool {
    raw_member(body, b"\"method\":").is_some_and(|raw| raw.get(1..raw.len() - 1) == Some(method.as_bytes()))
}

/// The raw string or number after the first `"name":`. The callers are ours, so no more of JSON is needed.
fn raw_member<'b>(body: &'b [u8], name: &[u8]) -> Option<&'b [u8]> {
    let start = memchr::memmem::find(body, name)? + name.len();
    let rest = body.get(start..)?.trim_ascii_start();
    let end = match rest.first()? {
        b'"' => memchr::memchr(b'"', rest.get(1..)?)? + 2,
        _ => rest.iter().position(|c| matches!(c, b',' | b'}'))?,
    };
    rest.get(..end)
}
