//! Upgrades: another process takes over, and no call is lost on the way (contract §9 `toolgate upgrade`, issue of the life cycle).

use std::{collections::HashMap, os::unix::net::UnixDatagram};

use serde_json::json;

use super::{
    load::{Load, Uses},
    reload::{agree, decided_by, name_product, policies},
    service::until,
};
use crate::support::{
    WAIT_LIMIT, eventually,
    gateway::Gateway,
    policy::Access::{Read, Selected},
    run,
    tls::{Identity, Leaf},
    upstream::{Reply, Upstream},
};

/// `make test-life` says more.
fn upgrades() -> usize {
    super::count("UPGRADES", 2)
}

#[test]
fn upgrades_under_load_fail_no_call_and_lose_no_count() {
    run(async {
        let schema = || json!({ "type": "object" });
        let up = Upstream::new().tool("red", schema()).tool("blue", schema()).run().await;
        let gateway = Gateway::new().tls(&Identity::new(Leaf::Good)).server("demo", &up);
        let gw = gateway.grant("ann", "demo", Selected(&["red"])).approve_all().run().await;
        let policies = policies(&gw, &up);
        name_product(&gw, "red");
        gw.reload(&policies[0].1).await;
        let uses = [Uses::Kept, Uses::Fresh, Uses::Kept, Uses::Http2, Uses::Kept];
        let clients = uses.map(|uses| match uses {
            Uses::Http2 => (gw.client("ann").http2(), uses),
            _ => (gw.client("ann"), uses),
        });
        let load = Load::start(clients, &["demo_red", "demo_blue"]);
        let mut decided = 0;
        for n in 1..=upgrades() {
            // the new process starts with other files than the old one serves by
            let (name, policy) = &policies[n % 2];
            name_product(&gw, name);
            gw.write(policy);
            let before = gw.pid();
            assert_eq!(gw.upgrade().await, Ok(()), "{}", gw.log_text());
            assert_ne!(gw.pid(), before);
            decided = super::until_more_calls(&up, decided + 10).await;
        }
        let answers = load.stop().await;
        gw.until_alone().await;
        let by: HashMap<&str, &'static str> =
            answers.iter().map(|(tool, answer)| (answer.request_id(), decided_by(tool, answer))).collect();
        assert_eq!(by.len(), answers.len(), "request ids are unique, over all processes");
        for name in ["red", "blue"] {
            assert!(by.values().any(|decided| *decided == name), "{name} decided some");
        }
        // the counts of the processes before went over; the last ones come when they have drained
        let told = || gw.log_text().matches("the process before has drained").count();
        eventually("the last counts", async || (told() == upgrades()).then_some(())).await;
        agree(&gw, &answers).await;
        assert_eq!(gw.log_text().matches("every call was answered").count(), upgrades());
    });
}

#[test]
fn a_call_that_runs_is_answered_by_the_process_that_took_it() {
    run(async {
        let up = Upstream::new().tool("gated", json!({ "type": "object" }));
        let up = up.reply("gated", Reply::After(vec!["${gate go}".into()], Box::new(Reply::text("done")))).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        let ann = gw.client("ann").fresh();
        let running = ann.start(ann.calling("demo_gated", "{}")).await;
        up.until_calls(1).await;
        assert_eq!(gw.upgrade().await, Ok(()), "{}", gw.log_text());
        // two processes at one time: the new one answers, the old one waits for its call
        let later = ann.start(ann.calling("demo_gated", "{}")).await;
        up.until_calls(2).await;
        assert_eq!(gw.ops("/readyz").await.map(|answer| answer.status), Some(200));
        up.open("go");
        for exchange in [running, later] {
            assert_eq!(exchange.finish().await.0.said(), "done");
        }
        gw.until_alone().await;
        gw.signal("TERM");
        gw.until_ended().await;
        assert_eq!(gw.log_text().matches("every call was answered").count(), 2, "{}", gw.log_text());
    });
}

#[test]
fn an_upgrade_that_cannot_start_changes_nothing() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all().run().await;
        let path = gw.folder().join("toolgate.toml");
        let good = std::fs::read_to_string(&path).unwrap();
        let before = gw.pid();
        // a faulty conf, and a socket that somebody else has
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = other.local_addr().unwrap();
        let taken = good.replace("listen = [\"", &format!("listen = [\"{listening}\", \""));
        for (conf, word) in [(good.clone() + "\n[nonsense]\n", "exit code 78"), (taken, "exit code 71")] {
            std::fs::write(&path, conf).unwrap();
            let said = gw.upgrade().await.unwrap_err();
            assert!(said.contains(word), "{said}\n{}", gw.log_text());
            assert_eq!(gw.pid(), before);
            gw.client("ann").call("demo_echo", json!({})).await.ok();
            assert_eq!(gw.ops("/readyz").await.map(|answer| answer.status), Some(200));
        }
        // what needs a restart is there after an upgrade
        let socket = gw.folder().join("agents.sock");
        std::fs::write(&path, good.replace("listen = [\"", &format!("listen = [\"unix:{}\", \"", socket.display())))
            .unwrap();
        assert_eq!(gw.upgrade().await, Ok(()), "{}", gw.log_text());
        assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
        gw.client("ann").call("demo_echo", json!({})).await.ok();
        gw.until_alone().await;
        assert_eq!(gw.metrics().await.count("toolgate_requests_total", &[]), 3, "also those of the process before");
    });
}

#[test]
fn the_service_manager_learns_which_process_is_the_service() {
    run(async {
        let folder = std::env::temp_dir().join(format!("toolgate-upgrade-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("notify.sock");
        let notices = UnixDatagram::bind(&path).unwrap();
        notices.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let gateway = Gateway::new().env("NOTIFY_SOCKET", path.to_str().unwrap());
        let gw = gateway.env("WATCHDOG_USEC", "400000").run().await;
        until(&notices, "READY=1");
        assert_eq!(gw.upgrade().await, Ok(()), "{}", gw.log_text());
        let told = until(&notices, &format!("MAINPID={}", gw.pid()));
        assert!(told.iter().all(|text| !text.contains("READY=1") && !text.contains("STOPPING=1")), "{told:?}");
        until(&notices, "READY=1");
        gw.until_alone().await;
        until(&notices, "WATCHDOG=1");
        gw.signal("TERM");
        let told = until(&notices, "STOPPING=1");
        assert_eq!(told.iter().filter(|text| text.contains("STOPPING")).count(), 1, "not the one before: {told:?}");
        gw.until_ended().await;
        std::fs::remove_dir_all(folder).unwrap();
    });
}
