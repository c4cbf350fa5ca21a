//! The conf's options: defaults, paths, what is shipped, what a restart changes.

use std::{fs, path::Path};

use toolgate::conf::{self, AccessLog, Address, Conf, Fault};

/// The shipped reference is written from the table of options.
#[test]
fn the_shipped_reference_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/toolgate.toml");
    let reference = conf::reference();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &reference).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap_or_default(), reference, "run with UPDATE=1");
}

/// Every shipped conf file loads without an error; all that may be missing is the policy that a site writes.
#[test]
fn shipped_confs_load() {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let mut seen = 0;
    for folder in [conf.clone(), conf.join("profiles")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            seen += 1;
            let loaded = conf::load(&path).into_loaded().unwrap_or_else(|rejected| panic!("{}", shown(&rejected)));
            let missing = |fault: &Fault| fault.message == "`policy.files`: nothing matches `policy.toml`";
            assert!(loaded.warnings.iter().all(missing), "{}", loaded.sources.render(&loaded.warnings));
            assert_ne!(loaded.conf.store, Conf::default().store, "paths are absolute: {}", path.display());
        }
    }
    assert!(seen >= 3, "{seen}");
}

fn load_one(text: &str) -> Conf {
    let outcome = conf::from_text("etc/toolgate/toolgate.toml", text, &|_| None);
    outcome.into_loaded().unwrap_or_else(|rejected| panic!("{}", shown(&rejected))).conf
}

fn shown(rejected: &conf::Rejected) -> String {
    rejected.sources.render(&rejected.faults)
}

/// The defaults are the contract's (§10): its block, written out, loads to the same as an empty file. `store.key` and `[auth]` are
/// of what the contract leaves open, and off.
#[test]
fn the_contracts_conf_is_the_default() {
    let written = r#"
[gateway]
listen = ["127.0.0.1:8080"]
base_path = "/gateway"
product = "Toolgate"
console = "the Toolgate console"
allowed_origins = []
trusted_proxies = []
threads = 0
[ops]
listen = "127.0.0.1:9902"
[admin]
socket = "toolgate.sock"
secrets = ""
listen = ""
tokens = []
[store]
url = "sqlite:toolgate.db"
key = ""
# Beyond the contract's block: what a node of a fleet needs (docs/fleet.md).
last_good = "toolgate.last-good"
max_age = "off"
node = ""
[policy]
files = ["policy.toml"]
[egress]
allow_http = false
allow_networks = []
[discovery]
interval = "60s"
max_age = "1h"
[limits]
request_body = "1MiB"
arguments = "256KiB"
result = "1MiB"
headers = "64KiB"
in_flight = 10000
list_cache = "64MiB"
[timeouts]
request_header = "10s"
request_body = "30s"
connect = "5s"
call = "30s"
keep_alive = "75s"
drain = "30s"
[rate_limits]
url = ""
failed_auth = "300/min"
[attribution]
prefix = "X-Toolgate-"
[auth]
issuers = []
resource = ""
[log]
level = "info"
access = "stdout"
sample = 1
format = "json"
"#;
    assert_eq!(load_one(written), load_one(""));
    assert_eq!(load_one(&conf::reference()), load_one(""));
    // Nothing is in the reference that the contract's block lacks, and the other way round.
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(|line| line.split(" = ").next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&conf::reference()), names(written));
}

#[test]
fn relative_paths_are_relative_to_the_conf_file() {
    let conf = load_one(
        r#"
[gateway]
listen = [{ address = "127.0.0.1:8443", tls = { certificate = "tls/c.pem", key = "/k.pem" } }, "unix:gw.sock"]
[admin]
secrets = "secrets"
[log]
access = "./access.log"
"#,
    );
    let tls = conf.gateway.listen[0].tls.as_ref().unwrap();
    assert_eq!(tls.certificate, Path::new("/etc/toolgate/tls/c.pem"));
    assert_eq!(tls.key, Path::new("/k.pem"));
    assert_eq!(conf.gateway.listen[1].address, Address::Unix("/etc/toolgate/gw.sock".into()));
    assert_eq!(conf.admin.socket.as_deref(), Some(Path::new("/etc/toolgate/toolgate.sock")));
    assert_eq!(conf.admin.secrets.as_deref(), Some(Path::new("/etc/toolgate/secrets")));
    assert_eq!(conf.log.access, AccessLog::File("/etc/toolgate/access.log".into()));
    assert_eq!(conf.store.url.expose(), "sqlite:/etc/toolgate/toolgate.db");
    let url = |text: &str| load_one(&format!("[store]\nurl = \"{text}\"\n")).store.url.expose().to_owned();
    assert_eq!(url("sqlite:/var/lib/t.db?mode=ro"), "sqlite:/var/lib/t.db?mode=ro");
    assert_eq!(url("sqlite://t.db"), "sqlite:/etc/toolgate/t.db");
    assert_eq!(url("sqlite::memory:"), "sqlite::memory:");
    assert_eq!(url("postgres://u:p@db/t"), "postgres://u:p@db/t");
}

#[test]
fn empty_strings_and_off_turn_off() {
    let conf = load_one(
        "[ops]\nlisten = \"\"\n[admin]\nsocket = \"\"\n[rate_limits]\nfailed_auth = \"off\"\n[gateway]\nbase_path = \"\"\n",
    );
    assert_eq!((conf.ops.listen, conf.admin.socket, conf.rate_limits.failed_auth), (None, None, None));
    assert_eq!(conf.gateway.base_path, "");
}

#[test]
fn passwords_in_urls_are_not_shown() {
    let conf =
        load_one("[store]\nurl = \"postgres://u:hunter2@db/t\"\n[rate_limits]\nurl = \"redis://:hunter2@cache\"\n");
    assert_eq!(conf.rate_limits.url.as_ref().unwrap().expose(), "redis://:hunter2@cache");
    assert!(!format!("{conf:?}").contains("hunter2"));
}

#[test]
fn what_only_a_restart_changes_is_named() {
    let before = load_one("");
    assert_eq!(before.restart_required(&before), Vec::<&str>::new());
    let reloadable = load_one("[gateway]\nproduct = \"P\"\nbase_path = \"/p\"\n[limits]\nin_flight = 1\n");
    assert_eq!(before.restart_required(&reloadable), Vec::<&str>::new());
    let after = load_one(
        r#"
[gateway]
listen = ["127.0.0.1:8081"]
threads = 2
[ops]
listen = "127.0.0.1:9903"
[admin]
socket = "other.sock"
listen = "127.0.0.1:9901"
[store]
url = "sqlite:other.db"
"#,
    );
    let named = ["gateway.listen", "gateway.threads", "ops.listen", "admin.socket", "admin.listen", "store.url"];
    assert_eq!(before.restart_required(&after), named);
}
