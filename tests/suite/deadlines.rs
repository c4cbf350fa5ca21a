//! The wall clock of a call: silent, dripping, silent after the header; and the limits on a slow start. Upper bounds are there to find what hangs.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Faults,
    answer::Era,
    client::BOTH,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Accept, Reply, Speaks, Up, Upstream},
};

/// The server's time limit.
const LIMIT: Duration = Duration::from_secs(2);
/// An answer holds the limit to a second; a loaded machine gets another.
const SLACK: Duration = Duration::from_secs(2);

const JSON: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n";
const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

/// Every way to be slow: name, raw answer.
fn silences() -> Vec<(&'static str, String)> {
    let progress =
        r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    vec![
        ("silent", "${stall}".to_owned()),
        ("silent after half a head", "HTTP/1.1 200 OK\r\nContent-T${stall}".to_owned()),
        ("silent after the header, JSON", format!("{JSON}${{stall}}")),
        ("silent after the header, SSE", format!("{SSE}${{stall}}")),
        ("silent in the body, JSON", format!("{JSON}{{\"jsonrpc\":${{stall}}")),
        ("silent in an event", format!("{SSE}data: {{\"jsonrpc\":${{stall}}")),
        ("dripping, JSON", format!("{JSON}${{drip 100}}")),
        ("dripping, SSE", format!("{SSE}data: ${{drip 100}}")),
        ("keep-alives", format!("{SSE}${{every 100 : k\n\n}}")),
        ("progress for ever", format!("{SSE}${{every 100 {progress}\n\n}}")),
    ]
}

async fn gateway(up: &Up) -> Gw {
    let gateway = Gateway::new().server_with("demo", up, "timeout = '2s'");
    gateway.grant("ann", "demo", Read).approve_all().run().await
}

#[test]
fn every_silence_ends_at_the_limit() {
    run(async {
        let rows = silences();
        // All rows wait at the same time, each with a tool of its own: the breaker opens behind them, not between them.
        let up = rows.iter().enumerate().fold(Upstream::new(), |up, (n, (_, text))| {
            up.tool(&format!("t{n}"), json!({ "type": "object" })).reply(&format!("t{n}"), Reply::raw(text))
        });
        let up = up.run().await;
        let gw = std::sync::Arc::new(gateway(&up).await);
        let mut tasks = Vec::new();
        for (n, (name, _)) in rows.iter().enumerate() {
            for accept in [BOTH, "application/json"] {
                let client = gw.client("ann").accept(accept).progress(json!(1));
                let call = async move { client.call(&format!("demo_t{n}"), json!({})).await };
                tasks.push((format!("{name}, {accept}"), tokio::spawn(call)));
            }
        }
        let mut faults = Faults::default();
        let count = tasks.len();
        for (name, task) in tasks {
            let answer = task.await.unwrap();
            let check = async move {
                answer.refused("upstream_timeout");
                assert!(answer.took >= LIMIT - Duration::from_millis(200), "too early: {:?}", answer.took);
                assert!(answer.took < LIMIT + SLACK, "too late: {:?}", answer.took);
            };
            faults.row(name, check).await;
        }
        // what timed out is not left running
        for call in up.calls() {
            up.until_closed(call.connection).await;
        }
        faults.assert_none(count);
    });
}

#[test]
fn a_slow_session_counts_into_the_limit() {
    run(async {
        let up = Upstream::new().speaks(Speaks::Legacy).tool("t", json!({ "type": "object" })).run().await;
        let gw = gateway(&up).await;
        gw.client("ann").call("demo_t", json!({})).await.ok();
        up.lose_sessions();
        up.slow_hello(Some("${stall}"));
        let answer = gw.client("ann").era(Era::Legacy).call("demo_t", json!({})).await;
        answer.refused("upstream_timeout");
        assert!(answer.took < LIMIT + SLACK, "{:?}", answer.took);
        up.slow_hello(None);
        // a call that joined the session in the making shares its fate; the next one opens its own
        crate::support::eventually("a new session", async || {
            let answer = gw.client("ann").call("demo_t", json!({})).await;
            (answer.result()["isError"] != true).then_some(())
        })
        .await;
    });
}

#[test]
fn an_answer_before_the_limit_passes() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gw = gateway(&up).await;
        let message = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"late"}]}}"#;
        up.next(Reply::Events(format!("${{drip 5}}data: {message}\n\n").into_bytes()));
        assert_eq!(gw.client("ann").call("demo_t", json!({})).await.said(), "late");
        up.next(Reply::Body(format!("${{drip 5}}{message}").into_bytes()));
        assert_eq!(gw.client("ann").call("demo_t", json!({})).await.said(), "late");
    });
}

#[test]
fn a_server_that_does_not_accept_is_could_not_connect() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[timeouts]\nconnect = '500ms'").server_with("demo", &up, "timeout = '5s'");
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        up.accept(Accept::Silence);
        // the kernel accepts for the process: this is silence of a connected server, so the call's own limit holds
        let answer = gw.client("ann").call("demo_t", json!({})).await;
        assert!(answer.took < Duration::from_secs(5) + SLACK, "{:?}", answer.took);
    });
}
