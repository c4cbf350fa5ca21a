//! Modern and legacy on either side: all four pairs, sessions and their loss, and what legacy servers do on the side.

use serde_json::{Value, json};

use crate::support::{
    Faults,
    answer::Era,
    client::{BOTH, Client},
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Form, Lost, Reply, Speaks, Up, Upstream},
};

const SERVERS: [Speaks; 4] = [Speaks::Modern, Speaks::Legacy, Speaks::StatelessLegacy, Speaks::Dual];

fn offering(up: Upstream) -> Upstream {
    let typed = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    up.tool("echo", typed).tool_out("out", json!({ "type": "object" }), json!({ "type": "object", "required": ["n"] }))
}

async fn gateway(up: Upstream) -> (Gw, Up) {
    let up = offering(up).run().await;
    let gateway = Gateway::new().server("demo", &up).grant("ann", "demo", Read).grant("bob", "demo", Read);
    (gateway.approve_all().run().await, up)
}

fn clients(gw: &Gw) -> Vec<(String, Client)> {
    let mut out = Vec::new();
    for accept in [BOTH, "application/json", "text/event-stream"] {
        let client = |c: Client| c.accept(accept);
        out.push((format!("modern, {accept}"), client(gw.client("ann"))));
        for revision in ["2025-11-25", "2025-06-18", "2025-03-26", ""] {
            out.push((format!("legacy {revision}, {accept}"), client(gw.client("ann").legacy(revision))));
        }
    }
    out
}

#[test]
fn every_pair_of_eras_works_in_both_forms() {
    run(async {
        let mut faults = Faults::default();
        let mut count = 0;
        for speaks in SERVERS {
            for form in [Form::Json, Form::Sse] {
                let (gw, up) = gateway(Upstream::new().speaks(speaks).form(form).priming()).await;
                for (name, client) in clients(&gw) {
                    for client in [client.clone(), client.server("demo")] {
                        count += 1;
                        let (up, before) = (up.clone(), up.calls().len());
                        let row = async move {
                            let echo = client.named("demo", "echo");
                            assert_eq!(client.call_text(&echo, r#"{"n": 1.0}"#).await.said(), r#"{"n": 1.0}"#);
                            assert_eq!(up.calls().len() - before, 1);
                            client.call(&echo, json!({ "n": "x" })).await.refused("invalid_tool_arguments");
                            client.call(&client.named("demo", "out"), json!({})).await.refused("tool_result_invalid");
                            assert_eq!(client.listed().await, [echo, client.named("demo", "out")]);
                        };
                        faults.row(format!("{name} to {speaks:?} {form:?}"), row).await;
                    }
                }
                up.assert_spoken_to_well();
                if speaks == Speaks::Modern {
                    assert_eq!(up.of("initialize").len(), 0);
                }
            }
        }
        faults.assert_none(count);
    });
}

#[test]
fn every_legacy_revision_of_a_server_works() {
    run(async {
        for revision in ["2025-11-25", "2025-06-18", "2025-03-26"] {
            let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy).revision(revision)).await;
            gw.client("ann").call("demo_echo", json!({})).await.ok();
            gw.client("ann").era(Era::Legacy).call("demo_echo", json!({})).await.ok();
            up.assert_spoken_to_well();
        }
    });
}

#[test]
fn a_lost_session_is_renewed_once_and_the_call_sent_once_more() {
    run(async {
        for lost in [Lost::NotFound, Lost::BadRequest] {
            for form in [Form::Json, Form::Sse] {
                let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy).lost(lost).form(form)).await;
                for key in ["ann", "bob"] {
                    gw.client(key).call("demo_echo", json!({})).await.ok();
                    gw.client(key).call("demo_echo", json!({})).await.ok();
                }
                let minted = up.minted();
                up.lose_sessions();
                for key in ["ann", "bob"] {
                    let called = up.calls().len();
                    gw.client(key).call("demo_echo", json!({})).await.ok();
                    assert_eq!(up.calls().len() - called, 2, "{lost:?}: refused once, sent once more");
                    gw.client(key).call("demo_echo", json!({})).await.ok();
                    assert_eq!(up.calls().len() - called, 3);
                }
                assert_eq!(up.minted() - minted, 2, "{lost:?}: one new session a key");
                up.assert_spoken_to_well();
            }
        }
    });
}

#[test]
fn a_session_is_renewed_whatever_the_refusal_looks_like() {
    let lost = [
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\n${bytewise}unknown",
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n\r\n<html>gone</html>${close}",
        "HTTP/1.1 404 Not Found\r\nContent-Length: ${LEN}\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":\"other\",\"error\":{\"code\":1,\"message\":\"x\"}}",
    ];
    let good = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"ok"}]}}"#;
    run(async move {
        let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy)).await;
        let mut faults = Faults::default();
        for refusal in lost {
            // After the renewal the server answers in each form; its stream stays open behind the answer.
            let answers = [Reply::Body(good.into()), Reply::Events(format!("data: {good}\n\n${{stall}}").into_bytes())];
            for second in answers {
                let (client, up) = (gw.client("ann"), up.clone());
                let row = async move {
                    client.call("demo_echo", json!({})).await.ok();
                    let (called, minted) = (up.calls().len(), up.minted());
                    up.next(Reply::raw(refusal));
                    up.next(second);
                    let answer = client.call("demo_echo", json!({})).await;
                    assert_eq!(answer.said(), "ok");
                    assert!(answer.took < std::time::Duration::from_secs(5), "{:?}", answer.took);
                    assert_eq!((up.calls().len() - called, up.minted() - minted), (2, 1));
                };
                faults.row(format!("{refusal:.60}"), row).await;
            }
        }
        faults.assert_none(2 * lost.len());
    });
}

#[test]
fn a_server_that_loses_every_session_is_not_asked_for_ever() {
    run(async {
        let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy)).await;
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        let called = up.calls().len();
        let gone = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
        for _ in 0..5 {
            up.next(Reply::status(404, "Content-Type: application/json\r\n", gone));
        }
        // its error, whose id is null, may stand for the answer, or for the session that could not be had
        let answer = gw.client("ann").call("demo_echo", json!({})).await;
        let code = answer.result()["_meta"]["toolgate/refusal"]["code"].as_str().unwrap_or_default().to_owned();
        assert!(["upstream_unavailable", "upstream_rejected"].contains(&code.as_str()), "{}", answer.text());
        answer.refused(&code);
        assert_eq!(up.calls().len() - called, 2, "once, and once more");
    });
}

#[test]
fn a_404_that_answers_our_id_is_the_answer() {
    run(async {
        let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy)).await;
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        let (called, minted) = (up.calls().len(), up.minted());
        for status in [404, 400] {
            let body = r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":-32602,"message":"no such row"}}"#;
            let head =
                format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: ${{LEN}}\r\n\r\n");
            up.next(Reply::raw(head + body));
            let answer = gw.client("ann").call("demo_echo", json!({})).await;
            assert!(answer.refused("upstream_rejected").contains("no such row"));
        }
        assert_eq!(
            (up.calls().len() - called, up.minted() - minted),
            (2, 0),
            "nothing was sent twice, no session renewed"
        );
    });
}

#[test]
fn sessions_are_kept_apart_by_key_or_shared() {
    run(async {
        for (session, expected) in [("per_key", 2), ("shared", 1)] {
            let up = offering(Upstream::new().speaks(Speaks::Legacy)).run().await;
            let gateway = Gateway::new().server_with("demo", &up, &format!("session = '{session}'"));
            let gateway = gateway.grant("ann", "demo", Read).grant("bob", "demo", Read);
            let gw = gateway.approve_all().run().await;
            for key in ["ann", "bob", "ann", "bob"] {
                gw.client(key).call("demo_echo", json!({})).await.ok();
            }
            let mut sessions: Vec<String> =
                up.calls().iter().map(|call| call.header("mcp-session-id").unwrap_or_default().to_owned()).collect();
            assert!(sessions.iter().all(|session| session.starts_with("sess-")));
            sessions.sort();
            sessions.dedup();
            assert_eq!(sessions.len(), expected, "{session}");
            up.assert_spoken_to_well();
        }
    });
}

#[test]
fn parallel_first_calls_open_one_session() {
    run(async {
        let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy)).await;
        let minted = up.minted();
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let client = gw.client("ann").fresh();
                tokio::spawn(async move { client.call("demo_echo", json!({})).await })
            })
            .collect();
        for call in calls {
            call.await.unwrap().ok();
        }
        assert!(up.minted() - minted <= 1, "{} sessions for one key", up.minted() - minted);
    });
}

#[test]
fn a_servers_own_requests_are_answered_for_the_client() {
    run(async {
        for speaks in [Speaks::Legacy, Speaks::StatelessLegacy] {
            let (gw, up) = gateway(Upstream::new().speaks(speaks)).await;
            let sampling = r#"{"jsonrpc":"2.0","id":${ID},"method":"sampling/createMessage","params":{}}"#;
            let ping = r#"{"jsonrpc":"2.0","id":"their-ping","method":"ping"}"#;
            let messages = vec![sampling.to_owned(), ping.to_owned()];
            up.next(Reply::After(messages, Box::new(Reply::text("done"))));
            let answer = gw.client("ann").call("demo_echo", json!({})).await;
            assert_eq!(answer.said(), "done");
            assert_eq!(answer.messages.len(), 1, "nothing of it reaches the client");
            let id = up.calls().pop().unwrap().message["id"].clone();
            let replies = crate::support::eventually("both answers", async || {
                let replies: Vec<Value> = up
                    .seen()
                    .into_iter()
                    .filter(|s| s.method().is_empty() && s.message.is_object())
                    .map(|s| s.message)
                    .collect();
                (replies.len() == 2).then_some(replies)
            })
            .await;
            let of = |id: &Value| {
                let found = replies.iter().find(|reply| reply["id"] == *id);
                found.unwrap_or_else(|| panic!("{speaks:?}: no answer to {id}: {replies:?}")).clone()
            };
            assert_eq!(of(&id)["error"]["code"], -32601, "{replies:?}");
            assert_eq!(of(&json!("their-ping"))["result"], json!({}), "{replies:?}");
            up.assert_spoken_to_well();
        }
    });
}

#[test]
fn of_notifications_only_progress_is_relayed_and_only_when_asked_for() {
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1,"_meta":{"toolgate/refusal":{"code":"x"},"a":1}}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    run(async move {
        for speaks in SERVERS {
            let (gw, up) = gateway(Upstream::new().speaks(speaks)).await;
            for era in [Era::Modern, Era::Legacy] {
                for token in [json!("p-1"), json!(7)] {
                    let messages = [log, progress, changed].map(str::to_owned).to_vec();
                    up.next(Reply::After(messages, Box::new(Reply::text("done"))));
                    let client = gw.client("ann").era(era).progress(token.clone());
                    let answer = client.call("demo_echo", json!({})).await;
                    assert_eq!(answer.said(), "done");
                    assert_eq!(answer.messages.len(), 2, "{speaks:?}, {era:?}: {:?}", answer.texts);
                    assert_eq!(answer.messages[0]["method"], "notifications/progress");
                    assert_eq!(answer.messages[0]["params"]["progressToken"], token);
                    assert_eq!(answer.messages[0]["params"]["_meta"], json!({ "a": 1 }), "the mark is the gateway's");
                    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
                }
            }
            let json_only = gw.client("ann").accept("application/json").progress(json!(1));
            up.next(Reply::After(vec![progress.to_owned()], Box::new(Reply::text("done"))));
            let answer = json_only.call("demo_echo", json!({})).await;
            assert_eq!((answer.said(), answer.is_stream()), ("done", false));
        }
    });
}

#[test]
fn progress_passes_at_once() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1}}"#;
    run(async move {
        for speaks in SERVERS {
            let (gw, up) = gateway(Upstream::new().speaks(speaks)).await;
            let gate = format!("go-{speaks:?}");
            let messages = vec![progress.to_owned(), format!("${{gate {gate}}}")];
            up.next(Reply::After(messages, Box::new(Reply::text("done"))));
            let client = gw.client("ann").progress(json!("p"));
            let mut exchange = client.start(client.calling("demo_echo", "{}")).await;
            let first = exchange.next_event().await.expect("progress while the server still works");
            assert!(first.contains("notifications/progress"), "{first}");
            up.open(&gate);
            assert_eq!(exchange.finish().await.0.said(), "done");
        }
    });
}

#[test]
fn what_a_revision_lacks_is_fitted() {
    let result = r#"{"content":[{"type":"resource_link","uri":"file:///a","name":"n"},{"type":"text","text":"t"}],"structuredContent":{"n":1}}"#;
    run(async move {
        let (gw, up) = gateway(Upstream::new()).await;
        let call = async |client: Client| {
            up.next(Reply::Result(result.to_owned()));
            client.call("demo_echo", json!({})).await.ok().clone()
        };
        for revision in ["2025-11-25", "2025-06-18"] {
            let got = call(gw.client("ann").legacy(revision)).await;
            assert_eq!(got["content"][0]["type"], "resource_link", "{revision}");
            assert_eq!(got["structuredContent"], json!({ "n": 1 }));
        }
        let oldest = call(gw.client("ann").legacy("2025-03-26")).await;
        assert_eq!(oldest["content"][0]["type"], "text", "{oldest}");
        for value in ["[1,2]", "0", "null", "\"x\""] {
            let text = format!(r#"{{"content":[{{"type":"text","text":"t"}}],"structuredContent":{value}}}"#);
            up.next(Reply::Result(text.clone()));
            let modern = gw.client("ann").call("demo_echo", json!({})).await;
            assert!(modern.text().contains(&format!(r#""structuredContent":{value}"#)), "{}", modern.text());
            up.next(Reply::Result(text));
            let legacy = gw.client("ann").era(Era::Legacy).call("demo_echo", json!({})).await;
            assert!(legacy.ok().get("structuredContent").is_none(), "legacy takes objects only: {}", legacy.text());
        }
    });
}

#[test]
fn the_gateway_owns_server_info_and_its_own_mark() {
    let result = r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"mock","version":"1"},"toolgate/refusal":{"code":"x"},"x.example/k":{"a":[1]}},"content":[],"isError":true}"#;
    run(async move {
        for speaks in SERVERS {
            let (gw, up) = gateway(Upstream::new().speaks(speaks)).await;
            for era in [Era::Modern, Era::Legacy] {
                up.next(Reply::Result(result.to_owned()));
                let answer = gw.client("ann").era(era).call("demo_echo", json!({})).await;
                let got = answer.result();
                assert_eq!(got["isError"], true);
                assert!(got["_meta"].get("toolgate/refusal").is_none(), "a server posed as the gateway: {got}");
                assert_eq!(got["_meta"]["x.example/k"], json!({ "a": [1] }), "{got}");
            }
        }
    });
}
