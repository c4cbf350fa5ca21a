//! The harness itself, without a gateway: the client and the mock server against each other.

use serde_json::json;

use crate::support::{
    answer::Era,
    client::{Client, Target},
    run, tls,
    upstream::{Event, Form, Reply, Speaks, Up, Upstream},
};

fn client(up: &Up) -> Client {
    Client::new(Target { address: up.address(), tls: None, base: String::new() }, None)
}

#[test]
fn the_mock_echoes_arguments_byte_for_byte() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        for arguments in [r#"{"a":1.0,"b":"\u00e9","c":18446744073709551616}"#, "{}", r#"{ "x" : [ ] }"#] {
            let answer = client(&up).call_text("echo", arguments).await;
            assert_eq!(answer.messages[0]["result"]["content"][0]["text"], arguments);
            assert_eq!(up.calls().last().unwrap().arguments(), arguments);
        }
    });
}

#[test]
fn the_mock_streams_and_waits_for_its_gate() {
    run(async {
        let progress =
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1}}"#;
        let reply = Reply::After(vec![progress.to_owned(), "${gate go}".to_owned()], Box::new(Reply::text("done")));
        let up = Upstream::new().reply("slow", reply).run().await;
        let client = client(&up).progress(json!("p1"));
        let mut exchange = client.start(client.calling("slow", "{}")).await;
        let first = exchange.next_event().await.unwrap();
        assert!(first.contains(r#""progressToken":"p1""#), "{first}");
        up.open("go");
        let (answer, _) = exchange.finish().await;
        assert_eq!(answer.messages.len(), 2);
        assert_eq!(answer.messages[1]["result"]["content"][0]["text"], "done");
    });
}

#[test]
fn the_mock_sees_a_client_that_goes_away() {
    run(async {
        let up = Upstream::new().reply("slow", Reply::raw("${stall}")).run().await;
        let client = client(&up);
        let exchange = client.start(client.calling("slow", "{}")).await;
        let call = up.until_calls(1).await.remove(0);
        assert!(!up.peer_closed(call.connection));
        exchange.disconnect();
        up.until_closed(call.connection).await;
        assert!(!up.events().iter().any(|(_, event)| *event == Event::Answered(0)));
    });
}

#[test]
fn the_mock_can_answer_anything() {
    let json = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[]}}"#;
    let rows: Vec<(Reply, u16, Option<usize>, bool)> = vec![
        (Reply::raw("${reset}"), 0, None, false),
        (Reply::raw("HTTP/1.1 200 OK\r\nConte${reset}"), 0, None, false),
        (Reply::status(503, "", "busy"), 503, Some(4), false),
        (Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: ${{LEN}}\r\n\r\n{json}")), 200, Some(48), false),
        (Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345${close}"), 200, Some(5), true),
        (Reply::Body(b"${rep 100000 ab}".to_vec()), 200, Some(200_000), false),
        (Reply::Events(b"${bytewise}data: {}\n\n".to_vec()), 200, Some(10), false),
    ];
    run(async move {
        for (reply, status, length, cut) in rows {
            let what = format!("{reply:?}");
            let up = Upstream::new().reply("t", reply).run().await;
            let answer = client(&up).call("t", json!({})).await;
            assert_eq!(answer.status, status, "{what}");
            assert_eq!(answer.cut, cut, "{what}");
            if let Some(length) = length {
                assert_eq!(answer.body.len(), length, "{what}");
            }
        }
    });
}

#[test]
fn a_legacy_mock_wants_its_session() {
    run(async {
        let up = Upstream::new().speaks(Speaks::Legacy).form(Form::Sse).priming().run().await;
        let client = client(&up).era(Era::Legacy);
        assert_eq!(client.rpc("tools/list", json!({})).await.status, 400);
        let hello = client.rpc("initialize", json!({})).await;
        let session = hello.header("mcp-session-id").unwrap().to_owned();
        let with = client.clone().header("Mcp-Session-Id", &session);
        let called = with.call("echo", json!({})).await;
        assert_eq!(called.messages.last().unwrap()["result"]["content"][0]["text"], "{}");
        up.lose_sessions();
        assert_eq!(with.call("echo", json!({})).await.status, 404);
    });
}

#[test]
fn the_mock_lists_page_by_page_and_drifts() {
    run(async {
        let up = (0..5).fold(Upstream::new().page(2), |up, n| up.tool(&format!("t{n}"), json!({ "type": "object" })));
        let up = up.run().await;
        let mut names = Vec::new();
        let mut cursor = json!({});
        loop {
            let answer = client(&up).rpc("tools/list", cursor).await;
            let result = &answer.messages[0]["result"];
            names.extend(result["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap().to_owned()));
            match result.get("nextCursor") {
                Some(next) => cursor = json!({ "cursor": next }),
                None => break,
            }
        }
        assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
        assert_eq!(up.of("tools/list").len(), 3);
        up.set_tool(json!({ "name": "t0", "inputSchema": { "type": "object" }, "description": "New." }));
        assert_eq!(up.tools()[0]["description"], "New.");
    });
}

#[test]
fn tls_and_http2_reach_the_mock() {
    run(async {
        let identity = tls::Identity::new(tls::Leaf::Good);
        let up = Upstream::new().tls(&identity).run().await;
        let target = Target { address: up.address(), tls: Some(identity.client(&[])), base: String::new() };
        for client in [Client::new(target.clone(), None), Client::new(target, None).http2()] {
            let answer = client.call("echo", json!({ "n": 1 })).await;
            assert_eq!(answer.messages[0]["result"]["content"][0]["text"], r#"{"n":1}"#, "{}", answer.wire());
        }
        assert!(up.calls()[1].head.start.ends_with("HTTP/2"));
    });
}

#[test]
fn a_closed_port_refuses_and_opens_again() {
    run(async {
        let up = Upstream::new().run().await;
        up.refuse(true).await;
        assert!(client(&up).connect().await.is_err());
        up.refuse(false).await;
        assert_eq!(client(&up).call("echo", json!({})).await.status, 200);
    });
}

#[test]
fn the_judge_speaks_up() {
    run(async {
        let up = Upstream::new().run().await;
        client(&up).header("Cookie", "a=1").call("echo", json!({})).await;
        assert!(up.faults().iter().any(|fault| fault.contains("header Cookie")), "{:?}", up.faults());
        assert!(up.faults().iter().any(|fault| fault.contains("accept-encoding")), "{:?}", up.faults());
    });
}
