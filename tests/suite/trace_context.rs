//! W3C trace context: whose account of a call's trace is believed, and what the server is told (`mcp.md` A.2).

use serde_json::{Value, json};

use crate::support::{
    Faults,
    client::Client,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Seen, Speaks, Up, Upstream},
};

const HEAD: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const META: &str = "aaaabbbbccccddddaaaabbbbccccdddd";
const SPAN: &str = "00f067aa0ba902b7";

/// What the server is told: trace, flags and state.
type Told = Option<(&'static str, &'static str, Option<&'static str>)>;

/// What a caller says in the head and in `_meta`, whether it is a trusted proxy, and what the server is told then.
fn rows() -> Vec<(&'static str, bool, Vec<(&'static str, String)>, Value, Told)> {
    let of = |trace: &str, flags: &str| format!("00-{trace}-{SPAN}-{flags}");
    let head = |text: String| vec![("traceparent", text)];
    let meta = |text: String| json!({ "traceparent": text });
    let state = |text: &str| ("tracestate", text.to_owned());
    let good = || head(of(HEAD, "01"));
    let told = |trace, flags| Some((trace, flags, None));
    vec![
        ("nothing", true, vec![], json!({}), None),
        ("a header of a trusted proxy", true, good(), json!({}), told(HEAD, "01")),
        ("a header of anybody", false, good(), json!({}), None),
        ("its flags", true, head(of(HEAD, "00")), json!({}), told(HEAD, "00")),
        ("flags that nobody knows", true, head(of(HEAD, "ff")), json!({}), told(HEAD, "03")),
        ("a later version", true, head(format!("01-{HEAD}-{SPAN}-01-x")), json!({}), told(HEAD, "01")),
        (
            "its state, in lines",
            true,
            [good(), vec![state("a=1"), state("b=2")]].concat(),
            json!({}),
            Some((HEAD, "01", Some("a=1,b=2"))),
        ),
        ("a state alone", true, vec![state("a=1")], json!({}), None),
        ("a malformed header", true, [head(of("xyz", "01")), vec![state("a=1")]].concat(), json!({}), None),
        ("a header of zeros", true, head(of(&"0".repeat(32), "01")), json!({}), None),
        ("a header twice", true, [good(), good()].concat(), json!({}), None),
        ("_meta", true, vec![], meta(of(META, "01")), told(META, "01")),
        ("_meta of anybody", false, vec![], meta(of(META, "00")), told(META, "00")),
        (
            "_meta with its state",
            false,
            vec![],
            json!({ "traceparent": of(META, "01"), "tracestate": "c=3" }),
            Some((META, "01", Some("c=3"))),
        ),
        ("both", true, [good(), vec![state("a=1")]].concat(), meta(of(META, "01")), told(META, "01")),
        ("both, of anybody", false, good(), meta(of(META, "01")), told(META, "01")),
        ("a malformed _meta beside a header", true, good(), meta(of("xyz", "01")), None),
        ("a null in _meta beside a header", true, good(), json!({ "traceparent": null }), None),
        (
            "a state that no header could bear",
            true,
            vec![],
            json!({ "traceparent": of(META, "01"), "tracestate": "a=\r\n" }),
            told(META, "01"),
        ),
    ]
}

async fn gateway(up: &Up, trusted: &str) -> Gw {
    let gateway = Gateway::new().conf(&format!("[gateway]\ntrusted_proxies = [{trusted}]"));
    gateway.server("demo", up).grant("ann", "demo", Read).approve_all().run().await
}

/// What a server was told, the same in each place where it is told; the span is one of the gateway's.
fn check(seen: &Seen, speaks: Speaks, told: Told) {
    let meta = &seen.message["params"]["_meta"];
    let named = |name: &str| {
        let header = seen.header(name).map(str::to_owned);
        let wanted = if speaks == Speaks::Modern { header.as_deref() } else { None };
        assert_eq!(meta[name].as_str(), wanted, "{name} in _meta, beside {header:?}");
        header
    };
    let (parent, state) = (named("traceparent"), named("tracestate"));
    assert_eq!(seen.head.all("traceparent").len(), usize::from(told.is_some()));
    match told {
        None => assert_eq!((parent, state), (None, None)),
        Some((trace, flags, wanted)) => {
            let parent = parent.expect("a traceparent");
            let span = parent.split('-').nth(2).unwrap();
            assert_eq!(parent, format!("00-{trace}-{span}-{flags}"));
            assert!(span.len() == 16 && span != SPAN, "{span}: a span of the gateway's");
            assert_eq!(state.as_deref(), wanted);
        }
    }
    assert!(seen.header("baggage").is_none() && meta["baggage"].is_null(), "baggage goes nowhere");
}

async fn call(client: &Client, meta: &Value) {
    let mut meta = meta.clone();
    meta["baggage"] = json!("user=ann");
    let params = json!({ "name": "demo_echo", "arguments": {}, "_meta": meta });
    client.send(client.asking("tools/call", params)).await.ok();
}

#[test]
fn a_call_goes_on_the_callers_trace_where_it_is_believed() {
    run(async {
        let mut faults = Faults::default();
        for speaks in [Speaks::Modern, Speaks::Legacy] {
            let up = Upstream::new().speaks(speaks).tool("echo", json!({ "type": "object" })).run().await;
            let (plain, trusting) = (gateway(&up, "").await, gateway(&up, "'127.0.0.1'").await);
            for (name, trusted, headers, meta, told) in rows() {
                let client = if trusted { &trusting } else { &plain }.client("ann");
                for client in [client.clone(), client.legacy("2025-11-25")] {
                    let client = headers.iter().fold(client, |client, (name, value)| client.header(name, value));
                    let client = client.header("baggage", "user=ann");
                    let row = async {
                        let before = up.calls().len();
                        call(&client, &meta).await;
                        let seen = up.calls().split_off(before);
                        assert_eq!(seen.len(), 1);
                        check(&seen[0], speaks, told);
                    };
                    faults.row(format!("{name}, to {speaks:?}"), row).await;
                }
            }
        }
        faults.assert_none(4 * rows().len());
    });
}
