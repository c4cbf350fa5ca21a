//! The credential that the gateway holds, planted as a canary: a server echoes it in every encoding and every place of the whole fault matrix, and it is nowhere afterwards.
//!
//! Looked for in what the clients got, the logs, the access log and the metrics, in every encoding (contract §4, invariant 8).

use std::time::Duration;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

use crate::{
    faults,
    support::{
        Faults,
        answer::{Answer, Era},
        client::BOTH,
        gateway::{Gateway, Gw},
        http::{bytes_of_latin1, latin1},
        policy::Access::Read,
        run,
        upstream::{Reply, Speaks, Up, Upstream},
    },
};

/// With what JSON, URLs, HTML and base64 write in another way.
const TOKEN: &str = r#"cNaRy-7f3+9/b=="q\u<&>'%~Zz81"#;

fn percent(text: &str, all: bool, upper: bool) -> String {
    text.bytes().fold(String::new(), |out, byte| match (all || !byte.is_ascii_alphanumeric(), upper) {
        (false, _) => out + &char::from(byte).to_string(),
        (true, true) => out + &format!("%{byte:02X}"),
        (true, false) => out + &format!("%{byte:02x}"),
    })
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// The token as a server may write it in a text, and a name for each.
fn encodings() -> Vec<(&'static str, String)> {
    let whole = format!("Bearer {TOKEN}");
    let within = format!("authorization: {whole}\n");
    vec![
        ("plain", TOKEN.to_owned()),
        ("with its scheme", whole.clone()),
        ("base64", STANDARD.encode(TOKEN)),
        ("base64 with its scheme", STANDARD.encode(&whole)),
        ("base64 without padding", STANDARD_NO_PAD.encode(TOKEN)),
        ("base64 for URLs", URL_SAFE.encode(TOKEN)),
        ("base64 for URLs without padding", URL_SAFE_NO_PAD.encode(TOKEN)),
        ("base64 within more", STANDARD.encode(within)),
        ("percent", percent(TOKEN, false, true)),
        ("percent, lower case", percent(TOKEN, false, false)),
        ("percent, all of it", percent(TOKEN, true, true)),
        ("hexadecimal", TOKEN.bytes().map(|b| format!("{b:02x}")).collect()),
        ("hexadecimal, upper case", TOKEN.bytes().map(|b| format!("{b:02X}")).collect()),
        ("JSON in a text", json!(TOKEN).to_string()),
        ("HTML", html(TOKEN)),
    ]
}

/// A text as JSON: as a library writes it, with every character escaped, and with `/` escaped.
fn json_forms(text: &str) -> [String; 3] {
    let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    [json!(text).to_string(), format!("\"{escaped}\""), json!(text).to_string().replace('/', "\\/")]
}

/// Pieces that give the canary away, whatever stands around them: also in bytes that are still encoded.
fn traces() -> Vec<String> {
    let mut out = Vec::new();
    for (_, text) in encodings().into_iter().filter(|(name, _)| *name != "base64 within more") {
        out.extend(json_forms(&text).map(|form| form.trim_matches('"').to_owned()));
        out.push(text);
    }
    out.extend([TOKEN[..12].to_owned(), TOKEN[TOKEN.len() - 6..].to_owned()]);
    // what base64 at any alignment has in common: the digits of the middle of the token
    for before in 0..3 {
        let coded = STANDARD_NO_PAD.encode(format!("{}{TOKEN}", "x".repeat(before)));
        out.push(coded[4..coded.len() - 4].to_owned());
    }
    out.sort();
    out.dedup();
    out
}

/// The answer of a row with the canary wherever there is room for it: status text, header names and values, bodies, comments.
fn echo(reply: &Reply, text: &str) -> Reply {
    let form = &json_forms(text)[0];
    let quoted = |template: &str| {
        template
            .replace(r#""text":"ok""#, &format!(r#""text":{form}"#))
            .replace(r#""message":"broke""#, &format!(r#""message":{form},"data":{{"echo":{form}}}"#))
            .replace(r#""content":[]"#, &format!(r#""content":[{{"type":"text","text":{form}}}],"isError":true"#))
            .replace("<html>", &format!("<html>{text}"))
            .replace("}{", &format!("}}{{{text}"))
    };
    match reply {
        Reply::Raw(bytes) => Reply::Raw(bytes_of_latin1(&echo_head(&quoted(&latin1(bytes)), text))),
        Reply::Body(bytes) => Reply::Body(quoted(&String::from_utf8_lossy(bytes)).into_bytes()),
        Reply::Events(bytes) => {
            let events = quoted(&String::from_utf8_lossy(bytes));
            Reply::Events(format!(": {text}\nid: {text}\n\nevent: {text}\n{events}").into_bytes())
        }
        other => other.clone(),
    }
}

/// Status text, a header's name and a header's value.
fn echo_head(raw: &str, text: &str) -> String {
    let Some((line, rest)) = raw.split_once("\r\n").filter(|(line, _)| line.starts_with("HTTP/1.1 ")) else {
        return raw.to_owned();
    };
    let status: String = line.chars().take(12).collect();
    let name: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{status} {text}\r\nX-{name}: 1\r\nX-Echo: {text}\r\nWWW-Authenticate: Bearer x=\"{text}\"\r\n{rest}")
}

/// Answers of their own: each place of a result, an error and a stream.
fn places(text: &str) -> Vec<(&'static str, Reply)> {
    let mut rows = Vec::new();
    for form in json_forms(text) {
        let error = |extra: &str| Reply::Error(format!(r#"{{"code":-32000,"message":{form}{extra}}}"#));
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":${{TOKEN}},"progress":1,"message":{form}}}}}"#
        );
        let log = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":{form}}}}}"#
        );
        rows.extend([
            ("text", Reply::Result(format!(r#"{{"content":[{{"type":"text","text":{form}}}]}}"#))),
            ("a member's name", Reply::Result(format!(r#"{{"content":[],"structuredContent":{{{form}:1}}}}"#))),
            ("_meta", Reply::Result(format!(r#"{{"content":[],"_meta":{{"x":{form},{form}:{form}}}}}"#))),
            ("a resource", {
                let resource = format!(r#"{{"uri":{form},"mimeType":{form},"text":{form}}}"#);
                Reply::Result(format!(r#"{{"content":[{{"type":"resource","resource":{resource}}}]}}"#))
            }),
            ("isError", Reply::Result(format!(r#"{{"content":[{{"type":"text","text":{form}}}],"isError":true}}"#))),
            ("an error", error("")),
            ("an error's data", error(&format!(r#","data":{{"a":{form}}}"#))),
            ("a missing capability", {
                let data = format!(r#""data":{{"requiredCapabilities":{{{form}:{{"a":{form}}}}}}}"#);
                Reply::Error(format!(r#"{{"code":-32021,"message":"no",{data}}}"#))
            }),
            ("input_required", {
                let asks = format!(r#"{{{form}:{{"method":"elicitation/create","params":{{"message":{form}}}}}}}"#);
                Reply::Result(format!(
                    r#"{{"resultType":"input_required","inputRequests":{asks},"requestState":{form}}}"#
                ))
            }),
            ("progress", Reply::After(vec![progress, log], Box::new(Reply::text("done")))),
        ]);
    }
    rows
}

async fn gateway(speaks: Speaks) -> (Gw, Up) {
    let object = || json!({ "type": "object" });
    let up = Upstream::new().speaks(speaks).tool("t", object()).tool("other", object());
    let up = up.credential("Authorization", &format!("Bearer {TOKEN}")).run().await;
    let more =
        "timeout = '300ms'\nresult_limit = '64KiB'\ncredential = { Authorization = { env = 'CANARY' } }\nprotocol = '";
    let protocol = if speaks == Speaks::Modern { "2026-07-28" } else { "2025-11-25" };
    let gateway = Gateway::new()
        .conf("[log]\nlevel = 'trace'\n[timeouts]\nconnect = '1s'")
        .env("CANARY", &format!("Bearer {TOKEN}"))
        .server_with("demo", &up, &format!("{more}{protocol}'"));
    (gateway.grant("ann", "demo", Read).approve_all().run().await, up)
}

/// What an answer says, decoded as far as a reader may: the wire, and each string of its messages.
fn said(answer: &Answer) -> String {
    fn strings(value: &Value, out: &mut String) {
        match value {
            Value::String(text) => *out += &format!("{text}\n"),
            Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                *out += &format!("{name}\n");
                strings(value, out);
            }),
            _ => {}
        }
    }
    let mut out = answer.wire();
    answer.messages.iter().for_each(|message| strings(message, &mut out));
    out
}

#[track_caller]
fn silent(what: &str, text: &str, traces: &[String]) {
    for trace in traces {
        assert!(!text.contains(trace.as_str()), "{what} says {trace:?}: {:.2000}", excerpt(text, trace));
    }
}

fn excerpt<'t>(text: &'t str, trace: &str) -> &'t str {
    let at = text.find(trace).unwrap_or(0);
    let start = (at.saturating_sub(200)..=at).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[start..]
}

async fn check_quiet(gw: &Gw, traces: &[String], faults: &mut Faults) {
    let (log, metrics) = (gw.log_text(), gw.ops("/metrics").await.unwrap().text());
    faults.row("the logs", async { silent("the log", &log, traces) }).await;
    faults.row("the access log", async { assert!(gw.access_log().len() > 50, "the access log was written") }).await;
    faults.row("the metrics", async { silent("a metric", &metrics, traces) }).await;
}

#[test]
fn no_fault_of_a_server_gives_its_credential_away() {
    run(async {
        let (gw, up) = gateway(Speaks::Modern).await;
        let (traces, encodings) = (traces(), encodings());
        let mut faults = Faults::default();
        let rows = faults::rows();
        for (n, (name, reply, _)) in rows.iter().enumerate().filter(|(_, row)| is_quick(&row.1)) {
            let (encoding, text) = &encodings[n % encodings.len()];
            for reply in [echo(reply, text), echo(reply, TOKEN)] {
                up.next(reply);
                let client = gw.client("ann").accept(BOTH).fresh();
                let answer = client.call("demo_t", json!({})).await;
                let row = async { silent("the answer", &said(&answer), &traces) };
                faults.row(format!("{name}, {encoding}"), row).await;
                client.call("demo_other", json!({})).await.ok();
            }
        }
        check_quiet(&gw, &traces, &mut faults).await;
        faults.assert_none(100);
    });
}

/// Whether a row ends without waiting for the time limit: those that wait say nothing more.
fn is_quick(reply: &Reply) -> bool {
    let text = format!("{reply:?}");
    match reply {
        Reply::Raw(bytes) | Reply::Body(bytes) | Reply::Events(bytes) => {
            let text = latin1(bytes);
            !["${stall}", "${drip", "${every", "${rep 1000000"].iter().any(|wait| text.contains(wait))
        }
        _ => !text.is_empty(),
    }
}

#[test]
fn no_place_and_no_encoding_gives_it_away() {
    run(async {
        let traces = traces();
        let mut faults = Faults::default();
        let mut redacted = 0;
        for speaks in [Speaks::Modern, Speaks::Legacy] {
            let (gw, up) = gateway(speaks).await;
            for (encoding, text) in encodings() {
                for (n, (place, reply)) in places(&text).into_iter().enumerate() {
                    let era = if n % 2 == 0 { Era::Modern } else { Era::Legacy };
                    let client = gw.client("ann").era(era).fresh().progress(json!(1));
                    let client = client.capable(json!({ "elicitation": {} }));
                    up.next(reply);
                    let answer = client.call("demo_t", json!({})).await;
                    let text = said(&answer);
                    redacted += usize::from(text.contains("[redacted:credential]"));
                    let row = async { silent("the answer", &text, &traces) };
                    faults.row(format!("{place}, {encoding}, {speaks:?}, {era:?}"), row).await;
                }
            }
            check_quiet(&gw, &traces, &mut faults).await;
        }
        assert!(redacted > 500, "the canary was there to be taken out: {redacted} times");
        faults.assert_none(900);
    });
}

#[test]
fn a_definition_that_repeats_it_is_listed_without_it() {
    run(async {
        let traces = traces();
        let encodings = encodings();
        let tools = encodings.iter().enumerate().map(|(n, (_, text))| {
            json!({
                "name": format!("t{n}"), "description": format!("Says {text}."), "title": text,
                "inputSchema": { "type": "object", "properties": { text.as_str(): { "description": text } } }
            })
        });
        let up = tools.fold(Upstream::new(), Upstream::definition);
        let up = up.credential("Authorization", &format!("Bearer {TOKEN}")).run().await;
        let gateway = Gateway::new().env("CANARY", &format!("Bearer {TOKEN}"));
        let gateway = gateway.server_with("demo", &up, "credential = { Authorization = { env = 'CANARY' } }");
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let mut faults = Faults::default();
        for client in [gw.client("ann"), gw.client("ann").server("demo"), gw.client("ann").legacy("2025-03-26")] {
            let answer = client.rpc("tools/list", json!({})).await;
            assert_eq!(answer.ok()["tools"].as_array().map(Vec::len), Some(encodings.len()));
            assert!(answer.text().contains("[redacted:credential]"));
            faults.row(client.path(), async { silent("the list", &said(&answer), &traces) }).await;
            client.call(&client.named("demo", "t0"), json!({})).await.ok();
        }
        faults.assert_none(3);
    });
}

#[test]
fn a_refused_credential_is_not_shown() {
    run(async {
        let traces = traces();
        let (gw, up) = gateway(Speaks::Modern).await;
        let mut faults = Faults::default();
        for status in [401, 403, 429] {
            let head = format!("HTTP/1.1 {status} {TOKEN}\r\nWWW-Authenticate: Bearer error=\"{TOKEN}\"\r\n");
            up.next(Reply::raw(format!("{head}X-{}: 1\r\nContent-Length: 4\r\n\r\nnope", "cNaRy-7f3")));
            let answer = gw.client("ann").fresh().call("demo_t", json!({})).await;
            answer.refused("upstream_unavailable");
            assert!(answer.took < Duration::from_secs(5));
            faults.row(format!("{status}"), async { silent("the answer", &said(&answer), &traces) }).await;
        }
        up.refuse(true).await;
        let answer = gw.client("ann").fresh().call("demo_t", json!({})).await;
        faults.row("refused", async { silent("the answer", &said(&answer), &traces) }).await;
        silent("the log", &gw.log_text(), &traces);
        faults.assert_none(4);
    });
}
