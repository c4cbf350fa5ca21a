//! Multi-round-trip calls: `input_required` for what was declared, and a `requestState` that is sealed to key, tool and arguments (contract §3).

use serde_json::{Value, json};

use crate::support::{
    Faults,
    answer::{Answer, Era},
    client::{Client, Request},
    gateway::{Gateway, Gw, Reloaded},
    policy::Access::Read,
    run,
    upstream::{Form, Reply, Up, Upstream},
};

/// The server's own state; no byte of it may reach a caller.
const STATE: &str = r#"server state \"1\" é"#;
/// What the server asks for.
const ASKS: &str = r#"{"q":{"method":"elicitation/create","params":{"mode":"form","message":"Which one?","requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}}}"#;
/// The arguments of the first call.
const ARGUMENTS: &str = r#"{"a":1,"b":{"c":[1.0,"x"],"d":null}}"#;

fn asking() -> Reply {
    Reply::Result(format!(r#"{{"resultType":"input_required","inputRequests":{ASKS},"requestState":"{STATE}"}}"#))
}

async fn gateway() -> (Gw, Up) {
    let object = || json!({ "type": "object" });
    let up = Upstream::new().tool("t", object()).tool("other", object()).run().await;
    let rule = |stage: &str, word: &str| {
        format!(
            "name='{stage}'\norganization='acme'\nstage='{stage}'\ndetector='keywords'\naction='block'\nwords=['{word}']"
        )
    };
    let gateway = Gateway::new().server("demo", &up).server("near", &up).grant("ann", "demo", Read);
    let gateway = gateway.grant("bob", "demo", Read).grant("ann", "near", Read);
    let gateway = gateway.object("guardrail", &rule("input", "zebra-9")).object("guardrail", &rule("output", "leak-7"));
    (gateway.approve_all().run().await, up)
}

fn capable(gw: &Gw, key: &str) -> Client {
    gw.client(key).capable(json!({ "elicitation": {} })).fresh()
}

/// Both endpoints of `key`.
fn ways(gw: &Gw, key: &str) -> [Client; 2] {
    [capable(gw, key), capable(gw, key).server("demo")]
}

/// The first call; gives the sealed state.
async fn opened(client: &Client, up: &Up) -> String {
    up.next(asking());
    let answer = client.call_text(&client.named("demo", "t"), ARGUMENTS).await;
    let result = answer.ok();
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"], serde_json::from_str::<Value>(ASKS).unwrap(), "copied as it was");
    assert!(!answer.wire().contains("server state"), "the server's state is out: {}", answer.wire());
    result["requestState"].as_str().expect("a state").to_owned()
}

/// The second call: the answers, the state, and arguments as written.
fn retry(client: &Client, tool: &str, arguments: &str, state: &Value) -> Request {
    let marker = json!("ARGUMENTS");
    let params = json!({
        "name": tool, "arguments": marker, "requestState": state,
        "inputResponses": { "q": { "action": "accept", "content": { "n": 1 } } }
    });
    let mut request = client.asking("tools/call", params);
    let text = String::from_utf8(request.body).unwrap();
    request.body = text.replace("\"ARGUMENTS\"", arguments).into_bytes();
    request
}

#[track_caller]
fn bad_state(answer: &Answer) {
    let message = answer.rpc_error(200, -32602)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("requestState"), "{message}");
}

#[test]
fn a_state_goes_out_sealed_and_comes_back_opened() {
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        let ways = ways(&gw, "ann");
        for form in [Form::Json, Form::Sse] {
            up.set_form(form);
            for first in &ways {
                for second in &ways {
                    let up = up.clone();
                    let name = format!("{} then {}, {form:?}", first.path(), second.path());
                    let row = async move {
                        let state = opened(first, &up).await;
                        let tool = second.named("demo", "t");
                        second.send(retry(second, &tool, ARGUMENTS, &json!(state))).await.ok();
                        let call = up.calls().pop().unwrap();
                        let params = &call.message["params"];
                        let expected: Value = serde_json::from_str(&format!("\"{STATE}\"")).unwrap();
                        assert_eq!(params["requestState"], expected, "the server's own state");
                        assert_eq!(params["inputResponses"]["q"]["content"], json!({ "n": 1 }));
                        assert_eq!(call.arguments(), ARGUMENTS);
                    };
                    faults.row(name, row).await;
                }
            }
        }
        up.assert_spoken_to_well();
        faults.assert_none(8);
    });
}

#[test]
fn arguments_are_bound_by_what_they_mean() {
    let rows: &[(&str, &str, bool)] = &[
        ("as they were", ARGUMENTS, true),
        ("in another order", r#"{"b":{"d":null,"c":[1.0,"x"]},"a":1}"#, true),
        ("with white space", r#"{ "a" : 1, "b" : { "c" : [ 1.0 , "x" ], "d" : null } }"#, true),
        ("numbers and text written otherwise", r#"{"a":1.0,"b":{"c":[1,"\u0078"],"d":null}}"#, true),
        ("another number", r#"{"a":2,"b":{"c":[1.0,"x"],"d":null}}"#, false),
        ("another text", r#"{"a":1,"b":{"c":[1.0,"y"],"d":null}}"#, false),
        ("one more", r#"{"a":1,"b":{"c":[1.0,"x"],"d":null},"e":1}"#, false),
        ("one less", r#"{"a":1,"b":{"c":[1.0,"x"]}}"#, false),
        ("a list in another order", r#"{"a":1,"b":{"c":["x",1.0],"d":null}}"#, false),
        ("a number as text", r#"{"a":"1","b":{"c":[1.0,"x"],"d":null}}"#, false),
        ("none", "{}", false),
    ];
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for client in ways(&gw, "ann") {
            let state = json!(opened(&client, &up).await);
            for (name, arguments, passes) in rows {
                let (client, up, state) = (client.clone(), up.clone(), state.clone());
                let row = async move {
                    let before = up.calls().len();
                    let answer = client.send(retry(&client, &client.named("demo", "t"), arguments, &state)).await;
                    if *passes {
                        answer.ok();
                    } else {
                        bad_state(&answer);
                    }
                    assert_eq!(up.calls().len() - before, usize::from(*passes), "calls that reached the server");
                };
                faults.row(format!("{name}, {}", ways(&gw, "ann")[0].path()), row).await;
            }
        }
        faults.assert_none(rows.len());
    });
}

/// Everything that is not the state as it was given out.
fn forgeries(state: &str) -> Vec<(String, Value)> {
    let mut rows: Vec<(String, Value)> = vec![
        ("the server's own".into(), json!("server state \"1\" é")),
        ("empty".into(), json!("")),
        ("the prefix alone".into(), json!("tg1.")),
        ("without its prefix".into(), json!(state.trim_start_matches("tg1."))),
        ("another format".into(), json!(state.replacen("tg1.", "tg2.", 1))),
        ("cut by one".into(), json!(&state[..state.len() - 1])),
        ("cut to the nonce".into(), json!(&state[..20])),
        ("longer by one".into(), json!(format!("{state}A"))),
        ("twice".into(), json!(format!("{state}{state}"))),
        ("padded".into(), json!(format!("{state}="))),
        ("with a space".into(), json!(format!(" {state}"))),
        ("a number".into(), json!(7)),
        ("null".into(), Value::Null),
        ("an object".into(), json!({ "state": state })),
    ];
    for at in [4, 10, 24, state.len() / 2, state.len() - 2] {
        let mut bytes = state.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        rows.push((format!("changed at {at}"), json!(String::from_utf8(bytes).unwrap())));
    }
    rows
}

#[test]
fn a_state_that_is_not_this_calls_is_refused() {
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for client in ways(&gw, "ann") {
            let state = opened(&client, &up).await;
            let before = up.calls().len();
            let tool = client.named("demo", "t");
            for (name, forged) in forgeries(&state) {
                let request = retry(&client, &tool, ARGUMENTS, &forged);
                let client = client.clone();
                faults.row(name, async move { bad_state(&client.send(request).await) }).await;
            }
            let other = client.named("demo", "other");
            let request = retry(&client, &other, ARGUMENTS, &json!(state));
            let ann = client.clone();
            faults.row("another tool", async move { bad_state(&ann.send(request).await) }).await;
            for bob in ways(&gw, "bob") {
                let request = retry(&bob, &bob.named("demo", "t"), ARGUMENTS, &json!(state));
                faults.row("another key", async move { bad_state(&bob.send(request).await) }).await;
            }
            let near = capable(&gw, "ann").server("near");
            let request = retry(&near, "t", ARGUMENTS, &json!(state));
            faults.row("a tool of that name elsewhere", async move { bad_state(&near.send(request).await) }).await;
            assert_eq!(up.calls().len(), before, "a forged state reached the server");
            client.send(retry(&client, &tool, ARGUMENTS, &json!(state))).await.ok();
        }
        let twins = [opened(&capable(&gw, "ann"), &up).await, opened(&capable(&gw, "ann"), &up).await];
        assert_ne!(twins[0], twins[1], "no two states are sealed alike");
        faults.assert_none(20);
    });
}

#[test]
fn a_state_outlives_reload_and_restart() {
    run(async {
        let (mut gw, up) = gateway().await;
        let client = capable(&gw, "ann");
        let state = json!(opened(&client, &up).await);
        assert_eq!(gw.reload(&gw.policy()).await, Reloaded::Applied);
        client.send(retry(&client, "demo_t", ARGUMENTS, &state)).await.ok();
        gw.restart().await;
        client.send(retry(&client, "demo_t", ARGUMENTS, &state)).await.ok();
    });
}

#[test]
fn only_what_the_caller_declared_is_asked_for() {
    let asks = |method: &str| {
        format!(
            r#"{{"resultType":"input_required","inputRequests":{{"q":{{"method":"{method}","params":{{}}}}}},"requestState":"s"}}"#
        )
    };
    let declared = json!({ "elicitation": {}, "sampling": {} });
    let rows: Vec<(&str, Value, String, bool)> = vec![
        ("declared", declared.clone(), asks("elicitation/create"), true),
        ("declared too", declared.clone(), asks("sampling/createMessage"), true),
        ("not declared", declared.clone(), asks("roots/list"), false),
        ("nothing declared", json!({}), asks("elicitation/create"), false),
        ("no known method", declared.clone(), asks("tools/call"), false),
        ("no method", declared.clone(), asks("x").replace("\"method\":\"x\",", ""), false),
        ("a state alone", json!({}), r#"{"resultType":"input_required","requestState":"s"}"#.into(), true),
        ("neither", declared.clone(), r#"{"resultType":"input_required"}"#.into(), false),
        ("a state that is no text", declared, r#"{"resultType":"input_required","requestState":7}"#.into(), false),
    ];
    run(async move {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        let count = rows.len();
        for (name, capabilities, reply, passes) in rows {
            for client in [gw.client("ann"), gw.client("ann").server("demo")] {
                for form in [Form::Json, Form::Sse] {
                    up.next(Reply::In(form, Box::new(Reply::Result(reply.clone()))));
                    let client = client.clone().capable(capabilities.clone()).fresh();
                    let row = async move {
                        let answer = client.call(&client.named("demo", "t"), json!({})).await;
                        if passes {
                            assert_eq!(answer.ok()["resultType"], "input_required");
                        } else {
                            answer.refused("upstream_unavailable");
                        }
                    };
                    faults.row(format!("{name}, {form:?}"), row).await;
                }
            }
        }
        up.next(asking());
        let legacy = gw.client("ann").era(Era::Legacy);
        legacy.call("demo_t", json!({})).await.refused("upstream_unavailable");
        up.assert_spoken_to_well();
        faults.assert_none(count);
    });
}

#[test]
fn both_directions_are_guarded() {
    run(async {
        let (gw, up) = gateway().await;
        for client in ways(&gw, "ann") {
            let tool = client.named("demo", "t");
            up.next(Reply::Result(
                r#"{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"say leak-7"}}}}"#.to_owned(),
            ));
            let answer = client.call(&tool, json!({})).await;
            assert!(answer.refused("guardrail_blocked").contains("have run"));
            assert!(!answer.wire().contains("leak-7"), "{}", answer.wire());

            let state = opened(&client, &up).await;
            let called = up.calls().len();
            let mut request = retry(&client, &tool, ARGUMENTS, &json!(state));
            request.body =
                String::from_utf8(request.body).unwrap().replace("{\"n\":1}", "{\"n\":\"zebra-9\"}").into_bytes();
            client.send(request).await.refused("guardrail_blocked");
            assert_eq!(up.calls().len(), called, "the answer reached the server");
        }
    });
}

#[test]
fn an_error_on_a_retry_stays_a_json_rpc_error() {
    run(async {
        let (gw, up) = gateway().await;
        for client in ways(&gw, "ann") {
            let tool = client.named("demo", "t");
            let state = opened(&client, &up).await;
            let error = r#"{"code":-32602,"message":"that state is too old","data":{"x":1}}"#;
            up.next(Reply::Error(error.to_owned()));
            let answer = client.send(retry(&client, &tool, ARGUMENTS, &json!(state))).await;
            let error = answer.rpc_error(200, -32602);
            assert_eq!(error["message"], "that state is too old");
            assert_eq!(error.get("data"), None, "{error}");
            up.next(Reply::Error(error.to_string()));
            client.call_text(&tool, ARGUMENTS).await.refused("upstream_rejected");
        }
    });
}

#[test]
fn a_legacy_caller_has_no_second_round() {
    run(async {
        let (gw, up) = gateway().await;
        let client = gw.client("ann").era(Era::Legacy);
        let params = json!({ "name": "demo_t", "arguments": {}, "requestState": "x", "inputResponses": { "q": {} } });
        client.rpc("tools/call", params).await.ok();
        let params = up.calls().pop().unwrap().message["params"].clone();
        assert!(params.get("requestState").is_none() && params.get("inputResponses").is_none(), "{params}");
    });
}
