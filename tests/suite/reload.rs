//! Reload: all or nothing, one snapshot a call, and nothing that lives outside the snapshot is reset (contract §5, invariants 3 and 4).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::json;

use crate::support::{
    gateway::{Gateway, Gw, Reloaded},
    policy::Access::{Read, Write},
    run,
    upstream::{Reply, Speaks, Up, Upstream},
};

async fn gateway(upstream: Upstream) -> (Gw, Up) {
    let up = upstream.tool("echo", json!({ "type": "object" })).run().await;
    let gateway = Gateway::new().server("demo", &up).grant("ann", "demo", Read);
    (gateway.approve_all().run().await, up)
}

#[test]
fn a_reload_changes_what_is_allowed() {
    run(async {
        let (gw, _up) = gateway(Upstream::new()).await;
        let ann = gw.client("ann");
        ann.call("demo_echo", json!({})).await.ok();
        let mut policy = gw.policy();
        policy.edit("key", "ann", "disabled = true");
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        ann.call("demo_echo", json!({})).await.http_refused(403, "permission_denied", Some("key_disabled"));
        policy.edit("key", "ann", "disabled = false").remove("grant", "ann");
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        ann.call("demo_echo", json!({})).await.refused("tool_not_allowed");
        policy.grant("ann", "demo", &Write);
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        ann.call("demo_echo", json!({})).await.ok();
    });
}

#[test]
fn a_broken_policy_changes_nothing_at_all() {
    let broken: &[(&str, &str)] = &[
        ("a syntax error", "[[key]\nid = "),
        (
            "an unknown member",
            "[[organization]]\nid='x'\nplan='business'\nstatus='active'\nsubscription='active'\nplam=1",
        ),
        ("an unknown object", "[[organisation]]\nid='x'"),
        ("a wrong type", "[[project]]\nid = 7\norganization = 'acme'"),
        ("a slug twice", "[[server]]\norganization='acme'\nslug='demo'\nurl='http://127.0.0.1:9/mcp'"),
        ("a bad slug", "[[server]]\norganization='acme'\nslug='De mo'\nurl='http://127.0.0.1:9/mcp'"),
        ("a grant of an unknown server", "[[grant]]\nkey='ann'\nserver='nope'\naccess='read'"),
        ("a grant of an unknown key", "[[grant]]\nkey='nope'\nserver='demo'\naccess='read'"),
        ("a bad hash", "[[approval]]\nserver='demo'\ntool='x'\nsha256='xyz'\nlabels=[]"),
        (
            "a bad rate",
            "[[key]]\nid='k'\norganization='acme'\nproject='support'\nenvironment='production'\nsha256='00'\nrate_limit='10'",
        ),
        (
            "a broken pattern",
            "[[guardrail]]\nname='g'\norganization='acme'\nstage='input'\ndetector='pattern'\naction='block'\npatterns=['(']",
        ),
    ];
    run(async {
        let (gw, up) = gateway(Upstream::new()).await;
        let revision = gw.metrics().await.sum("toolgate_snapshot_revision", &[]);
        let good = gw.policy();
        for (what, text) in broken {
            let mut half = good.clone();
            half.edit("key", "ann", "disabled = true");
            let text = format!("{}\n{text}\n", half.to_toml());
            assert_eq!(gw.reload_text(&text).await, Reloaded::Rejected, "{what}");
            gw.client("ann").call("demo_echo", json!({})).await.ok();
            assert_eq!(gw.metrics().await.sum("toolgate_snapshot_revision", &[]), revision, "{what}");
            gw.client("ann").server("b").call("echo", json!({})).await.http_refused(
                404,
                "not_found",
                Some("mcp_server_not_found"),
            );
        }
        assert!(gw.log_text().contains("policy.toml:"), "the log says where: {}", gw.log_text());
        assert_eq!(up.calls().len(), broken.len());
        assert_eq!(gw.reload(&good).await, Reloaded::Applied);
        gw.client("ann").call("demo_echo", json!({})).await.ok();
    });
}

#[test]
fn a_reload_resets_no_budget() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gateway = Gateway::new().server_with("demo", &up, "rate_limit = '3/hour'");
        let gateway = gateway.key("few", "rate_limit = '2/hour'").grant("few", "demo", Read).grant("ann", "demo", Read);
        let gw = gateway.approve_all().run().await;
        for _ in 0..2 {
            gw.client("few").call("demo_echo", json!({})).await.ok();
        }
        let mut policy = gw.policy();
        for n in 0..3 {
            policy.add("project", &format!("id = 'p{n}'\norganization = 'acme'"));
            assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
            gw.client("few").call("demo_echo", json!({})).await.http_refused(429, "rate_limit_exceeded", None);
        }
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        let answer = gw.client("ann").call("demo_echo", json!({})).await;
        answer.http_refused(429, "rate_limit_exceeded", Some("mcp_server_rate_limited"));
    });
}

#[test]
fn a_reload_keeps_sessions() {
    run(async {
        let (gw, up) = gateway(Upstream::new().speaks(Speaks::Legacy)).await;
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        let session = up.calls().pop().unwrap().header("mcp-session-id").map(str::to_owned);
        let mut policy = gw.policy();
        policy.add("project", "id = 'p'\norganization = 'acme'");
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        assert_eq!(up.calls().pop().unwrap().header("mcp-session-id").map(str::to_owned), session);
    });
}

#[test]
fn a_call_keeps_its_snapshot_to_its_end() {
    run(async {
        let (gw, up) = gateway(Upstream::new()).await;
        up.next(Reply::After(vec!["${gate go}".to_owned()], Box::new(Reply::text("done"))));
        let ann = gw.client("ann");
        let pending = ann.start(ann.calling("demo_echo", "{}")).await;
        up.until_calls(1).await;
        let before = gw.metrics().await.sum("toolgate_snapshot_revision", &[]);
        let mut policy = gw.policy();
        policy.edit("key", "ann", "revoked = true").remove("grant", "ann");
        policy.add(
            "guardrail",
            "name='g'\norganization='acme'\nstage='output'\ndetector='keywords'\naction='block'\nwords=['done']",
        );
        assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        gw.client("ann").call("demo_echo", json!({})).await.http_refused(401, "authentication_error", None);
        up.open("go");
        let answer = pending.finish().await.0;
        assert_eq!(answer.said(), "done", "the call that was admitted ends under its own policy");
        let line = gw.access_line(answer.request_id()).await;
        assert_eq!(line["snapshot"].as_f64(), Some(before), "{line}");
    });
}

#[test]
fn swaps_under_load_fail_no_call() {
    run(async {
        let (gw, _up) = gateway(Upstream::new()).await;
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (client, stop) = (gw.client("ann"), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut calls = 0;
                    while !stop.load(Ordering::Relaxed) {
                        client.call("demo_echo", json!({})).await.ok();
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        let mut policy = gw.policy();
        for n in 0..10 {
            policy.add("project", &format!("id = 'p{n}'\norganization = 'acme'"));
            assert_eq!(gw.reload(&policy).await, Reloaded::Applied);
        }
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            assert!(worker.await.unwrap() > 0);
        }
    });
}

#[test]
fn sigterm_drains_and_ends() {
    run(async {
        let (gw, up) = gateway(Upstream::new()).await;
        up.next(Reply::After(vec!["${gate go}".to_owned()], Box::new(Reply::text("done"))));
        let ann = gw.client("ann").fresh();
        let pending = ann.start(ann.calling("demo_echo", "{}")).await;
        up.until_calls(1).await;
        gw.signal("TERM");
        crate::support::eventually("readiness goes", async || {
            let status = gw.ops("/readyz").await.map(|answer| answer.status);
            (status != Some(200)).then_some(())
        })
        .await;
        up.open("go");
        assert_eq!(pending.finish().await.0.said(), "done", "what was admitted is answered");
        assert_eq!(gw.until_ended().await, Some(0));
    });
}
