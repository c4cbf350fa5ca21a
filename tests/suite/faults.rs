//! What a server can do wrong x JSON or SSE x a fresh or a pooled connection: the code of contract §4, sent once, and nobody else hurt.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    Faults,
    answer::Era,
    client::{BOTH, Client},
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    tls::{Identity, Leaf},
    upstream::{Accept, Event, Form, Reply, Up, Upstream},
};

/// The wall clock of a call in this file.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// How late an answer may be before it counts as hanging.
const LATE: Duration = Duration::from_secs(3);

const UNAVAILABLE: &str = "upstream_unavailable";
const TIMED_OUT: &str = "upstream_timeout";
const TOO_LARGE: &str = "tool_result_too_large";
const REJECTED: &str = "upstream_rejected";
const OK: &str = "";

/// A head of a 200 in each form, without the framing.
const JSON: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
/// A good message.
const GOOD: &str = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"ok"}]}}"#;

/// Faults before a form shows: the raw answer, and the code.
const HEADS: &[(&str, &str, &str)] = &[
    ("closes before any byte", "${close}", UNAVAILABLE),
    ("resets before any byte", "${reset}", UNAVAILABLE),
    ("closes in the head", "HTTP/1.1 200 OK\r\nConte${close}", UNAVAILABLE),
    ("resets in the head", "HTTP/1.1 200 OK\r\nConte${flush}${reset}", UNAVAILABLE),
    ("is silent", "${stall}", TIMED_OUT),
    ("is silent in the head", "HTTP/1.1 200 OK\r\nConte${stall}", TIMED_OUT),
    ("sends its head a byte a moment", "HTTP/1.1 200 OK\r\nX-A: ${drip 50}", TIMED_OUT),
    ("sends garbage", "\0\x01\x02garbage\r\n\r\n${close}", UNAVAILABLE),
    ("speaks another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n${close}", UNAVAILABLE),
    ("sends an endless head", "HTTP/1.1 200 OK\r\n${rep 200000 X-A: aaaaaaaaaaaaaaaaaaaaaaaaa\r\n}", UNAVAILABLE),
    ("301", "HTTP/1.1 301 M\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("302", "HTTP/1.1 302 F\r\nLocation: https://other.example/\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("307", "HTTP/1.1 307 T\r\nLocation: /mcp2\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("308", "HTTP/1.1 308 P\r\nLocation: /mcp/\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("401", "HTTP/1.1 401 U\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("403", "HTTP/1.1 403 F\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("404", "HTTP/1.1 404 N\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("405", "HTTP/1.1 405 M\r\nAllow: GET\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("413", "HTTP/1.1 413 T\r\nContent-Length: 3\r\n\r\nbig", UNAVAILABLE),
    ("429", "HTTP/1.1 429 T\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("500", "HTTP/1.1 500 I\r\nContent-Length: 4\r\n\r\noops", UNAVAILABLE),
    ("502 without a length", "HTTP/1.1 502 B\r\n\r\n<html>${close}", UNAVAILABLE),
    ("503", "HTTP/1.1 503 S\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("202", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", UNAVAILABLE),
    ("204", "HTTP/1.1 204 No Content\r\n\r\n", UNAVAILABLE),
    ("100 and nothing", "HTTP/1.1 100 Continue\r\n\r\n${stall}", TIMED_OUT),
    ("no content type", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", UNAVAILABLE),
    (
        "a coding behind identity",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        UNAVAILABLE,
    ),
    ("HTML", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>", UNAVAILABLE),
];

/// Faults of a body that has a form: what stands for the message in a good answer, and the code.
const BODIES: &[(&str, &str, &str)] = &[
    ("good", GOOD, OK),
    ("stalls in the body", r#"{"jsonrpc":"2.0",${stall}"#, TIMED_OUT),
    ("drips for ever", "{${drip 100}", TIMED_OUT),
    ("closes in the body", r#"{"jsonrpc":"2.0",${close}"#, UNAVAILABLE),
    ("resets in the body", r#"{"jsonrpc":"2.0",${flush}${reset}"#, UNAVAILABLE),
    ("no JSON", "}{", UNAVAILABLE),
    ("an HTML page", "<html></html>", UNAVAILABLE),
    ("trailing bytes in the body", r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[]}} x"#, UNAVAILABLE),
    ("another id", r#"{"jsonrpc":"2.0","id":"other","result":{"content":[]}}"#, UNAVAILABLE),
    ("the id as another type", r#"{"jsonrpc":"2.0","id":[${ID}],"result":{"content":[]}}"#, UNAVAILABLE),
    ("no id", r#"{"jsonrpc":"2.0","result":{"content":[]}}"#, UNAVAILABLE),
    ("id null", r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#, UNAVAILABLE),
    (
        "result and error",
        r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[]},"error":{"code":1,"message":"x"}}"#,
        UNAVAILABLE,
    ),
    ("neither result nor error", r#"{"jsonrpc":"2.0","id":${ID}}"#, UNAVAILABLE),
    ("a batch", r#"[{"jsonrpc":"2.0","id":${ID},"result":{"content":[]}}]"#, UNAVAILABLE),
    (
        "a member twice",
        r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[],"content":[{"type":"text","text":"x"}]}}"#,
        UNAVAILABLE,
    ),
    (
        "an unknown resultType",
        r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"weird","content":[]}}"#,
        UNAVAILABLE,
    ),
    (
        "asks for what nobody declared",
        r#"{"jsonrpc":"2.0","id":${ID},"result":{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage","params":{}}}}}"#,
        UNAVAILABLE,
    ),
    (
        "a lone surrogate",
        r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"\udc00"}]}}"#,
        UNAVAILABLE,
    ),
    ("100,000 levels", r#"{"jsonrpc":"2.0","id":${ID},"result":${rep 100000 [}"#, UNAVAILABLE),
    ("an error whose code is text", r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":"x","message":"m"}}"#, UNAVAILABLE),
    ("an error", r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":-32603,"message":"broke"}}"#, REJECTED),
    (
        "too large",
        r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"${rep 2000000 a}"}]}}"#,
        TOO_LARGE,
    ),
    ("bytes without end", "${rep 100000000 a}", TOO_LARGE),
];

/// Faults that only one form can have.
const FORMED: &[(&str, Form, &str, &str)] = &[
    ("bytes behind the body", Form::Json, "~Content-Length: ${LEN}\r\n\r\n~ x", OK),
    (
        "gzip",
        Form::Json,
        "~Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n\x1f\u{8b}abc\r\n0\r\n\r\n",
        UNAVAILABLE,
    ),
    ("an unknown coding", Form::Json, "~Content-Encoding: br\r\nContent-Length: 3\r\n\r\nxyz", UNAVAILABLE),
    ("a coding of an event stream", Form::Sse, "~Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz", UNAVAILABLE),
    ("both lengths", Form::Json, "~Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", UNAVAILABLE),
    ("a length too large", Form::Json, "~Content-Length: 9999999999\r\n\r\n{", TOO_LARGE),
    ("a bad chunk size", Form::Json, "~Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", UNAVAILABLE),
    ("a chunk cut short", Form::Json, "~Transfer-Encoding: chunked\r\n\r\nff\r\n{\"jsonrpc\"${close}", UNAVAILABLE),
    ("an empty body", Form::Json, "~Content-Length: 0\r\n\r\n", UNAVAILABLE),
    ("an empty stream", Form::Sse, "~Content-Length: 0\r\n\r\n", UNAVAILABLE),
    ("a stream labelled JSON", Form::Json, "~Transfer-Encoding: chunked\r\n\r\n7\r\ndata: {\r\n0\r\n\r\n", UNAVAILABLE),
    ("JSON labelled a stream", Form::Sse, "~Content-Length: ${LEN}\r\n\r\n~", UNAVAILABLE),
    ("an event without its blank line", Form::Sse, "~\r\ndata: ~\n${close}", UNAVAILABLE),
    (
        "a stream that ends after progress",
        Form::Sse,
        "~\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n\n${close}",
        UNAVAILABLE,
    ),
    ("comments for ever", Form::Sse, "~\r\n${every 100 : k\n\n}", TIMED_OUT),
    (
        "a flood of comments",
        Form::Sse,
        "~\r\n${rep 100000 : kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\n\n}",
        TOO_LARGE,
    ),
    (
        "a flood of notifications",
        Form::Sse,
        "~\r\n${rep 100000 data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"x\"}}\n\n}",
        TOO_LARGE,
    ),
    (
        "another id, then ours",
        Form::Sse,
        "~\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{\"content\":[]}}\n\ndata: ~\n\n",
        UNAVAILABLE,
    ),
    (
        "ours, then more",
        Form::Sse,
        "~\r\ndata: ~\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"other\",\"result\":{\"content\":[]}}\n\n",
        OK,
    ),
    ("ours, then silence", Form::Sse, "~\r\ndata: ~\n\n${stall}", OK),
];

async fn gateway() -> (Gw, Up, Up) {
    let object = json!({ "type": "object" });
    let up = Upstream::new().tool("t", object.clone()).tool("other", object.clone()).run().await;
    let neighbour = Upstream::new().tool("t", object).run().await;
    let more = format!("timeout = '{}ms'\nresult_limit = '1MiB'", TIMEOUT.as_millis());
    let gateway =
        Gateway::new().conf("[timeouts]\nconnect = '1s'").server_with("demo", &up, &more).server("near", &neighbour);
    let gw = gateway.grant("ann", "demo", Read).grant("ann", "near", Read).approve_all().run().await;
    (gw, up, neighbour)
}

/// Fills in what `~` stands for: the head first, a good message after that.
fn formed(text: &str, form: Form) -> Vec<u8> {
    let head = if form == Form::Json { JSON } else { SSE };
    let (first, rest) = text.split_once('~').expect("a place for the head");
    crate::support::http::bytes_of_latin1(&format!("{first}{head}{}", rest.replace('~', GOOD)))
}

/// All rows: name, what the server answers, the code.
pub fn rows() -> Vec<(String, Reply, &'static str)> {
    let mut rows: Vec<(String, Reply, &'static str)> = Vec::new();
    for (name, text, code) in HEADS {
        rows.push(((*name).to_owned(), Reply::raw(text), code));
    }
    for (name, text, code) in BODIES {
        rows.push((format!("{name}, JSON"), Reply::Body(text.as_bytes().to_vec()), code));
        let end = if text.ends_with("${drip 100}") { "" } else { "\n\n" };
        rows.push((format!("{name}, SSE"), Reply::Events(format!("data: {text}{end}").into_bytes()), code));
    }
    for (name, form, text, code) in FORMED {
        rows.push(((*name).to_owned(), Reply::Raw(formed(text, *form)), code));
    }
    rows
}

/// An answer after which the server closes, so that the next call needs a new connection.
fn last_of_its_connection() -> Reply {
    Reply::raw(format!("{JSON}Connection: close\r\nContent-Length: ${{LEN}}\r\n\r\n{GOOD}${{close}}"))
}

#[test]
fn every_fault_has_its_code_and_is_met_once() {
    run(async {
        let (gw, up, _near) = gateway().await;
        let mut faults = Faults::default();
        let rows = rows();
        let count = rows.len();
        for (name, reply, code) in rows {
            for fresh in [true, false] {
                let client = gw.client("ann").accept(BOTH);
                if fresh {
                    up.next(last_of_its_connection());
                }
                client.call("demo_t", json!({})).await.ok();
                let before = up.calls().len();
                up.next(reply.clone());
                let (up, other) = (up.clone(), client.clone());
                let row = async move {
                    let answer = client.call("demo_t", json!({})).await;
                    check_code(&answer, code);
                    assert!(answer.took < TIMEOUT + LATE, "it took {:?}", answer.took);
                    assert_eq!(up.calls().len() - before, 1, "the call was not sent exactly once");
                    client.call("demo_t", json!({})).await.ok();
                    other.call("near_t", json!({})).await.ok();
                };
                let way = if fresh { "fresh" } else { "pooled" };
                faults.row(format!("{name}, {way}"), row).await;
            }
        }
        up.assert_spoken_to_well();
        assert!(gw.is_alive(), "{}", gw.log_text());
        faults.assert_none(count);
    });
}

#[track_caller]
fn check_code(answer: &crate::support::answer::Answer, code: &str) {
    if code == OK {
        assert_eq!(answer.said(), "ok");
        return;
    }
    let message = answer.refused(code);
    assert!(message.contains("have run"), "the server was reached: {message}");
    for leak in ["169.254", "other.example", "oops", "html", "OpenSSH"] {
        assert!(!answer.wire().contains(leak), "{leak:?} leaked: {}", answer.wire());
    }
}

#[test]
fn a_server_that_cannot_be_reached() {
    run(async {
        let (gw, up, _near) = gateway().await;
        let client = gw.client("ann");
        for accept in [Accept::Reset, Accept::Close] {
            up.next(last_of_its_connection());
            client.call("demo_t", json!({})).await.ok();
            up.accept(accept);
            let answer = client.call("demo_t", json!({})).await;
            answer.refused(UNAVAILABLE);
            up.accept(Accept::Serve);
            client.call("demo_t", json!({})).await.ok();
        }
        up.next(last_of_its_connection()); // no pooled connection is left to be found dead
        client.call("demo_t", json!({})).await.ok();
        let called = up.calls().len();
        up.refuse(true).await;
        let answer = client.call("demo_t", json!({})).await;
        let message = answer.refused(UNAVAILABLE);
        assert!(!message.contains("have run"), "nothing was sent: {message}");
        client.call("near_t", json!({})).await.ok();
        up.refuse(false).await;
        assert_eq!(up.calls().len(), called, "nothing was sent");
        client.call("demo_t", json!({})).await.ok();
    });
}

#[test]
fn a_server_that_accepts_and_says_nothing() {
    run(async {
        let (gw, up, _near) = gateway().await;
        up.next(last_of_its_connection());
        gw.client("ann").call("demo_t", json!({})).await.ok();
        up.accept(Accept::Silence);
        let answer = gw.client("ann").call("demo_t", json!({})).await;
        answer.refused(TIMED_OUT);
        assert!(answer.took < TIMEOUT + LATE);
        up.accept(Accept::Serve);
        gw.client("ann").call("demo_t", json!({})).await.ok();
    });
}

#[test]
fn certificates_are_checked() {
    run(async {
        for (leaf, trusted, works) in [
            (Leaf::Good, true, true),
            (Leaf::Good, false, false),
            (Leaf::WrongName, true, false),
            (Leaf::Expired, true, false),
        ] {
            let identity = Identity::new(leaf);
            let up = Upstream::new().tool("t", json!({ "type": "object" })).tls(&identity).run().await;
            let mut gateway = Gateway::new().file("ca.pem", &identity.ca_pem);
            gateway = gateway.server_with("demo", &up, if trusted { "ca = 'ca.pem'" } else { "" });
            let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
            let answer = gw.client("ann").call("demo_t", json!({})).await;
            if works {
                answer.ok();
            } else {
                // never listed: its pinned tool is unknown or unavailable, and the server is never spoken to
                assert!(up.seen().is_empty(), "{leaf:?}: spoken to without a good certificate");
                assert!(answer.messages[0]["result"]["isError"] == true || answer.messages[0].get("error").is_some());
            }
        }
    });
}

#[test]
fn a_certificate_that_goes_bad_is_upstream_unavailable() {
    run(async {
        let good = Identity::new(Leaf::Good);
        let up = Upstream::new().tool("t", json!({ "type": "object" })).tls(&good).run().await;
        let gateway = Gateway::new().file("ca.pem", &good.ca_pem).server_with("demo", &up, "ca = 'ca.pem'");
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        up.next(last_of_its_connection());
        gw.client("ann").call("demo_t", json!({})).await.ok();
        for leaf in [Leaf::WrongName, Leaf::Expired] {
            up.show(&Identity::new(leaf)).await;
            let called = up.calls().len();
            let message = gw.client("ann").call("demo_t", json!({})).await.refused(UNAVAILABLE).to_owned();
            assert!(!message.contains("have run"), "nothing was sent: {message}");
            assert_eq!(up.calls().len(), called);
        }
    });
}

#[test]
fn the_breaker_opens_after_five_and_lets_one_test_it() {
    run(async {
        let (gw, up, _near) = gateway().await;
        let client = gw.client("ann");
        up.next(last_of_its_connection());
        client.call("demo_t", json!({})).await.ok();
        up.refuse(true).await;
        for _ in 0..5 {
            client.call("demo_t", json!({})).await.refused(UNAVAILABLE);
        }
        up.refuse(false).await;
        let (called, connections) = (up.calls().len(), up.connections());
        let message = client.call("demo_t", json!({})).await.refused(UNAVAILABLE).to_owned();
        assert!(!message.contains("have run"), "not attempted: {message}");
        assert_eq!((up.calls().len(), up.connections()), (called, connections), "the breaker is open");
        client.call("near_t", json!({})).await.ok();
        crate::support::eventually("the breaker lets a call through", async || {
            let answer = client.call("demo_t", json!({})).await;
            (answer.messages[0]["result"]["isError"] != true).then_some(())
        })
        .await;
        client.call("demo_t", json!({})).await.ok();
    });
}

#[test]
fn past_max_in_flight_calls_are_not_attempted() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server_with("demo", &up, "max_in_flight = 1\nrate_limit = '3/hour'");
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let client = gw.client("ann").fresh();
        up.next(Reply::After(vec!["${gate go}".to_owned()], Box::new(Reply::text("done"))));
        let pending = client.start(client.calling("demo_t", "{}")).await;
        up.until_calls(1).await;
        gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 1.0).await;
        for _ in 0..5 {
            let message = client.call("demo_t", json!({})).await.refused(UNAVAILABLE).to_owned();
            assert!(!message.contains("have run"), "not attempted: {message}");
        }
        up.open("go");
        assert_eq!(pending.finish().await.0.said(), "done");
        for _ in 0..2 {
            // a place is free a moment after the answer
            gw.until_metric("toolgate_in_flight", &[("server", "demo")], |n| n == 0.0).await;
            client.call("demo_t", json!({})).await.ok(); // what was not attempted spent no token
        }
        assert_eq!(up.calls().len(), 3);
    });
}

#[test]
fn a_server_that_was_not_listed_for_too_long_is_not_called() {
    run(async {
        let up = Upstream::new().tool("t", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[discovery]\ninterval = '300ms'\nmax_age = '1s'").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let client = gw.client("ann");
        client.call("demo_t", json!({})).await.ok();
        up.list_with(Some(Reply::status(500, "", "")));
        let old = crate::support::eventually("the listing is too old", async || {
            let answer = client.call("demo_t", json!({})).await;
            (answer.messages[0]["result"]["isError"] == true).then_some(answer)
        })
        .await;
        let called = up.calls().len();
        assert!(!old.refused(UNAVAILABLE).contains("have run"));
        client.call("demo_t", json!({})).await.refused(UNAVAILABLE);
        assert_eq!(up.calls().len(), called);
        up.list_with(None);
        crate::support::eventually("the server is listed again", async || {
            let answer = client.call("demo_t", json!({})).await;
            (answer.messages[0]["result"]["isError"] != true).then_some(())
        })
        .await;
    });
}

#[test]
fn extra_bytes_never_reach_the_next_caller() {
    let extra = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"poison"}]}}"#;
    run(async move {
        let (gw, up, _near) = gateway().await;
        let tail = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{extra}",
            extra.len()
        );
        let client: Client = gw.client("ann").fresh();
        for era in [Era::Modern, Era::Legacy] {
            up.next(Reply::raw(format!("{JSON}Content-Length: ${{LEN}}\r\n\r\n{GOOD}{tail}")));
            assert_eq!(client.call("demo_t", json!({})).await.said(), "ok");
            let first = up.calls().pop().unwrap().connection;
            for _ in 0..3 {
                assert_eq!(client.clone().era(era).call("demo_t", json!({})).await.said(), "{}");
                assert_ne!(up.calls().pop().unwrap().connection, first, "the connection was used again");
            }
        }
    });
}

#[test]
fn after_the_answer_of_a_stream_the_connection_is_not_used_again() {
    run(async {
        let (gw, up, _near) = gateway().await;
        let client = gw.client("ann").fresh();
        up.next(Reply::Events(format!("data: {GOOD}\n\n${{stall}}").into_bytes()));
        assert_eq!(client.call("demo_t", json!({})).await.said(), "ok");
        let first = up.calls().pop().unwrap().connection;
        up.until_closed(first).await;
        assert_eq!(client.call("demo_t", json!({})).await.said(), "{}");
        assert!(!up.events().iter().any(|(_, event)| *event == Event::Accepted(99)));
    });
}
