//! `subscriptions/listen`: acknowledged, kept open, told of each change of the key's own list, and ended in good order. Also the
//! comments that keep a quiet stream alive, there and on relayed answers.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    answer::Era,
    client::Client,
    exchange::Exchange,
    gateway::{Gateway, Gw},
    policy::Access::{Read, Selected},
    run,
    upstream::{Reply, Up, Upstream},
};

/// `SUBSCRIPTIONS_MAX` of the gateway, and what one key may hold of them.
const SUBSCRIPTIONS_MAX: usize = 1024;
const SUBSCRIPTIONS_PER_KEY_MAX: usize = 256;
const ID: &str = "io.modelcontextprotocol/subscriptionId";

async fn gateway() -> (Gw, Up) {
    let schema = || json!({ "type": "object" });
    let up = Upstream::new().tool("a", schema()).tool("b", schema()).run().await;
    let gateway = Gateway::new().server("demo", &up).conf("[discovery]\ninterval = '1s'");
    let gateway = gateway.grant("ann", "demo", Read).grant("bob", "demo", Selected(&["a"]));
    (gateway.approve_all().run().await, up)
}

async fn listen(client: &Client, filter: Value) -> Exchange {
    client.start(client.asking("subscriptions/listen", json!({ "notifications": filter }))).await
}

async fn event(stream: &mut Exchange) -> Value {
    let text = stream.next_event().await.expect("an event");
    serde_json::from_str(&text).expect("JSON")
}

/// Opens a subscription to the list of tools; gives its id.
async fn subscribed(client: &Client) -> (Exchange, Value) {
    let mut stream = listen(client, json!({ "toolsListChanged": true, "promptsListChanged": true })).await;
    let head = stream.head().await.expect("a head").clone();
    assert_eq!((head.status(), head.get("content-type")), (200, Some("text/event-stream")), "{head:?}");
    assert_eq!((head.get("x-accel-buffering"), head.get("cache-control")), (Some("no"), Some("no-cache")));
    let first = event(&mut stream).await;
    let id = first["params"]["_meta"][ID].clone();
    let params = json!({ "_meta": { ID: id }, "notifications": { "toolsListChanged": true } });
    let expected = json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params });
    assert_eq!(first, expected);
    (stream, id)
}

async fn expect_change(stream: &mut Exchange, id: &Value, why: &str) {
    let params = json!({ "_meta": { ID: id } });
    let expected = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params });
    assert_eq!(event(stream).await, expected, "{why}");
}

async fn expect_end(mut stream: Exchange, id: &Value, why: &str) {
    let last = event(&mut stream).await;
    assert_eq!((&last["id"], &last["result"]["resultType"]), (id, &json!("complete")), "{why}: {last}");
    assert_eq!(&last["result"]["_meta"][ID], id, "{why}: {last}");
    let (answer, _) = stream.finish().await;
    assert!(!answer.cut, "{why}: the stream was cut: {}", answer.wire());
}

#[test]
fn each_change_of_the_keys_own_list_is_told_and_no_other() {
    run(async {
        for slug in [None, Some("demo")] {
            let (gw, up) = gateway().await;
            let client = |key: &str| slug.map_or(gw.client(key), |slug| gw.client(key).server(slug));
            let (mut ann, ann_id) = subscribed(&client("ann")).await;
            let (mut bob, bob_id) = subscribed(&client("bob")).await;

            let mut policy = gw.policy();
            gw.reload(policy.key("eve", "a token", "")).await; // changes nobody's list
            gw.reload(policy.edit("approval", "b", "status = 'blocked'")).await;
            expect_change(&mut ann, &ann_id, "a tool was blocked").await;
            gw.reload(policy.edit("approval", "b", "status = 'approved'")).await;
            expect_change(&mut ann, &ann_id, "it was approved again").await;
            gw.reload(policy.edit("grant", "bob", "tools = ['a', 'b']")).await;
            expect_change(&mut bob, &bob_id, "the first change of bob's list: he never saw `b`").await;

            up.set_tool(json!({ "name": "a", "description": "other", "inputSchema": { "type": "object" } }));
            expect_change(&mut ann, &ann_id, "a definition drifted").await;
            expect_change(&mut bob, &bob_id, "a definition drifted").await;

            gw.reload(policy.edit("key", "bob", "disabled = true")).await;
            expect_end(bob, &bob_id, "the key was turned off").await;
            gw.reload(policy.remove("grant", "ann")).await;
            if slug.is_some() {
                expect_end(ann, &ann_id, "the endpoint is not there any more").await;
                continue;
            }
            expect_change(&mut ann, &ann_id, "the grant was taken away").await;
            gw.signal("TERM");
            expect_end(ann, &ann_id, "the gateway stops").await;
        }
    });
}

#[test]
fn only_what_is_asked_for_and_served_is_acknowledged_and_told() {
    run(async {
        let (gw, _up) = gateway().await;
        let mut quiet = Vec::new();
        for filter in [json!({}), json!({ "toolsListChanged": false }), json!({ "resourcesListChanged": true, "x": 1 })]
        {
            let mut stream = listen(&gw.client("ann"), filter).await;
            let first = event(&mut stream).await;
            assert_eq!(first["params"]["notifications"], json!({}), "{first}");
            quiet.push((stream, first["params"]["_meta"][ID].clone()));
        }
        let mut policy = gw.policy();
        gw.reload(policy.edit("approval", "b", "status = 'blocked'")).await;
        gw.signal("TERM");
        for (stream, id) in quiet {
            expect_end(stream, &id, "nothing was told before the end").await;
        }
    });
}

#[test]
fn what_is_told_is_declared() {
    run(async {
        let (gw, _up) = gateway().await;
        for client in [gw.client("ann"), gw.client("ann").server("demo")] {
            let modern = client.rpc("server/discover", json!({})).await;
            assert_eq!(modern.result()["capabilities"], json!({ "tools": { "listChanged": true } }));
            let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } });
            let legacy = client.era(Era::Legacy).rpc("initialize", hello).await;
            assert_eq!(legacy.result()["capabilities"], json!({ "tools": {} }));
        }
    });
}

#[test]
fn what_cannot_be_a_subscription_is_refused() {
    run(async {
        let (gw, _up) = gateway().await;
        let ann = gw.client("ann");
        let ask = async |client: &Client, params: Value| client.rpc("subscriptions/listen", params).await;
        for params in [json!({}), json!({ "notifications": [] }), json!({ "notifications": { "toolsListChanged": 1 } })]
        {
            ask(&ann, params).await.rpc_error(200, -32602);
        }
        let good = json!({ "notifications": { "toolsListChanged": true } });
        ask(&ann.clone().accept("application/json"), good.clone()).await.rpc_error(200, -32602);
        ask(&ann.clone().era(Era::Legacy), good.clone()).await.rpc_error(200, -32601);
        ask(&gw.nobody(), good).await.http_refused(401, "authentication_error", None);
    });
}

#[test]
fn a_client_that_goes_away_ends_its_subscription() {
    run(async {
        let (gw, _up) = gateway().await;
        for reset in [false, true] {
            let (mut stream, _) = subscribed(&gw.client("ann")).await;
            let id = stream.head().await.unwrap().get("x-request-id").unwrap().to_owned();
            if reset {
                stream.reset()
            } else {
                stream.disconnect()
            }
            let line = gw.access_line(&id).await;
            assert_eq!((&line["method"], &line["status"]), (&json!("subscriptions/listen"), &json!(200)), "{line}");
        }
    });
}

#[test]
fn one_subscription_past_the_limit_is_refused() {
    run(async {
        let up = Upstream::new().tool("a", json!({ "type": "object" })).run().await;
        let mut gateway = Gateway::new().server("demo", &up).conf("[limits]\nin_flight = 1").approve_all();
        let keys: Vec<String> = (0..=SUBSCRIPTIONS_MAX / SUBSCRIPTIONS_PER_KEY_MAX).map(|n| format!("k{n}")).collect();
        for key in &keys {
            gateway = gateway.grant(key, "demo", Read);
        }
        let gw = gateway.run().await;
        let refused = async |key: &str| {
            let filter = json!({ "notifications": { "toolsListChanged": true } });
            let refused = gw.client(key).rpc("subscriptions/listen", filter).await;
            refused.http_refused(503, "internal_error", Some("overloaded"));
            assert_eq!(refused.retry_after(), 1);
        };
        let mut streams: Vec<Exchange> = Vec::new();
        let (last, full) = keys.split_last().unwrap();
        for key in full {
            for _ in 0..SUBSCRIPTIONS_PER_KEY_MAX {
                streams.push(subscribed(&gw.client(key)).await.0);
            }
            refused(key).await;
        }
        refused(last).await;
        assert_eq!(gw.metrics().await.sum("toolgate_subscriptions", &[]), SUBSCRIPTIONS_MAX as f64);
        // They take no place in flight: calls go on, one at a time here.
        gw.client(last).call("demo_a", json!({})).await.ok();
        let id = streams[0].head().await.unwrap().get("x-request-id").unwrap().to_owned();
        streams.remove(0).disconnect();
        gw.access_line(&id).await;
        subscribed(&gw.client(last)).await.0.disconnect();
    });
}

/// Sends a request on a socket of its own; gives all that came until `wanted` was among it.
async fn until(gw: &Gw, request: &[u8], wanted: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(gw.target().address).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut got = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&got).contains(wanted) {
            let mut piece = [0u8; 4096];
            let n = socket.read(&mut piece).await.unwrap();
            assert!(n > 0, "closed after {}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&piece[..n]);
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), read).await.expect(wanted);
    String::from_utf8(got).unwrap()
}

const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// Says something before, then nothing until the gate is opened; then it answers.
fn quiet(gate: &str, before: &[&str]) -> Reply {
    let messages = before.iter().copied().map(str::to_owned).chain([format!("${{gate {gate}}}")]);
    Reply::After(messages.collect(), Box::new(Reply::text("done")))
}

#[test]
fn quiet_streams_are_kept_alive_by_comments() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1}}"#;
    run(async move {
        let (gw, up) = gateway().await;
        let client = gw.client("ann");
        up.on("a", quiet("one", &[progress]));
        up.on("b", quiet("two", &[]));
        let asking = client.asking("subscriptions/listen", json!({ "notifications": {} })).bytes();
        let begun = client.clone().progress(json!("p")).calling("demo_a", "{}").bytes();
        let silent = client.calling("demo_b", "{}").bytes();
        let streams = [asking, begun, silent];
        let got = futures::future::join_all(streams.iter().map(|request| until(&gw, request, KEEP_ALIVE))).await;
        for (got, before) in got.iter().zip(["acknowledged", "notifications/progress", "HTTP/1.1 200"]) {
            let (head, _) = got.split_once(KEEP_ALIVE).unwrap();
            assert!(head.contains(before) && head.contains("text/event-stream"), "{got}");
        }
    });
}

#[test]
fn after_a_comment_the_answer_comes_whole() {
    run(async {
        let (gw, up) = gateway().await;
        let client = gw.client("ann");
        up.on("b", quiet("two", &[]));
        let mut exchange = client.start(client.calling("demo_b", "{}")).await;
        exchange.head().await.expect("the head comes with the first comment");
        up.open("two");
        let (answer, _) = exchange.finish().await;
        assert_eq!(answer.said(), "done");
        assert!(answer.text().contains(KEEP_ALIVE), "{}", answer.text());
    });
}

#[test]
fn after_a_comment_the_refusal_comes_whole() {
    run(async {
        let (gw, up) = gateway().await;
        let client = gw.client("ann");
        let cut = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n${gate three}data: x\n\n${close}";
        up.on("b", Reply::raw(cut));
        let mut exchange = client.start(client.calling("demo_b", "{}")).await;
        exchange.head().await.expect("the head comes with the first comment");
        up.open("three");
        exchange.finish().await.0.refused("upstream_unavailable");
    });
}
