//! Legacy sessions of a fleet: a key keeps its session on whichever node it lands, and one node renews it (contract §3).

use serde_json::json;

use super::gateways_before;
use crate::support::{
    client::Client,
    gateway::Gw,
    redis::Redis,
    run,
    upstream::{Reply, Speaks, Up, Upstream},
};

async fn fleet(redis: &Redis) -> (Vec<Gw>, Up, Vec<Client>) {
    let up = Upstream::new().tool("echo", json!({ "type": "object" })).speaks(Speaks::Legacy).run().await;
    let gws = gateways_before(&up, 2, &redis.url(), ("", ""), &[]).await;
    let clients = gws.iter().map(|gw| gw.client("ann")).collect();
    (gws, up, clients)
}

/// The session of each call that the server took.
fn sessions(up: &Up) -> Vec<String> {
    up.calls().iter().map(|call| call.header("mcp-session-id").unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_key_keeps_its_session_on_every_node() {
    run(async {
        let Some(redis) = Redis::start() else { return };
        let (mut gws, up, clients) = fleet(&redis).await;
        let opened = up.of("initialize").len();
        for client in clients.iter().cycle().take(6) {
            client.call("demo_echo", json!({})).await.ok();
        }
        assert_eq!(up.of("initialize").len(), opened + 1, "one session for both nodes");
        let used = sessions(&up);
        assert!(used.len() == 6 && used.iter().all(|id| id == &used[0] && !id.is_empty()), "{used:?}");
        // Another key has another one.
        gws[1].client("bob").call("demo_echo", json!({})).await.ok();
        assert_ne!(sessions(&up)[6], used[0]);
        // A node that stops ends no session that the other one uses, and finds it again.
        gws[0].restart().await;
        for gw in &gws {
            gw.client("ann").call("demo_echo", json!({})).await.ok();
        }
        assert!(sessions(&up)[7..].iter().all(|id| id == &used[0]), "{:?}", sessions(&up));
        up.assert_spoken_to_well();
    });
}

#[test]
fn a_lost_session_is_renewed_once_and_no_call_runs_twice() {
    run(async {
        let Some(redis) = Redis::start() else { return };
        let (_gws, up, clients) = fleet(&redis).await;
        for client in &clients {
            client.call("demo_echo", json!({ "n": "before" })).await.ok();
        }
        let opened = up.of("initialize").len();
        up.lose_sessions();
        let calls = clients.iter().cycle().take(8).map(Clone::clone).enumerate().map(|(n, client)| async move {
            client.call("demo_echo", json!({ "n": n.to_string() })).await.ok().clone()
        });
        assert_eq!(futures::future::join_all(calls).await.len(), 8);
        assert_eq!(up.of("initialize").len(), opened + 1, "one node renews");
        let fresh = sessions(&up).last().unwrap().clone();
        for n in 0..8 {
            let is_it = |call: &&crate::support::upstream::Seen| call.arguments().contains(&format!("\"{n}\""));
            let ran =
                up.calls().iter().filter(is_it).filter(|call| call.header("mcp-session-id") == Some(&fresh)).count();
            assert_eq!(ran, 1, "call {n}");
        }
    });
}

#[test]
fn without_redis_each_node_has_its_own() {
    run(async {
        let Some(mut redis) = Redis::start() else { return };
        let (_gws, up, clients) = fleet(&redis).await;
        redis.end();
        for client in clients.iter().cycle().take(4) {
            client.call("demo_echo", json!({})).await.ok();
        }
        let mut used = sessions(&up);
        used.sort();
        used.dedup();
        assert_eq!(used.len(), 2, "{used:?}");
    });
}

#[test]
fn a_refusal_reads_the_same_on_a_node_without_the_session() {
    run(async {
        let Some(redis) = Redis::start() else { return };
        let (_gws, up, clients) = fleet(&redis).await;
        clients[0].call("demo_echo", json!({})).await.ok();
        // The first node holds the session, the second one does not, nor a connection: what the server does wrong reads alike.
        for reply in [Reply::status(500, "", ""), Reply::status(401, "", ""), Reply::status(200, "", "nonsense")] {
            let mut said = Vec::new();
            for client in &clients {
                up.next(reply.clone());
                let answer = client.call("demo_echo", json!({})).await;
                said.push(answer.refused("upstream_unavailable").to_owned());
            }
            assert_eq!(said[0], said[1]);
        }
        let mut said = Vec::new();
        for client in &clients {
            said.push(client.call("demo_echo", json!([])).await.refused("invalid_tool_arguments").to_owned());
        }
        assert_eq!(said[0], said[1]);
    });
}
