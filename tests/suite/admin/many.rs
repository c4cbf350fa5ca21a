//! 10,000 tools on 500 servers: a start stores what they list a few times, not once a server; and lists are paged without a gap or a
//! repeat while tools change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::api::Api;
use crate::support::{
    gateway::{Gateway, Gw},
    run,
    upstream::{Up, Upstream},
};

const SERVERS: usize = 500;
const TOOLS: usize = 20;
/// The most bytes that a page may have an entry.
const ENTRY_BYTES_MAX: usize = 1024;

/// A gateway whose servers were all listed; none of their tools was known before.
async fn many() -> (Gw, Up) {
    let mut up = Upstream::new();
    for n in 0..TOOLS {
        up = up.tool(&format!("tool_{n:02}"), json!({ "type": "object" }));
    }
    let up = up.run().await;
    let mut gateway = Gateway::new().conf("[discovery]\ninterval = '1h'\n[log]\nlevel = 'warn'");
    for n in 0..SERVERS {
        gateway = gateway.server(&format!("s{n:03}"), &up);
    }
    let gw = gateway.start();
    gw.until_ready().await;
    for step in 1..=10 {
        let (sum, wanted) = ("toolgate_tools", f64::from(step) * 1000.0);
        gw.until_metric(sum, &[("state", "pending")], |known| known >= wanted).await;
    }
    (gw, up)
}

#[test]
fn a_start_with_500_servers_stores_what_they_list_a_few_times() {
    run(async {
        let (gw, up) = many().await;
        let api = Api::of(&gw);
        let audit = api.pages("/v1/audit?limit=1000", "audit").await;
        let listed: Vec<&Value> = audit.iter().filter(|row| row["what"] == "tools.listed").collect();
        let targets: BTreeSet<&str> = listed.iter().map(|row| row["target"].as_str().unwrap()).collect();
        assert_eq!((listed.len(), targets.len()), (SERVERS, SERVERS), "an audit record for each server");
        assert!(listed.iter().all(|row| row["after"]["moves"].as_array().unwrap().len() == TOOLS));
        let revisions: BTreeSet<u64> = listed.iter().map(|row| row["revision"].as_u64().unwrap()).collect();
        assert!(revisions.len() <= SERVERS / 5, "{} commits", revisions.len());
        let swaps = gw.metrics().await.sum("toolgate_snapshot_swaps_total", &[("result", "applied")]);
        assert!(swaps <= f64::from(u32::try_from(SERVERS / 5).unwrap()) + 1.0, "{swaps} swaps");
        let all = api.pages("/v1/tools?limit=1000", "tools").await;
        assert_eq!(all.len(), SERVERS * TOOLS);
        assert!(all.iter().all(|tool| tool["status"] == "pending"));
        assert_eq!(up.of("tools/list").len(), SERVERS, "each was asked once");
    });
}

/// What happens between two pages.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// A tool of a server before or after the page is blocked; another server lists a new tool.
    Change,
}

#[test]
fn pages_have_no_gap_and_no_repeat_while_tools_change() {
    use Meanwhile::{Change, Nothing};
    run(async {
        let (gw, up) = many().await;
        let (api, mut round) = (Api::of(&gw), 0);
        for (path, limit, meanwhile) in [
            ("/v1/tools?", 1000, Change),
            ("/v1/tools?", 137, Nothing),
            ("/v1/tools?organization=acme&", 1000, Nothing),
            ("/v1/tools?status=pending&", 900, Change),
            ("/v1/tools?status=blocked&", 1, Nothing),
            ("/v1/tools?status=removed&", 1, Nothing),
            ("/v1/servers/s250/tools?status=pending&", 3, Nothing),
            ("/v1/servers?", 7, Nothing),
        ] {
            let rounds = matches!(meanwhile, Change).then_some(&mut round);
            check(&api, &up, (path, limit), rounds).await;
        }
    });
}

fn names(list: &[Value]) -> Vec<String> {
    let part = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    list.iter()
        .map(|entry| format!("{}/{}/{}", part(entry, "server"), part(entry, "name"), part(entry, "slug")))
        .collect()
}

/// `rounds`: how many changes were made so far; none: nothing is changed.
async fn check(api: &Api, up: &Up, (path, limit): (&str, usize), mut rounds: Option<&mut usize>) {
    let list = if path.contains("tools") { "tools" } else { "servers" };
    let whole = async || names(api.get(path).await.ok()[list].as_array().unwrap()).into_iter().collect::<BTreeSet<_>>();
    let before = whole().await;
    let (mut seen, mut pages, mut next) = (Vec::new(), 0, Some(format!("{path}limit={limit}")));
    while let Some(at) = next {
        let page = api.get(&at).await.ok();
        let entries = page[list].as_array().unwrap();
        assert!(entries.len() <= limit && page.to_string().len() <= (limit + 1) * ENTRY_BYTES_MAX, "{at}");
        seen.extend(names(entries));
        next = page["next"].as_str().map(str::to_owned);
        assert!(next.is_none() || entries.len() == limit, "{at}: only the last page is short");
        if let Some(round) = rounds.as_deref_mut().filter(|_| next.is_some()) {
            change(api, up, *round).await;
            *round += 1;
        }
        pages += 1;
    }
    let after = whole().await;
    let unique: BTreeSet<String> = seen.iter().cloned().collect();
    assert_eq!(unique.len(), seen.len(), "{path}{limit}: a repeat");
    assert!(seen.is_sorted(), "{path}{limit}: in order");
    let lost: Vec<_> = before.intersection(&after).filter(|name| !unique.contains(*name)).take(5).collect();
    assert!(lost.is_empty(), "{path}{limit}: a gap: {lost:?}");
    let made_up: Vec<_> = unique.iter().filter(|name| !before.contains(*name) && !after.contains(*name)).collect();
    assert!(made_up.is_empty(), "{path}{limit}: {made_up:?}");
    if rounds.is_none() {
        assert_eq!((pages, &unique), (before.len().div_ceil(limit).max(1), &before), "{path}{limit}");
    }
}

/// A tool near the begin or near the end of the list is blocked; a server in between lists one more.
async fn change(api: &Api, up: &Up, round: usize) {
    let server = if round % 2 == 0 { round } else { SERVERS - 1 - round };
    api.act(&format!("/v1/servers/s{server:03}/tools/tool_07/block")).await.ok();
    up.set_tool(json!({ "name": format!("tool_new_{round}"), "inputSchema": { "type": "object" } }));
    api.act(&format!("/v1/servers/s{:03}/discover", SERVERS / 2 + round)).await.ok();
}
