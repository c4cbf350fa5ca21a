//! Bytes through the gateway: sizes around the buffers, framings, both HTTP versions, and fidelity of arguments and results.

use proptest::{
    prelude::{Just, Strategy, any, prop_oneof},
    strategy::ValueTree,
    test_runner::{Config, TestRng, TestRunner},
};
use serde_json::json;

use crate::support::{
    Faults,
    answer::Era,
    client::{BOTH, Client},
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    tls::{Identity, Leaf},
    upstream::{Form, Reply, Up, Upstream},
};

const SIZES: [usize; 8] = [1024, 16 * 1024, 65_535, 65_536, 65_537, 100_000, 131_072, 1_048_576];
/// Large enough for every size on the way there and back, escaped.
const LIMITS: &str = "[limits]\nrequest_body = '4MiB'\narguments = '2MiB'\nresult = '8MiB'";

async fn gateway(tls: Option<&Identity>, upstream: Upstream, more: &str) -> (Gw, Up) {
    let up = upstream.tool("echo", json!({ "type": "object" })).run().await;
    let gateway = Gateway::new().conf(LIMITS).server_with("demo", &up, more).grant("ann", "demo", Read);
    let gateway = match tls {
        Some(identity) => gateway.tls(identity),
        None => gateway,
    };
    (gateway.approve_all().run().await, up)
}

/// Arguments of exactly that size, not all alike, with what needs escaping.
fn arguments(size: usize) -> String {
    let mut text = String::from(r#"{"t":"\u00e9"#);
    let mut n = 0u32;
    while text.len() < size - 2 {
        text.push(char::from(b'a' + u8::try_from(n * 7 % 26).unwrap()));
        n += 1;
    }
    text + "\"}"
}

async fn sizes_pass(name: &str, client: &Client, up: &Up, faults: &mut Faults) {
    for size in SIZES {
        for chunk in [None, Some(4096)] {
            if chunk.is_some() && name.contains("HTTP/2") {
                continue;
            }
            for form in [Form::Json, Form::Sse] {
                up.set_form(form);
                let text = arguments(size);
                let mut request = client.calling("demo_echo", &text);
                request.chunk = chunk;
                let (client, up) = (client.clone(), up.clone());
                let row = async move {
                    let answer = client.send(request).await;
                    assert_eq!(answer.said(), text, "the text that came back");
                    let call = up.calls().pop().unwrap();
                    assert!(call.arguments() == text, "the arguments that went up");
                };
                faults.row(format!("{name}, {size} bytes, chunk {chunk:?}, {form:?}"), row).await;
            }
        }
    }
}

#[test]
fn every_size_passes_over_http1() {
    run(async {
        let (gw, up) = gateway(None, Upstream::new(), "").await;
        let mut faults = Faults::default();
        for accept in [BOTH, "application/json"] {
            sizes_pass(&format!("HTTP/1.1, {accept}"), &gw.client("ann").accept(accept), &up, &mut faults).await;
        }
        up.assert_spoken_to_well();
        faults.assert_none(SIZES.len());
    });
}

#[test]
fn every_size_passes_over_tls_and_http2() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let (gw, up) = gateway(Some(&identity), Upstream::new(), "").await;
        let mut faults = Faults::default();
        sizes_pass("TLS HTTP/1.1", &gw.client("ann"), &up, &mut faults).await;
        sizes_pass("TLS HTTP/2", &gw.client("ann").http2(), &up, &mut faults).await;
        up.assert_spoken_to_well();
        faults.assert_none(SIZES.len());
    });
}

#[test]
fn every_size_passes_to_a_server_of_http2() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let up = Upstream::new().tls(&identity).tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf(LIMITS).file("ca.pem", &identity.ca_pem);
        let gateway = gateway.server_with("demo", &up, "http2 = true\nca = 'ca.pem'").grant("ann", "demo", Read);
        let gw = gateway.approve_all().run().await;
        let mut faults = Faults::default();
        sizes_pass("upstream", &gw.client("ann"), &up, &mut faults).await;
        assert!(up.calls().iter().all(|call| call.head.start.ends_with("HTTP/2")), "HTTP/2 upstream");
        up.assert_spoken_to_well();
        faults.assert_none(SIZES.len());
    });
}

#[test]
fn odd_framings_of_a_good_body_pass() {
    run(async {
        let (gw, up) = gateway(None, Upstream::new(), "").await;
        let client = gw.client("ann");
        let text = arguments(2000);
        for chunk in [1, 7, 1000] {
            let request = client.calling("demo_echo", &text).chunked(chunk);
            assert_eq!(client.send(request).await.said(), text);
        }
        let request = client.calling("demo_echo", &text);
        let bytes = request.bytes();
        let mut connection = client.connect().await.unwrap();
        for piece in bytes.chunks(bytes.len() / 3 + 1) {
            connection.write(piece).await.unwrap();
        }
        assert_eq!(connection.exchange(request.asked.clone()).finish().await.0.said(), text);
        let empty = client.posting("");
        let mut answer = client.send(empty).await;
        answer.asked.id = serde_json::Value::Null;
        answer.rpc_error(400, -32700);
        up.assert_spoken_to_well();
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    run(async {
        let (gw, up) = gateway(None, Upstream::new(), "").await;
        let client = gw.client("ann");
        let requests: Vec<_> = (0..3).map(|n| client.calling("demo_echo", &format!("{{\"n\":{n}}}"))).collect();
        let bytes: Vec<u8> = requests.iter().flat_map(crate::support::client::Request::bytes).collect();
        let mut connection = client.connect().await.unwrap();
        connection.write(&bytes).await.unwrap();
        for (n, request) in requests.iter().enumerate() {
            let (answer, next) = connection.exchange(request.asked.clone()).finish().await;
            assert_eq!(answer.said(), format!("{{\"n\":{n}}}"));
            let Some(next) = next else {
                assert!(n + 1 < requests.len() || up.calls().len() == 3);
                return; // closing instead of keeping alive is allowed; mixing answers up is not
            };
            connection = next;
        }
        assert_eq!(up.calls().len(), 3);
    });
}

#[test]
fn a_result_passes_at_the_limit_and_not_beyond() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server_with("demo", &up, "result_limit = '20KiB'").grant("ann", "demo", Read);
        let gw = gateway.approve_all().run().await;
        let limit = 20 * 1024;
        for form in [Form::Json, Form::Sse] {
            for (size, passes) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
                up.next(Reply::In(form, Box::new(sized(size))));
                let answer = gw.client("ann").call("demo_t", json!({})).await;
                if passes {
                    answer.ok();
                } else {
                    let message = answer.refused("tool_result_too_large");
                    assert!(message.contains("20"), "names the limit: {message}");
                    assert!(message.contains("less"), "asks for less: {message}");
                }
            }
        }
    });
}

/// A message of exactly that size, whatever the id is: the gateway's id is measured by a macro-free tail of spaces.
fn sized(size: usize) -> Reply {
    Reply::Sized(size)
}

#[test]
fn a_stream_may_hold_as_much_again_beside_the_answer() {
    let event = r#"data: {"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"ok"}]}}"#;
    run(async move {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server_with("demo", &up, "result_limit = '20KiB'").grant("ann", "demo", Read);
        let gw = gateway.approve_all().run().await;
        for (comments, passes) in [(150, true), (250, false)] {
            up.next(Reply::Events(format!("${{rep {comments} :{}\n\n}}{event}\n\n", "k".repeat(97)).into_bytes()));
            let answer = gw.client("ann").call("demo_t", json!({})).await;
            if passes {
                assert_eq!(answer.said(), "ok");
            } else {
                answer.refused("tool_result_too_large");
            }
        }
    });
}

#[test]
fn arguments_pass_at_256_kib_and_not_beyond() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        for (era, accept) in [(Era::Modern, BOTH), (Era::Legacy, "application/json")] {
            let client = gw.client("ann").era(era).accept(accept);
            let called = up.calls().len();
            assert_eq!(client.call_text("demo_echo", &arguments(262_144)).await.said().len(), 262_144);
            client.call_text("demo_echo", &arguments(262_145)).await.refused("invalid_tool_arguments");
            let padded = format!("{{{}}}", " ".repeat(262_143));
            client.call_text("demo_echo", &padded).await.refused("invalid_tool_arguments");
            let around = client.calling("demo_echo", "{}");
            let mut spaced = around.clone();
            spaced.body.splice(1..1, vec![b' '; 300_000]);
            client.send(spaced).await.ok();
            assert_eq!(up.calls().len() - called, 2);
        }
    });
}

/// JSON as people and machines write it: odd numbers, escapes, white space.
fn json_text() -> impl Strategy<Value = String> {
    let space = prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\n\t ")];
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u128>().prop_map(|n| n.to_string()),
        (any::<i32>(), 0..300u32)
            .prop_map(|(n, e)| format!("{n}e{e}"))
            .prop_filter("a double", |t| t.parse::<f64>().is_ok_and(f64::is_finite)),
        (any::<u32>(), "[0-9]{1,30}").prop_map(|(n, d)| format!("-{n}.{d}E-3")),
        Just("-0".to_owned()),
        Just("1.0".to_owned()),
    ];
    let string = proptest::collection::vec(
        prop_oneof![
            4 => proptest::char::range('a', 'z').prop_map(String::from),
            2 => any::<char>().prop_filter("escaped otherwise", |c| *c >= ' ' && *c != '"' && *c != '\\').prop_map(String::from),
            1 => Just("\\u00e9".to_owned()),
            1 => Just("\\ud83d\\ude80".to_owned()),
            1 => Just("\\n\\\"\\\\\\/".to_owned()),
            1 => Just("\\u0000".to_owned()),
        ],
        0..12,
    )
    .prop_map(|parts| format!("\"{}\"", parts.concat()));
    let leaf = prop_oneof![number, string.clone(), Just("true".to_owned()), Just("null".to_owned())];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let space = space.clone();
        let members = proptest::collection::vec((inner.clone(), space.clone()), 0..5);
        prop_oneof![
            members.clone().prop_map(|m| {
                let parts: Vec<String> = m.iter().map(|(v, s)| format!("{s}{v}{s}")).collect();
                format!("[{}]", parts.join(","))
            }),
            members.prop_map(|m| {
                let parts: Vec<String> =
                    m.iter().enumerate().map(|(n, (v, s))| format!("{s}\"k{n}\"{s}:{s}{v}")).collect();
                format!("{{{}}}", parts.join(","))
            }),
        ]
    })
    .prop_map(|value| format!("{{\"v\":{value}}}"))
}

#[test]
fn arguments_and_results_are_copied_byte_for_byte() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let texts: Vec<String> = (0..150).map(|_| json_text().new_tree(&mut runner).unwrap().current()).collect();
    run(async move {
        let (gw, up) = gateway(None, Upstream::new(), "").await;
        let mut faults = Faults::default();
        for (n, text) in texts.iter().enumerate() {
            let era = if n % 2 == 0 { Era::Modern } else { Era::Legacy };
            up.set_form(if n % 3 == 0 { Form::Sse } else { Form::Json });
            let one_line = text.replace(['\n', '\t'], " ");
            let result = format!(r#"{{"content":[{{"type":"text","text":"x"}}],"structuredContent":{one_line}}}"#)
                .replace("${", "$ {");
            let structured = result[result.find("structuredContent\":").unwrap() + 19..result.len() - 1].to_owned();
            up.next(Reply::Result(result));
            let (client, up, text) = (gw.client("ann").era(era), up.clone(), text.clone());
            let row = async move {
                let answer = client.call_text("demo_echo", &text).await;
                answer.ok();
                assert_eq!(up.calls().pop().unwrap().arguments(), text, "the arguments that went up");
                assert!(
                    answer.texts.last().unwrap().contains(&structured),
                    "{structured} did not come back: {}",
                    answer.text()
                );
            };
            faults.row(format!("text {n}"), row).await;
        }
        up.assert_spoken_to_well();
        faults.assert_none(texts.len());
    });
}

#[test]
fn results_in_pieces_are_the_same_results() {
    let message = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"Grüße 天気 🚀"}]}}"#;
    let replies = [
        Reply::Events(format!("${{bytewise}}data: {message}\n\n").into_bytes()),
        Reply::Events(format!("${{bytewise}}data: {message}\r\n\r\n").into_bytes()),
        Reply::Events(format!("${{bytewise}}event: message\rdata: {message}\r\r").into_bytes()),
        Reply::Events(format!("\u{feff}data:{message}\n\n").into_bytes()),
        Reply::Events(format!("retry: 0\nid: x\n: c\nData: no\ndata\nfoo: bar\n\ndata: {message}\n\n").into_bytes()),
        Reply::Events(format!("data: {}\n\n", message.replacen(',', ",\ndata: ", 1)).into_bytes()),
        Reply::Body(format!("${{bytewise}}{message}").into_bytes()),
        Reply::raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n\r\ndata: {message}\n\n${{close}}"
        )),
        Reply::raw(format!(
            "HTTP/1.0 200 OK\r\nContent-Type: application/json;charset=UTF-8\r\n\r\n{message}${{close}}"
        )),
    ];
    run(async move {
        let (gw, up) = gateway(None, Upstream::new(), "").await;
        let mut faults = Faults::default();
        let count = replies.len();
        for (n, reply) in replies.into_iter().enumerate() {
            for era in [Era::Modern, Era::Legacy] {
                up.next(reply.clone());
                let client = gw.client("ann").era(era);
                let row = async move {
                    assert_eq!(client.call("demo_echo", json!({})).await.said(), "Grüße 天気 🚀");
                };
                faults.row(format!("form {n}, {era:?}"), row).await;
            }
        }
        faults.assert_none(count);
    });
}
