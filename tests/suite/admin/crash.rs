//! `kill -9` at any moment of a change: what was confirmed is there afterwards, and nothing half.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;

use super::{api::Api, files::Again};
use crate::support::{client::Client, gateway::Gateway, run, upstream::Upstream};

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
