//! Contract §2: every HTTP refusal, in its order, on both endpoints, and what the server behind saw (nothing).

use serde_json::json;

use crate::support::{
    Faults,
    answer::{Answer, Era},
    client::{Client, Request},
    gateway::{Gateway, Gw, token},
    policy::Access::Read,
    run,
    upstream::{Form, Reply, Up, Upstream},
};

/// A key for each row from 5 on: it fails that row and, as far as it can, every later one.
const KEYS: &[(&str, &str)] = &[
    ("revoked", "organization = 'held'\nproject = 'done'\nrevoked = true\nallow_ips = ['10.0.0.0/8']\ndisabled = true"),
    ("expired", "organization = 'held'\nproject = 'done'\nexpires = 2001-01-01T00:00:00Z\ndisabled = true"),
    ("far", "organization = 'held'\nproject = 'done'\nallow_ips = ['10.0.0.0/8']\ndisabled = true"),
    ("off", "organization = 'held'\nproject = 'done'\ndisabled = true"),
    ("held", "organization = 'held'\nproject = 'done'"),
    ("archived", "organization = 'poor'\nproject = 'done'"),
    ("poor", "organization = 'poor'\nproject = 'live'"),
    ("lapsed", "organization = 'lapsed'\nproject = 'live'"),
    ("few", "rate_limit = '1/hour'"),
    ("foreign", "organization = 'other'\nproject = 'live'"),
];

const OBJECTS: &[(&str, &str)] = &[
    ("organization", "id = 'held'\nplan = 'starter'\nstatus = 'suspended'\nsubscription = 'none'"),
    ("organization", "id = 'poor'\nplan = 'team'\nstatus = 'active'\nsubscription = 'none'"),
    ("organization", "id = 'lapsed'\nplan = 'enterprise'\nstatus = 'active'\nsubscription = 'none'"),
    ("organization", "id = 'other'\nplan = 'enterprise'\nstatus = 'active'\nsubscription = 'trial'"),
    ("project", "id = 'done'\norganization = 'held'\narchived = true"),
    ("project", "id = 'done'\norganization = 'poor'\narchived = true"),
    ("project", "id = 'live'\norganization = 'poor'"),
    ("project", "id = 'live'\norganization = 'lapsed'"),
    ("project", "id = 'live'\norganization = 'other'"),
    ("project", "id = 'sales'\norganization = 'acme'"),
];

/// Servers that `ann` cannot reach by their path, each for another reason.
const ABSENT: &[(&str, &str, bool)] = &[
    ("dark", "enabled = false", true),
    ("elsewhere", "projects = ['sales']", true),
    ("staging", "environments = ['staging']", true),
    ("hidden", "", false),
];

async fn gateway() -> (Gw, Up) {
    let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
    let mut gateway = Gateway::new().conf("[gateway]\nallowed_origins = ['https://ok.test']");
    for (kind, toml) in OBJECTS {
        gateway = gateway.object(kind, toml);
    }
    gateway = gateway.server("demo", &up).grant("ann", "demo", Read);
    for (slug, more, granted) in ABSENT {
        gateway = gateway.server_with(slug, &up, more);
        if *granted {
            gateway = gateway.grant("ann", slug, Read);
        }
    }
    for (id, more) in KEYS {
        gateway = gateway.key(id, more);
    }
    let url = format!("organization = 'other'\nslug = 'theirs'\nurl = '{}'", up.url());
    gateway = gateway.object("server", &url).grant("foreign", "theirs", Read).grant("few", "demo", Read);
    (gateway.approve_all().run().await, up)
}

/// A refusal as a row says it: status, type, code.
type Refusal = (u16, &'static str, Option<&'static str>);

const NOT_FOUND: Refusal = (404, "not_found", Some("not_found"));
const ORIGIN: Refusal = (403, "permission_denied", Some("origin_not_allowed"));
const METHOD: Refusal = (405, "invalid_request_error", None);
const UNAUTHENTICATED: Refusal = (401, "authentication_error", None);
const ATTRIBUTION: Refusal = (400, "invalid_request_error", Some("invalid_attribution"));
const NO_SERVER: Refusal = (404, "not_found", Some("mcp_server_not_found"));
const MEDIA: Refusal = (415, "invalid_request_error", Some("unsupported_media_type"));
const TOO_LARGE: Refusal = (413, "invalid_request_error", Some("request_too_large"));
const RATE: Refusal = (429, "rate_limit_exceeded", None);

fn denied(code: &'static str) -> Refusal {
    (403, "permission_denied", Some(code))
}

fn framing(code: &'static str) -> Refusal {
    match code {
        "request_timeout" => (408, "request_timeout", Some(code)),
        "request_too_large" => (431, "invalid_request_error", Some(code)),
        _ => (400, "invalid_request_error", Some(code)),
    }
}

#[track_caller]
fn check(answer: &Answer, (status, kind, code): Refusal) {
    answer.http_refused(status, kind, code);
}

/// A request that fails every row from `row` on.
fn failing_from(row: &str, gw: &Gw) -> Request {
    let order = ["path", "origin", "method", "key", "attribution", "slug", "media", "size"];
    let fails = |what: &str| {
        let place = |name: &str| order.iter().position(|o| *o == name);
        place(what) >= Some(place(row).unwrap_or(3))
    };
    let client = match row {
        "path" | "origin" | "method" | "key" => gw.nobody(),
        "attribution" | "slug" | "media" | "size" => gw.client("ann"),
        key => gw.client(key),
    };
    let slug = if fails("slug") { "nope" } else { "demo" };
    let body = if fails("size") { vec![b'x'; (1 << 20) + 1] } else { b"x".to_vec() };
    let mut request = client.server(slug).posting(body);
    if fails("path") {
        request = request.to("/gateway/x/y/mcp");
    }
    if fails("origin") {
        request = request.set("Origin", "https://evil.test");
    }
    if fails("method") {
        request = request.by("PUT");
    }
    if fails("attribution") {
        request = request.set("X-Toolgate-Nonsense", "1");
    }
    if fails("media") {
        request = request.set("Content-Type", "text/plain");
    }
    request
}

#[test]
fn the_first_check_that_fails_answers() {
    let rows: &[(&str, Refusal)] = &[
        ("path", NOT_FOUND),
        ("origin", ORIGIN),
        ("method", METHOD),
        ("key", UNAUTHENTICATED),
        ("revoked", UNAUTHENTICATED),
        ("expired", UNAUTHENTICATED),
        ("far", denied("ip_not_allowed")),
        ("off", denied("key_disabled")),
        ("held", denied("organization_suspended")),
        ("archived", denied("project_archived")),
        ("poor", denied("plan_feature")),
        ("lapsed", denied("subscription_required")),
        ("few", RATE),
        ("attribution", ATTRIBUTION),
        ("slug", NO_SERVER),
        ("media", MEDIA),
        ("size", TOO_LARGE),
    ];
    run(async {
        let (gw, up) = gateway().await;
        gw.client("few").server("demo").call("echo", json!({})).await.ok();
        let called = up.calls().len();
        let mut faults = Faults::default();
        for (row, refusal) in rows {
            for aggregated in [false, true] {
                if aggregated && matches!(*row, "path" | "slug") {
                    continue;
                }
                let mut request = failing_from(row, &gw);
                if aggregated {
                    request = request.to("/gateway/mcp");
                }
                let (client, refusal) = (gw.nobody().fresh(), *refusal);
                let name = format!("{row}, {}", request.path);
                faults.row(name, async move { check(&client.send(request).await, refusal) }).await;
            }
        }
        assert_eq!(up.calls().len(), called, "a refusal reached the server");
        faults.assert_none(rows.len());
    });
}

#[test]
fn every_401_is_the_same_bytes() {
    run(async {
        let (gw, up) = gateway().await;
        let ann = gw.client("ann").calling("demo_echo", "{}");
        let bearer = |value: &str| ann.clone().set("Authorization", value);
        let good = format!("Bearer {}", token("ann"));
        let requests: Vec<(&str, Request)> = vec![
            ("missing", ann.clone().without("authorization")),
            ("unknown", bearer("Bearer nobody-knows-this")),
            ("expired", bearer(&format!("Bearer {}", token("expired")))),
            ("revoked", bearer(&format!("Bearer {}", token("revoked")))),
            ("empty", bearer("")),
            ("no token", bearer("Bearer ")),
            ("no token, no space", bearer("Bearer")),
            ("another scheme", bearer(&good.replace("Bearer", "Basic"))),
            ("no scheme", bearer(&token("ann"))),
            ("more behind", bearer(&format!("{good} x"))),
            ("twice, the second good", bearer("Bearer nope").and("Authorization", &good)),
            ("twice, the first good", bearer(&good).and("Authorization", "Bearer nope")),
            ("twice the same", bearer(&good).and("Authorization", &good)),
            (
                "in the query",
                ann.clone().without("authorization").to(&format!("/gateway/mcp?api_key={}", token("ann"))),
            ),
            ("as X-Api-Key", ann.clone().without("authorization").and("X-Api-Key", &token("ann"))),
        ];
        let mut first: Option<String> = None;
        let count = requests.len();
        for (what, request) in requests {
            for path in [None, Some("/gateway/demo/mcp"), Some("/gateway/nope/mcp")] {
                let request =
                    path.filter(|_| !request.path.contains('?')).map_or(request.clone(), |p| request.clone().to(p));
                let answer = gw.nobody().fresh().send(request).await;
                check(&answer, UNAUTHENTICATED);
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{what}");
                let first = first.get_or_insert_with(|| answer.anonymous());
                assert_eq!(&answer.anonymous(), first, "{what}");
            }
        }
        assert!(count > 10);
        assert!(up.calls().is_empty());
        for scheme in ["bearer", "BEARER", "BeArEr"] {
            let answer = gw.nobody().send(bearer(&good.replace("Bearer", scheme))).await;
            assert_eq!(answer.said(), "{}", "{scheme}");
        }
        let log = gw.log_text();
        assert!(!log.contains(&token("ann")), "a key is in the log");
    });
}

#[test]
fn every_404_of_row_13_is_the_same_bytes() {
    run(async {
        let (gw, up) = gateway().await;
        let mut first: Option<String> = None;
        let slugs =
            ["nope", "dark", "elsewhere", "staging", "hidden", "theirs", "DEMO", "demo%2Fx", "demo.", "a", "%64emo"];
        for slug in slugs {
            for body in [r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "not json"] {
                let client = gw.client("ann").fresh();
                let answer = client.send(client.posting(body).to(&format!("/gateway/{slug}/mcp"))).await;
                check(&answer, NO_SERVER);
                let first = first.get_or_insert_with(|| answer.anonymous());
                assert_eq!(&answer.anonymous(), first, "{slug}");
            }
        }
        assert!(up.calls().is_empty());
        gw.client("ann").server("demo").call("echo", json!({})).await.ok();
    });
}

#[test]
fn other_paths_do_not_exist() {
    run(async {
        let (gw, _up) = gateway().await;
        let paths = [
            "/",
            "/gateway",
            "/gateway/",
            "/gateway/mcp/",
            "/gateway/demo",
            "/gateway/demo/mcp/",
            "/gateway//mcp",
            "/gateway/demo/mcp/x",
            "/gateway/demo/../mcp",
            "/Gateway/mcp",
            "/mcp",
            "/metrics",
            "/livez",
            "/readyz",
            "/v1/servers",
            "/gateway/v1/servers",
            "/.well-known/oauth-protected-resource",
            "/.well-known/oauth-protected-resource/gateway/mcp",
        ];
        for path in paths {
            for method in ["POST", "GET"] {
                let client = gw.client("ann").fresh();
                let answer = client.send(client.posting("{}").to(path).by(method)).await;
                check(&answer, NOT_FOUND);
            }
        }
        assert_eq!(gw.ops("/livez").await.unwrap().status, 200);
        assert_eq!(gw.ops("/v1/servers").await.unwrap().status, 404);
    });
}

#[test]
fn origins_are_refused_unless_allowed_and_allowed_ones_are_echoed() {
    run(async {
        let (gw, up) = gateway().await;
        let ask = |path: &str| gw.client("ann").calling("echo", "{}").to(path);
        for path in ["/gateway/mcp", "/gateway/demo/mcp"] {
            for origin in
                ["https://evil.test", "null", "", "http://ok.test", "https://ok.test.evil.test", "https://ok.test/"]
            {
                for method in ["POST", "OPTIONS", "GET"] {
                    let answer = gw.nobody().fresh().send(ask(path).set("Origin", origin).by(method)).await;
                    check(&answer, ORIGIN);
                    assert_eq!(answer.header("access-control-allow-origin"), None, "{origin}");
                }
            }
            let two = ask(path).and("Origin", "https://ok.test").and("Origin", "https://evil.test");
            check(&gw.nobody().fresh().send(two).await, ORIGIN);
        }
        let ok = |path: &str| ask(path).set("Origin", "https://ok.test");
        let answers = [
            (gw.nobody().send(ok("/gateway/demo/mcp")).await, 200),
            (gw.nobody().send(ok("/gateway/demo/mcp").without("authorization")).await, 401),
            (gw.nobody().send(ok("/gateway/nope/mcp")).await, 404),
            (gw.nobody().send(ok("/gateway/demo/mcp").by("GET")).await, 405),
            (gw.nobody().send(ok("/gateway/demo/mcp").set("Mcp-Name", "other")).await, 400),
            (gw.nobody().send(ok("/gateway/demo/mcp").set("Content-Type", "text/plain")).await, 415),
        ];
        for (answer, status) in answers {
            assert_eq!(answer.status, status, "{}", answer.wire());
            assert_eq!(answer.header("access-control-allow-origin"), Some("https://ok.test"), "{}", answer.wire());
        }
        let preflight =
            ok("/gateway/mcp").by("OPTIONS").without("authorization").set("Access-Control-Request-Method", "POST");
        let answer = gw.nobody().send(preflight).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{}", answer.wire());
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://ok.test"));
        answer.request_id();
        assert_eq!(up.calls().len(), 1);
    });
}

#[test]
fn only_post_is_served() {
    run(async {
        let (gw, _up) = gateway().await;
        for path in ["/gateway/mcp", "/gateway/demo/mcp", "/gateway/nope/mcp"] {
            for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
                for client in [gw.nobody().fresh(), gw.client("ann").fresh()] {
                    let request = client.posting("").to(path).by(method).and("Mcp-Session-Id", "x");
                    let answer = client.send(request).await;
                    check(&answer, METHOD);
                    assert_eq!(answer.header("allow"), Some("POST"), "{method} {path}");
                }
            }
            let head = format!("HEAD {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
            let bytes = gw.nobody().raw_until_closed(head.as_bytes()).await;
            assert!(bytes.starts_with(b"HTTP/1.1 405"), "{}", String::from_utf8_lossy(&bytes));
            assert!(bytes.ends_with(b"\r\n\r\n"), "HEAD has no body");
        }
    });
}

#[test]
fn media_types_and_codings() {
    let rows: &[(&str, Option<&str>, Option<&str>, bool)] = &[
        ("plain", Some("application/json"), None, true),
        ("with a parameter", Some("application/json; charset=utf-8"), None, true),
        ("another case", Some("Application/JSON"), None, true),
        ("space before the parameter", Some("application/json ;charset=UTF-8"), None, true),
        ("missing", None, None, false),
        ("text", Some("text/plain"), None, false),
        ("a longer subtype", Some("application/json-patch+json"), None, false),
        ("a suffix", Some("application/x+json"), None, false),
        ("empty", Some(""), None, false),
        ("gzip", Some("application/json"), Some("gzip"), false),
        ("br", Some("application/json"), Some("br"), false),
        ("two codings", Some("application/json"), Some("identity, gzip"), false),
    ];
    run(async {
        let (gw, up) = gateway().await;
        let mut faults = Faults::default();
        for (name, media, coding, passes) in rows {
            let client = gw.client("ann").server("demo").fresh();
            let mut request = client.calling("echo", "{}").without("content-type");
            if let Some(media) = media {
                request = request.and("Content-Type", media);
            }
            if let Some(coding) = coding {
                request = request.and("Content-Encoding", coding);
            }
            let passes = *passes;
            let row = async move {
                let answer = client.send(request).await;
                if passes {
                    answer.ok();
                } else {
                    check(&answer, MEDIA);
                }
            };
            faults.row(*name, row).await;
        }
        assert_eq!(up.calls().len(), rows.iter().filter(|row| row.3).count());
        faults.assert_none(rows.len());
    });
}

#[test]
fn a_body_passes_at_the_limit_and_not_beyond() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[limits]\nrequest_body = '16KiB'").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let padded = |size: usize| {
            let mut request = gw.client("ann").calling("demo_echo", "{}");
            request.body.resize(size, b' ');
            request
        };
        for chunk in [None, Some(1000), Some(16 * 1024 + 1)] {
            let framed = |size| chunk.map_or(padded(size), |chunk| padded(size).chunked(chunk));
            gw.nobody().fresh().send(framed(16 * 1024)).await.ok();
            check(&gw.nobody().fresh().send(framed(16 * 1024 + 1)).await, TOO_LARGE);
        }
        let declared = padded(10).set("Content-Length", "99999999999");
        let mut head = declared.head_bytes();
        let two = head.windows(20).rposition(|w| w.starts_with(b"Content-Length: 10\r\n")).expect("the true length");
        head.drain(two..two + 20);
        check(&gw.nobody().raw(&head).await, TOO_LARGE);
        assert_eq!(up.calls().len(), 3);
    });
}

/// Heads and bodies that are ambiguous, each with what it is refused as; `~` stands for the good head.
const FRAMINGS: &[(&str, &str)] = &[
    (
        "both lengths",
        "~Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    ("both lengths, the other order", "~Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX"),
    ("the length twice", "~Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
    ("two lengths", "~Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
    ("a list of lengths", "~Content-Length: 2, 2\r\n\r\n{}"),
    ("a length with a plus", "~Content-Length: +2\r\n\r\n{}"),
    ("a negative length", "~Content-Length: -2\r\n\r\n{}"),
    ("a length in hex", "~Content-Length: 0x2\r\n\r\n{}"),
    ("an empty length", "~Content-Length: \r\n\r\n{}"),
    ("a length with a space", "~Content-Length: 1 2\r\n\r\n{}"),
    ("a huge length", "~Content-Length: 99999999999999999999\r\n\r\n{}"),
    ("chunked twice", "~Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("gzip and chunked", "~Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked, then identity", "~Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ("two transfer codings", "~Transfer-Encoding: xyz\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("an unknown coding", "~Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("an empty coding", "~Transfer-Encoding: \r\n\r\n0\r\n\r\n"),
    ("a folded coding", "~Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("a space before the colon", "~Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("an upgrade", "~Upgrade: foo\r\nConnection: upgrade\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("a websocket", "~Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\n{}"),
    ("a bare LF in the head", "~X-A: b\nContent-Length: 2\r\n\r\n{}"),
    ("a bare LF at the end of the head", "~Content-Length: 2\n\n{}"),
    ("a bare LF after a chunk size", "~Transfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n"),
    ("a chunk size with 0x", "~Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n"),
    ("a chunk size that overflows", "~Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF1\r\n"),
    ("a NUL in a value", "~X-A: a\0b\r\nContent-Length: 2\r\n\r\n{}"),
    ("a bare CR in a value", "~X-A: a\rTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}"),
    ("two hosts", "~Host: other\r\nContent-Length: 2\r\n\r\n{}"),
];

#[test]
fn ambiguous_framing_is_refused_and_the_connection_closed() {
    run(async {
        let (gw, up) = gateway().await;
        let good = format!(
            "POST /gateway/mcp HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
            token("ann")
        );
        let no_host = good.replace("Host: g\r\n", "");
        let mut rows: Vec<(String, String)> =
            FRAMINGS.iter().map(|(what, text)| ((*what).to_owned(), text.replace('~', &good))).collect();
        rows.push(("no host".to_owned(), format!("{no_host}Content-Length: 2\r\n\r\n{{}}")));
        rows.push((
            "absolute form".to_owned(),
            format!("{}Content-Length: 2\r\n\r\n{{}}", good.replace(" /gateway", " http://secret.test/gateway")),
        ));
        let count = rows.len();
        let mut faults = Faults::default();
        for (what, text) in rows {
            let client = gw.nobody();
            let row = async move {
                let bytes = client.raw_until_closed(text.as_bytes()).await;
                let answer = String::from_utf8_lossy(&bytes).into_owned();
                assert!(answer.starts_with("HTTP/1.1 400"), "{answer:?}");
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "a second answer: {answer:?}");
            };
            faults.row(what, row).await;
        }
        assert!(up.calls().is_empty(), "an ambiguous request reached the server");
        let log = gw.log_text();
        assert!(!log.contains(&token("ann")), "the key is in the log");
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        faults.assert_none(count);
    });
}

#[test]
fn what_the_gateway_itself_refuses_in_row_0_has_the_envelope() {
    // Rows that no HTTP parser refuses: the refusal must be ours, with the envelope and a request id.
    let ours =
        ["both lengths", "a list of lengths", "the length twice", "gzip and chunked", "chunked twice", "an upgrade"];
    run(async {
        let (gw, _up) = gateway().await;
        let good = format!(
            "POST /gateway/mcp HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
            token("ann")
        );
        let mut faults = Faults::default();
        for (what, text) in FRAMINGS.iter().filter(|(what, _)| ours.contains(what)) {
            let (client, text) = (gw.nobody(), text.replace('~', &good));
            let row = async move {
                let answer = client.raw(text.as_bytes()).await;
                check(&answer, framing("invalid_request"));
                assert!(answer.closed, "the connection stays open");
            };
            faults.row(*what, row).await;
        }
        let h2c = "~Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\n{}";
        let answer = gw.nobody().raw(h2c.replace('~', &good).as_bytes()).await;
        answer.rpc_error(400, -32600);
        faults.assert_none(ours.len());
    });
}

#[test]
fn heads_and_bodies_that_do_not_come_in_time_or_are_too_large() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway =
            Gateway::new().conf("[limits]\nheaders = '8KiB'\n[timeouts]\nrequest_header = '1s'\nrequest_body = '1s'");
        let gw = gateway.server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        let long = |size: usize| gw.client("ann").calling("demo_echo", "{}").set("X-Long", &"a".repeat(size));
        gw.nobody().send(long(7 * 1024)).await.ok();
        let answer = gw.nobody().fresh().send(long(9 * 1024)).await;
        check(&answer, framing("request_too_large"));
        let many = (0..40)
            .fold(gw.client("ann").calling("demo_echo", "{}"), |r, n| r.and(&format!("X-{n}"), &"a".repeat(300)));
        check(&gw.nobody().fresh().send(many).await, framing("request_too_large"));

        let request = gw.client("ann").calling("demo_echo", "{}");
        let (head, whole) = (request.head_bytes(), request.bytes());
        let parts: [(&str, &[u8]); 4] = [
            ("half a head", &head[..30]),
            ("a head without its end", &head[..head.len() - 2]),
            ("no body", &head),
            ("half a body", &whole[..whole.len() - 3]),
        ];
        for (what, bytes) in parts {
            let answer = gw.nobody().raw(bytes).await;
            assert!(answer.closed, "{what}: the connection stays open");
            if what.contains("body") {
                check(&answer, framing("request_timeout"));
            }
        }
        let mut connection = gw.nobody().connect().await.unwrap();
        connection.write(&head).await.unwrap();
        let drip = async {
            for byte in whole[head.len()..].iter().take(60) {
                if connection.write(&[*byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            connection.until_closed().await
        };
        let bytes = drip.await;
        assert!(bytes.starts_with(b"HTTP/1.1 408"), "a dripping body: {}", String::from_utf8_lossy(&bytes));
        assert_eq!(up.calls().len(), 1);
    });
}

#[test]
fn a_head_is_too_large_whatever_its_size() {
    run(async {
        let (gw, up) = gateway().await;
        for size in [60_000, 70_000, 500_000, 1_200_000] {
            let request = gw.client("ann").calling("demo_echo", "{}").set("X-Long", &"a".repeat(size));
            let answer = gw.nobody().fresh().send(request).await;
            if size < 65_000 {
                answer.ok();
                continue;
            }
            check(&answer, framing("request_too_large"));
            assert!(answer.closed, "{size} bytes: the connection stays open");
        }
        assert_eq!(up.calls().len(), 1);
    });
}

#[test]
fn a_key_has_one_bucket_whatever_it_asks() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server("demo", &up).key("few", "rate_limit = '4/hour'").grant("few", "demo", Read);
        let gw = gateway.key("bob", "rate_limit = '4/hour'").grant("bob", "demo", Read).approve_all().run().await;
        let few = gw.client("few");
        few.call("demo_echo", json!({})).await.ok();
        check(&few.send(few.calling("echo", "{}").to("/gateway/nope/mcp")).await, NO_SERVER);
        few.clone().server("demo").era(Era::Legacy).call("echo", json!({})).await.ok();
        check(&few.send(few.calling("demo_echo", "{}").and("X-Toolgate-Nonsense", "1")).await, ATTRIBUTION);
        let spellings = ["Bearer", "bearer"].map(|scheme| format!("{scheme} {}", token("few")));
        for spelling in spellings {
            for path in ["/gateway/mcp", "/gateway/demo/mcp"] {
                let request = few.calling("demo_echo", "{}").to(path).set("Authorization", &spelling);
                let answer = few.send(request.set("X-Forwarded-For", "198.51.100.7")).await;
                check(&answer, RATE);
                let wait = answer.retry_after();
                assert!((880..=900).contains(&wait), "a token comes each 900 s, not after {wait} s");
            }
        }
        let bob = gw.client("bob");
        for _ in 0..4 {
            bob.call("demo_echo", json!({})).await.ok();
        }
        check(&bob.call("demo_echo", json!({})).await, RATE);
        assert_eq!(up.calls().len(), 6);
        let rejected = gw.metrics().await.sum("toolgate_rate_limit_rejections_total", &[("scope", "key")]);
        assert_eq!(rejected, 5.0);
    });
}

#[test]
fn retry_after_is_true() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server("demo", &up).key("few", "rate_limit = '1/s'").grant("few", "demo", Read);
        let gw = gateway.approve_all().run().await;
        let few = gw.client("few");
        let mut answer = few.call("demo_echo", json!({})).await;
        while answer.status == 200 {
            answer = few.call("demo_echo", json!({})).await; // the bucket may refill between two calls on a slow machine
        }
        check(&answer, RATE);
        assert_eq!(answer.retry_after(), 1);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        few.call("demo_echo", json!({})).await.ok();
    });
}

#[test]
fn a_servers_limit_spans_keys_and_is_judged_last() {
    run(async {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        let up = Upstream::new().tool("echo", schema).run().await;
        let gateway = Gateway::new().server_with("demo", &up, "rate_limit = '2/hour'");
        let gw = gateway.grant("ann", "demo", Read).grant("bob", "demo", Read).approve_all().run().await;
        let (ann, bob) = (gw.client("ann"), gw.client("bob").server("demo"));
        for _ in 0..3 {
            ann.call("demo_echo", json!({ "n": "x" })).await.refused("invalid_tool_arguments");
            ann.list().await;
        }
        ann.call("demo_echo", json!({})).await.ok();
        bob.call("echo", json!({})).await.ok();
        for client in [&ann, &bob] {
            let answer = client.call(&client.named("demo", "echo"), json!({})).await;
            check(&answer, (429, "rate_limit_exceeded", Some("mcp_server_rate_limited")));
            assert!((1700..=1800).contains(&answer.retry_after()), "{}", answer.wire());
        }
        bob.call("echo", json!({ "n": "x" })).await.refused("invalid_tool_arguments");
        assert_eq!(up.calls().len(), 2);
        assert_eq!(gw.metrics().await.sum("toolgate_rate_limit_rejections_total", &[("scope", "server")]), 2.0);
    });
}

#[test]
fn failed_authentications_are_limited_and_a_valid_key_never_is() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[rate_limits]\nfailed_auth = '5/hour'").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let statuses = |client: Client, count: usize| async move {
            let mut out = Vec::new();
            for _ in 0..count {
                out.push(client.call("demo_echo", json!({})).await);
            }
            out
        };
        let answers = statuses(gw.client("nobody").fresh(), 8).await;
        assert!(answers[..5].iter().all(|answer| answer.status == 401), "the first five are 401");
        for answer in &answers[5..] {
            check(answer, RATE);
            answer.retry_after();
        }
        for answer in statuses(gw.client("ann").fresh(), 3).await {
            answer.ok();
        }
        assert_eq!(statuses(gw.nobody().fresh(), 1).await[0].status, 429);
        assert_eq!(gw.metrics().await.sum("toolgate_rate_limit_rejections_total", &[("scope", "address")]), 4.0);
    });
}

#[test]
fn past_the_limit_in_flight_the_gateway_is_overloaded() {
    run(async {
        let up = Upstream::new().tool("slow", json!({ "type": "object" })).form(Form::Sse);
        let up =
            up.reply("slow", Reply::After(vec!["${gate go}".to_owned()], Box::new(Reply::text("done")))).run().await;
        let gateway = Gateway::new().conf("[limits]\nin_flight = 1").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let ann = gw.client("ann").fresh();
        let pending = ann.start(ann.calling("demo_slow", "{}")).await;
        up.until_calls(1).await;
        for request in [ann.calling("demo_slow", "{}"), gw.nobody().posting("{}").to("/nope")] {
            let answer = ann.send(request).await;
            check(&answer, (503, "internal_error", Some("overloaded")));
            assert_eq!(answer.retry_after(), 1);
        }
        up.open("go");
        assert_eq!(pending.finish().await.0.said(), "done");
        crate::support::eventually("the place is free again", async || {
            (ann.call("demo_slow", json!({})).await.status == 200).then_some(())
        })
        .await;
    });
}

#[test]
fn attribution_is_strict_and_never_goes_upstream() {
    let long = "a".repeat(128);
    let good: Vec<(&str, String)> = vec![
        ("X-Toolgate-User", "ann@acme.test".to_owned()),
        ("x-toolgate-team", "support".to_owned()),
        ("X-Toolgate-Session", long.clone()),
        ("X-Toolgate-Trace-Id", "abc.DEF_1-2".to_owned()),
        ("X-Toolgate-Tag-cost", "!~".to_owned()),
    ];
    let bad: Vec<(&str, Vec<(String, String)>)> = vec![
        ("an unknown name", vec![("X-Toolgate-Nonsense".into(), "1".into())]),
        ("the prefix alone", vec![("X-Toolgate-".into(), "1".into())]),
        ("a tag without a name", vec![("X-Toolgate-Tag-".into(), "1".into())]),
        ("twice", vec![("X-Toolgate-User".into(), "a".into()), ("x-toolgate-user".into(), "a".into())]),
        ("empty", vec![("X-Toolgate-User".into(), String::new())]),
        ("129 characters", vec![("X-Toolgate-User".into(), format!("{long}a"))]),
        ("a space", vec![("X-Toolgate-User".into(), "a b".into())]),
        ("no ASCII", vec![("X-Toolgate-User".into(), "\u{e9}".into())]),
        ("a trace id of 65", vec![("X-Toolgate-Trace-Id".into(), "a".repeat(65))]),
        ("a trace id with a slash", vec![("X-Toolgate-Trace-Id".into(), "a/b".into())]),
        ("17 headers", (0..17).map(|n| (format!("X-Toolgate-Tag-t{n}"), "1".into())).collect()),
    ];
    run(async {
        let (gw, up) = gateway().await;
        let ann = gw.client("ann");
        let request = good.iter().fold(ann.calling("demo_echo", "{}"), |r, (name, value)| r.and(name, value));
        let answer = ann.send(request.to("/gateway/mcp?trace_id=abc.DEF_1-2")).await;
        answer.ok();
        let line = gw.access_line(answer.request_id()).await;
        assert_eq!(line["trace_id"], "abc.DEF_1-2", "{line}");
        for (_, value) in &good {
            assert!(line.to_string().contains(value.as_str()), "{value} is not in {line}");
        }
        let sixteen = (0..16).fold(ann.calling("demo_echo", "{}"), |r, n| r.and(&format!("X-Toolgate-Tag-t{n}"), "1"));
        ann.send(sixteen).await.ok();
        let called = up.calls().len();

        let mut faults = Faults::default();
        let mut requests: Vec<(String, Request)> = bad
            .into_iter()
            .map(|(what, headers)| {
                let request =
                    headers.iter().fold(ann.calling("demo_echo", "{}"), |r, (name, value)| r.and(name, value));
                (what.to_owned(), request)
            })
            .collect();
        for query in ["trace_id=", "trace_id=a%2Fb", "trace_id=a&trace_id=a", &format!("trace_id={}", "a".repeat(65))] {
            requests.push((query.to_owned(), ann.calling("demo_echo", "{}").to(&format!("/gateway/mcp?{query}"))));
        }
        let unequal = ann.calling("demo_echo", "{}").and("X-Toolgate-Trace-Id", "a").to("/gateway/mcp?trace_id=b");
        requests.push(("two trace ids".to_owned(), unequal));
        let count = requests.len();
        for (what, request) in requests {
            let client = gw.nobody().fresh();
            faults.row(what, async move { check(&client.send(request).await, ATTRIBUTION) }).await;
        }
        assert_eq!(up.calls().len(), called);
        up.assert_spoken_to_well();
        faults.assert_none(count);
    });
}

#[test]
fn forwarded_addresses_count_only_from_trusted_proxies() {
    type Row<'a> = (&'a str, bool, &'a [(&'a str, &'a str)], bool);
    let rows: &[Row<'_>] = &[
        ("no proxy is trusted", false, &[("X-Forwarded-For", "198.51.100.7")], false),
        ("no proxy is trusted, Forwarded", false, &[("Forwarded", "for=198.51.100.7")], false),
        ("no proxy is trusted, X-Real-IP", false, &[("X-Real-IP", "198.51.100.7")], false),
        ("a trusted proxy", true, &[("X-Forwarded-For", "198.51.100.7")], true),
        ("the right-most untrusted hop counts", true, &[("X-Forwarded-For", "198.51.100.7, 203.0.113.5")], false),
        ("trusted hops are skipped", true, &[("X-Forwarded-For", "198.51.100.7, 127.0.0.1")], true),
        ("mapped into IPv6", true, &[("X-Forwarded-For", "::ffff:198.51.100.7")], true),
        ("garbage", true, &[("X-Forwarded-For", "garbage")], false),
        ("nothing", true, &[], false),
    ];
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = |trusted: &str| {
            Gateway::new()
                .conf(&format!("[gateway]\ntrusted_proxies = [{trusted}]"))
                .server("demo", &up)
                .key("ann", "allow_ips = ['198.51.100.0/24']")
                .grant("ann", "demo", Read)
                .approve_all()
        };
        let (plain, trusting) = (gateway("").run().await, gateway("'127.0.0.1/32'").run().await);
        let mut faults = Faults::default();
        for (name, trusts, headers, passes) in rows {
            let gw = if *trusts { &trusting } else { &plain };
            let client =
                headers.iter().fold(gw.client("ann").fresh(), |client, (name, value)| client.header(name, value));
            let passes = *passes;
            let row = async move {
                let answer = client.call("demo_echo", json!({})).await;
                if passes {
                    answer.ok();
                } else {
                    check(&answer, denied("ip_not_allowed"));
                }
            };
            faults.row(*name, row).await;
        }
        faults.assert_none(rows.len());
    });
}

#[test]
fn an_early_refusal_never_reads_the_body_as_a_request() {
    run(async {
        let (gw, up) = gateway().await;
        let smuggled = "POST /gateway/demo/mcp HTTP/1.1\r\nHost: g\r\n\r\n";
        for head in [
            "POST /gateway/demo/mcp HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer nope\r\n",
            "PUT /gateway/demo/mcp HTTP/1.1\r\nHost: g\r\n",
            "POST /nope HTTP/1.1\r\nHost: g\r\n",
        ] {
            let text =
                format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{smuggled}", smuggled.len());
            let next = "PUT /gateway/mcp HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            let bytes = gw.nobody().raw_until_closed(format!("{text}{next}").as_bytes()).await;
            let answers = String::from_utf8_lossy(&bytes).matches("HTTP/1.1 ").count();
            assert!((1..=2).contains(&answers), "{answers} answers: {}", String::from_utf8_lossy(&bytes));
        }
        assert!(up.calls().is_empty());
    });
}

#[test]
fn expect_100_continue_does_not_hang() {
    run(async {
        let (gw, _up) = gateway().await;
        let bad = gw.client("nobody").calling("demo_echo", "{}").and("Expect", "100-continue");
        check(&gw.nobody().raw(&bad.head_bytes()).await, UNAUTHENTICATED);
        let good = gw.client("ann").calling("demo_echo", "{}").and("Expect", "100-continue");
        let mut connection = gw.nobody().connect().await.unwrap();
        connection.write(&good.head_bytes()).await.unwrap();
        let mut exchange = connection.exchange(good.asked.clone());
        exchange.write(&good.body).await.unwrap();
        exchange.finish().await.0.ok();
    });
}
