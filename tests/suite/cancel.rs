//! A client that goes away: the call ends at the server too, and everything it held is free again.

use serde_json::json;

use crate::support::{
    answer::Era,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Form, Reply, Seen, Speaks, Up, Upstream},
};

async fn gateway(speaks: Speaks, reply: Reply) -> (Gw, Up) {
    let up = Upstream::new().speaks(speaks).tool("slow", json!({ "type": "object" })).reply("slow", reply);
    let up = up.tool("quick", json!({ "type": "object" })).run().await;
    let gateway = Gateway::new().server("demo", &up).grant("ann", "demo", Read);
    (gateway.approve_all().run().await, up)
}

/// The states in which a client may leave: what the server does meanwhile.
fn meanwhile() -> Vec<(&'static str, Reply)> {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1}}"#;
    vec![
        ("before the header", Reply::raw("${stall}")),
        (
            "after the header",
            Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n${stall}"),
        ),
        ("in a stream", Reply::After(vec![progress.to_owned(), "${stall}".to_owned()], Box::new(Reply::Echo))),
    ]
}

async fn leave(gw: &Gw, up: &Up, era: Era, reset: bool) -> Seen {
    let called = up.calls().len();
    let client = gw.client("ann").era(era).progress(json!("p"));
    let exchange = client.start(client.calling("demo_slow", "{}")).await;
    let call = up.until_calls(called + 1).await.pop().unwrap();
    assert!(!up.peer_closed(call.connection), "cancelled too early");
    if reset {
        exchange.reset()
    } else {
        exchange.disconnect()
    }
    call
}

#[test]
fn a_modern_server_sees_its_stream_closed() {
    run(async {
        for (name, reply) in meanwhile() {
            let (gw, up) = gateway(Speaks::Modern, reply).await;
            for era in [Era::Modern, Era::Legacy] {
                for reset in [false, true] {
                    let call = leave(&gw, &up, era, reset).await;
                    up.until_closed(call.connection).await;
                    gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 0.0).await;
                    gw.client("ann").call("demo_quick", json!({})).await.ok();
                }
            }
            assert_eq!(up.of("notifications/cancelled").len(), 0, "{name}: a modern server needs no notification");
        }
    });
}

#[test]
fn a_legacy_server_is_told_as_well() {
    run(async {
        for (name, reply) in meanwhile() {
            let (gw, up) = gateway(Speaks::Legacy, reply).await;
            for era in [Era::Modern, Era::Legacy] {
                let told = up.of("notifications/cancelled").len();
                let call = leave(&gw, &up, era, false).await;
                let notice = crate::support::eventually("notifications/cancelled", async || {
                    up.of("notifications/cancelled").get(told).cloned()
                })
                .await;
                assert_eq!(notice.message["params"]["requestId"], call.message["id"], "{name}");
                assert_eq!(notice.header("mcp-session-id"), call.header("mcp-session-id"), "{name}");
                assert!(notice.header("mcp-session-id").is_some());
                up.until_closed(call.connection).await;
            }
            up.assert_spoken_to_well();
        }
    });
}

#[test]
fn a_call_that_was_refused_or_answered_is_not_cancelled() {
    run(async {
        let (gw, up) = gateway(Speaks::Legacy, Reply::Echo).await;
        let client = gw.client("ann").fresh();
        for _ in 0..3 {
            client.call("demo_quick", json!({})).await.ok();
            client.call("demo_nothing", json!({})).await.rpc_error(200, -32602);
        }
        gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 0.0).await;
        client.call("demo_quick", json!({})).await.ok();
        assert_eq!(up.of("notifications/cancelled").len(), 0);
    });
}

#[test]
fn a_posted_cancellation_ends_no_call_as_the_id_may_be_of_another_agents() {
    run(async {
        for speaks in [Speaks::Modern, Speaks::Legacy] {
            for era in [Era::Modern, Era::Legacy] {
                let waits = Reply::After(vec!["${gate go}".into()], Box::new(Reply::text("done")));
                let (gw, up) = gateway(speaks, waits).await;
                let (one, other) = (gw.client("ann").era(era).fresh(), gw.client("ann").era(era).fresh());
                let request = one.calling("demo_slow", "{}");
                let params = json!({ "requestId": request.asked.id });
                let running = one.start(request).await;
                let call = up.until_calls(1).await.pop().unwrap();
                let notice = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
                let answer = other.send(other.posting(notice.to_string())).await;
                assert_eq!((answer.status, answer.text().as_str()), (202, ""));
                assert!(!up.peer_closed(call.connection));
                up.open("go");
                assert_eq!(running.finish().await.0.said(), "done");
                assert_eq!(up.of("notifications/cancelled").len(), 0);
            }
        }
    });
}

#[test]
fn many_clients_that_leave_free_every_place() {
    run(async {
        let (gw, up) = gateway(Speaks::Modern, Reply::raw("${stall}")).await;
        let mut exchanges = Vec::new();
        for _ in 0..50 {
            let client = gw.client("ann").fresh();
            exchanges.push(client.start(client.calling("demo_slow", "{}")).await);
        }
        let calls = up.until_calls(50).await;
        gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 50.0).await;
        drop(exchanges);
        for call in calls {
            up.until_closed(call.connection).await;
        }
        gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 0.0).await;
        gw.client("ann").call("demo_quick", json!({})).await.ok();
    });
}

#[test]
fn a_client_that_leaves_while_it_sends_reaches_nobody() {
    run(async {
        let (gw, up) = gateway(Speaks::Modern, Reply::Echo).await;
        let client = gw.client("ann");
        let request = client.calling("demo_quick", "{}");
        let bytes = request.bytes();
        for cut in [10, request.head_bytes().len(), bytes.len() - 1] {
            let mut connection = client.connect().await.unwrap();
            connection.write(&bytes[..cut]).await.unwrap();
            drop(connection);
        }
        client.call("demo_quick", json!({})).await.ok();
        assert_eq!(up.calls().len(), 1);
    });
}

#[test]
fn closing_only_the_sending_side_is_no_departure() {
    run(async {
        let (gw, up) = gateway(Speaks::Modern, Reply::Echo).await;
        up.set_form(Form::Json);
        let client = gw.client("ann");
        let request = client.calling("demo_quick", "{}");
        let mut connection = client.connect().await.unwrap();
        connection.write(&request.bytes()).await.unwrap();
        let (answer, _) = connection.exchange(request.asked.clone()).finish().await;
        answer.ok();
        assert_eq!(up.calls().len(), 1);
    });
}
