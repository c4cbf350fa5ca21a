//! Contract §3: protocol errors and the shapes of each era, on both endpoints.

use serde_json::{Value, json};

use crate::support::{
    Faults,
    answer::{Answer, Era},
    client::{Client, Request},
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    upstream::{Reply, Up, Upstream},
};

async fn gateway() -> (Gw, Up) {
    let integer =
        json!({ "type": "object", "properties": { "n": { "type": "integer" }, "text": { "type": "string" } } });
    let region = json!({
        "type": "object",
        "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "count": { "type": "integer", "x-mcp-header": "Count" },
            "dry": { "type": "boolean", "x-mcp-header": "Dry" },
            "q": { "type": "string" }
        }
    });
    let up = Upstream::new()
        .tool("echo", integer)
        .tool("any", json!({ "type": "object" }))
        .tool("sql", region)
        .tool("write", json!({ "type": "object" }))
        .run()
        .await;
    let write = up.tools().remove(3);
    let gateway = Gateway::new().server("demo", &up).approve("demo", &write, "write");
    (gateway.grant("ann", "demo", Read).approve_all().run().await, up)
}

fn eras(gw: &Gw) -> [(Era, Client); 2] {
    [Era::Modern, Era::Legacy].map(|era| (era, gw.client("ann").era(era).server("demo").fresh()))
}

/// A protocol error whose id is null, or ours where the gateway could read it.
#[track_caller]
fn rpc_error(answer: &Answer, status: u16, code: i64) {
    let mut answer = answer.clone();
    let id = answer.messages.first().map_or(Value::Null, |message| message["id"].clone());
    assert!(id.is_null() || id == answer.asked.id, "the id is not ours: {}", answer.text());
    answer.asked.id = id;
    answer.rpc_error(status, code);
}

fn nested(depth: usize) -> String {
    format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn what_is_not_json_is_a_parse_error() {
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"any","arguments":{arguments},"_meta":{{}}}}}}"#
        )
    };
    let mut rows: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("a brace", b"{".to_vec()),
        ("garbage", b"}{".to_vec()),
        ("a byte-order mark", [b"\xef\xbb\xbf".as_slice(), call("{}").as_bytes()].concat()),
        ("trailing bytes", format!("{} x", call("{}")).into_bytes()),
        ("two documents", call("{}").repeat(2).into_bytes()),
        ("a trailing NUL", format!("{}\0", call("{}")).into_bytes()),
        ("a trailing comma", br#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#.to_vec()),
        ("a comment", br#"{"jsonrpc":"2.0",/* */"id":1,"method":"ping"}"#.to_vec()),
        ("single quotes", b"{'jsonrpc':'2.0'}".to_vec()),
        ("UTF-16", call("{}").encode_utf16().flat_map(u16::to_le_bytes).collect()),
    ];
    for (what, arguments) in [
        ("NaN", r#"{"n":NaN}"#),
        ("infinity", r#"{"n":Infinity}"#),
        ("a leading zero", r#"{"n":01}"#),
        ("a leading plus", r#"{"n":+1}"#),
        ("a bare point", r#"{"n":1.}"#),
        ("a high surrogate alone", r#"{"t":"\ud800"}"#),
        ("a low surrogate alone", r#"{"t":"a\udc00b"}"#),
        ("surrogates in the wrong order", r#"{"t":"\udc00\ud800"}"#),
        ("a surrogate in a member name", r#"{"\ud800":1}"#),
        ("a raw control character", "{\"t\":\"a\0b\"}"),
        ("a raw line feed in a string", "{\"t\":\"a\nb\"}"),
        ("beyond a double", r#"{"n":1e400}"#),
        ("far below a double", r#"{"n":-1e400}"#),
        ("an integer beyond a double", &format!(r#"{{"n":1{}}}"#, "0".repeat(400))),
        ("129 levels", &nested(126)),
        ("100,000 levels", &nested(100_000)),
        ("a bad escape", r#"{"t":"\x41"}"#),
    ] {
        rows.push((what, call(arguments).into_bytes()));
    }
    for (what, bytes) in
        [("a byte ff", &b"\xff"[..]), ("overlong", b"\xc0\xaf"), ("a coded surrogate", b"\xed\xa0\x80")]
    {
        rows.push((what, call("{\"t\":\"~\"}").into_bytes().split(|&b| b == b'~').collect::<Vec<_>>().join(bytes)));
    }
    run(async move {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for (what, body) in &rows {
            for (era, client) in eras(&gw) {
                let mut request = client.posting(body.clone());
                request.asked.id = Value::Null;
                let client = client.clone();
                faults
                    .row(format!("{what}, {era:?}"), async move {
                        drop(client.send(request).await.rpc_error(400, -32700).clone())
                    })
                    .await;
            }
        }
        assert!(up.calls().is_empty());
        faults.assert_none(rows.len());
    });
}

#[test]
fn what_json_allows_is_accepted_and_copied_as_written() {
    let long = format!(r#"{{"n":{}}}"#, "9".repeat(300));
    let deep = nested(125);
    let rows = [
        r#"{"n":9007199254740993}"#,
        r#"{"n":18446744073709551616}"#,
        r#"{"n":-9223372036854775809}"#,
        r#"{"n":1e2,"m":-0,"o":1.0,"p":0.1000000000000000055511151231257827,"q":1E-400}"#,
        long.as_str(),
        deep.as_str(),
        "{\"t\":\"\\u0000\\ud83d\\ude80 \u{1f680}\"}",
        "{ \"a\" : [ 1 , 2 ]\t}",
        r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#,
        r#"{"":0,"__proto__":{"x":1}}"#,
    ];
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for arguments in rows {
            for (era, client) in eras(&gw) {
                let (up, text) = (up.clone(), arguments.to_owned());
                let row = async move {
                    assert_eq!(client.call_text("any", &text).await.said(), text);
                    assert_eq!(up.calls().last().unwrap().arguments(), text);
                };
                faults.row(format!("{arguments:.60}, {era:?}"), row).await;
            }
        }
        up.assert_spoken_to_well();
        faults.assert_none(rows.len());
    });
}

#[test]
fn what_is_not_one_request_is_invalid() {
    let good =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},"_meta":M}}"#;
    let id = |id: &str| good.replace("\"id\":1", &format!("\"id\":{id}"));
    let rows: Vec<(&str, String)> = vec![
        ("a batch", format!("[{good}]")),
        ("an empty batch", "[]".to_owned()),
        ("a string", "\"x\"".to_owned()),
        ("a number", "1".to_owned()),
        ("null", "null".to_owned()),
        ("an empty object", "{}".to_owned()),
        ("a posted result", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned()),
        ("a posted error", r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#.to_owned()),
        ("a request with a result", r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#.to_owned()),
        ("id null", id("null")),
        ("id true", id("true")),
        ("id 1.5", id("1.5")),
        ("id 1.0", id("1.0")),
        ("id 1e2", id("1e2")),
        ("id object", id("{}")),
        ("id array", id("[1]")),
        ("no jsonrpc", good.replace(r#""jsonrpc":"2.0","#, "")),
        ("jsonrpc 1.0", good.replace("\"2.0\"", "\"1.0\"")),
        ("jsonrpc a number", good.replace("\"2.0\"", "2.0")),
        ("method a number", r#"{"jsonrpc":"2.0","id":1,"method":1}"#.to_owned()),
        ("method null", r#"{"jsonrpc":"2.0","id":1,"method":null}"#.to_owned()),
        ("method twice", good.replace("\"id\":1", "\"id\":1,\"method\":\"tools/list\"")),
        ("id twice", good.replace("\"id\":1", "\"id\":1,\"id\":1")),
        ("params twice", good.replace("\"id\":1", "\"id\":1,\"params\":{}")),
        ("name twice", good.replace("\"name\":\"echo\"", "\"name\":\"echo\",\"name\":\"write\"")),
        ("name twice, escaped", good.replace("\"name\":\"echo\"", "\"name\":\"echo\",\"n\\u0061me\":\"write\"")),
        ("arguments twice", good.replace("\"name\":\"echo\"", "\"name\":\"echo\",\"arguments\":{}")),
        ("twice in the arguments", good.replace("{\"text\":\"x\"}", "{\"text\":\"x\",\"text\":\"y\"}")),
        (
            "twice, deep in the arguments",
            good.replace("{\"text\":\"x\"}", "{\"text\":\"x\",\"d\":[{\"a\":{\"b\":1,\"\\u0062\":1}}]}"),
        ),
        ("twice in _meta", good.replace("\"_meta\":M", "\"_meta\":{\"a\":1,\"a\":1}")),
    ];
    run(async move {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for (what, body) in &rows {
            for (era, client) in eras(&gw) {
                let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
                let body =
                    body.replace("\"_meta\":M", &format!("\"_meta\":{}", if era == Era::Modern { meta } else { "{}" }));
                let mut request = client.posting(body);
                if era == Era::Modern {
                    request = request.set("Mcp-Method", "tools/call").set("Mcp-Name", "echo");
                }
                faults
                    .row(format!("{what}, {era:?}"), async move { rpc_error(&client.send(request).await, 400, -32600) })
                    .await;
            }
        }
        assert!(up.calls().is_empty());
        faults.assert_none(rows.len());
    });
}

#[test]
fn headers_must_agree_with_the_body() {
    type Change = fn(Request) -> Request;
    let rows: &[(&str, Change, bool)] = &[
        ("as it should be", |r| r, true),
        ("no version", |r| r.without("mcp-protocol-version"), false),
        ("no method", |r| r.without("mcp-method"), false),
        ("no name", |r| r.without("mcp-name"), false),
        ("version twice", |r| r.and("MCP-Protocol-Version", "2026-07-28"), false),
        ("method twice", |r| r.and("Mcp-Method", "tools/call"), false),
        ("name twice", |r| r.and("Mcp-Name", "echo"), false),
        ("another version", |r| r.set("MCP-Protocol-Version", "2025-11-25"), false),
        ("another method", |r| r.set("Mcp-Method", "tools/list"), false),
        ("another name", |r| r.set("Mcp-Name", "write"), false),
        ("the method in another case", |r| r.set("Mcp-Method", "Tools/Call"), false),
        ("the name in another case", |r| r.set("Mcp-Name", "Echo"), false),
        ("an empty name", |r| r.set("Mcp-Name", ""), false),
        ("the name in base64", |r| r.set("Mcp-Name", "=?base64?ZWNobw==?="), true),
        ("broken base64", |r| r.set("Mcp-Name", "=?base64?@@@?="), false),
        ("base64 without padding", |r| r.set("Mcp-Name", "=?base64?ZWNobw?="), false),
        ("base64, not canonical", |r| r.set("Mcp-Name", "=?base64?ZWNobx==?="), false),
        ("base64 of no UTF-8", |r| r.set("Mcp-Name", "=?base64?/w==?="), false),
        ("the prefix in another case", |r| r.set("Mcp-Name", "=?BASE64?ZWNobw==?="), false),
        ("header names in another case", |r| r.without("mcp-name").and("MCP-NAME", "echo"), true),
        ("an unknown Mcp-Param", |r| r.and("Mcp-Param-Other", "x"), true),
        ("a session id", |r| r.and("Mcp-Session-Id", "x").and("Last-Event-ID", "7"), true),
    ];
    run(async {
        let (gw, up) = gateway().await;
        let client = gw.client("ann").server("demo").fresh();
        let mut faults = Faults::default();
        for (what, change, passes) in rows {
            let (request, client, passes) = (change(client.calling("echo", "{}")), client.clone(), *passes);
            let row = async move {
                let answer = client.send(request).await;
                if passes {
                    answer.ok();
                } else {
                    answer.rpc_error(400, -32020);
                }
            };
            faults.row(*what, row).await;
        }
        assert_eq!(up.calls().len(), rows.iter().filter(|row| row.2).count());
        for (_, client) in eras(&gw).into_iter().filter(|(era, _)| *era == Era::Legacy) {
            let bare = client.clone().legacy("");
            bare.send(bare.calling("echo", "{}")).await.ok();
        }
        up.assert_spoken_to_well();
        faults.assert_none(rows.len());
    });
}

#[test]
fn declared_parameters_must_agree_too() {
    type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], bool);
    let rows: &[Row<'_>] = &[
        ("equal", r#"{"region":"eu"}"#, &[("Mcp-Param-Region", "eu")], true),
        ("another", r#"{"region":"eu"}"#, &[("Mcp-Param-Region", "us")], false),
        ("missing", r#"{"region":"eu"}"#, &[], false),
        ("absent in both", r#"{"q":"x"}"#, &[], true),
        ("null in the body", r#"{"region":null}"#, &[], false),
        ("only in the header", r#"{"q":"x"}"#, &[("Mcp-Param-Region", "eu")], false),
        ("twice", r#"{"region":"eu"}"#, &[("Mcp-Param-Region", "eu"), ("mcp-param-region", "eu")], false),
        ("in base64", r#"{"region":"é"}"#, &[("Mcp-Param-Region", "=?base64?w6k=?=")], true),
        ("broken base64", r#"{"region":"eu"}"#, &[("Mcp-Param-Region", "=?base64?!?=")], false),
        ("an integer", r#"{"count":42}"#, &[("Mcp-Param-Count", "42")], true),
        ("an integer as 42.0", r#"{"count":42.0}"#, &[("Mcp-Param-Count", "42")], true),
        ("another integer", r#"{"count":42}"#, &[("Mcp-Param-Count", "43")], false),
        ("a boolean", r#"{"dry":true}"#, &[("Mcp-Param-Dry", "true")], true),
        ("a boolean in another case", r#"{"dry":true}"#, &[("Mcp-Param-Dry", "True")], false),
    ];
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for (what, arguments, headers, passes) in rows {
            let client = gw.client("ann").server("demo").fresh();
            let request = headers.iter().fold(client.calling("sql", arguments), |r, (name, value)| r.and(name, value));
            let (passes, up, before) = (*passes, up.clone(), up.calls().len());
            let row = async move {
                let answer = client.send(request).await;
                if !passes && answer.status == 200 {
                    // null does not match the schema either: the argument check may be the one that speaks
                    answer.refused("invalid_tool_arguments");
                } else if !passes {
                    answer.rpc_error(400, -32020);
                } else {
                    answer.ok();
                    let call = up.calls().pop().unwrap();
                    for name in ["region", "count", "dry"] {
                        let sent = call.message["params"]["arguments"].get(name).is_some();
                        assert_eq!(call.header(&format!("mcp-param-{name}")).is_some(), sent, "{name} upstream");
                    }
                }
                assert_eq!(up.calls().len() - before, usize::from(passes));
            };
            faults.row(*what, row).await;
        }
        let legacy = gw.client("ann").server("demo").era(Era::Legacy);
        legacy.call("sql", json!({ "region": "eu" })).await.ok();
        let call = up.calls().pop().unwrap();
        assert_eq!(call.header("mcp-param-region"), Some("eu"), "a modern server needs the header whoever calls");
        faults.assert_none(rows.len());
    });
}

#[test]
fn versions_that_are_not_served() {
    run(async {
        let (gw, up) = gateway().await;
        let client = gw.client("ann").server("demo").fresh();
        for version in ["2099-01-01", "2026-07-29"] {
            let mut request = client.asking("tools/list", json!({}));
            request.body = String::from_utf8(request.body).unwrap().replace("2026-07-28", version).into_bytes();
            let answer = client.send(request.set("MCP-Protocol-Version", version)).await;
            let error = answer.rpc_error(400, -32022);
            assert_eq!(error["data"], json!({ "supported": ["2026-07-28"], "requested": version }));
        }
        let legacy = gw.client("ann").server("demo").era(Era::Legacy).fresh();
        for version in ["1999-01-01", "2099-01-01", "not-a-version"] {
            let answer = legacy.send(legacy.calling("echo", "{}").set("MCP-Protocol-Version", version)).await;
            assert_eq!(answer.status, 400, "{version}: {}", answer.wire());
            let code = answer.response()["error"]["code"].as_i64().unwrap();
            assert!([-32020, -32022, -32602].contains(&code), "{version}: {code}");
        }
        assert!(up.calls().is_empty());
        let discover = client.rpc("server/discover", json!({})).await;
        assert_eq!(
            discover.ok()["supportedVersions"],
            json!(["2026-07-28"]),
            "what -32022 lists is what discover says"
        );
    });
}

#[test]
fn a_missing_capability_is_passed_to_a_modern_caller_only() {
    let error = r#"{"code":-32021,"message":"needs sampling","data":{"requiredCapabilities":{"sampling":{}}}}"#;
    let raw = format!(r#"{{"jsonrpc":"2.0","id":${{ID}},"error":{error}}}"#);
    run(async move {
        let (gw, up) = gateway().await;
        let raw = format!(
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: ${{LEN}}\r\n\r\n{raw}"
        );
        up.on("echo", Reply::raw(raw));
        for (era, client) in eras(&gw) {
            let answer = client.call("echo", json!({})).await;
            if era == Era::Modern {
                let error = answer.rpc_error(400, -32021);
                assert_eq!(error["data"], json!({ "requiredCapabilities": { "sampling": {} } }));
            } else {
                answer.refused("upstream_rejected");
            }
        }
    });
}

#[test]
fn methods_that_are_not_served() {
    let both = [
        "resources/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tasks/get",
        "admin/exec",
        "tools/Call",
    ];
    let modern = ["initialize", "ping", "logging/setLevel", "resources/subscribe"];
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for (era, client) in eras(&gw) {
            let (status, more) = if era == Era::Modern { (404, &modern[..]) } else { (200, &["logging/setLevel"][..]) };
            for aggregated in [true, false] {
                for method in both.iter().chain(more) {
                    let client = if aggregated { gw.client("ann").era(era).fresh() } else { client.clone() };
                    let mut request = client.asking(method, json!({ "name": "x", "uri": "x", "taskId": "x" }));
                    if era == Era::Modern {
                        request = request.set("Mcp-Name", "x");
                    }
                    let row = async move { drop(client.send(request).await.rpc_error(status, -32601).clone()) };
                    faults.row(format!("{method}, {era:?}"), row).await;
                }
            }
        }
        let discover = gw.client("ann").rpc("server/discover", json!({})).await;
        if discover.ok()["capabilities"]["tools"].get("listChanged").is_none() {
            gw.client("ann").rpc("subscriptions/listen", json!({})).await.rpc_error(404, -32601);
        }
        assert!(up.calls().is_empty());
        faults.assert_none(both.len());
    });
}

#[test]
fn params_that_do_not_fit() {
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for (era, client) in eras(&gw) {
            let rows = [
                ("no such tool", client.calling("nope", "{}")),
                ("another case", client.calling("ECHO", "{}")),
                ("a leading space", client.calling(" echo", "{}")),
                ("the exposed name on the server's path", client.calling("demo_echo", "{}")),
                ("no name", client.asking("tools/call", json!({ "arguments": {} }))),
                ("a name that is a number", client.asking("tools/call", json!({ "name": 7 }))),
                ("a bad cursor", client.asking("tools/list", json!({ "cursor": "nonsense" }))),
                ("an empty cursor", client.asking("tools/list", json!({ "cursor": "" }))),
                ("a cursor that is a number", client.asking("tools/list", json!({ "cursor": 1 }))),
            ];
            for (what, request) in rows {
                let client = client.clone();
                let row = async move {
                    let name = request.asked.tool.clone();
                    let modern_without_name = era == Era::Modern && what.contains("name");
                    let answer = client.send(request).await;
                    if modern_without_name && name.is_none() {
                        // Mcp-Name cannot agree with a name that is none: either error may come first
                        assert!([-32602, -32020].contains(&answer.response()["error"]["code"].as_i64().unwrap()));
                        return;
                    }
                    let error = answer.rpc_error(200, -32602);
                    if let Some(name) = name {
                        assert_eq!(error["message"], format!("Unknown tool: {name}"));
                    }
                };
                faults.row(format!("{what}, {era:?}"), row).await;
            }
            let params = client.posting(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}"#);
            let answer = client.send(params).await;
            assert!(answer.response()["error"].get("code").is_some(), "{}", answer.text());
        }
        let aggregated = gw.client("ann");
        let answer = aggregated.call("echo", json!({})).await;
        assert_eq!(answer.rpc_error(200, -32602)["message"], "Unknown tool: echo");
        let long = "a".repeat(5000);
        let answer = aggregated.call(&long, json!({})).await;
        let message = answer.rpc_error(200, -32602)["message"].as_str().unwrap().to_owned();
        assert!(message.len() < 300, "a long name is cut: {} bytes", message.len());
        assert!(up.calls().is_empty());
        faults.assert_none(9);
    });
}

#[test]
fn a_modern_request_needs_its_meta() {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let rows = [
        ("no capabilities", format!("{{{version}}}")),
        ("no version", format!("{{{capabilities}}}")),
        (
            "capabilities that are no object",
            format!(r#"{{{version},"io.modelcontextprotocol/clientCapabilities":[]}}"#),
        ),
        ("an empty _meta", "{}".to_owned()),
    ];
    run(async move {
        let (gw, up) = gateway().await;
        let client = gw.client("ann").server("demo").fresh();
        let mut faults = Faults::default();
        for (what, meta) in &rows {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{}},"_meta":{meta}}}}}"#
            );
            let (client, request) = (client.clone(), client.posting(body));
            faults.row(*what, async move { drop(client.send(request).await.rpc_error(400, -32602).clone()) }).await;
        }
        assert!(up.calls().is_empty());
        faults.assert_none(rows.len());
    });
}

#[test]
fn the_id_comes_back_as_it_was_sent() {
    let ids = ["\"1\"", "\"14f40ee1b859ee70\"", "\"\"", "9007199254740993", "-5", "0", "\"null\"", r#""é\"\\""#];
    run(async {
        let (gw, _up) = gateway().await;
        for (_, client) in eras(&gw) {
            for id in ids {
                let with = |request: Request| {
                    let text = String::from_utf8(request.body).unwrap();
                    let at = text.find("\"id\":").unwrap() + 5;
                    let end = at + text[at..].find(',').unwrap();
                    let body = format!("{}{id}{}", &text[..at], &text[end..]);
                    let mut request = client.posting(body);
                    request.asked.id = serde_json::from_str(id).unwrap();
                    request
                };
                client.send(with(client.calling("echo", "{}"))).await.ok();
                client.send(with(client.calling("echo", r#"{"n":"x"}"#))).await.refused("invalid_tool_arguments");
                client.send(with(client.calling("write", "{}"))).await.refused("tool_not_allowed");
                client.send(with(client.calling("nope", "{}"))).await.rpc_error(200, -32602);
                let answer = client.send(with(client.calling("echo", "{}"))).await;
                assert!(answer.text().contains(&format!("\"id\":{id}")), "{id}: {}", answer.text());
            }
        }
    });
}

#[test]
fn hello_in_both_eras() {
    run(async {
        let (gw, up) = gateway().await;
        for client in [gw.client("ann"), gw.client("ann").server("demo")] {
            let answer = client.rpc("server/discover", json!({})).await;
            let result = answer.ok();
            assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
            assert!(result["capabilities"]["tools"].is_object(), "{result}");
            assert_eq!(result["capabilities"].as_object().unwrap().len(), 1, "tools only: {result}");
            assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "private", "{result}");
            let legacy = client.clone().era(Era::Legacy);
            for (asked, given) in [
                ("2025-11-25", "2025-11-25"),
                ("2025-06-18", "2025-06-18"),
                ("2025-03-26", "2025-03-26"),
                ("2024-11-05", "2025-11-25"),
                ("2026-07-28", "2025-11-25"),
            ] {
                let params = json!({ "protocolVersion": asked, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
                let answer = legacy.rpc("initialize", params).await;
                let result = answer.ok();
                assert_eq!(result["protocolVersion"], given, "asked for {asked}");
                assert_eq!(result["capabilities"], json!({ "tools": {} }));
                assert!(result["serverInfo"]["name"].is_string() && result["serverInfo"]["version"].is_string());
                assert_eq!(answer.header("mcp-session-id"), None);
            }
            assert_eq!(legacy.rpc("ping", json!({})).await.ok(), &json!({}));
        }
        assert!(up.calls().is_empty());
    });
}

#[test]
fn notifications_are_taken_and_answered_with_nothing() {
    run(async {
        let (gw, up) = gateway().await;
        let before = up.seen().len();
        for (era, client) in eras(&gw) {
            for method in [
                "notifications/initialized",
                "notifications/cancelled",
                "notifications/progress",
                "notifications/x",
                "tools/call",
            ] {
                let body = json!({ "jsonrpc": "2.0", "method": method, "params": { "name": "echo" } }).to_string();
                let mut request = client.posting(body);
                request = request.without("mcp-method").without("mcp-name");
                if method == "notifications/x" {
                    request = request.without("mcp-protocol-version");
                }
                let answer = client.send(request).await;
                assert_eq!((answer.status, answer.body.len()), (202, 0), "{method}, {era:?}: {}", answer.wire());
                answer.request_id();
            }
        }
        assert_eq!(up.seen().len(), before, "a notification reached the server");
        let nobody = gw.nobody();
        let answer = nobody.send(nobody.posting(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)).await;
        answer.http_refused(401, "authentication_error", None);
    });
}

#[test]
fn calls_without_arguments_mean_an_empty_object() {
    run(async {
        let (gw, up) = gateway().await;
        for (era, client) in eras(&gw) {
            client.send(client.asking("tools/call", json!({ "name": "echo" }))).await.ok();
            assert_eq!(up.calls().pop().unwrap().arguments(), "{}", "{era:?}");
            let called = up.calls().len();
            for arguments in ["null", "[]", "\"x\"", "1", "true"] {
                client.call_text("echo", arguments).await.refused("invalid_tool_arguments");
            }
            assert_eq!(up.calls().len(), called);
        }
    });
}

#[test]
fn accept_never_refuses() {
    let rows = [
        "*/*",
        "application/*, text/event-stream",
        "text/event-stream, application/json",
        "application/json",
        "",
        "application/json;q=0.9, text/event-stream;q=0.1",
        "text/html",
        "APPLICATION/JSON",
    ];
    run(async {
        let (gw, up) = gateway().await;
        for accept in rows {
            for (_, client) in eras(&gw) {
                let answer = client.accept(accept).call("echo", json!({})).await;
                assert_eq!(answer.said(), "{}", "{accept}");
                assert!(!answer.is_stream(), "JSON is the answer unless the server streams: {accept}");
            }
        }
        for (_, client) in eras(&gw) {
            up.set_form(crate::support::upstream::Form::Sse);
            for accept in ["application/json, text/event-stream;q=0", "*/*, text/event-stream; Q=0.000"] {
                let answer = client.clone().accept(accept).call("echo", json!({})).await;
                assert!(!answer.is_stream() && answer.said() == "{}", "{accept}");
            }
            let both = client.clone().accept("application/json;q=0.001, text/event-stream;q=0.1");
            assert!(both.call("echo", json!({})).await.is_stream());
            let only = client.clone().accept("text/event-stream, application/json;q=0");
            up.set_form(crate::support::upstream::Form::Json);
            assert!(only.call("echo", json!({})).await.is_stream());
            let client = client.accept("text/event-stream");
            let answer = client.call("echo", json!({})).await;
            assert_eq!(answer.said(), "{}");
            assert!(answer.is_stream(), "the caller takes nothing else");
            let answer = client.call("echo", json!({ "n": "x" })).await;
            answer.refused("invalid_tool_arguments");
            assert!(answer.is_stream(), "a refusal too");
        }
        up.assert_spoken_to_well();
    });
}

#[test]
fn lists_have_the_shape_of_their_era() {
    run(async {
        let (gw, _up) = gateway().await;
        for client in [gw.client("ann"), gw.client("ann").server("demo")] {
            let names: Vec<String> = ["any", "echo", "sql"].iter().map(|t| client.named("demo", t)).collect();
            let modern = client.rpc("tools/list", json!({})).await;
            let result = modern.ok();
            assert!(result["ttlMs"].is_u64() && result["cacheScope"] == "private", "{result}");
            assert_eq!(client.listed().await, names, "what the key may call, sorted");
            let legacy = client.clone().era(Era::Legacy).rpc("tools/list", json!({})).await;
            let members: Vec<&String> = legacy.ok().as_object().unwrap().keys().collect();
            assert_eq!(members, ["tools"], "a legacy list has nothing else");
        }
    });
}
