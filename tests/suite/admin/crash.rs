//! `kill -9` at any moment of a change, and at each named point of one: what was confirmed is there afterwards, and nothing half.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use super::{api::Api, files::Again};
use crate::support::{Faults, client::Client, gateway::Gateway, run, upstream::Upstream};

/// How often the gateway is killed.
const KILLS: u64 = 8;

#[test]
fn a_killed_gateway_keeps_every_confirmed_change_and_no_half_one() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().run().await;
        let api = Api::of(&gw);
        api.register("demo", &up).await;
        api.approve("demo", "echo", "read", &[]).await.ok();
        let mut confirmed: Vec<(String, String)> = Vec::new();
        let mut begun = 0;
        let mut running: Option<Again> = None;
        for kill in 0..KILLS {
            let stop = Arc::new(AtomicBool::new(false));
            let done: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
            let writer = tokio::spawn(write(api.clone(), begun, Arc::clone(&stop), Arc::clone(&done)));
            // some way into the work, each time another
            let wanted = usize::try_from(1 + kill % 4).unwrap();
            crate::support::eventually("some changes", async || (done.lock().unwrap().len() >= wanted).then_some(()))
                .await;
            tokio::time::sleep(Duration::from_micros(rand::random_range(0..20_000))).await;
            match &mut running {
                None => {
                    gw.signal("KILL");
                    gw.until_ended().await;
                }
                Some(again) => again.kill(),
            }
            stop.store(true, Ordering::Relaxed);
            begun = writer.await.unwrap();
            confirmed.extend(done.lock().unwrap().drain(..));
            running = Some(Again::start(&gw).await);
            for (id, token) in &confirmed {
                assert_eq!(api.pages(&format!("/v1/keys/{id}/grants"), "grants").await.len(), 1, "{id} lost its grant");
                let client = Client::new(gw.target().clone(), Some(token.clone()));
                client.call("demo_echo", json!({})).await.ok();
            }
            // each change has its audit record, and each record its change
            let audit = api.pages("/v1/audit?limit=1000", "audit").await;
            let numbers: Vec<u64> = audit.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (1..=u64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
            let made = audit.iter().filter(|record| record["what"] == "key.create").count();
            assert_eq!(made, api.pages("/v1/keys", "keys").await.len());
            let granted = audit.iter().filter(|record| record["what"] == "grant.create").count();
            let mut grants = 0;
            for key in api.pages("/v1/keys", "keys").await {
                grants += api.pages(&format!("/v1/keys/{}/grants", key["id"].as_str().unwrap()), "grants").await.len();
            }
            assert_eq!(granted, grants);
        }
        assert!(confirmed.len() >= usize::try_from(KILLS).unwrap());
    });
}

/// Where a change can be cut, in its order, and whether it is there afterwards.
const POINTS: [(&str, bool); 5] = [
    ("control: compiled", false),
    ("store: begun", false),
    ("store: written", false),
    ("store: committed", true),
    ("control: published", true),
];

#[test]
fn a_gateway_killed_at_a_named_point_has_made_the_whole_change_or_none_of_it() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).tool("more", json!({ "type": "object" }));
        let up = up.run().await;
        let gw = Gateway::new();
        let at = std::env::temp_dir().join(format!("toolgate-kill-{}", crate::support::free_port()));
        let gw = gw.env("TOOLGATE_TEST_KILL", at.to_str().unwrap()).run().await;
        let api = Api::of(&gw);
        let mut running: Option<Again> = None;
        let mut faults = Faults::default();
        for (point, is_made) in POINTS {
            for change in ["register", "approve", "delete"] {
                // everything that the change finds
                let slug = format!("s{}", faults.played());
                if change != "register" {
                    api.register(&slug, &up).await;
                    api.key(&format!("key-{slug}")).await;
                    api.grant(&format!("key-{slug}"), &slug, "read").await.ok();
                }
                let path = format!("/v1/servers/{slug}");
                let (method, path, body) = match change {
                    "register" => ("POST", "/v1/servers".to_owned(), json!({ "slug": slug, "url": up.url() })),
                    "approve" => {
                        let sha256 = api.get(&format!("{path}/tools/echo")).await.ok()["sha256"].clone();
                        let body = json!({ "expected_sha256": sha256, "class": "read", "labels": [] });
                        ("POST", format!("{path}/tools/echo/approve"), body)
                    }
                    _ => ("DELETE", path, json!({})),
                };
                let before = state(&api, &slug).await;
                std::fs::write(&at, point).unwrap();
                let answer = api.try_send(method, &path, Some(body.to_string()), &[]).await;
                match &mut running {
                    None => drop(gw.until_ended().await),
                    Some(again) => again.until_killed(),
                }
                std::fs::remove_file(&at).unwrap();
                running = Some(Again::start(&gw).await);
                let after = state(&api, &slug).await;
                let row = async {
                    assert!(answer.is_err(), "answered: {answer:?}");
                    let whole = match change {
                        "register" => json!({ "tools": 2, "server": 1, "grants": 0, "approved": 0, "audit": 1 }),
                        "approve" => json!({ "tools": 2, "server": 1, "grants": 1, "approved": 1, "audit": 1 }),
                        _ => json!({ "tools": 0, "server": 0, "grants": 0, "approved": 0, "audit": 1 }),
                    };
                    let mut expected = if is_made { whole } else { before.clone() };
                    let audit = |state: &serde_json::Value| state["audit"].as_u64().unwrap();
                    // a deletion tells of the server and of its grant
                    let told = if change == "delete" { 2 } else { 1 };
                    expected["audit"] = json!(audit(&before) + if is_made { told } else { 0 });
                    assert_eq!(after, expected);
                };
                faults.row(format!("{change} cut at {point}"), row).await;
            }
        }
        faults.assert_none(15);
    });
}

/// What a change of a server can leave half: the server, its tools, the decision, the grants, the audit record.
async fn state(api: &Api, slug: &str) -> serde_json::Value {
    let server = api.get(&format!("/v1/servers/{slug}")).await.status == 200;
    let tools = match server {
        true => api.pages(&format!("/v1/servers/{slug}/tools"), "tools").await,
        false => Vec::new(),
    };
    let key = format!("/v1/keys/key-{slug}/grants");
    let grants = if api.get(&key).await.status == 200 { api.pages(&key, "grants").await.len() } else { 0 };
    let audit = api.pages("/v1/audit?limit=1000", "audit").await;
    let numbers: Vec<u64> = audit.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=u64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    let of_it = |what: &str, target: &str| {
        let mark = target.split(['/', '-']).any(|part| part == slug);
        mark && ["server.create", "tool.approve", "server.delete", "grant.delete"].contains(&what)
    };
    let told = audit.iter().filter(|r| of_it(r["what"].as_str().unwrap(), r["target"].as_str().unwrap())).count();
    let approved = tools.iter().filter(|tool| tool["status"] == "approved").count();
    json!({ "tools": tools.len(), "server": u8::from(server), "grants": grants, "approved": approved, "audit": told })
}

/// Makes keys with a grant each until told to stop or the gateway is gone; gives the number of the next one.
async fn write(api: Api, mut number: u64, stop: Arc<AtomicBool>, done: Arc<Mutex<Vec<(String, String)>>>) -> u64 {
    while !stop.load(Ordering::Relaxed) {
        let id = format!("k{number}");
        number += 1;
        let body = json!({ "id": id, "project": "support", "environment": "production" }).to_string();
        let Ok(made) = api.try_send("POST", "/v1/keys", Some(body), &[]).await else { break };
        let token = made.made()["token"].as_str().unwrap().to_owned();
        let path = format!("/v1/keys/{id}/grants/demo");
        let Ok(granted) = api.try_send("PUT", &path, Some(json!({ "access": "read" }).to_string()), &[]).await else {
            break;
        };
        granted.ok();
        done.lock().unwrap().push((id, token));
    }
    number
}
