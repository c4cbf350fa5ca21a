//! What Prometheus sees: every series of the table on a running gateway, with its labels; and nothing that a caller can make grow.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::support::{
    answer::Era,
    client::Client,
    gateway::{Gateway, Gw},
    metrics::Metrics,
    policy::Access::{Read, Selected},
    run,
    tls::{Identity, Leaf},
    upstream::{Reply, Speaks, Upstream},
};

/// Series that need what a single node without it does not have: Redis, PostgreSQL, issuers of tokens.
const ABSENT: &[&str] = &[
    "toolgate_rate_limit_store_up",
    "toolgate_policy_store_up",
    "toolgate_policy_store_silence_seconds",
    "toolgate_issuer_keys",
];

/// Name, type and labels of each row of the generated reference.
fn table() -> Vec<(String, String, Vec<String>)> {
    let text = include_str!("../../golden/metrics.md");
    let plain = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let rows = text.lines().skip(2).map(|line| {
        let cells: Vec<&str> = line.split('|').collect();
        let labels = cells[3].split(',').map(plain).filter(|label| !label.is_empty()).collect();
        (plain(cells[1]), plain(cells[2]), labels)
    });
    rows.collect()
}

/// A gateway that has seen some of everything.
async fn busy() -> Gw {
    let object = || json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let modern = Upstream::new().tool("echo", object()).tool("write", object()).run().await;
    modern.list_with(Some(Reply::Result(
        json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [modern.tools()[0], modern.tools()[1], { "title": "nameless" }] })
            .to_string(),
    )));
    let legacy = Upstream::new().speaks(Speaks::Legacy).tool("echo", object()).run().await;
    let dead = Upstream::new().tool("echo", object()).run().await;
    dead.refuse(true).await;
    let gateway = Gateway::new().tls(&Identity::new(Leaf::Good)).server("modern", &modern).server("legacy", &legacy);
    let gateway = gateway.server_with("few", &dead, "rate_limit = '1/hour'").approve_all();
    let gateway =
        gateway.grant("ann", "modern", Selected(&["echo"])).grant("ann", "legacy", Read).grant("ann", "few", Read);
    let gateway = gateway.key("bob", "rate_limit = '1/hour'").object(
        "guardrail",
        "name = 'no-words'\norganization = 'acme'\nstage = 'input'\ndetector = 'keywords'\nwords = ['forbidden']\naction = 'block'",
    );
    let gw = gateway.run().await;
    let ann = gw.client("ann");
    ann.call("modern_echo", json!({})).await.ok();
    ann.call("legacy_echo", json!({})).await.ok();
    gw.client("ann").era(Era::Legacy).list().await;
    ann.call("modern_write", json!({})).await.refused("tool_not_allowed");
    ann.call("modern_echo", json!({ "a": "x" })).await.refused("invalid_tool_arguments");
    let blocked = ann.call("modern_echo", json!({ "b": "forbidden" })).await;
    blocked.refused("guardrail_blocked");
    assert_eq!(gw.access_line(blocked.request_id()).await["rule"], "no-words", "also of what was blocked");
    ann.call("nothing", json!({})).await.rpc_error(200, -32602);
    gw.nobody().call("modern_echo", json!({})).await;
    for _ in 0..2 {
        gw.client("bob").rpc("tools/list", json!({})).await;
    }
    assert_eq!(gw.reload_text("broken").await, crate::support::gateway::Reloaded::Rejected);
    // sessions are counted now and then
    gw.until_metric("toolgate_upstream_sessions", &[("server", "legacy")], |n| n >= 1.0).await;
    gw
}

#[test]
fn every_series_of_the_table_is_there_with_its_labels() {
    run(async {
        let gw = busy().await;
        let metrics = gw.metrics().await;
        let mut faults = Vec::new();
        let table = table();
        assert!(table.len() > 30, "the table was read: {table:?}");
        for (name, kind, labels) in &table {
            let sample = if kind == "histogram" { format!("{name}_count") } else { name.clone() };
            let found: Vec<_> = metrics.of(&sample, &[]).collect();
            if ABSENT.contains(&name.as_str()) {
                continue;
            }
            if found.is_empty() {
                faults.push(format!("{name} is not there"));
            }
            let wanted: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
            for sample in found {
                let have: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
                if have != wanted {
                    faults.push(format!("{name} has {have:?}, not {wanted:?}"));
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        values_are_of_closed_sets(&metrics);
    });
}

/// Label values come from the policy or from closed sets (contract §11).
fn values_are_of_closed_sets(metrics: &Metrics) {
    let sets: BTreeMap<&str, &[&str]> = [
        ("endpoint", &["aggregated", "server", "other"] as &[&str]),
        ("era", &["modern", "legacy", "none"]),
        ("method", &["tools/call", "tools/list", "initialize", "server/discover", "ping", "_other"]),
        ("server", &["modern", "legacy", "few", "_other"]),
        ("rule", &["no-words"]),
        ("action", &["block", "redact", "observe"]),
        ("stage", &["input", "output"]),
        ("scope", &["key", "server", "address"]),
        ("state", &["pending", "approved", "changed", "removed", "blocked"]),
        ("result", &["ok", "failed", "applied", "rejected"]),
    ]
    .into();
    for sample in &metrics.0 {
        for (label, value) in &sample.labels {
            if let Some(set) = sets.get(label.as_str()) {
                assert!(set.contains(&value.as_str()), "{}: {label}={value:?}", sample.name);
            }
        }
    }
    let some = |name: &str, labels: &[(&str, &str)]| assert!(metrics.sum(name, labels) >= 1.0, "{name}{labels:?}");
    some("toolgate_requests_total", &[("outcome", "ok"), ("era", "modern"), ("method", "tools/call")]);
    some("toolgate_requests_total", &[("outcome", "rpc_-32602")]);
    some("toolgate_requests_total", &[("outcome", "http_401")]);
    some("toolgate_refusals_total", &[("code", "invalid_tool_arguments"), ("server", "modern")]);
    some("toolgate_guardrail_matches_total", &[("rule", "no-words"), ("action", "block"), ("stage", "input")]);
    some("toolgate_rate_limit_rejections_total", &[("scope", "key")]);
    some("toolgate_upstream_sessions", &[("server", "legacy")]);
    some("toolgate_discovery_total", &[("server", "few"), ("result", "failed")]);
    some("toolgate_discovery_entries_dropped_total", &[("server", "modern")]);
    some("toolgate_snapshot_swaps_total", &[("result", "rejected")]);
    some("toolgate_tools", &[("server", "modern"), ("state", "approved")]);
    some("toolgate_certificate_expiry_timestamp_seconds", &[]);
}

#[test]
fn a_discovery_that_changes_the_policy_is_a_swap() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[discovery]\ninterval = '100ms'").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let applied = async || gw.metrics().await.sum("toolgate_snapshot_swaps_total", &[("result", "applied")]);
        let before = applied().await;
        up.set_tool(json!({ "name": "more", "inputSchema": { "type": "object" } }));
        gw.until_tools("demo", "pending", 1.0).await;
        assert_eq!(applied().await, before + 1.0);
    });
}

#[test]
fn a_check_that_is_given_up_is_counted() {
    run(async {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": r"^(?=(a|aa)+\1b)(a|aa)+$" } } });
        let up = Upstream::new().tool("slow", schema).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        let overruns = async || gw.metrics().await.sum("toolgate_pattern_overruns_total", &[]);
        assert_eq!(overruns().await, 0.0);
        let text = format!("{}!", "a".repeat(5000));
        let answer = gw.client("ann").call("demo_slow", json!({ "a": text })).await;
        answer.refused("invalid_tool_arguments");
        assert!(overruns().await >= 1.0);
    });
}

const NAMES: usize = 5_000;

/// Everything that a caller can choose at will, a new one with each call.
async fn call_at_random(client: &Client, from: usize, to: usize) {
    for n in from..to {
        let name = format!("demo_{n:x}_{}", "é\n\"}".repeat(n % 3));
        match n % 5 {
            0..=2 => drop(client.call(&name, json!({})).await),
            3 => drop(client.send(client.calling(&name, "{}").to(&format!("/gateway/s{n}/mcp"))).await),
            _ => drop(client.rpc(&format!("method/{n}"), json!({})).await),
        }
    }
}

#[test]
fn five_thousand_names_add_no_series() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        call_at_random(&gw.client("ann"), 0, 30).await;
        let series = async || -> BTreeSet<String> {
            let metrics = gw.metrics().await;
            metrics.0.iter().map(|sample| format!("{}{:?}", sample.name, sample.labels)).collect()
        };
        let before = series().await;
        let clients: Vec<Client> = (0..4).map(|_| gw.client("ann")).collect();
        let share = NAMES / clients.len();
        let all = clients.iter().enumerate().map(|(n, client)| call_at_random(client, n * share, (n + 1) * share));
        futures::future::join_all(all).await;
        let counted = gw.metrics().await.sum("toolgate_requests_total", &[]);
        assert!(counted >= NAMES as f64, "{counted}");
        let added: Vec<String> = series().await.difference(&before).cloned().collect();
        assert!(added.is_empty(), "{added:?}");
        assert!(before.len() < 400, "{} series", before.len());
        assert_eq!(up.calls().len(), 0);
    });
}

#[test]
fn the_documented_members_are_those_of_a_line() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        let answer = gw.client("ann").call("demo_echo", json!({})).await;
        gw.access_line(answer.request_id()).await;
        let docs = include_str!("../../../docs/logs.md");
        let table = docs.split("| member |").nth(1).unwrap().split("\n\n").next().unwrap();
        let documented: Vec<&str> = table.lines().skip(2).map(|row| row.split('`').nth(1).unwrap()).collect();
        let line = gw.log_text();
        let line = line.lines().find(|line| line.contains(answer.request_id())).unwrap();
        let mut at = 0;
        for member in &documented {
            at +=
                line[at..].find(&format!("\"{member}\":")).unwrap_or_else(|| panic!("{member}, in this order: {line}"));
        }
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line.as_object().unwrap().len(), documented.len());
    });
}

#[test]
fn of_so_many_successes_one_has_a_line_and_every_refusal_has() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[log]\nsample = 4").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
        let ann = gw.client("ann");
        for _ in 0..3 {
            for _ in 0..4 {
                ann.call("demo_echo", json!({})).await.ok();
            }
            ann.call("demo_echo", json!([])).await.refused("invalid_tool_arguments");
        }
        gw.signal("TERM");
        gw.until_ended().await;
        let outcomes: Vec<String> =
            gw.access_log().iter().map(|line| line["outcome"].as_str().unwrap().to_owned()).collect();
        assert_eq!(outcomes, ["ok", "invalid_tool_arguments"].repeat(3));
    });
}
