//! Connections of clients: kept after a refusal, `Expect: 100-continue`, pipelining, limits that are exact for who calls one by one, HTTP/2.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use crate::support::{
    Faults,
    answer::Era,
    client::{BOTH, Client, Request},
    exchange::Connection,
    gateway::{Gateway, Gw, token},
    h2wire::Multiplexed,
    policy::Access::Read,
    run,
    tls::{Identity, Leaf},
    upstream::{Form, Reply, Speaks, Up, Upstream},
};

async fn gateway(more: &str, conf: &str) -> (Gw, Up) {
    let typed = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let up = Upstream::new().tool("echo", typed).tool("write", json!({ "type": "object" })).run().await;
    let write = up.tools().remove(1);
    let gateway = Gateway::new().conf(conf).server_with("demo", &up, more).grant("ann", "demo", Read);
    let gateway = gateway.key("off", "disabled = true").key("few", "rate_limit = '1/hour'");
    let gateway = gateway.key("far", "allow_ips = ['10.0.0.0/8']").grant("few", "demo", Read);
    (gateway.approve("demo", &write, "write").approve_all().run().await, up)
}

/// Requests that are refused while the connection may go on; what they are refused with.
fn refused(gw: &Gw) -> Vec<(&'static str, Request, u16)> {
    let ann = gw.client("ann");
    let call = |tool: &str, arguments: &str| ann.calling(tool, arguments);
    let echo = || call("demo_echo", "{}");
    let mut chunked = call("demo_echo", "{}").chunked(10).to("/nope");
    chunked.body = vec![b'x'; 5000];
    vec![
        ("another path", echo().to("/nope"), 404),
        ("another path, chunked", chunked, 404),
        ("an origin", echo().set("Origin", "https://evil.test"), 403),
        ("PUT", echo().by("PUT"), 405),
        ("GET", ann.posting("").by("GET"), 405),
        ("no key", echo().without("authorization"), 401),
        ("an unknown key", gw.client("nobody").calling("demo_echo", "{}"), 401),
        ("a disabled key", gw.client("off").calling("demo_echo", "{}"), 403),
        ("from afar", gw.client("far").calling("demo_echo", "{}"), 403),
        ("over its rate", gw.client("few").calling("demo_echo", "{}"), 429),
        ("an attribution", echo().and("X-Toolgate-Nonsense", "1"), 400),
        ("no such server", echo().to("/gateway/nope/mcp"), 404),
        ("a media type", echo().set("Content-Type", "text/plain"), 415),
        ("a coding", echo().and("Content-Encoding", "gzip"), 415),
        ("a little too large", Request { body: vec![b' '; 20_000], ..echo() }, 413),
        ("no JSON", Request { body: b"{".to_vec(), ..echo() }, 400),
        ("a batch", Request { body: b"[]".to_vec(), ..echo() }, 400),
        ("a header that disagrees", echo().set("Mcp-Name", "other"), 400),
        ("no such method", ann.asking("resources/list", json!({})), 404),
        ("no such tool", call("demo_nothing", "{}"), 200),
        ("not allowed", call("demo_write", "{}"), 200),
        ("arguments", call("demo_echo", r#"{"n":"x"}"#), 200),
        ("a notification", ann.posting(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), 202),
    ]
}

async fn open(client: &Client) -> Connection {
    client.connect().await.expect("the gateway listens")
}

#[test]
fn a_connection_goes_on_after_every_refusal() {
    run(async {
        let (gw, up) = gateway("", "[limits]\nrequest_body = '16KiB'").await;
        gw.client("few").call("demo_echo", json!({})).await.ok();
        let called = up.calls().len();
        let mut faults = Faults::default();
        let rows = refused(&gw);
        let count = rows.len();
        for (name, request, status) in rows {
            let client = gw.client("ann");
            let row = async move {
                let mut connection = open(&client).await;
                for round in 0..3 {
                    connection.write(&request.bytes()).await.unwrap();
                    let (answer, kept) = connection.exchange(request.asked.clone()).finish().await;
                    assert_eq!(answer.status, status, "{}", answer.wire());
                    connection = kept.unwrap_or_else(|| panic!("closed in round {round}: {}", answer.wire()));
                    let good = client.calling("demo_echo", r#"{"n":1}"#);
                    connection.write(&good.bytes()).await.unwrap();
                    let (answer, kept) = connection.exchange(good.asked.clone()).finish().await;
                    assert_eq!(answer.said(), r#"{"n":1}"#);
                    connection = kept.expect("kept after an answer");
                }
            };
            faults.row(name, row).await;
        }
        assert_eq!(up.calls().len() - called, 3 * count, "only the good ones reached the server");
        faults.assert_none(count);
    });
}

#[test]
fn a_connection_goes_on_after_every_fault_of_a_server() {
    let rows: Vec<(&str, Reply)> = vec![
        ("500", Reply::status(500, "", "oops")),
        ("a redirect", Reply::status(307, "Location: /x\r\n", "")),
        ("an error", Reply::Error(r#"{"code":1,"message":"no"}"#.into())),
        ("no MCP", Reply::Body(b"{}".to_vec())),
        ("a large result", Reply::Sized(100_000)),
        ("a broken connection", Reply::raw("HTTP/1.1 200 OK\r\nConte${reset}")),
        ("silence", Reply::raw("${stall}")),
        ("a stream that ends", Reply::Events(b": k\n\n".to_vec())),
    ];
    run(async move {
        let (gw, _up) = gateway("timeout = '2s'\nresult_limit = '16KiB'", "").await;
        let mut faults = Faults::default();
        let count = rows.len();
        for (name, reply) in rows {
            for accept in [BOTH, "application/json", "text/event-stream"] {
                _up.next(reply.clone());
                let client = gw.client("ann").accept(accept);
                let row = async move {
                    let mut connection = open(&client).await;
                    for round in 0..2 {
                        let request = client.calling("demo_echo", "{}");
                        connection.write(&request.bytes()).await.unwrap();
                        let (answer, kept) = connection.exchange(request.asked.clone()).finish().await;
                        assert_eq!(answer.result()["isError"] == true, round == 0, "{}", answer.wire());
                        connection = kept.unwrap_or_else(|| panic!("closed: {}", answer.wire()));
                    }
                };
                faults.row(format!("{name}, {accept}"), row).await;
            }
        }
        faults.assert_none(count);
    });
}

#[test]
fn expect_100_continue_is_answered_before_the_body_is_sent() {
    run(async {
        let (gw, up) = gateway("", "").await;
        let ann = gw.client("ann");
        let asking = |request: Request| request.and("Expect", "100-continue");
        let large = |size: usize| Request { body: vec![b' '; size], ..ann.calling("demo_echo", "{}") };
        let rows: Vec<(&str, Request, u16)> = vec![
            ("no key", asking(gw.client("nobody").calling("demo_echo", "{}")), 401),
            ("another path", asking(ann.calling("demo_echo", "{}").to("/nope")), 404),
            ("a media type", asking(ann.calling("demo_echo", "{}").set("Content-Type", "text/plain")), 415),
            ("a body over 1 MiB", asking(large((1 << 20) + 1)), 413),
        ];
        let mut faults = Faults::default();
        for (name, request, status) in rows {
            let client = gw.client("ann");
            let row = async move {
                let mut connection = open(&client).await;
                connection.write(&request.head_bytes()).await.unwrap();
                let mut exchange = connection.exchange(request.asked.clone());
                exchange.head().await.expect("an answer without a body");
                assert!(exchange.interim.is_empty(), "asked to go on, only to be refused");
                let (answer, kept) = exchange.finish().await;
                assert_eq!(answer.status, status, "{}", answer.wire());
                // Whether the body follows is the client's choice: a connection that went on could not tell.
                assert!(kept.is_none() || answer.closed || ends(kept).await, "the connection waits for a body");
            };
            faults.row(name, row).await;
        }
        for size in [100usize, 65_537, 1 << 20] {
            let client = gw.client("ann");
            let mut request = asking(client.calling("demo_echo", "{}"));
            request.body.resize(size.max(request.body.len()), b' ');
            let row = async move {
                let mut connection = open(&client).await;
                for _ in 0..2 {
                    connection.write(&request.head_bytes()).await.unwrap();
                    let (interim, mut back) = connection.interim().await;
                    assert_eq!(interim.status(), 100, "{}", interim.start);
                    back.write(&request.body).await.unwrap();
                    let (answer, kept) = back.exchange(request.asked.clone()).finish().await;
                    answer.ok();
                    connection = kept.expect("kept");
                }
            };
            faults.row(format!("{size} bytes"), row).await;
        }
        assert_eq!(up.calls().len(), 6);
        faults.assert_none(7);
    });
}

/// Whether the gateway closes within a while.
async fn ends(connection: Option<Connection>) -> bool {
    let Some(mut connection) = connection else { return true };
    tokio::time::timeout(Duration::from_secs(5), connection.until_closed()).await.is_ok()
}

#[test]
fn pipelined_requests_of_every_kind_are_answered_in_order() {
    run(async {
        let (gw, up) = gateway("", "[limits]\nrequest_body = '16KiB'").await;
        gw.client("few").call("demo_echo", json!({})).await.ok();
        let mut faults = Faults::default();
        let rows = refused(&gw);
        let count = rows.len();
        for (name, request, status) in rows {
            let client = gw.client("ann");
            let row = async move {
                let first = client.calling("demo_echo", r#"{"n":1}"#);
                let last = client.calling("demo_echo", r#"{"n":2}"#);
                let mut connection = open(&client).await;
                let bytes = [first.bytes(), request.bytes(), last.bytes()].concat();
                connection.write(&bytes).await.unwrap();
                let mut said = Vec::new();
                for request in [&first, &request, &last] {
                    let (answer, kept) = connection.exchange(request.asked.clone()).finish().await;
                    said.push(answer);
                    match kept {
                        Some(kept) => connection = kept,
                        None => break,
                    }
                }
                assert_eq!(said[0].said(), r#"{"n":1}"#);
                assert_eq!(said.get(1).map(|answer| answer.status), Some(status), "the second answer");
                assert_eq!(said.get(2).map(|answer| answer.said()), Some(r#"{"n":2}"#), "the third answer");
            };
            faults.row(name, row).await;
        }
        up.assert_spoken_to_well();
        faults.assert_none(count);
    });
}

#[test]
fn limits_of_one_are_exact_for_who_calls_one_by_one() {
    run(async {
        for speaks in [Speaks::Modern, Speaks::Legacy] {
            let up = Upstream::new().speaks(speaks).tool("echo", json!({ "type": "object" })).run().await;
            let gateway = Gateway::new().conf("[limits]\nin_flight = 1").server_with("demo", &up, "max_in_flight = 1");
            let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
            let mut faults = Faults::default();
            for (name, client) in [("kept", gw.client("ann")), ("fresh", gw.client("ann").fresh())] {
                for form in [Form::Json, Form::Sse] {
                    for era in [Era::Modern, Era::Legacy] {
                        up.set_form(form);
                        let (client, up) = (client.clone().era(era), up.clone());
                        let row = async move {
                            for n in 0..25 {
                                if n % 5 == 4 {
                                    up.next(Reply::status(500, "", ""));
                                    client.call("demo_echo", json!({})).await.refused("upstream_unavailable");
                                    client.call("demo_echo", json!(null)).await.refused("invalid_tool_arguments");
                                    client.call("demo_nothing", json!({})).await.rpc_error(200, -32602);
                                }
                                let answer = client.call("demo_echo", json!({})).await;
                                assert_eq!(answer.status, 200, "call {n}: {}", answer.wire());
                                assert_eq!(answer.said(), "{}", "call {n}");
                            }
                        };
                        faults.row(format!("{name}, {form:?}, {era:?}, {speaks:?}"), row).await;
                    }
                }
            }
            faults.assert_none(8);
        }
    });
}

#[test]
fn http2_is_spoken_over_tls_and_refused_without() {
    run(async {
        let (gw, _up) = gateway("", "").await;
        let mut connection = open(&gw.client("ann")).await;
        connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let bytes = connection.until_closed().await;
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&bytes));
        let upgrade = format!(
            "POST /gateway/mcp HTTP/1.1\r\nHost: g\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\n\r\n{{}}",
            token("ann")
        );
        let answer = gw.client("ann").raw(upgrade.as_bytes()).await;
        assert_eq!(answer.status, 400, "the upgrade is ignored, the body judged: {}", answer.wire());
        assert_eq!(answer.messages[0]["error"]["code"], -32600, "{}", answer.wire());
    });
}

#[test]
fn every_answer_is_the_same_over_http2() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).tool("write", json!({ "type": "object" }));
        let up = up.run().await;
        let write = up.tools().remove(1);
        let gateway = Gateway::new().tls(&identity).conf("[limits]\nrequest_body = '16KiB'").server("demo", &up);
        let gateway = gateway.key("off", "disabled = true").key("few", "rate_limit = '1/hour'");
        let gateway = gateway.key("far", "allow_ips = ['10.0.0.0/8']").grant("few", "demo", Read);
        let gateway = gateway.grant("ann", "demo", Read).approve("demo", &write, "write");
        let gw = gateway.approve_all().run().await;
        gw.client("few").call("demo_echo", json!({})).await.ok();
        let mut faults = Faults::default();
        let rows: Vec<_> = refused(&gw).into_iter().filter(|(name, ..)| *name != "arguments").collect();
        let count = rows.len();
        for (name, request, status) in rows {
            let (one, two) = (gw.client("ann").fresh(), gw.client("ann").http2());
            let row = async move {
                let first = one.send(request.clone()).await;
                let second = two.send(request).await;
                assert_eq!((first.status, second.status), (status, status), "{}", second.wire());
                second.request_id();
                let without_id =
                    |answer: &crate::support::answer::Answer| answer.text().replace(answer.request_id(), "REQ");
                assert_eq!(without_id(&first), without_id(&second));
                for header in ["content-type", "allow", "www-authenticate"] {
                    assert_eq!(first.header(header), second.header(header), "{header}");
                }
            };
            faults.row(name, row).await;
        }
        faults.assert_none(count);
    });
}

#[test]
fn one_http2_connection_carries_many_calls() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).tool("slow", json!({ "type": "object" }));
        let held = Reply::After(vec!["${gate go}".to_owned()], Box::new(Reply::text("done")));
        let up = up.reply("slow", held).run().await;
        let gateway = Gateway::new().tls(&identity).server("demo", &up).grant("ann", "demo", Read);
        let gw = gateway.approve_all().run().await;
        let client = gw.client("ann");
        let connection = Arc::new(Multiplexed::open(&client).await);
        let slow = connection.start(&client.calling("demo_slow", "{}")).await;
        up.until_calls(1).await;
        let calls: Vec<_> = (0..30)
            .map(|n| {
                let (connection, client) = (Arc::clone(&connection), client.clone());
                tokio::spawn(async move {
                    let request = client.calling("demo_echo", &format!("{{\"n\":{n}}}"));
                    let pending = connection.start(&request).await;
                    (n, pending.finish().await)
                })
            })
            .collect();
        for call in calls {
            let (n, answer) = call.await.unwrap();
            assert_eq!(answer.said(), format!("{{\"n\":{n}}}"));
        }
        let gone = connection.start(&client.calling("demo_slow", "{}")).await;
        let call = up.until_calls(32).await.pop().unwrap();
        gone.reset();
        up.until_closed(call.connection).await;
        up.open("go");
        assert_eq!(slow.finish().await.said(), "done", "a stream that is reset hurts no other");
        gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 0.0).await;
    });
}

#[test]
fn a_head_on_a_kept_connection_has_its_own_time() {
    run(async {
        let kept = async |gw: &Gw| {
            let client = gw.client("ann");
            let exchange = client.start(client.calling("demo_echo", "{}")).await;
            exchange.finish().await.1.expect("a kept connection")
        };
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = |conf| Gateway::new().conf(conf).server("demo", &up).grant("ann", "demo", Read).approve_all();
        let gw = gateway("[timeouts]\nrequest_header = '1s'\nkeep_alive = '10m'").run().await;
        let (mut idle, mut late) = (kept(&gw).await, kept(&gw).await);
        late.write(b"POST /gateway").await.unwrap();
        let text = String::from_utf8(late.until_closed().await).unwrap();
        assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("request_timeout"), "{text}");
        // the other one was idle for longer than a head may take
        let request = gw.client("ann").calling("demo_echo", "{}");
        idle.write(&request.bytes()).await.unwrap();
        idle.exchange(request.asked).finish().await.0.ok();
        let gw = gateway("[timeouts]\nrequest_header = '10m'\nkeep_alive = '1s'").run().await;
        assert_eq!(kept(&gw).await.until_closed().await, b"", "idle for too long is no fault");
    });
}
