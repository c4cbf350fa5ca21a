//! Nobody gets another's answer: many clients that all use the id 1, in both eras and forms, on every kind of server at one time.
//!
//! `TOOLGATE_MIXING_CALLS` says how many calls are made; 2,000 unless told.

mod server;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use crate::support::{
    answer::{Answer, Era},
    client::{BOTH, Client},
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    tls::{Identity, Leaf},
    upstream::{Up, Upstream},
};
use server::{Seen, chance, tool};

const CLIENTS: usize = 64;
const CALLS: usize = 2_000;
/// Calls between two looks at the clock: one test may not take longer than its limit, all rounds together may.
const ROUND: usize = 2_000;
const KEYS: [&str; 5] = ["ann", "bob", "cyd", "dan", "eve"];
const SLUGS: [&str; 4] = ["modern", "legacy", "shared", "multiplexed"];

/// What is behind the gateway.
struct Stand {
    gw: Gw,
    modern: Arc<Mutex<Seen>>,
    legacy: Arc<Mutex<Seen>>,
    multiplexed: Up,
}

async fn stand() -> Stand {
    let (modern_url, modern) = server::run(true).await;
    let (legacy_url, legacy) = server::run(false).await;
    let (shared_url, _) = server::run(false).await;
    let identity = Identity::new(Leaf::Good);
    let multiplexed = Upstream::new().tls(&identity).definition(tool()).run().await;
    let mut gateway = Gateway::new().file("ca.pem", &identity.ca_pem);
    gateway = gateway.server_with("multiplexed", &multiplexed, "http2 = true\nca = 'ca.pem'");
    for (slug, url, more) in
        [("modern", modern_url, ""), ("legacy", legacy_url, ""), ("shared", shared_url, "session = 'shared'")]
    {
        gateway = gateway.object("server", &format!("organization = 'acme'\nslug = '{slug}'\nurl = '{url}'\n{more}"));
    }
    for slug in SLUGS {
        gateway = gateway.approve(slug, &tool(), "read");
        gateway = KEYS.iter().fold(gateway, |gateway, key| gateway.grant(key, slug, Read));
    }
    Stand { gw: gateway.run().await, modern, legacy, multiplexed }
}

/// One of the clients: its own key, era, form and endpoint.
fn client(gw: &Gw, number: usize) -> (Client, &'static str, &'static str) {
    let (key, slug) = (KEYS[number % KEYS.len()], SLUGS[number / 2 % SLUGS.len()]);
    let era = if number % 2 == 0 { Era::Modern } else { Era::Legacy };
    let accept = [BOTH, "application/json", "text/event-stream", BOTH][number / 8 % 4];
    let client = gw.client(key).era(era).accept(accept);
    (if number / 32 % 2 == 0 { client.server(slug) } else { client }, key, slug)
}

/// Calls under the id 1 and the progress token that everybody uses.
async fn one(client: &Client, (key, slug): (&str, &str), mark: &str) -> Result<(), String> {
    let meta = match client.speaks() {
        Era::Legacy => json!({ "progressToken": "p" }),
        Era::Modern => json!({
            "progressToken": "p", "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}
        }),
    };
    let params =
        json!({ "name": client.named(slug, "mark"), "arguments": { "key": key, "mark": mark }, "_meta": meta });
    let request =
        client.posting(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string());
    if chance(mark) % 16 == 5 {
        client.start(request).await.disconnect();
        return Ok(());
    }
    judge(&client.send(request).await, mark)
}

fn judge(answer: &Answer, mark: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{mark}: {what}: {}", answer.wire()));
    if answer.status != 200 || answer.cut {
        return wrong("no answer");
    }
    let Some((last, progress)) = answer.messages.split_last() else { return wrong("no message") };
    if last["id"] != 1 {
        return wrong("another id");
    }
    let said = last["result"]["content"][0]["text"].as_str().unwrap_or_default();
    // The multiplexed server says its arguments, the others their mark.
    let mine = said == mark || serde_json::from_str(said).is_ok_and(|said: serde_json::Value| said["mark"] == mark);
    if !mine {
        return wrong("another answer");
    }
    if progress.iter().any(|message| message["params"]["message"] != mark) {
        return wrong("another's progress");
    }
    Ok(())
}

/// Lets every client make calls until `calls` are made; gives what went wrong.
async fn round(stand: &Stand, (number, calls): (usize, usize)) -> Vec<String> {
    let left = Arc::new(AtomicUsize::new(calls));
    let clients = (0..CLIENTS).map(|c| {
        let (client, key, slug) = client(&stand.gw, c);
        let left = Arc::clone(&left);
        tokio::spawn(async move {
            let mut faults = Vec::new();
            let mut n = 0;
            while left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                faults.extend(one(&client, (key, slug), &format!("{number}-{c}-{n}")).await.err());
                n += 1;
            }
            faults
        })
    });
    let all = futures::future::join_all(clients).await;
    all.into_iter().flat_map(|faults| faults.expect("a client ends")).collect()
}

#[test]
fn no_answer_reaches_another_caller() {
    let calls = std::env::var("TOOLGATE_MIXING_CALLS").map_or(CALLS, |text| text.parse().expect("a number of calls"));
    let stand = run(stand());
    let (mut faults, mut made) = (Vec::new(), 0);
    while made < calls {
        let next = ROUND.min(calls - made);
        faults.extend(run(round(&stand, (made / ROUND, next))));
        made += next;
    }
    assert!(faults.is_empty(), "{} of {calls} calls:\n{}", faults.len(), faults[..faults.len().min(5)].join("\n"));

    let (modern, legacy) = (stand.modern.lock().unwrap(), stand.legacy.lock().unwrap());
    for seen in [&modern, &legacy] {
        let twice: Vec<_> = seen.marks.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "sent twice: {twice:?}");
        assert!(seen.marks.len() * 8 > calls, "each server has its share: {} of {calls}", seen.marks.len());
    }
    assert_eq!(legacy.sessions.len(), KEYS.len(), "a session a key");
    assert!(legacy.sessions.values().all(|keys| keys.len() == 1), "shared by keys: {:?}", legacy.sessions);
    drop((modern, legacy));
    stand.multiplexed.assert_spoken_to_well();
    let line = run(stand.gw.until_metric("toolgate_in_flight", &[], |n| n == 0.0));
    assert_eq!(line, 0.0, "nothing is left in flight");
}
