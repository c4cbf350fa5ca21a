//! Traces, as a collector receives them: built and run with the cargo feature `otlp` (`make test-otlp`).

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    gateway::{Gateway, token},
    policy::Access::Selected,
    run,
    upstream::Upstream,
};

/// What was posted to a collector of OTLP over HTTP, as protobuf.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<u8>>>);

impl Collector {
    /// Starts to listen; gives its address.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let own = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(own.clone().serve(stream));
            }
        });
        address
    }

    async fn serve(self, mut stream: TcpStream) -> Option<()> {
        let mut bytes = Vec::new();
        loop {
            let end = loop {
                match bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                    Some(at) => break at + 4,
                    None if stream.read_buf(&mut bytes).await.ok()? == 0 => return None,
                    None => {}
                }
            };
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            assert!(head.starts_with("post /v1/traces ") && head.contains("application/x-protobuf"), "{head}");
            let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
            while bytes.len() < end + length {
                stream.read_buf(&mut bytes).await.ok()?;
            }
            self.0.lock().unwrap().extend(bytes.drain(..end + length).skip(end));
            let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(answer).await.ok()?;
        }
    }

    fn has(&self, part: &[u8]) -> bool {
        self.0.lock().unwrap().windows(part.len()).any(|window| window == part)
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const UNSAMPLED: &str = "aaaabbbbccccddddaaaabbbbccccdddd";

#[test]
fn a_request_and_its_call_are_spans_on_the_callers_trace() {
    run(async {
        let collector = Collector::default();
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).tool("other", json!({ "type": "object" }));
        let up = up.run().await;
        let gateway = Gateway::new().env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.start().await);
        let gateway = gateway.server("demo", &up).grant("ann", "demo", Selected(&["echo"]));
        let gw = gateway.approve_all().run().await;
        let ann = gw.client("ann");
        let call = async |trace: &str, flags: &str| {
            let meta = json!({ "traceparent": format!("00-{trace}-{SPAN}-{flags}") });
            let params = json!({ "name": "demo_echo", "arguments": { "secret": "argument-zz" }, "_meta": meta });
            ann.send(ann.asking("tools/call", params)).await
        };
        let answer = call(TRACE, "01").await;
        answer.ok();
        call(UNSAMPLED, "00").await.ok();
        ann.call("demo_echo", json!({})).await.ok();
        ann.call("demo_other", json!({})).await.refused("tool_not_allowed");
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0));
        let calls = up.calls();
        let onward =
            calls[0].message["params"]["_meta"]["traceparent"].as_str().unwrap().split('-').nth(2).unwrap().to_owned();
        assert_ne!(onward, SPAN, "the server's spans are children of ours");
        for (what, part) in [("the trace", TRACE), ("the caller's span", SPAN), ("the call's span", onward.as_str())] {
            assert!(collector.has(&hex(part)), "{what}");
        }
        assert!(!collector.has(&hex(UNSAMPLED)), "the caller decides whether it is sampled");
        let begun = calls[2].header("traceparent").expect("a trace that the gateway begins is told to the server");
        for part in begun.split('-').skip(1).take(2) {
            assert!(collector.has(&hex(part)), "{part} of {begun}");
        }
        let words =
            ["toolgate", "tools/call echo", "mcp.method.name", "gen_ai.tool.name", "execute_tool", "server.port"];
        for word in words.iter().chain(&["tools/call other", "error.type", "tool_not_allowed", answer.request_id()]) {
            assert!(collector.has(word.as_bytes()), "{word}");
        }
        for word in ["argument-zz", &token("ann")] {
            assert!(!collector.has(word.as_bytes()), "{word}");
        }
        assert!(!gw.log_text().contains("traces could not"), "{}", gw.log_text());
    });
}
