//! What it costs to read a body: nanoseconds for one parse, and for what is done with the result.
//!
//! `target/release/toolgate-bench-json`. The least of many rounds is printed, so a busy machine disturbs it little.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use serde_json::json;
use toolgate::{
    model::jsonrpc::Document,
    policy::schema::{Role, Schema},
};

fn main() {
    let schema = schema();
    println!(
        "{:<14} {:>7} {:>9} {:>9} {:>9} {:>9} {:>11}",
        "body", "bytes", "parse", "+ args", "+ leaves", "+ schema", "serde Value"
    );
    for (name, body) in bodies() {
        let mut scratch = Vec::new();
        let parse = least(|| drop(black_box(Document::parse(&body, &mut scratch).unwrap())));
        let arguments = least(|| {
            let document = Document::parse(&body, &mut scratch).unwrap();
            let arguments = document.spanned_root().get("params").and_then(|params| params.get("arguments")).unwrap();
            black_box(arguments.raw().len());
        });
        let leaves = least(|| {
            let document = Document::parse(&body, &mut scratch).unwrap();
            black_box(document.spanned_root().leaves().map(|leaf| leaf.text.len()).sum::<usize>());
        });
        let checked = least(|| {
            let document = Document::parse(&body, &mut scratch).unwrap();
            let arguments = document.root().get("params").and_then(|params| params.get("arguments")).unwrap();
            black_box(schema.check(arguments)).unwrap();
        });
        let serde = least(|| drop(black_box(serde_json::from_slice::<serde_json::Value>(&body).unwrap())));
        println!("{name:<14} {:>7} {parse:>9} {arguments:>9} {leaves:>9} {checked:>9} {serde:>11}", body.len());
    }
}

/// The least nanoseconds of one run.
fn least(mut run: impl FnMut()) -> u128 {
    let mut best = Duration::MAX;
    let end = Instant::now() + Duration::from_millis(400);
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..16 {
            run();
        }
        best = best.min(start.elapsed() / 16);
    }
    best.as_nanos()
}

/// What a tool with all of these arguments would declare.
fn schema() -> std::sync::Arc<Schema> {
    let row = json!({"type": "object", "properties": {
        "id": {"type": "integer", "minimum": 0}, "name": {"type": "string", "maxLength": 80}, "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8}, "active": {"type": "boolean"}
    }, "required": ["id", "name"], "additionalProperties": false});
    let definition = json!({"type": "object", "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 200}, "limit": {"type": "integer", "minimum": 1, "maximum": 100},
        "sort": {"enum": ["stars", "forks", "updated"]}, "exact": {"type": "boolean"}, "page": {"type": "integer"},
        "text": {"type": "string"}, "rows": {"type": "array", "items": row}
    }, "additionalProperties": false});
    Schema::compile(&definition, Role::Input).unwrap()
}

fn bodies() -> [(&'static str, Vec<u8>); 4] {
    let call = |arguments: String| {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}},"name":"demo_search","arguments":{arguments}}}}}"#
        )
        .into_bytes()
    };
    let rows = |count: usize| {
        let row = |n: usize| format!(r#"{{"id":{n},"name":"row {n}","price":{n}.25,"tags":["a","b"],"active":true}}"#);
        call(format!(r#"{{"rows":[{}]}}"#, (0..count).map(row).collect::<Vec<_>>().join(",")))
    };
    [
        (
            "small call",
            call(r#"{"query":"pingora proxy hooks","limit":10,"sort":"stars","exact":false,"page":1}"#.to_owned()),
        ),
        ("4 KiB rows", rows(57)),
        ("64 KiB rows", rows(880)),
        ("64 KiB text", call(format!(r#"{{"text":"{}"}}"#, "It was a dark and stormy night. ".repeat(2048)))),
    ]
}
