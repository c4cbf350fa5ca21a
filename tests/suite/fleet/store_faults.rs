//! What nodes do when PostgreSQL fails, each failure under steady load, during a change, at a boot, and after it is over: no call is
//! lost, none is decided by anything but one whole policy, and what one node changed before and after is live on every node.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use super::store::{last_good, make_key, node, nodes, until_served};
use crate::{
    admin::api::Api,
    support::{client::Client, count, eventually, gateway::Gw, postgres::Postgres, run, toggle::Toggle},
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Stopped,
    Killed,
    Paused,
    Slow,
    Errors,
}

/// How much later each piece of an answer of a slow server comes.
const DELAY: Duration = Duration::from_millis(150);

fn begin(fault: Fault, postgres: &mut Postgres, way: &Toggle) {
    match fault {
        Fault::Stopped => postgres.stop(),
        Fault::Killed => postgres.kill(),
        Fault::Paused => postgres.signal("STOP"),
        Fault::Slow => way.slow(DELAY),
        Fault::Errors => postgres.admits(false),
    }
}

fn end(fault: Fault, postgres: &mut Postgres, way: &Toggle) {
    match fault {
        Fault::Stopped | Fault::Killed => postgres.begin(),
        Fault::Paused => postgres.signal("CONT"),
        Fault::Slow => way.slow(Duration::ZERO),
        Fault::Errors => postgres.admits(true),
    }
}

/// Calls that go on until they are told to stop; how each was answered, by request id.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<BTreeMap<String, u16>>>,
}

impl Load {
    fn start(clients: impl Iterator<Item = Client>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let drive = |client: Client| {
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut answers = BTreeMap::new();
                while !stop.load(Ordering::Relaxed) {
                    let answer = client.call("demo_echo", json!({})).await;
                    assert!(answer.status == 200 || answer.status == 401, "{}", answer.wire());
                    if answer.status == 200 {
                        answer.ok();
                    }
                    answers.insert(answer.request_id().to_owned(), answer.status);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                answers
            })
        };
        Self { tasks: clients.map(drive).collect(), stop }
    }

    async fn end(self) -> Vec<BTreeMap<String, u16>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in self.tasks {
            all.push(task.await.unwrap());
        }
        all
    }
}

async fn check(fault: Fault) {
    let Some(mut postgres) = Postgres::start() else { return };
    let way = Toggle::to(postgres.port).await;
    let url = postgres.url_at(way.port);
    let (gws, up) = nodes(2, &url).await;
    let late = make_key(&gws, "late").await;
    for (gw, client) in gws.iter().zip(&late) {
        until_served(client).await;
        // The grant is the last that `make_key` makes.
        last_good(gw, "\"demo/late\"").await;
    }
    let before = up.calls().len();
    let load = Load::start(gws.iter().map(|gw| gw.client("ann")).chain(late.iter().cloned()));

    begin(fault, &mut postgres, &way);
    let is_away = fault != Fault::Slow;
    for gw in gws.iter().filter(|_| is_away) {
        gw.until_metric("toolgate_policy_store_up", &[], |up| up == 0.0).await;
        let ready = gw.ops("/readyz").await.unwrap();
        assert_eq!(ready.status, 200);
        assert!(ready.text().contains("warning: the policy store has not answered"), "{}", ready.text());
    }
    check_change(&gws, is_away).await;
    let booted = is_away.then(|| boot(&gws[0], &up, &url));
    if let Some((kept, bare)) = &booted {
        kept.until_ready().await;
        let client = kept.client("ann").token(late[0].bearer());
        client.call("demo_echo", json!({})).await.ok();
        assert_eq!(bare.until_ended().await, Some(69), "{}", bare.log_text());
    }
    end(fault, &mut postgres, &way);

    let kept = booted.map(|(kept, _)| kept);
    let all: Vec<&Gw> = gws.iter().chain(&kept).collect();
    for gw in &all {
        gw.until_metric("toolgate_policy_store_up", &[], |up| up == 1.0).await;
    }
    for client in make_key(&gws, "after").await {
        until_served(&client).await;
    }
    let revoked = Api::of(&gws[1]).act("/v1/keys/late/revoke?wait=20s").await;
    assert_eq!(revoked.ok()["behind"], json!([]));
    let revision: u64 = revoked.headers["etag"].to_str().unwrap().trim_matches('"').parse().unwrap();
    for gw in &all {
        let client = gw.client("ann").token(late[0].bearer());
        assert_eq!(client.call("demo_echo", json!({})).await.status, 401);
    }
    check_answers(&gws, load.end().await, revision).await;
    let calls = up.calls().len() - before;
    up.assert_spoken_to_well();
    count(calls, 0);
}

/// A change while the store fails: refused, and nothing of it is live; or made.
async fn check_change(gws: &[Gw], is_away: bool) {
    let key = json!({ "id": "amid", "project": "support", "environment": "production" });
    let reply = Api::of(&gws[0]).post("/v1/keys", key).await;
    if is_away {
        reply.refused(503, "");
        assert_eq!(Api::of(&gws[0]).get("/v1/keys/amid").await.status, 404);
    } else {
        reply.made();
        let seen = async || (Api::of(&gws[1]).get("/v1/keys/amid").await.status == 200).then_some(());
        eventually("the change is live on the other node", seen).await;
    }
}

/// Starts a node that has the last good policy of another, and one that has none.
fn boot(gw: &Gw, up: &crate::support::upstream::Up, url: &str) -> (Gw, Gw) {
    let text = std::fs::read_to_string(gw.folder().join("toolgate.last-good")).unwrap();
    let kept = node(up, "kept", url).file("toolgate.last-good", &text).start();
    (kept, node(up, "bare", url).start())
}

/// Every call was answered, and as the one revision says by which its node decided it.
async fn check_answers(gws: &[Gw], answers: Vec<BTreeMap<String, u16>>, revoked_at: u64) {
    for (number, answers) in answers.into_iter().enumerate() {
        let gw = &gws[number % gws.len()];
        let is_late = number >= gws.len();
        assert!(!answers.is_empty());
        let last = answers.keys().next_back().unwrap();
        gw.access_line(last).await;
        let lines: HashMap<String, u64> = gw
            .access_log()
            .into_iter()
            .filter_map(|line| Some((line["request_id"].as_str()?.to_owned(), line["snapshot"].as_u64()?)))
            .collect();
        for (id, status) in answers {
            let Some(snapshot) = lines.get(&id) else { continue };
            let expected = if is_late && *snapshot >= revoked_at { 401 } else { 200 };
            assert_eq!(status, expected, "{id} at revision {snapshot}, revoked at {revoked_at}");
        }
    }
}

#[test]
fn a_stopped_postgres_costs_no_call() {
    run(check(Fault::Stopped));
}

#[test]
fn a_killed_postgres_costs_no_call() {
    run(check(Fault::Killed));
}

#[test]
fn a_paused_postgres_costs_no_call() {
    run(check(Fault::Paused));
}

#[test]
fn a_slow_postgres_costs_no_call() {
    run(check(Fault::Slow));
}

#[test]
fn a_postgres_that_answers_errors_costs_no_call() {
    run(check(Fault::Errors));
}
