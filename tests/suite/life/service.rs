//! As a service: what the service manager is told, and what the `config` commands print.

use std::{os::unix::net::UnixDatagram, path::Path, process::Command};

use serde_json::{Value, json};

use crate::support::{
    WAIT_LIMIT,
    gateway::{Gateway, Reloaded},
    policy::Access::Read,
    run,
    upstream::{Reply, Upstream},
};

/// What came on the socket, until a message has that line.
pub fn until(notices: &UnixDatagram, line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = notices.recv(&mut buffer).unwrap_or_else(|why| panic!("{line} did not come after {all:?}: {why}"));
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        let found = text.lines().any(|came| came == line);
        all.push(text);
        if found {
            return all;
        }
    }
}

#[test]
fn the_service_manager_is_told_of_every_turn() {
    run(async {
        let folder = std::env::temp_dir().join(format!("toolgate-notify-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("notify.sock");
        let notices = UnixDatagram::bind(&path).unwrap();
        notices.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        up.list_with(Some(Reply::raw("${stall}")));
        let gateway = Gateway::new().server("demo", &up).grant("ann", "demo", Read).approve_all();
        let gateway = gateway.env("NOTIFY_SOCKET", path.to_str().unwrap()).env("WATCHDOG_USEC", "400000");
        let gw = gateway.start();
        let before = until(&notices, "READY=1");
        assert_eq!(gw.ops("/readyz").await.map(|answer| answer.status), Some(200), "ready means ready");
        assert!(before.iter().all(|text| !text.contains("STOPPING")), "{before:?}");
        assert!(before.last().unwrap().contains("STATUS=serving revision "), "{before:?}");
        until(&notices, "WATCHDOG=1");
        until(&notices, "WATCHDOG=1");
        assert_eq!(gw.hang_up().await, Reloaded::Applied);
        let told = until(&notices, "RELOADING=1");
        assert!(told.last().unwrap().contains("MONOTONIC_USEC="), "{told:?}");
        until(&notices, "READY=1");
        assert_eq!(gw.reload_text("broken").await, Reloaded::Rejected);
        until(&notices, "RELOADING=1");
        let told = until(&notices, "READY=1");
        assert!(told.last().unwrap().contains("STATUS=the last reload was rejected"), "{told:?}");
        gw.signal("TERM");
        until(&notices, "STOPPING=1");
        assert_eq!(gw.until_ended().await, Some(0));
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn a_gateway_without_a_service_manager_tells_nobody() {
    run(async {
        let gw = Gateway::new().env("NOTIFY_SOCKET", "/nowhere/notify.sock").env("WATCHDOG_USEC", "200000").run().await;
        let told = async || gw.log_text().contains("service manager could not be told").then_some(());
        crate::support::eventually("a word in the log", told).await;
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0), "a socket that is gone is no reason to fail");
    });
}

struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

fn toolgate(arguments: &[&str], conf: &Path) -> Printed {
    let output = Command::new(env!("CARGO_BIN_EXE_toolgate")).args(arguments).arg("--conf").arg(conf).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn with_conf(name: &str, text: &str, test: impl FnOnce(&Path)) {
    let folder = std::env::temp_dir().join(format!("toolgate-config-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("toolgate.toml");
    std::fs::write(&path, text).unwrap();
    test(&path);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn config_dump_is_the_conf_in_force_without_secrets() {
    let written =
        "[store]\nurl = 'postgres://gate:hunter2@127.0.0.1/x'\n[limits]\nin_flight = 7\n[policy]\nfiles = []\n";
    with_conf("dump", written, |path| {
        let dumped = toolgate(&["config", "dump"], path);
        assert_eq!(dumped.code, Some(0), "{}", dumped.err);
        assert!(
            dumped.out.contains("in_flight = 7\n") && dumped.out.contains("keep_alive = \"75s\"  # default\n"),
            "{}",
            dumped.out
        );
        assert!(!dumped.out.contains("hunter2") && dumped.out.contains("gate:***@"), "{}", dumped.out);
        // what it prints is a conf that means the same
        with_conf("again", &dumped.out, |again| assert_eq!(toolgate(&["config", "dump"], again).out, dumped.out));
        let json: Value = serde_json::from_str(&toolgate(&["config", "dump", "--json"], path).out).unwrap();
        assert_eq!((&json["limits"]["in_flight"], &json["timeouts"]["drain"]), (&json!(7), &json!("30s")));
    });
    with_conf("faulty", "[limits]\nin_flight = 'x'\n", |path| {
        let dumped = toolgate(&["config", "dump"], path);
        assert_eq!((dumped.code, dumped.out.as_str()), (Some(78), ""));
        assert!(dumped.err.contains("toolgate.toml:2:"), "{}", dumped.err);
    });
}

#[test]
fn config_explain_tells_an_option_and_its_value() {
    with_conf("explain", "[limits]\nin_flight = 7\n[policy]\nfiles = []\n", |path| {
        let told = toolgate(&["config", "explain", "limits.in_flight"], path);
        for word in
            ["limits.in_flight\n", "a whole number from 1 to 1000000", "default  10000", "value    7 in", "by a reload"]
        {
            assert!(told.out.contains(word), "{word} in {}", told.out);
        }
        let json: Value =
            serde_json::from_str(&toolgate(&["config", "explain", "timeouts", "--json"], path).out).unwrap();
        assert_eq!(json["options"].as_array().unwrap().len(), 6, "{json}");
        let told = toolgate(&["config", "explain", "limit.in_flight"], path);
        assert_eq!(told.code, Some(64));
        assert!(told.err.contains("did you mean `limits.in_flight`?"), "{}", told.err);
    });
}

/// Whether the schema takes a conf; the schema itself must be one.
fn takes(schema: &jsonschema::Validator, toml: &str) -> bool {
    let table: toml::Table = toml.parse().unwrap();
    schema.is_valid(&serde_json::to_value(table).unwrap())
}

#[test]
fn config_schema_takes_what_check_takes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let printed = |arguments: &[&str]| {
        let printed = toolgate(arguments, Path::new("/nowhere"));
        assert_eq!(printed.code, Some(0), "{}", printed.err);
        let schema: Value = serde_json::from_str(&printed.out).unwrap();
        jsonschema::draft7::meta::validate(&schema).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    };
    let (conf, policy) = (printed(&["config", "schema"]), printed(&["config", "schema", "--policy"]));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for path in
        ["conf/toolgate.toml", "conf/toolgate.minimal.toml", "conf/demo/toolgate.toml", "systemd/debian/toolgate.toml"]
    {
        assert!(takes(&conf, &read(path)), "{path}");
    }
    assert!(takes(&policy, &read("conf/demo/policy.toml")));
    for (bad, good) in [
        ("[limits]\nin_flight = 0", "[limits]\nin_flight = 1"),
        ("[limits]\nin_flights = 1", "[limits]\nlist_cache = '1GiB'"),
        ("[limit]\nin_flight = 1", "[limits]\narguments = '${SIZE}'"),
        ("[timeouts]\ndrain = 30", "[timeouts]\ndrain = '1m30s'"),
        ("[log]\nformat = 'yaml'", "[log]\nformat = 'text'"),
        ("[gateway]\nlisten = '127.0.0.1:1'", "[gateway]\nlisten = ['127.0.0.1:1']"),
        (
            "[gateway]\nlisten = [{ address = '127.0.0.1:1', tls = { certificate = 'c' } }]",
            "[gateway]\nlisten = [{ address = '127.0.0.1:1', tls = { certificate = 'c', key = 'k' } }]",
        ),
        ("[rate_limits]\nfailed_auth = 'often'", "[rate_limits]\nfailed_auth = 'off'"),
    ] {
        assert!(!takes(&conf, bad), "{bad}");
        assert!(takes(&conf, good), "{good}");
    }
    for (bad, good) in [
        ("[[key]]\nid = 'k'", "[[project]]\nid = 'p'\narchived = true"),
        ("[[grant]]\nkey = 'k'\nserver = 's'\naccess = 'all'", "[[grant]]\nkey = 'k'\nserver = 's'\naccess = 'read'"),
    ] {
        assert!(!takes(&policy, bad), "{bad}");
        assert!(takes(&policy, good), "{good}");
    }
}

#[test]
fn a_backup_of_a_running_gateway_is_a_store() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        let mut gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).run().await;
        gw.until_tools("demo", "pending", 1.0).await;
        let (conf, copy) = (gw.folder().join("toolgate.toml"), gw.folder().join("copy.db"));
        let copied = toolgate(&["backup", copy.to_str().unwrap()], &conf);
        assert_eq!(copied.code, Some(0), "{}", copied.err);
        assert_eq!(toolgate(&["backup", copy.to_str().unwrap()], &conf).code, Some(1), "nothing is overwritten");
        // a gateway that starts with the copy knows what the other one knew: the tool was seen, and is gone now
        up.remove_tool("echo");
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0));
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(gw.folder().join(format!("toolgate.db{suffix}")));
        }
        std::fs::rename(&copy, gw.folder().join("toolgate.db")).unwrap();
        gw.restart().await;
        gw.until_tools("demo", "removed", 1.0).await;
    });
    with_conf("nothing", "[policy]\nfiles = []\n", |path| {
        let copied = toolgate(&["backup", "/nowhere/x.db"], path);
        assert!(copied.code == Some(1) && copied.err.contains("no store yet"), "{}", copied.err);
        assert!(!path.with_file_name("toolgate.db").exists(), "none was made");
    });
}
