//! What nodes do when Redis fails, each failure under load, during a reload, at a boot, and after it is over: every call is answered,
//! and no more of them go through than `docs/fleet.md` says.

use std::time::{Duration, Instant};

use super::{call, crowd, drain, gateways_before, refilled, until_nodes};
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
