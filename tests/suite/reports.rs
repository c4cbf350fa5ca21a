//! Plays `tests/cases/reports.jsonl`: what people have hit with gateways like this one. Each record is played here or by a named test of the suite.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use crate::support::{
    Faults,
    answer::Era,
    case_file,
    client::{BOTH, Client},
    gateway::{Gateway, Gw},
    policy::Access::{Read, Selected},
    run,
    upstream::{Form, Reply, Up, Upstream},
};

/// Records that another test plays: the record, and that test.
const ELSEWHERE: &[(&str, &str)] = &[
    ("refusal-not-http-5xx", "matrix::each_refusal_is_the_same_on_every_way_in"),
    ("lone-surrogate", "contract_rpc::what_is_not_json_is_a_parse_error"),
    ("id-string-kept", "contract_rpc::the_id_comes_back_as_it_was_sent"),
    ("dup-keys", "contract_rpc::what_is_not_one_request_is_invalid"),
    ("case-variant-keys", "cases::every_bad_input_is_met_as_the_contract_says"),
    ("alias-schema-keys", "discovery::any_change_of_a_definition_is_drift"),
    ("size-256k", "bytes::arguments_pass_at_256_kib_and_not_beyond"),
    ("get-405", "contract_http::only_post_is_served"),
    ("accept-wildcard", "contract_rpc::accept_never_refuses"),
    ("xff-spoof", "contract_http::forwarded_addresses_count_only_from_trusted_proxies"),
    ("early-refusal-body-drain", "contract_http::an_early_refusal_never_reads_the_body_as_a_request"),
    ("expect-100-early", "contract_http::expect_100_continue_does_not_hang"),
    ("pingora-body-read-in-filter", "bytes::odd_framings_of_a_good_body_pass"),
    ("pingora-filter-error-still-calls", "matrix::each_refusal_is_the_same_on_every_way_in"),
    ("pingora-extra-bytes", "faults::extra_bytes_never_reach_the_next_caller"),
    ("version-unsupported", "contract_rpc::versions_that_are_not_served"),
    ("xmcp-invalid-def", "discovery::a_bad_tool_is_isolated_and_its_neighbours_go_on"),
    ("xmcp-param-forward", "contract_rpc::declared_parameters_must_agree_too"),
    ("sse-crlf", "bytes::results_in_pieces_are_the_same_results"),
    ("sse-crlf-split", "bytes::results_in_pieces_are_the_same_results"),
    ("sse-utf8-split", "bytes::results_in_pieces_are_the_same_results"),
    ("sse-multi-data", "bytes::results_in_pieces_are_the_same_results"),
    ("sse-closed-no-response", "faults::every_fault_has_its_code_and_is_met_once"),
    ("unbounded-body", "faults::every_fault_has_its_code_and_is_met_once"),
    ("stale-content-encoding", "faults::every_fault_has_its_code_and_is_met_once"),
    ("redirect-not-followed", "faults::every_fault_has_its_code_and_is_met_once"),
    ("no-replay-post", "faults::every_fault_has_its_code_and_is_met_once"),
    ("session-expired-upstream", "eras::a_lost_session_is_renewed_once_and_the_call_sent_once_more"),
    ("client-gone-cancels", "cancel::many_clients_that_leave_free_every_place"),
    ("name-prefix-ambiguous", "discovery::exposed_names_route_by_table"),
    ("pin-covers-everything", "discovery::any_change_of_a_definition_is_drift"),
    ("conf-error-serves-other", "reload::a_broken_policy_changes_nothing_at_all"),
    ("ratelimit-bucket-identity", "contract_http::a_key_has_one_bucket_whatever_it_asks"),
    ("sse-upstream-mandatory", "faults::after_the_answer_of_a_stream_the_connection_is_not_used_again"),
    ("stale-key-types-403-order", "contract_http::the_first_check_that_fails_answers"),
];

/// Records that a function of this file plays: the record, and the test.
const HERE: &[(&str, &str)] = &[
    ("refusal-not-http-4xx", "a_refused_call_leaves_the_connection_usable"),
    ("upstream-rpc-error-not-swallowed", "a_servers_error_is_passed_on_cleaned"),
    ("cred-in-error-url", "no_credential_is_ever_said_or_logged"),
    ("cred-in-403-repr", "no_credential_is_ever_said_or_logged"),
    ("cred-in-source-error", "no_credential_is_ever_said_or_logged"),
    ("upstream-401-no-challenge-relay", "a_servers_401_is_not_ours"),
    ("out-skip-on-iserror", "errors_are_not_held_to_the_output_schema"),
    ("out-non-object", "structured_content_may_be_any_json"),
    ("out-array-recast", "structured_content_may_be_any_json"),
    ("out-null-optional", "a_result_that_does_not_fit_says_where"),
    ("result-meta-survives", "what_a_result_holds_is_kept"),
    ("bigint-result", "what_a_result_holds_is_kept"),
    ("float-integer", "integers_are_judged_by_value"),
    ("client-auth-leak", "nothing_of_the_client_goes_upstream"),
    ("pingora-eos-missing", "a_bad_result_is_caught_in_every_framing"),
    ("pingora-length-after-edit", "an_edited_answer_has_its_own_length"),
    ("sse-wrong-id", "only_the_exact_id_is_the_answer"),
    ("sse-1mb-line", "a_long_line_is_judged_by_the_limit_alone"),
    ("encoded-response", "codings_are_refused_and_never_asked_for"),
    ("no-replay-on-version-probe", "an_error_of_a_call_changes_no_era"),
    ("sch-defs-ref", "schemas_are_kept_to_the_letter"),
    ("sch-ref-body-pointer", "schemas_are_kept_to_the_letter"),
    ("sch-uneval-two-paths", "schemas_are_kept_to_the_letter"),
    ("sch-regex-lookaround", "schemas_are_kept_to_the_letter"),
    ("sch-bignum", "schemas_are_kept_to_the_letter"),
    ("sch-ref-loop", "schemas_that_could_run_for_ever_do_not"),
    ("sch-regex-redos", "schemas_that_could_run_for_ever_do_not"),
    ("sch-format-datetime", "format_is_never_asserted"),
    ("list-pagination-loop", "pages_that_go_in_circles_end"),
    ("list-filtered-and-enforced", "what_is_hidden_cannot_be_called"),
    ("guardrail-resource-blocks", "a_rule_sees_every_string_of_a_result"),
    ("sse-labelled-json", "labels_and_bodies_fit"),
];

fn record(id: &str) -> Value {
    let all = case_file("reports.jsonl");
    let found =
        all.lines().map(|line| serde_json::from_str::<Value>(line).expect("a JSON line")).find(|r| r["id"] == id);
    found.unwrap_or_else(|| panic!("no record {id}"))
}

fn try_of(id: &str) -> Value {
    record(id)["how_to_try"].clone()
}

fn object() -> Value {
    json!({ "type": "object" })
}

async fn behind(up: Upstream) -> (Gw, Up) {
    let up = up.run().await;
    let gw = Gateway::new().server("s1", &up).grant("ann", "s1", Read).approve_all().run().await;
    (gw, up)
}

fn ann(gw: &Gw) -> Client {
    gw.client("ann").server("s1")
}

#[test]
fn every_record_is_played() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for line in case_file("reports.jsonl").lines() {
        let record: Value = serde_json::from_str(line).expect("a JSON line");
        let id = record["id"].as_str().expect("an id");
        let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == id).map(|(_, test)| *test);
        let here = HERE.iter().find(|(name, _)| *name == id).map(|(_, test)| *test);
        let (file, test) = match (elsewhere, here) {
            (Some(test), None) => test.split_once("::").expect("a file and a test"),
            (None, Some(test)) => ("reports", test),
            (None, None) => panic!("nobody plays {id}"),
            (Some(_), Some(_)) => panic!("two play {id}"),
        };
        let source = fs::read_to_string(root.join(format!("{file}.rs"))).expect("a test file");
        assert!(source.contains(&format!("#[test]\nfn {test}(")), "{id} is said to be played by {file}::{test}");
        *places.entry(file).or_default() += 1;
    }
    crate::support::count(places.values().sum(), 0);
    let mut table = String::from("reports, by the file that plays them\n");
    for (file, count) in places {
        let _ = writeln!(table, "{count:>5}  {file}");
    }
    eprintln!("{table}");
}

#[test]
fn a_refused_call_leaves_the_connection_usable() {
    run(async {
        let up = Upstream::new().tool("note", object()).run().await;
        let rule =
            "name='z'\norganization='acme'\nstage='input'\ndetector='keywords'\naction='block'\nwords=['zebra-9']";
        let gateway = Gateway::new().server("s1", &up).grant("ann", "s1", Read).object("guardrail", rule);
        let gw = gateway.approve_all().run().await;
        let client = ann(&gw);
        let first = client.start(client.calling("note", r#"{"t":"zebra-9"}"#)).await;
        let (answer, connection) = first.finish().await;
        let message = answer.refused("guardrail_blocked");
        assert!(message.contains("keywords") && !answer.wire().contains("zebra"), "{message}");
        let mut connection = connection.expect("kept alive");
        let next = client.calling("note", r#"{"t":"horse"}"#);
        connection.write(&next.bytes()).await.unwrap();
        connection.exchange(next.asked.clone()).finish().await.0.ok();
        assert_eq!(up.calls().len(), 1);
    });
}

#[test]
fn a_servers_error_is_passed_on_cleaned() {
    run(async {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        let error = try_of("upstream-rpc-error-not-swallowed")["upstream"]["error"].to_string();
        for form in [Form::Json, Form::Sse] {
            for era in [Era::Modern, Era::Legacy] {
                up.next(Reply::In(form, Box::new(Reply::Error(error.clone()))));
                let answer = ann(&gw).era(era).call("t", json!({})).await;
                assert!(answer.refused("upstream_rejected").contains("no such tool"));
                for secret in ["abcdefghijklmnop", "tk_live_0000111122223333"] {
                    assert!(!answer.wire().contains(secret), "{secret}: {}", answer.wire());
                }
            }
        }
        up.next(Reply::Error(json!({ "code": 1, "message": "x".repeat(5000) }).to_string()));
        let answer = ann(&gw).call("t", json!({})).await;
        let message = answer.refused("upstream_rejected");
        assert_eq!(message.matches('x').count().clamp(1000, 1040), message.matches('x').count(), "cut to 1,024");
    });
}

#[test]
fn no_credential_is_ever_said_or_logged() {
    const SECRETS: [&str; 3] = ["SK_zz93_canary", "QK_zz94", "zz93_canary"];
    run(async {
        let up = Upstream::new()
            .tool("echo", object())
            .tool("admin_op", object())
            .credential("X-Api-Key", SECRETS[0])
            .run()
            .await;
        let definition = up.tools().remove(1);
        let gateway = Gateway::new().conf("[log]\nlevel = 'trace'").env("KEY", SECRETS[0]);
        let gateway = gateway.object(
            "server",
            &format!(
                "organization='acme'\nslug='s1'\nurl='{}?k=QK_zz94'\ncredential={{ X-Api-Key = {{ env = 'KEY' }} }}",
                up.url()
            ),
        );
        let gateway = gateway.approve("s1", &definition, "write").approve("s1", &up.tools()[0], "read");
        let gw = gateway.grant("ann", "s1", Read).run().await;
        ann(&gw).call("admin_op", json!({})).await.refused("tool_not_allowed");
        let encoded = "U0tfeno5M19jYW5hcnk="; // base64 of the credential
        let echoing = [
            Reply::raw("HTTP/1.1 200 OK\r\nConte${reset}"),
            Reply::raw(format!("HTTP/1.1 500 {0}\r\n{0}: 1\r\nContent-Length: 14\r\n\r\n{0}", SECRETS[0])),
            Reply::text(&format!("you sent {} or {encoded}", SECRETS[0])),
            Reply::Result(
                json!({ "content": [], "structuredContent": { SECRETS[0]: [SECRETS[0]] }, "isError": true })
                    .to_string(),
            ),
            Reply::Error(json!({ "code": 1, "message": format!("bad key {}", SECRETS[0]) }).to_string()),
            Reply::Error(json!({ "code": 1, "message": format!("bad key {encoded}") }).to_string()),
            Reply::Result(r#"{"content":[{"type":"text","text":"\u0053\u004b_zz93_canary"}]}"#.to_owned()),
            Reply::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nSK_zz93_canary${close}"),
        ];
        for reply in echoing {
            for form in [Form::Json, Form::Sse] {
                let what = format!("{reply:?}");
                up.next(if matches!(reply, Reply::Raw(_)) {
                    reply.clone()
                } else {
                    Reply::In(form, Box::new(reply.clone()))
                });
                let answer = ann(&gw).call("echo", json!({})).await;
                assert_eq!(answer.status, 200);
                let seen = answer.messages.last().map(Value::to_string).unwrap_or_default();
                for secret in SECRETS.iter().chain([&encoded]) {
                    assert!(
                        !answer.wire().contains(secret) && !seen.contains(secret),
                        "{secret} is said for {what}: {seen}"
                    );
                }
            }
        }
        up.refuse(true).await;
        let answer = ann(&gw).call("echo", json!({})).await;
        answer.refused("upstream_unavailable");
        assert!(!answer.wire().contains("QK_zz94") && !answer.wire().contains("127.0.0.1"), "{}", answer.wire());
        let metrics = gw.ops("/metrics").await.unwrap().text();
        for secret in SECRETS {
            assert!(!gw.log_text().contains(secret), "{secret} is logged");
            assert!(!metrics.contains(secret), "{secret} is a metric's label");
        }
    });
}

#[test]
fn a_servers_401_is_not_ours() {
    run(async {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        up.next(Reply::status(401, "WWW-Authenticate: Bearer resource_metadata=\"https://idp.example/x\"\r\n", ""));
        let answer = ann(&gw).call("t", json!({})).await;
        assert!(answer.refused("upstream_unavailable").contains("admin"));
        assert_eq!(answer.header("www-authenticate"), None);
    });
}

#[test]
fn errors_are_not_held_to_the_output_schema() {
    run(async {
        let tried = try_of("out-skip-on-iserror");
        let (gw, up) = behind(Upstream::new().definition(tried["tool"].clone())).await;
        for case in tried["cases"].as_array().unwrap() {
            for era in [Era::Modern, Era::Legacy] {
                up.next(Reply::Result(case["result"].to_string()));
                let answer = ann(&gw).era(era).call("score", json!({})).await;
                let got = answer.result();
                assert_eq!(got["isError"], true);
                assert_eq!(got["content"], case["result"]["content"]);
                if era == Era::Modern {
                    assert_eq!(got.get("structuredContent"), case["result"].get("structuredContent"));
                }
            }
        }
    });
}

#[test]
fn structured_content_may_be_any_json() {
    run(async {
        let cases = try_of("out-non-object")["cases"].as_array().unwrap().clone();
        let up = cases
            .iter()
            .enumerate()
            .fold(Upstream::new(), |up, (n, case)| up.tool_out(&format!("t{n}"), object(), case["out"].clone()));
        let array = try_of("out-array-recast");
        let (gw, up) = behind(up.definition(array["tool"].clone())).await;
        for (n, case) in cases.iter().enumerate() {
            let result = json!({ "content": [{ "type": "text", "text": "ok" }], "structuredContent": case["sc"], "resultType": "complete" });
            up.next(Reply::Result(result.to_string()));
            let answer = ann(&gw).call(&format!("t{n}"), json!({})).await;
            match case["expect"].as_str() {
                Some(code) => {
                    answer.refused(code);
                }
                None => assert_eq!(answer.ok().get("structuredContent"), Some(&case["sc"]), "{case}"),
            }
        }
        up.next(Reply::Result(array["upstream"]["result"].to_string()));
        let answer = ann(&gw).call("list", json!({})).await;
        assert_eq!(answer.ok()["structuredContent"], json!([{ "id": "1" }, { "id": "2" }]));
    });
}

#[test]
fn a_result_that_does_not_fit_says_where() {
    run(async {
        let tried = try_of("out-null-optional");
        let (gw, up) = behind(Upstream::new().definition(tried["tool"].clone())).await;
        up.next(Reply::Result(tried["upstream"]["result"].to_string()));
        let answer = ann(&gw).call("find", json!({})).await;
        assert!(answer.refused("tool_result_invalid").contains("/rows/0/note"), "{}", answer.text());
    });
}

#[test]
fn what_a_result_holds_is_kept() {
    run(async {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        let result = try_of("result-meta-survives")["upstream"]["result"].clone();
        up.next(Reply::Result(result.to_string()));
        let answer = ann(&gw).call("t", json!({})).await;
        assert_eq!(answer.ok()["_meta"]["x.example/k"], json!({ "a": [1] }));
        assert_eq!(answer.ok()["content"], result["content"]);
        let raw = try_of("bigint-result")["upstream_raw"].as_str().unwrap().replace("\"id\":1", "\"id\":${ID}");
        up.next(Reply::Message(raw.clone()));
        let answer = ann(&gw).call("t", json!({})).await;
        if answer.messages[0]["result"]["isError"] == true {
            answer.refused("upstream_unavailable"); // 1e400 is beyond a double, as in a request
        }
        let raw = raw.replace("\"e\":1e400,", "");
        up.next(Reply::Message(raw.clone()));
        let answer = ann(&gw).call("t", json!({})).await;
        let structured = &raw[raw.find("\"structuredContent\"").unwrap()..raw.len() - 2];
        assert!(answer.text().contains(structured), "{}", answer.text());
    });
}

#[test]
fn integers_are_judged_by_value() {
    run(async {
        let tried = try_of("float-integer");
        let (gw, up) = behind(Upstream::new().definition(tried["tool"].clone())).await;
        for case in tried["cases"].as_array().unwrap() {
            let (number, expected) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
            let arguments = format!("{{\"k\":{number}}}");
            let mut answer = ann(&gw).call_text("n", &arguments).await;
            match expected {
                "no crash" => {
                    answer.asked.id = Value::Null;
                    answer.rpc_error(400, -32700);
                }
                text if text.starts_with("pass") => {
                    answer.ok();
                    assert_eq!(up.calls().pop().unwrap().arguments(), arguments);
                }
                _ => assert!(answer.refused("invalid_tool_arguments").contains("/k"), "{number}"),
            }
        }
    });
}

#[test]
fn nothing_of_the_client_goes_upstream() {
    run(async {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        let mut client = ann(&gw);
        for (name, value) in try_of("client-auth-leak")["headers_extra"].as_object().unwrap() {
            if !name.starts_with("X-the product") {
                client = client.header(name, value.as_str().unwrap());
            }
        }
        client.header("X-Toolgate-Team", "a").call("t", json!({})).await.ok();
        up.assert_spoken_to_well();
        let call = up.calls().pop().unwrap();
        for name in ["authorization", "cookie", "x-forwarded-for", "mcp-session-id", "x-drop", "x-toolgate-team"] {
            assert_eq!(call.header(name), None);
        }
    });
}

#[test]
fn a_bad_result_is_caught_in_every_framing() {
    let body = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[],"structuredContent":{"m":1}}}"#;
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let framings = [
        format!("{json}Content-Length: ${{LEN}}\r\n\r\n{body}${{close}}"),
        format!("{json}Content-Length: ${{LEN}}\r\n\r\n{body}"),
        format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"),
    ];
    run(async move {
        let out = json!({ "type": "object", "required": ["n"] });
        let (gw, up) = behind(Upstream::new().tool_out("score", object(), out)).await;
        let mut replies: Vec<Reply> = framings.iter().map(Reply::raw).collect();
        replies.push(Reply::Body(format!("${{bytewise}}{body}").into_bytes()));
        replies.push(Reply::Events(format!("data: {body}\n\n").into_bytes()));
        for reply in replies {
            up.next(reply);
            ann(&gw).call("score", json!({})).await.refused("tool_result_invalid");
        }
        up.next(Reply::raw(format!("{json}Content-Length: 5000\r\n\r\n{body}${{close}}")));
        ann(&gw).call("score", json!({})).await.refused("upstream_unavailable");
    });
}

#[test]
fn an_edited_answer_has_its_own_length() {
    run(async {
        let up = Upstream::new().tool("t", object()).run().await;
        let rule = "name='r'\norganization='acme'\nstage='output'\ndetector='keywords'\naction='redact'\nwords=['sk-aaaaaaaaaaaaaaaaaaaaaaaa','end']";
        let gateway = Gateway::new().server("s1", &up).grant("ann", "s1", Read).object("guardrail", rule);
        let gw = gateway.approve_all().run().await;
        let message = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"key sk-aaaaaaaaaaaaaaaaaaaaaaaa end"}]}}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"x\"\r\nContent-MD5: x\r\nAccept-Ranges: bytes\r\n";
        for (reply, accept) in [
            (Reply::raw(format!("{head}Content-Length: ${{LEN}}\r\n\r\n{message}")), BOTH),
            (Reply::Events(format!("data: {message}\n\n").into_bytes()), BOTH),
            (Reply::Events(format!("data: {message}\n\n").into_bytes()), "application/json"),
        ] {
            up.next(reply);
            let client = ann(&gw).accept(accept);
            let answer = client.call("t", json!({})).await;
            assert_eq!(answer.said(), "key [redacted:keywords] [redacted:keywords]");
            for stale in ["etag", "content-md5", "accept-ranges", "content-encoding"] {
                assert_eq!(answer.header(stale), None);
            }
            client.call("t", json!({})).await.ok();
        }
    });
}

#[test]
fn only_the_exact_id_is_the_answer() {
    run(async {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        let good = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"ok"}]}}"#;
        let other = r#"{"jsonrpc":"2.0","id":987654321,"result":{"content":[{"type":"text","text":"theirs"}]}}"#;
        let texted = r#"{"jsonrpc":"2.0","id":"${IDTEXT}","result":{"content":[{"type":"text","text":"theirs"}]}}"#;
        ann(&gw).call("t", json!({})).await.ok();
        let typed = up.calls()[0].message["id"].is_string();
        for form in [Form::Json, Form::Sse] {
            let reply = |text: &str| Reply::In(form, Box::new(Reply::Message(text.to_owned())));
            up.next(reply(other));
            ann(&gw).call("t", json!({})).await.refused("upstream_unavailable");
            if !typed {
                up.next(reply(&texted.replace("\"${IDTEXT}\"", "\"1\"")));
                ann(&gw).call("t", json!({})).await.refused("upstream_unavailable");
            }
        }
        up.next(Reply::Events(format!("data: {good}\n\ndata: {other}\n\n").into_bytes()));
        assert_eq!(ann(&gw).call("t", json!({})).await.said(), "ok");
        let second = good.replace("ok", "second");
        up.next(Reply::Events(format!("data: {good}\n\ndata: {second}\n\n").into_bytes()));
        let answer = ann(&gw).call("t", json!({})).await;
        assert_eq!((answer.said(), answer.messages.len()), ("ok", 1));
    });
}

#[test]
fn a_long_line_is_judged_by_the_limit_alone() {
    run(async {
        let up = Upstream::new().tool("t", object()).run().await;
        let gateway = Gateway::new().server_with("s1", &up, "result_limit = '2MiB'").grant("ann", "s1", Read);
        let gw = gateway.approve_all().run().await;
        for form in [Form::Json, Form::Sse] {
            up.next(Reply::In(form, Box::new(Reply::Sized(1_500_000))));
            ann(&gw).call("t", json!({})).await.ok();
            up.next(Reply::In(form, Box::new(Reply::Sized(2 * 1024 * 1024 + 1))));
            ann(&gw).call("t", json!({})).await.refused("tool_result_too_large");
        }
        let lines = "data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
        up.next(Reply::Events(format!("${{rep 60000 {lines}}}\n").into_bytes()));
        ann(&gw).call("t", json!({})).await.refused("tool_result_too_large");
    });
}

#[test]
fn codings_are_refused_and_never_asked_for() {
    run(async {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        let client = ann(&gw).header("Accept-Encoding", "gzip, br, zstd");
        let answer = client.call("t", json!({})).await;
        answer.ok();
        assert_eq!(answer.header("content-encoding"), None);
        for coding in ["gzip", "br", "gzip, br", "x-unknown", "GZIP"] {
            up.next(Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: {coding}\r\nContent-Length: 3\r\n\r\nxyz")));
            client.call("t", json!({})).await.refused("upstream_unavailable");
        }
        let good = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[]}}"#;
        up.next(Reply::raw(format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: identity\r\nContent-Length: ${{LEN}}\r\n\r\n{good}")));
        client.call("t", json!({})).await.ok();
        up.assert_spoken_to_well();
    });
}

#[test]
fn an_error_of_a_call_changes_no_era() {
    let body =
        r#"{"jsonrpc":"2.0","id":${ID},"error":{"code":-32022,"message":"v","data":{"supported":["2025-11-25"]}}}"#;
    run(async move {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        let head = "HTTP/1.1 400 B\r\nContent-Type: application/json\r\nContent-Length: ${LEN}\r\n\r\n";
        let rows = [
            (Reply::status(500, "", ""), "upstream_unavailable"),
            (Reply::Error(r#"{"code":-32603,"message":"x"}"#.to_owned()), "upstream_rejected"),
            (Reply::raw(format!("{head}{body}")), "upstream_rejected"),
        ];
        for (reply, code) in rows {
            let called = up.calls().len();
            up.next(reply);
            ann(&gw).era(Era::Legacy).call("t", json!({})).await.refused(code);
            assert_eq!(up.calls().len() - called, 1, "one delivery");
        }
        assert_eq!(up.of("initialize").len(), 0);
    });
}

#[test]
fn schemas_are_kept_to_the_letter() {
    run(async {
        let ids =
            ["sch-defs-ref", "sch-ref-body-pointer", "sch-uneval-two-paths", "sch-regex-lookaround", "sch-bignum"];
        let up = ids.iter().fold(Upstream::new(), |up, id| up.definition(try_of(id)["tool"].clone()));
        let (gw, _up) = behind(up).await;
        let mut faults = Faults::default();
        for id in ids {
            let tried = try_of(id);
            let name = tried["tool"]["name"].as_str().unwrap().to_owned();
            let cases = tried.get("cases").or(tried.get("cases_raw")).unwrap().as_array().unwrap().clone();
            for case in cases {
                let arguments = case[0].as_str().map_or_else(|| case[0].to_string(), str::to_owned);
                // contract §3: a schema sees an integer beyond 64 bits as the nearest double
                let beyond = arguments.contains("18446744073709551620") || arguments.contains("9007199254740992");
                let answer = ann(&gw).call_text(&name, &arguments).await;
                let row = async {
                    match case[1].as_str().unwrap().split_once(' ') {
                        _ if beyond => assert_eq!(answer.status, 200),
                        Some(("invalid", pointer)) => {
                            assert!(answer.refused("invalid_tool_arguments").contains(pointer), "{}", answer.text());
                        }
                        _ if case[1] == "invalid" => drop(answer.refused("invalid_tool_arguments").to_owned()),
                        _ => drop(answer.ok().clone()),
                    }
                };
                faults.row(format!("{id}: {arguments}"), row).await;
            }
        }
        faults.assert_none(ids.len());
    });
}

#[test]
fn schemas_that_could_run_for_ever_do_not() {
    run(async {
        let schemas = try_of("sch-ref-loop")["schemas"].as_array().unwrap().clone();
        let up = schemas
            .into_iter()
            .enumerate()
            .fold(Upstream::new(), |up, (n, schema)| up.tool(&format!("loop{n}"), schema));
        let (gw, _up) = behind(up.definition(try_of("sch-regex-redos")["tool"].clone())).await;
        for n in 0..4 {
            let answer = ann(&gw).call(&format!("loop{n}"), json!({ "a": 1 })).await;
            answer.result();
            assert!(answer.took < std::time::Duration::from_secs(2), "loop{n}: {:?}", answer.took);
        }
        for (member, count) in [("s", 200_000), ("t", 50_000)] {
            let answer = ann(&gw).call("re", json!({ member: format!("{}!", "a".repeat(count)) })).await;
            let message = answer.refused("invalid_tool_arguments");
            assert!(message.len() < 1000, "the argument is repeated: {} bytes", message.len());
            assert!(answer.took < std::time::Duration::from_secs(3), "{member}: {:?}", answer.took);
        }
    });
}

#[test]
fn format_is_never_asserted() {
    run(async {
        let tried = try_of("sch-format-datetime");
        let mut old = tried["tool"].clone();
        old["name"] = json!("old");
        old["outputSchema"]["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        let (gw, up) = behind(Upstream::new().definition(tried["tool"].clone()).definition(old)).await;
        for tool in ["d", "old"] {
            up.next(Reply::Result(tried["upstream"]["result"].to_string()));
            ann(&gw).call(tool, json!({})).await.ok();
        }
    });
}

#[test]
fn pages_that_go_in_circles_end() {
    let page = |tools: &str, next: &str| format!(r#"{{"tools":[{tools}]{next}}}"#);
    let tool = r#"{"name":"t","inputSchema":{"type":"object"}}"#;
    let rows = [
        (page(tool, r#","nextCursor":"x""#), false),
        (page(tool, r#","nextCursor":"""#), false),
        (page(tool, r#","nextCursor":null"#), true),
        (page(tool, ""), true),
    ];
    run(async move {
        for (listing, good) in rows {
            let up = Upstream::new().run().await;
            up.list_with(Some(Reply::Result(listing.clone())));
            let definition: Value = serde_json::from_str(tool).unwrap();
            let gw = Gateway::new()
                .server("s1", &up)
                .grant("ann", "s1", Read)
                .approve("s1", &definition, "read")
                .run()
                .await;
            let names = ann(&gw).listed().await;
            assert!(names.len() <= 1, "{names:?}");
            assert!(up.of("tools/list").len() < 2000, "an end to it");
            if good {
                assert_eq!(names, ["t"], "{listing}");
            }
        }
    });
}

#[test]
fn what_is_hidden_cannot_be_called() {
    run(async {
        let up = Upstream::new().tool("read_ok", object()).tool("forbidden", object()).run().await;
        let gateway = Gateway::new().server("s1", &up).grant("ann", "s1", Selected(&["read_ok"]));
        let gw = gateway.approve_all().run().await;
        for era in [Era::Modern, Era::Legacy] {
            let client = ann(&gw).era(era).header("Mcp-Session-Id", "old");
            assert_eq!(client.listed().await, ["read_ok"]);
            client.call("forbidden", json!({})).await.refused("tool_not_allowed");
            for unknown in ["FORBIDDEN", " forbidden", "forbidden ", "s1_forbidden", "s1__forbidden"] {
                client.call(unknown, json!({})).await.rpc_error(200, -32602);
            }
        }
        assert!(up.calls().is_empty());
    });
}

#[test]
fn a_rule_sees_every_string_of_a_result() {
    run(async {
        let up = Upstream::new().tool("t", object()).run().await;
        let rule =
            "name='r'\norganization='acme'\nstage='output'\ndetector='keywords'\naction='block'\nwords=['INJ-77']";
        let gateway = Gateway::new().server("s1", &up).grant("ann", "s1", Read).object("guardrail", rule);
        let gw = gateway.approve_all().run().await;
        let mut results: Vec<String> = try_of("guardrail-resource-blocks")["cases"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|case| case.get("result").map(Value::to_string))
            .collect();
        results.push(r#"{"content":[{"type":"text","text":"INJ\u002d77"}]}"#.to_owned());
        // base64 of INJ-77 in a text resource
        results.push(r#"{"content":[{"type":"resource","resource":{"uri":"file:///a","mimeType":"text/plain","blob":"SU5KLTc3"}}]}"#.to_owned());
        let mut faults = Faults::default();
        let count = results.len();
        for result in results {
            for form in [Form::Json, Form::Sse] {
                up.next(Reply::In(form, Box::new(Reply::Result(result.clone()))));
                let answer = ann(&gw).call("t", json!({})).await;
                let row = async {
                    answer.refused("guardrail_blocked");
                    assert!(!answer.wire().contains("INJ"), "{}", answer.wire());
                };
                faults.row(format!("{form:?} {result}"), row).await;
            }
        }
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1,"message":"INJ-77"}}"#;
        up.next(Reply::After(vec![progress.to_owned()], Box::new(Reply::text("ok"))));
        let answer = ann(&gw).progress(json!(1)).call("t", json!({})).await;
        assert!(!answer.wire().contains("INJ-77"), "progress goes by the same rules: {}", answer.wire());
        faults.assert_none(count);
    });
}

#[test]
fn labels_and_bodies_fit() {
    let message = r#"{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"ok"}]}}"#;
    let event = format!("data: {message}\n\n");
    let rows: Vec<(&str, &str, bool)> = vec![
        ("text/event-stream; charset=utf-8", &event, true),
        ("Text/Event-Stream", &event, true),
        ("application/json; charset=utf-8", message, true),
        ("Application/JSON", message, true),
        ("application/json", &event, false),
        ("text/event-stream", message, false),
        ("text/plain", message, false),
        ("", message, false),
    ];
    run(async move {
        let (gw, up) = behind(Upstream::new().tool("t", object())).await;
        for (label, body, passes) in rows {
            for accept in [BOTH, "application/json"] {
                let label_line = if label.is_empty() { String::new() } else { format!("Content-Type: {label}\r\n") };
                up.next(Reply::raw(format!("HTTP/1.1 200 OK\r\n{label_line}\r\n{body}${{close}}")));
                let answer = ann(&gw).accept(accept).call("t", json!({})).await;
                if passes {
                    assert_eq!(answer.said(), "ok", "{label}");
                } else {
                    answer.refused("upstream_unavailable");
                }
            }
        }
    });
}
