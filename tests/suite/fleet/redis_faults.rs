//! What nodes do when Redis fails, each failure under load, during a reload, at a boot, and after it is over: every call is answered,
//! and no more of them go through than `docs/fleet.md` says.

use std::time::{Duration, Instant};

use super::{KEY_64, call, crowd, drain, gateways, gateways_before, refilled, until_in_vain, until_nodes};
use crate::support::{count, gateway::Reloaded, redis::Redis, run, toggle::Toggle, upstream::Upstream};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Killed,
    Paused,
    Slow,
    Errors,
}

/// Longer than a call waits for Redis.
const DELAY: Duration = Duration::from_millis(200);
const LIMIT: usize = 640;

fn begin(fault: Fault, redis: &mut Redis, way: &Toggle) {
    match fault {
        Fault::Killed => redis.end(),
        Fault::Paused => redis.signal("STOP"),
        Fault::Slow => way.slow(DELAY),
        Fault::Errors => drop(redis.command("ACL SETUSER default -eval -evalsha")),
    }
}

fn end(fault: Fault, redis: &mut Redis, way: &Toggle) {
    match fault {
        Fault::Killed => redis.begin(),
        Fault::Paused => redis.signal("CONT"),
        Fault::Slow => way.slow(Duration::ZERO),
        Fault::Errors => drop(redis.command("ACL SETUSER default +eval +evalsha")),
    }
}

async fn check(fault: Fault) {
    let Some(mut redis) = Redis::start() else { return };
    let way = Toggle::to(redis.port).await;
    let url = format!("redis://127.0.0.1:{}", way.port);
    let key = format!("rate_limit = '{LIMIT}/hour'");
    let up = Upstream::new().tool("echo", serde_json::json!({ "type": "object" })).run().await;
    let mut gws = gateways_before(&up, 2, &url, (&key, ""), &[]).await;
    until_nodes(&gws).await;
    let begun = Instant::now();
    let mut passed = crowd(&gws, 2, 20).await;

    begin(fault, &mut redis, &way);
    passed += crowd(&gws, 4, 20).await;
    for gw in &gws {
        gw.until_metric("toolgate_rate_limit_store_up", &[], |up| up == 0.0).await;
    }
    assert_eq!(gws[0].reload(&gws[0].policy()).await, Reloaded::Applied);
    passed += crowd(&gws, 4, 20).await;
    gws.extend(gateways_before(&up, 1, &url, (&key, ""), &[]).await);
    assert_eq!(call(&gws[2].client("ann")).await, Ok(()), "a node that boots serves");
    passed += 1;

    end(fault, &mut redis, &way);
    for gw in &gws {
        gw.until_metric("toolgate_rate_limit_store_up", &[], |up| up == 1.0).await;
    }
    passed += drain(&gws, "ann").await;
    assert_eq!(up.calls().len(), passed, "what was refused reached nobody, what was not ran once");
    // The bound; what nodes could not know was spent; and the share of a node that knew of no other.
    let most = LIMIT + LIMIT / 8 + LIMIT + LIMIT + refilled(LIMIT, begun);
    assert!(passed <= most, "{fault:?}: {passed} of {LIMIT}, at most {most}");
    count(passed, 0);
}

#[test]
fn a_killed_redis_keeps_the_bound() {
    run(check(Fault::Killed));
}

#[test]
fn a_paused_redis_keeps_the_bound() {
    run(check(Fault::Paused));
}

#[test]
fn a_slow_redis_keeps_the_bound() {
    run(check(Fault::Slow));
}

#[test]
fn a_redis_that_answers_errors_keeps_the_bound() {
    run(check(Fault::Errors));
}

#[test]
fn a_stopped_store_leaves_each_node_its_share() {
    run(async {
        let Some(mut redis) = Redis::start() else { return };
        let (gws, _up) = gateways(2, &redis.url(), KEY_64, &[]).await;
        until_nodes(&gws).await;
        let begun = Instant::now();
        let clients = [gws[0].client("ann"), gws[1].client("ann")];
        for client in &clients {
            assert_eq!(call(client).await, Ok(()));
        }
        redis.end();
        let passed = drain(&gws, "ann").await;
        for gw in &gws {
            gw.until_metric("toolgate_rate_limit_store_up", &[], |up| up == 0.0).await;
            assert!(gw.log_text().contains("the store of rate limits is lost"), "{}", gw.log_text());
        }
        let most = 64 + 8 - 2 + refilled(64, begun);
        assert!((32..=most).contains(&passed), "{passed} went through without the store");
        redis.begin();
        for gw in &gws {
            gw.until_metric("toolgate_rate_limit_store_up", &[], |up| up == 1.0).await;
        }
        // It came back empty, that is with a full bucket, and was told what was spent without it.
        let tokens = 64_usize.saturating_sub(passed) + refilled(64, begun);
        let passed = drain(&gws, "ann").await;
        assert!(passed <= tokens + 8, "{passed} of {tokens} after it came back");
    });
}

#[test]
fn a_paused_store_is_left_alone_and_told_afterwards() {
    run(async {
        let Some(redis) = Redis::start() else { return };
        let (gws, _up) = gateways(2, &redis.url(), KEY_64, &[]).await;
        until_nodes(&gws).await;
        let begun = Instant::now();
        let clients = [gws[0].client("ann"), gws[1].client("ann")];
        let mut passed = 0;
        for _ in 0..10 {
            for client in &clients {
                passed += usize::from(call(client).await.is_ok());
            }
        }
        assert_eq!(passed, 20);
        redis.signal("STOP");
        passed += drain(&gws, "ann").await;
        for gw in &gws {
            gw.until_metric("toolgate_rate_limit_store_up", &[], |up| up == 0.0).await;
        }
        redis.signal("CONT");
        for gw in &gws {
            gw.until_metric("toolgate_rate_limit_store_up", &[], |up| up == 1.0).await;
        }
        passed += drain(&gws, "ann").await;
        // Tokens of questions that were answered too late are lost, and a lease a node.
        until_in_vain(&gws, (64 - 2 * 2_usize).saturating_sub(passed)).await;
        assert!(passed <= 64 + 8 + refilled(64, begun), "{passed} of 64");
    });
}

#[test]
fn a_gateway_starts_without_the_store() {
    run(async {
        let Some(mut redis) = Redis::prepare(&[]) else { return };
        let (gws, _up) = gateways(1, &redis.url(), KEY_64, &[]).await;
        gws[0].until_metric("toolgate_rate_limit_store_up", &[], |up| up == 0.0).await;
        let begun = Instant::now();
        let passed = drain(&gws, "ann").await;
        assert!((64..=64 + refilled(64, begun)).contains(&passed), "{passed} of 64 without the store");
        redis.begin();
        gws[0].until_metric("toolgate_rate_limit_store_up", &[], |up| up == 1.0).await;
        let passed = drain(&gws, "ann").await;
        assert!(passed <= 8 + refilled(64, begun), "{passed} after 64 of 64");
    });
}
