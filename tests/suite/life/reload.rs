//! Reload and drain under load: no call fails, none is decided by two policies, and log and metrics agree with the clients to the call.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::load::{Load, Uses};
use crate::support::{
    answer::Answer,
    eventually,
    gateway::{Gateway, Gw, Reloaded},
    policy::{Access::Selected, Policy},
    run,
    upstream::{Up, Upstream},
};

/// `make test-life` says more.
fn reloads() -> usize {
    super::count("RELOADS", 20)
}

/// As [`reloads`].
fn drains() -> usize {
    super::count("DRAINS", 2)
}

/// In policy `red` the key may call `red` alone, and `blue` is blocked; in policy `blue` it is the other way round. A call that took
/// the grant from one and the approval from the other would be `tool_not_approved`, which neither policy says.
pub fn policies(gw: &Gw, up: &Up) -> [(&'static str, Policy); 2] {
    [("red", &["red"] as &'static [&'static str]), ("blue", &["blue"])].map(|(name, tools)| {
        let mut policy = gw.policy();
        policy.remove("grant", "ann").grant("ann", "demo", &Selected(tools));
        for definition in up.tools() {
            let tool = definition["name"].as_str().unwrap();
            policy.remove("approval", tool).approve("demo", &definition, "read");
            let status = if tool == name { "approved" } else { "blocked" };
            policy.edit("approval", tool, &format!("status = '{status}'"));
        }
        (name, policy)
    })
}

/// Names the policy in force also in the conf: the product of refusals.
pub fn name_product(gw: &Gw, name: &str) {
    let path = gw.folder().join("toolgate.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut conf: toml::Table = text.parse().unwrap();
    conf["gateway"].as_table_mut().unwrap().insert("product".into(), format!("Gate {name}").into());
    std::fs::write(path, toml::to_string(&conf).unwrap()).unwrap();
}

async fn revision(gw: &Gw) -> u64 {
    gw.metrics().await.count("toolgate_snapshot_revision", &[]).try_into().unwrap()
}

/// What an answer says of the policy that decided it; panics when none of the two could have.
pub fn decided_by(tool: &str, answer: &Answer) -> &'static str {
    let (own, other) = if tool == "demo_red" { ("red", "blue") } else { ("blue", "red") };
    if answer.result()["isError"] != true {
        answer.ok();
        return own;
    }
    let message = answer.refused("tool_not_allowed");
    assert!(message.contains(&format!("through Gate {other}")), "the words of another policy: {message}");
    other
}

#[test]
fn reloads_under_load_fail_no_call_and_mix_no_policy() {
    run(async {
        let schema = || json!({ "type": "object" });
        let up = Upstream::new().tool("red", schema()).tool("blue", schema()).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Selected(&["red"])).approve_all().run().await;
        let policies = policies(&gw, &up);
        let mut names: HashMap<u64, &'static str> = HashMap::new();
        name_product(&gw, policies[0].0);
        assert_eq!(gw.reload(&policies[0].1).await, Reloaded::Applied);
        names.insert(revision(&gw).await, policies[0].0);
        let load = Load::start((0..4).map(|_| (gw.client("ann"), Uses::Kept)), &["demo_red", "demo_blue"]);
        for n in 1..=reloads() {
            let (name, policy) = &policies[n % 2];
            name_product(&gw, name);
            assert_eq!(gw.reload(policy).await, Reloaded::Applied, "{}", gw.log_text());
            names.insert(revision(&gw).await, name);
        }
        let answers = load.stop().await;
        assert_eq!(names.len(), reloads() + 1, "each reload has its own revision");
        assert!(answers.len() > reloads(), "{} calls", answers.len());
        let by: HashMap<&str, &'static str> =
            answers.iter().map(|(tool, answer)| (answer.request_id(), decided_by(tool, answer))).collect();
        assert_eq!(by.len(), answers.len(), "request ids are unique");
        let both = |name| by.values().filter(|decided| **decided == name).count() > reloads() / 10;
        assert!(both("red") && both("blue"), "both policies decided");
        agree(&gw, &answers).await;
        for line in gw.access_log() {
            let (decided, snapshot) = (by[line["request_id"].as_str().unwrap()], line["snapshot"].as_u64().unwrap());
            assert_eq!(names.get(&snapshot).copied(), Some(decided), "{line}");
        }
        let passed = answers.iter().filter(|(_, answer)| answer.result()["isError"] != true).count();
        assert_eq!(up.calls().len(), passed, "what was refused reached nobody");
    });
}

/// The clients' own count, the access log and the metrics are the same, call by call.
pub async fn agree(gw: &Gw, answers: &[(String, Answer)]) {
    let outcome = |answer: &Answer| match answer.result()["_meta"]["toolgate/refusal"]["code"].as_str() {
        Some(code) => code.to_owned(),
        None => "ok".to_owned(),
    };
    let mut counted: HashMap<String, usize> = HashMap::new();
    for (_, answer) in answers {
        *counted.entry(outcome(answer)).or_default() += 1;
    }
    let log = eventually("a line for each call", async || {
        let log = gw.access_log();
        assert!(log.len() <= answers.len(), "more lines than calls");
        (log.len() == answers.len()).then_some(log)
    })
    .await;
    let lines: HashMap<&str, &Value> = log.iter().map(|line| (line["request_id"].as_str().unwrap(), line)).collect();
    for (tool, answer) in answers {
        let line = lines.get(answer.request_id()).unwrap_or_else(|| panic!("no line of {}", answer.request_id()));
        assert_eq!(line["outcome"], outcome(answer), "{line}");
        let exposed = format!("{}_{}", line["server"].as_str().unwrap(), line["tool"].as_str().unwrap());
        assert_eq!(exposed, *tool, "{line}");
        assert_eq!(line["bytes_out"].as_u64(), Some(answer.body.len() as u64), "{line}");
    }
    let metrics = gw.metrics().await;
    let requests = |labels: &[(&str, &str)]| metrics.count("toolgate_requests_total", labels);
    assert_eq!(requests(&[]), answers.len());
    for (outcome, count) in &counted {
        let labels = [("method", "tools/call"), ("endpoint", "aggregated"), ("era", "modern"), ("outcome", outcome)];
        assert_eq!(requests(&labels), *count, "{outcome}");
        if outcome != "ok" {
            assert_eq!(metrics.count("toolgate_refusals_total", &[("code", outcome)]), *count, "{outcome}");
        }
    }
    assert_eq!(metrics.count("toolgate_overhead_seconds_count", &[]), answers.len());
    let sent = counted.get("ok").copied().unwrap_or(0);
    assert_eq!(metrics.count("toolgate_call_duration_seconds_count", &[("server", "demo")]), sent);
    assert_eq!(metrics.count("toolgate_upstream_duration_seconds_count", &[("server", "demo")]), sent);
    assert_eq!(metrics.sum("toolgate_access_log_dropped_total", &[]), 0.0);
}

#[test]
fn drains_under_load_lose_no_call() {
    run(async {
        for round in 0..drains() {
            let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
            let gateway = Gateway::new().server("demo", &up).grant("ann", "demo", Selected(&["echo"]));
            let gw = gateway.approve_all().run().await;
            let load = Load::start((0..8).map(|_| (gw.client("ann"), Uses::Kept)), &["demo_echo"]);
            up.until_calls(100).await;
            gw.signal("TERM");
            let answers = load.join().await;
            assert_eq!(gw.until_ended().await, Some(0), "{round}");
            for (_, answer) in &answers {
                answer.ok();
            }
            assert_eq!(gw.access_log().len(), answers.len(), "{round}: the log is whole");
            assert_eq!(up.calls().len(), answers.len(), "{round}");
        }
    });
}

#[test]
fn a_reload_says_what_changed_and_what_needs_a_restart() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Selected(&["echo"])).approve_all().run().await;
        let path = gw.folder().join("toolgate.toml");
        let before = std::fs::read_to_string(&path).unwrap();
        let conf = before.replace("threads = 2", "threads = 3\nproduct = 'Other'") + "\n[limits]\nin_flight = 77\n";
        std::fs::write(&path, conf).unwrap();
        let mut policy = gw.policy();
        policy.add("project", "id = 'new'\norganization = 'acme'").edit("key", "ann", "disabled = true");
        policy.remove("grant", "ann");
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        let restart = || gw.log_text().lines().filter(|line| line.contains("need a restart")).count();
        eventually("the last word on the reload", async || (restart() == 1).then_some(())).await;
        let said = gw.log_text();
        for word in [
            "gateway.product",
            "limits.in_flight",
            "project acme/new added",
            "key ann changed",
            "grant ann on demo removed",
        ] {
            assert!(said.contains(word), "{word} in {said}");
        }
        let named = |line: &str| line.contains("need a restart") && line.contains("gateway.threads");
        assert!(said.lines().any(named), "{said}");
        assert_eq!(gw.hang_up().await, Reloaded::Applied);
        eventually("it still needs one", async || (restart() == 2).then_some(())).await;
        std::fs::write(&path, before).unwrap();
        assert_eq!(gw.hang_up().await, Reloaded::Applied);
        assert_eq!(gw.hang_up().await, Reloaded::Applied);
        assert_eq!(restart(), 2, "taken back: {}", gw.log_text());
    });
}

#[test]
fn the_interval_of_discovery_is_reloaded() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().conf("[discovery]\ninterval = '1h'\nmax_age = '2h'").server("demo", &up);
        let gw = gateway.grant("ann", "demo", Selected(&["echo"])).approve_all().run().await;
        assert_eq!(up.of("tools/list").len(), 1);
        let path = gw.folder().join("toolgate.toml");
        let conf = std::fs::read_to_string(&path).unwrap().replace("\"1h\"", "\"100ms\"");
        std::fs::write(path, conf).unwrap();
        gw.hang_up().await;
        gw.until_metric("toolgate_discovery_total", &[("server", "demo"), ("result", "ok")], |n| n >= 3.0).await;
    });
}
