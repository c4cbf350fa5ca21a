//! Several gateways, one budget: rate limits through a real Redis, started for each test and ended with it (contract §8).

mod redis_faults;
mod sessions;
mod store;
mod store_faults;

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::support::{
    client::Client,
    eventually,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    redis::Redis,
    run,
    tls::{Identity, Leaf},
    upstream::{Up, Upstream},
};

/// Gateways before one server; each with the keys `ann` and `bob`.
async fn gateways(count: usize, url: &str, limits: (&str, &str), env: &[(&str, &str)]) -> (Vec<Gw>, Up) {
    let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
    (gateways_before(&up, count, url, limits, env).await, up)
}

/// The same, before a server that runs.
async fn gateways_before(
    up: &Up,
    count: usize,
    url: &str,
    (key, server): (&str, &str),
    env: &[(&str, &str)],
) -> Vec<Gw> {
    let mut list = Vec::new();
    for _ in 0..count {
        let mut gateway = Gateway::new()
            .server_with("demo", up, server)
            .conf(&format!("[rate_limits]\nurl = '{url}'\n[log]\nlevel = 'debug'"));
        for (name, value) in env {
            gateway = gateway.env(name, value);
        }
        let gateway = gateway.key("ann", key).key("bob", key).grant("ann", "demo", Read).grant("bob", "demo", Read);
        list.push(gateway.approve_all().run().await);
    }
    list
}

/// Whether the call went through; otherwise it was refused for its rate, and says when to come back.
async fn call(client: &Client) -> Result<(), u64> {
    let answer = client.call("demo_echo", json!({})).await;
    if answer.status == 200 {
        answer.ok();
        return Ok(());
    }
    assert_eq!(answer.status, 429, "{}", answer.wire());
    Err(answer.retry_after())
}

/// Calls through each gateway in turn until each refuses; how many went through.
async fn drain(gws: &[Gw], key: &str) -> usize {
    let clients: Vec<Client> = gws.iter().map(|gw| gw.client(key)).collect();
    let (mut passed, mut refused) = (0, vec![false; gws.len()]);
    while refused.contains(&false) {
        for (client, refused) in clients.iter().zip(&mut refused) {
            match call(client).await {
                Ok(()) => passed += 1,
                Err(_) => *refused = true,
            }
        }
    }
    passed
}

/// The same with many callers at once, each making `calls`.
async fn crowd(gws: &[Gw], callers: usize, calls: usize) -> usize {
    let each = gws.iter().flat_map(|gw| (0..callers).map(|_| gw.client("ann")));
    let all = each.map(|client| async move {
        let mut passed = 0;
        for _ in 0..calls {
            passed += usize::from(call(&client).await.is_ok());
        }
        passed
    });
    futures::future::join_all(all).await.into_iter().sum()
}

const KEY_64: (&str, &str) = ("rate_limit = '64/hour'", "");

/// Waits until each gateway knows how many there are.
async fn until_nodes(gws: &[Gw]) {
    let count = format!("\"nodes\":{}", gws.len());
    eventually("the nodes see each other", async || gws.iter().all(|gw| gw.log_text().contains(&count)).then_some(()))
        .await;
}

/// How many calls waited for Redis in vain so far; each may have cost a token.
fn in_vain(gws: &[Gw]) -> usize {
    gws.iter().map(|gw| gw.log_text().matches("in vain").count()).sum()
}

/// Waits until the gateways have named as many calls that waited for Redis in vain: a log is read a little after its call.
async fn until_in_vain(gws: &[Gw], count: usize) {
    eventually(&format!("{count} calls in vain"), async || (in_vain(gws) >= count).then_some(())).await;
}

/// Whole tokens that came back to an hourly limit since `begun`, and one more.
fn refilled(limit: usize, begun: Instant) -> usize {
    1 + limit * usize::try_from(begun.elapsed().as_secs()).unwrap() / 3600
}

/// Judges how many calls went through since `begun`, by the bound of `docs/fleet.md`. False: a gateway waited longer for Redis
/// than it does, so that nothing but the bound of a slow store can be judged.
async fn judge(gws: &[Gw], passed: usize, limit: usize, begun: Instant) -> bool {
    let is_slow = |gw: &Gw| ["in vain", "is lost"].iter().any(|said| gw.log_text().contains(said));
    let over = if limit < 32 { 0 } else { limit / 8 };
    let refilled = refilled(limit, begun);
    if (limit..=limit + over + refilled).contains(&passed) {
        return !gws.iter().any(is_slow);
    }
    // A log is read a little after its call.
    let what = format!("{passed} of {limit} passed, and a word on a slow store");
    eventually(&what, async || gws.iter().any(is_slow).then_some(())).await;
    assert!(passed <= 2 * limit + over + refilled, "{passed} of {limit}, with a slow store");
    false
}

/// Tries until a run could be judged in full; a machine too busy for that is named.
async fn judged(what: &str, attempt: impl AsyncFn() -> bool) {
    for _ in 0..4 {
        if attempt().await {
            return;
        }
    }
    println!("{what}: this machine is too busy: judged by the bound of a slow store only");
}

#[test]
fn two_gateways_share_one_budget() {
    run(async {
        for (key, server, limit) in [
            ("rate_limit = '64/hour'", "", 64),
            ("", "rate_limit = '64/hour'", 64),
            ("rate_limit = '320/hour'", "", 320),
            ("rate_limit = '5/hour'", "", 5),
            ("", "rate_limit = '31/hour'", 31),
        ] {
            judged(&format!("{key}{server}"), async || {
                let Some(redis) = Redis::start() else { return true };
                let (gws, _up) = gateways(2, &redis.url(), (key, server), &[]).await;
                until_nodes(&gws).await;
                let begun = Instant::now();
                let is_judged = judge(&gws, drain(&gws, "ann").await, limit, begun).await;
                // What one team's key used up at a server is used up for the other's.
                let bob = call(&gws[1].client("bob")).await;
                assert!(bob.is_ok() == server.is_empty() || !is_judged, "{key}{server}");
                let bucket = if server.is_empty() { "{key:ann}" } else { "{server:acme/demo}" };
                assert_eq!(redis.command(&format!("TYPE toolgate:{bucket}")), "+hash\r\n");
                is_judged
            })
            .await;
        }
    });
}

#[test]
fn a_crowd_gets_what_there_is_and_no_more() {
    run(async {
        for limit in [5, 64, 320] {
            judged(&format!("a crowd, {limit}/hour"), async || {
                let Some(redis) = Redis::start() else { return true };
                let key = format!("rate_limit = '{limit}/hour'");
                let (gws, _up) = gateways(2, &redis.url(), (&key, ""), &[]).await;
                until_nodes(&gws).await;
                let begun = Instant::now();
                let passed = crowd(&gws, 4, 1 + limit / 4).await + drain(&gws, "ann").await;
                judge(&gws, passed, limit, begun).await
            })
            .await;
        }
    });
}

/// The whole seconds until the bucket has a token, as Redis keeps it.
fn seconds_to_a_token(redis: &Redis, unit_s: f64, capacity: f64) -> u64 {
    let said = redis.command("HGET toolgate:{key:ann} tokens");
    let tokens: f64 = said.lines().nth(1).unwrap().parse().unwrap();
    seconds((1.0 - tokens) * unit_s / capacity)
}

/// Rounded up.
fn seconds(seconds: f64) -> u64 {
    format!("{:.0}", seconds.ceil()).parse().unwrap()
}

#[test]
fn retry_after_is_true() {
    run(async {
        // Asked for call by call, and leased: a token each 2 s, and each 1.5 s.
        for (key, capacity) in [("rate_limit = '30/min'", 30.0), ("rate_limit = '40/min'", 40.0)] {
            let Some(redis) = Redis::start() else { return };
            let (gws, _up) = gateways(2, &redis.url(), (key, ""), &[]).await;
            until_nodes(&gws).await;
            drain(&gws, "ann").await;
            let client = gws[0].client("ann");
            let (most, wait) = loop {
                // A lease that nobody uses comes back to the bucket.
                let most = seconds_to_a_token(&redis, 60.0, capacity);
                if let Err(wait) = call(&client).await {
                    break (most.max(1), wait);
                }
            };
            // A question in vain is answered from this node's share, which comes back at half of the rate.
            let most_alone = seconds(2.0 * 60.0 / capacity);
            until_in_vain(&gws, usize::from(wait > most)).await;
            assert!((1..=most.max(most_alone)).contains(&wait), "{key}: {wait} s, but at most {most} s");
            tokio::time::sleep(Duration::from_secs(wait)).await;
            assert_eq!(call(&client).await, Ok(()), "{key}: after {wait} s");
        }
    });
}

#[test]
fn a_reload_resets_nothing() {
    run(async {
        let Some(redis) = Redis::start() else { return };
        let (gws, _up) = gateways(1, &redis.url(), KEY_64, &[]).await;
        let begun = Instant::now();
        judge(&gws, drain(&gws, "ann").await, 64, begun).await;
        assert_eq!(gws[0].reload(&gws[0].policy()).await, crate::support::gateway::Reloaded::Applied);
        assert!(call(&gws[0].client("ann")).await.is_err());
    });
}

#[test]
fn the_python_example_spends_from_the_same_bucket() {
    run(async {
        let Some(redis) = Redis::start() else { return };
        let (gws, _up) = gateways(1, &redis.url(), KEY_64, &[]).await;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/fleet/spend.py");
        let spend = |want: &str| {
            let address = format!("127.0.0.1:{}", redis.port);
            let mut command = Command::new("python3");
            command.arg(&script).args([&address, "toolgate:{key:ann}", "64", "3600000", want]);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let begun = Instant::now();
        let said = spend("10");
        assert!(said.starts_with("10 54 0"), "{said}");
        let passed = drain(&gws, "ann").await;
        until_in_vain(&gws, 54_usize.saturating_sub(passed)).await;
        assert!(passed <= 62 + refilled(64, begun), "{passed} of 54");
        eventually("the lease comes back, and is spent", async || {
            let _ = spend("10");
            spend("1").starts_with("0 ").then_some(())
        })
        .await;
    });
}

#[test]
fn an_acl_user_over_tls() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let files = ["ca.pem", "redis.pem", "redis.key"];
        let options = [
            "--tls-port",
            "PORT",
            "--port",
            "0",
            "--tls-auth-clients",
            "no",
            "--tls-cert-file",
            files[1],
            "--tls-key-file",
            files[2],
            "--tls-ca-cert-file",
            files[0],
            "--user",
        ];
        let Some(mut redis) = Redis::prepare(&options) else { return };
        redis.options[1] = redis.port.to_string();
        // As docs/fleet.md says.
        let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fleet.md")).unwrap();
        let user = docs.lines().find_map(|line| line.trim().strip_prefix("user toolgate ")).unwrap();
        let user = format!("gate {}", user.replace("PASSWORD", "secret"));
        redis.options.extend(user.split(' ').map(str::to_owned));
        for (file, text) in files.iter().zip([&identity.ca_pem, &identity.certificate_pem, &identity.key_pem]) {
            fs::write(redis.folder.join(file), text).unwrap();
        }
        redis.begin();
        let ca = redis.folder.join(files[0]);
        let env = [("SSL_CERT_FILE", ca.to_str().unwrap())];
        let url = format!("rediss://gate:secret@127.0.0.1:{}", redis.port);
        let (gws, _up) = gateways(1, &url, KEY_64, &env).await;
        gws[0].until_metric("toolgate_rate_limit_store_up", &[], |up| up == 1.0).await;
        let begun = Instant::now();
        judge(&gws, drain(&gws, "ann").await, 64, begun).await;
        assert!(!gws[0].log_text().contains("secret"), "{}", gws[0].log_text());
    });
}
