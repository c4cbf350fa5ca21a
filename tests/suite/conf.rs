//! Conf and policy as written: the cases of `tests/cases/conf/`, the contract's examples, and the files that are shipped.
//!
//! A case is text in sections: `=== file PATH` (the conf is `toolgate.toml`; it and `policy.toml` are empty when left out),
//! `=== env`, `=== api KIND` (objects that the management API made), `=== json KIND` (JSON that the API is sent),
//! and what is expected: `=== faults` as rendered, and `=== records` as JSON. `UPDATE=1` writes what is expected anew.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path, time::Duration};

use serde_json::{Value as Json, json};
use toolgate::{
    conf::{self, AccessLog, Address, Conf, Fault, Outcome, Sources, policy},
    model::{
        id::KeyDigest,
        mcp::Revision,
        pin::Pin,
        records::{
            Access, Approval, ApprovalStatus, Class, Detector, Grant, GuardAction, GuardStage, Guardrail, Key, Label,
            OnEngineError, Organization, OrganizationStatus, Origin, Owned, Plan, Project, Protocol, Records,
            SecretRef, Server, SessionMode, Subscription,
        },
        units::{Rate, RateUnit, Size, Span},
    },
};

#[derive(Default)]
struct Case {
    files: Vec<(String, String)>,
    env: BTreeMap<String, String>,
    api: Vec<(String, Json)>,
    json: Vec<(String, Json)>,
}

fn parse(text: &str) -> (Case, Vec<(String, String)>) {
    let mut sections: Vec<(String, String)> = vec![(String::new(), String::new())];
    for line in text.lines() {
        match line.strip_prefix("=== ") {
            Some(head) => sections.push((head.to_owned(), String::new())),
            None => {
                let body = &mut sections.last_mut().unwrap().1;
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    let mut case = Case::default();
    for (head, body) in &sections {
        let json = || serde_json::from_str(body).unwrap_or_else(|why| panic!("{head}: {why}"));
        match head.split_once(' ').unwrap_or((head, "")) {
            ("file", path) => case.files.push((path.to_owned(), body.clone())),
            ("env", _) => {
                let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
                case.env.extend(body.lines().filter_map(pair));
            }
            ("api", kind) => case.api.push((kind.to_owned(), json())),
            ("json", kind) => case.json.push((kind.to_owned(), json())),
            ("faults" | "records" | "", _) => {}
            (other, _) => panic!("no such section: {other}"),
        }
    }
    (case, sections)
}

fn outcome(case: &Case) -> Outcome {
    let mut files: Vec<(&str, &str)> = case.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    if !files.iter().any(|(path, _)| *path == "toolgate.toml") {
        files.insert(0, ("toolgate.toml", ""));
    }
    if !files.iter().any(|(path, _)| *path == "policy.toml") {
        files.push(("policy.toml", ""));
    }
    files.sort_by_key(|(path, _)| *path != "toolgate.toml");
    conf::from_texts(&files, &|name| case.env.get(name).cloned())
}

fn from_api<T>(objects: &mut Vec<Owned<T>>, json: &Json, read: fn(&Json) -> Result<T, Vec<Fault>>) {
    objects.push(Owned { value: read(json).unwrap(), origin: Origin::Api });
}

fn api(case: &Case) -> Records {
    let mut records = Records::default();
    for (kind, json) in &case.api {
        match kind.as_str() {
            "organization" => from_api(&mut records.organizations, json, policy::organization_from_json),
            "project" => from_api(&mut records.projects, json, policy::project_from_json),
            "server" => from_api(&mut records.servers, json, policy::server_from_json),
            "key" => from_api(&mut records.keys, json, policy::key_from_json),
            "grant" => from_api(&mut records.grants, json, policy::grant_from_json),
            "approval" => from_api(&mut records.approvals, json, policy::approval_from_json),
            "guardrail" => from_api(&mut records.guardrails, json, policy::guardrail_from_json),
            other => panic!("no such kind: {other}"),
        }
    }
    records
}

fn json_faults(kind: &str, json: &Json) -> Vec<Fault> {
    let read = match kind {
        "organization" => policy::organization_from_json(json).map(|_| ()),
        "project" => policy::project_from_json(json).map(|_| ()),
        "server" => policy::server_from_json(json).map(|_| ()),
        "key" => policy::key_from_json(json).map(|_| ()),
        "grant" => policy::grant_from_json(json).map(|_| ()),
        "approval" => policy::approval_from_json(json).map(|_| ()),
        "guardrail" => policy::guardrail_from_json(json).map(|_| ()),
        other => panic!("no such kind: {other}"),
    };
    read.err().unwrap_or_default()
}

fn list<T>(objects: &[Owned<T>], write: fn(&T) -> Json) -> Json {
    objects.iter().map(|owned| write(&owned.value)).collect()
}

fn records_json(records: &Records) -> Json {
    json!({
        "organization": list(&records.organizations, policy::organization_to_json),
        "project": list(&records.projects, policy::project_to_json),
        "server": list(&records.servers, policy::server_to_json),
        "key": list(&records.keys, policy::key_to_json),
        "grant": list(&records.grants, policy::grant_to_json),
        "approval": list(&records.approvals, policy::approval_to_json),
        "guardrail": list(&records.guardrails, policy::guardrail_to_json),
    })
}

fn resolved(case: &Case) -> Records {
    let (loaded, sources, faults) = outcome(case).into_loaded().map_err(|(_, faults)| faults).unwrap();
    assert!(!faults.iter().any(Fault::is_error));
    let mut policy = loaded.policy;
    policy.add(api(case));
    let (records, faults) = conf::resolve(policy, &loaded.conf, &sources);
    assert!(!faults.iter().any(Fault::is_error), "{}", sources.render(&faults));
    records
}

/// What a case's section should hold.
fn actual(case: &Case, head: &str) -> String {
    if head == "records" {
        return serde_json::to_string_pretty(&records_json(&resolved(case))).unwrap() + "\n";
    }
    if let Some((kind, json)) = case.json.first() {
        return Sources::default().render(&json_faults(kind, json));
    }
    let outcome = outcome(case);
    let faults = outcome.check(api(case));
    outcome.sources.render(&faults)
}

#[test]
fn every_case_gives_the_faults_it_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/conf");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    paths.sort();
    assert!(paths.len() >= 40, "{} cases", paths.len());
    let mut wrong = String::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let (case, sections) = parse(&text);
        assert!(
            sections.iter().any(|(head, _)| head == "faults" || head == "records"),
            "{} expects nothing",
            path.display()
        );
        let mut fresh = String::new();
        for (head, body) in &sections {
            let expected = matches!(head.as_str(), "faults" | "records");
            let body = if expected { &actual(&case, head) } else { body };
            if !head.is_empty() {
                let _ = writeln!(fresh, "=== {head}");
            }
            fresh.push_str(body);
        }
        if fresh != text {
            if std::env::var_os("UPDATE").is_some() {
                fs::write(&path, fresh).unwrap();
            } else {
                let _ = writeln!(wrong, "{} should be:\n{fresh}", path.display());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

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
            let (loaded, sources, faults) = conf::load(&path).into_loaded().unwrap_or_else(|(sources, faults)| {
                panic!("{}", sources.render(&faults));
            });
            let missing = |fault: &Fault| fault.message == "`policy.files`: nothing matches `policy.toml`";
            assert!(faults.iter().all(missing), "{}", sources.render(&faults));
            assert_ne!(loaded.conf.store, Conf::default().store, "paths are absolute: {}", path.display());
        }
    }
    assert!(seen >= 3, "{seen}");
}

fn load_one(text: &str) -> Conf {
    let outcome = conf::from_text("etc/toolgate/toolgate.toml", text, &|_| None);
    outcome.into_loaded().unwrap_or_else(|(sources, faults)| panic!("{}", sources.render(&faults))).0.conf
}

/// The defaults are the contract's (§10): its block, written out, loads to the same as an empty file.
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
[log]
level = "info"
access = "stdout"
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

/// The contract's policy (§5), with the hashes filled in.
const EXAMPLE: &str = r#"
[[organization]]
id = "acme"
plan = "business"               # starter | team | business | enterprise
status = "active"               # active | suspended
subscription = "active"         # active | trial | none

[[project]]
id = "support"
organization = "acme"
archived = false

[[server]]
organization = "acme"
slug = "github"                 # [a-z0-9][a-z0-9_-]{0,39}, unique in the organization
url = "https://mcp.example.com/mcp"
enabled = true
projects = ["support"]          # empty: every project
environments = ["production"]   # empty: every environment
protocol = "auto"
session = "per_key"             # per_key | shared: how legacy upstream sessions are kept apart
timeout = "30s"
result_limit = "1MiB"
rate_limit = "600/min"          # N/s | N/min | N/hour; absent: none
max_in_flight = 1000
http2 = false
ca = "ca.pem"
client_certificate = "client.pem"
client_key = { file = "client.key" }
credential = { Authorization = { env = "GITHUB_MCP_AUTH" } }   # header = { env | file | credential }

[[key]]
id = "support-agent"
organization = "acme"
project = "support"
environment = "production"
sha256 = "AAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
expires = 2027-12-31T00:00:00Z
disabled = false
revoked = false
allow_ips = ["10.0.0.0/8", "127.0.0.1/32"]
rate_limit = "120/min"
previous_sha256 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
previous_expires = "2026-12-31T01:00:00+01:00"

[[grant]]
key = "support-agent"
server = "github"
access = "selected"             # read | write | selected   (write includes read)
tools = ["create_issue"]        # with selected: the server's own tool names
confirm_trifecta = false

[[approval]]                    # a pin, as a reviewed line in a file
server = "github"
tool = "create_issue"
sha256 = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
class = "write"                 # read | write; default write
labels = ["private_data", "untrusted_content", "sends_out"]   # must be given; [] is a statement
status = "approved"             # approved | blocked

[[guardrail]]
name = "no-secrets-out"
organization = "acme"
stage = "input"                 # input | output | both
detector = "secrets"
action = "block"                # block | redact | observe
servers = ["github"]            # empty: all;  tools = [], projects = [] likewise
on_engine_error = "block"       # block | allow

[[guardrail]]
name = "words"
stage = "both"
detector = "keywords"
action = "observe"
words = ["Geheim"]
tools = ["create_issue"]
projects = ["support"]

[[guardrail]]
name = "pattern"
stage = "output"
detector = "pattern"
action = "redact"
patterns = ['\d{3}']

[[guardrail]]
name = "urls"
stage = "output"
detector = "urls"
action = "block"
allow = ["Example.COM", "bücher.example"]
deny = ["127.0.0.1"]

[[guardrail]]
name = "engine"
stage = "both"
detector = "engine"
action = "block"
url = "http://127.0.0.1:9000/judge"
timeout = "250ms"
on_engine_error = "allow"
"#;

fn example() -> Records {
    let files = [("etc/toolgate.toml", "[policy]\nfiles = [\"p/*.toml\"]\n"), ("etc/p/policy.toml", EXAMPLE)];
    let outcome = conf::from_texts(&files, &|_| None);
    assert_eq!(outcome.sources.render(&outcome.check(Records::default())), "");
    let (loaded, sources, _) = outcome.into_loaded().unwrap();
    conf::resolve(loaded.policy, &loaded.conf, &sources).0
}

#[test]
fn the_contracts_policy_is_read_as_it_says() {
    let records = example();
    assert_eq!(
        records.organizations[0].value,
        Organization {
            id: "acme".into(),
            plan: Plan::Business,
            status: OrganizationStatus::Active,
            subscription: Subscription::Active
        }
    );
    assert_eq!(
        records.projects[0].value,
        Project { id: "support".into(), organization: "acme".into(), archived: false }
    );
    assert_eq!(
        records.servers[0].value,
        Server {
            organization: "acme".into(),
            slug: "github".into(),
            url: "https://mcp.example.com/mcp".into(),
            enabled: true,
            projects: vec!["support".into()],
            environments: vec!["production".into()],
            protocol: Protocol::Auto,
            session: SessionMode::PerKey,
            timeout: Some(Span(Duration::from_secs(30))),
            result_limit: Some(Size(1 << 20)),
            rate_limit: Some(Rate { count: 600, per: RateUnit::Minute }),
            max_in_flight: 1000,
            http2: false,
            ca: Some("/etc/ca.pem".into()),
            client_certificate: Some("/etc/client.pem".into()),
            client_key: Some(SecretRef::File("/etc/client.key".into())),
            credential: [("Authorization".into(), SecretRef::Env("GITHUB_MCP_AUTH".into()))].into(),
        }
    );
    assert_eq!(
        records.keys[0].value,
        Key {
            id: "support-agent".into(),
            organization: "acme".into(),
            project: "support".into(),
            environment: "production".into(),
            sha256: KeyDigest([0xaa; 32]),
            expires: Some(1_830_211_200),
            disabled: false,
            revoked: false,
            allow_ips: vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.1/32".parse().unwrap()],
            rate_limit: Some(Rate { count: 120, per: RateUnit::Minute }),
            previous_sha256: Some(KeyDigest([0xbb; 32])),
            previous_expires: Some(1_798_675_200),
        }
    );
    assert_eq!(
        records.grants[0].value,
        Grant {
            key: "support-agent".into(),
            server: "github".into(),
            access: Access::Selected(vec!["create_issue".into()]),
            confirm_trifecta: false
        }
    );
    assert_eq!(
        records.approvals[0].value,
        Approval {
            organization: "acme".into(),
            server: "github".into(),
            tool: "create_issue".into(),
            sha256: Pin([0xcc; 32]),
            class: Class::Write,
            labels: vec![Label::PrivateData, Label::UntrustedContent, Label::SendsOut],
            status: ApprovalStatus::Approved,
        }
    );
    let origin = &records.servers[0].origin;
    let Origin::File { path, span } = origin else { panic!("{origin:?}") };
    assert_eq!((&**path, &EXAMPLE[span.clone()]), ("etc/p/policy.toml", "[[server]]"));
}

#[test]
fn the_contracts_guardrails_are_read_as_it_says() {
    let records = example();
    let guardrails: Vec<&Guardrail> = records.guardrails.iter().map(|owned| &owned.value).collect();
    assert_eq!(
        *guardrails[0],
        Guardrail {
            name: "no-secrets-out".into(),
            organization: "acme".into(),
            stage: GuardStage::Input,
            detector: Detector::Secrets { types: vec![] },
            action: GuardAction::Block,
            servers: vec!["github".into()],
            tools: vec![],
            projects: vec![],
            on_engine_error: OnEngineError::Block,
        }
    );
    assert_eq!(guardrails[1].organization, "acme");
    assert_eq!(guardrails[1].detector, Detector::Keywords { words: vec!["Geheim".into()] });
    assert_eq!(guardrails[2].detector, Detector::Pattern { patterns: vec![r"\d{3}".into()] });
    let allow = vec!["example.com".into(), "xn--bcher-kva.example".into()];
    assert_eq!(guardrails[3].detector, Detector::Urls { allow, deny: vec!["127.0.0.1".into()] });
    let timeout = Span(Duration::from_millis(250));
    assert_eq!(guardrails[4].detector, Detector::Engine { url: "http://127.0.0.1:9000/judge".into(), timeout });
    assert_eq!(guardrails[4].on_engine_error, OnEngineError::Allow);
}

/// What is left out means what the contract says it means.
#[test]
fn what_is_left_out_has_the_contracts_defaults() {
    let server = policy::server_from_json(&json!({"slug": "s", "url": "https://a.example/mcp"})).unwrap();
    assert!(server.enabled && !server.http2);
    assert_eq!((server.protocol, server.session, server.max_in_flight), (Protocol::Auto, SessionMode::PerKey, 1000));
    assert_eq!((server.timeout, server.result_limit, server.rate_limit), (None, None, None));
    assert!(server.projects.is_empty() && server.environments.is_empty() && server.credential.is_empty());
    let digest = "ab".repeat(32);
    let key = json!({"id": "k", "project": "p", "environment": "e", "sha256": digest});
    let key = policy::key_from_json(&key).unwrap();
    assert!(!key.disabled && !key.revoked && key.allow_ips.is_empty());
    assert_eq!((key.expires, key.rate_limit, key.previous_sha256), (None, None, None));
    let approval = json!({"server": "s", "tool": "t", "sha256": digest, "labels": []});
    let approval = policy::approval_from_json(&approval).unwrap();
    assert_eq!((approval.class, approval.status), (Class::Write, ApprovalStatus::Approved));
    let guardrail =
        json!({"name": "g", "stage": "both", "detector": "engine", "action": "block", "url": "https://e.example/"});
    let guardrail = policy::guardrail_from_json(&guardrail).unwrap();
    assert_eq!(guardrail.on_engine_error, OnEngineError::Block);
    assert!(
        matches!(guardrail.detector, Detector::Engine { timeout: Span(limit), .. } if limit == Duration::from_millis(300))
    );
    let grant = policy::grant_from_json(&json!({"key": "k", "server": "s", "access": "write"})).unwrap();
    assert_eq!((grant.access, grant.confirm_trifecta), (Access::Write, false));
    assert!(!policy::project_from_json(&json!({"id": "p"})).unwrap().archived);
}

/// What is written in JSON reads as the same object: no member is lost in one of the directions.
#[test]
fn json_written_is_json_read() {
    fn both<T: PartialEq + std::fmt::Debug>(
        objects: &[Owned<T>],
        write: fn(&T) -> Json,
        read: fn(&Json) -> Result<T, Vec<Fault>>,
    ) {
        assert!(!objects.is_empty());
        for object in objects {
            assert_eq!(read(&write(&object.value)).as_ref(), Ok(&object.value));
        }
    }
    let mut records = example();
    for server in &mut records.servers {
        // Secrets of files have no form that the API takes.
        server.value.client_key = Some(SecretRef::Credential("client.key".into()));
        server.value.credential = [("Authorization".into(), SecretRef::Credential("github".into()))].into();
        server.value.protocol = Protocol::Fixed(Revision::V2025_06_18);
        (server.value.enabled, server.value.http2, server.value.max_in_flight) = (false, true, 7);
        server.value.session = SessionMode::Shared;
    }
    records.keys[0].value.disabled = true;
    records.keys[0].value.revoked = true;
    records.grants[0].value.confirm_trifecta = true;
    records.projects[0].value.archived = true;
    both(&records.organizations, policy::organization_to_json, policy::organization_from_json);
    both(&records.projects, policy::project_to_json, policy::project_from_json);
    both(&records.servers, policy::server_to_json, policy::server_from_json);
    both(&records.keys, policy::key_to_json, policy::key_from_json);
    both(&records.grants, policy::grant_to_json, policy::grant_from_json);
    both(&records.approvals, policy::approval_to_json, policy::approval_from_json);
    both(&records.guardrails, policy::guardrail_to_json, policy::guardrail_from_json);
}

#[test]
fn files_are_read_from_the_disk_in_name_order() {
    let folder = std::env::temp_dir().join(format!("toolgate-conf-[{}]", std::process::id()));
    fs::create_dir_all(folder.join("policy.d")).unwrap();
    fs::write(folder.join("toolgate.toml"), "[policy]\nfiles = [\"policy.d/*.toml\", \"policy.d/b.toml\"]\n").unwrap();
    let organization = |id| {
        format!("[[organization]]\nid = \"{id}\"\nplan = \"team\"\nstatus = \"active\"\nsubscription = \"none\"\n")
    };
    for (file, id) in [("b.toml", "b"), ("a.toml", "a"), (".hidden.toml", "hidden"), ("c.toml.bak", "c")] {
        fs::write(folder.join("policy.d").join(file), organization(id)).unwrap();
    }
    let (loaded, sources, faults) = conf::load(&folder.join("toolgate.toml")).into_loaded().unwrap();
    assert_eq!(faults, []);
    let (records, _) = conf::resolve(loaded.policy, &loaded.conf, &sources);
    let ids: Vec<_> = records.organizations.iter().map(|owned| owned.value.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    fs::write(folder.join("policy.d/b.toml"), b"\n\xff").unwrap();
    let (sources, faults) = conf::load(&folder.join("toolgate.toml")).into_loaded().unwrap_err();
    assert!(
        sources.render(&faults).contains("policy.d/b.toml: it is not UTF-8 in line 2"),
        "{}",
        sources.render(&faults)
    );
    let (_, faults) = conf::load(&folder.join("none.toml")).into_loaded().unwrap_err();
    assert!(faults[0].message.contains("none.toml"), "{faults:?}");
    fs::remove_dir_all(&folder).unwrap();
}

proptest::proptest! {
    /// Whatever a file holds, reading it ends in faults or in a conf, and every fault can be shown.
    #[test]
    fn no_text_breaks_the_reader(cut in 0usize..6000, put in "[\\[\\]{}\"'=.,#\\$a-z0-9é\\n\\\\ -]{0,12}", gap in 0usize..40) {
        for text in [EXAMPLE, &conf::reference()] {
            let edge = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let (from, to) = (edge(cut), edge(cut + gap));
            let text = format!("{}{put}{}", &text[..from], &text[to..]);
            for files in [[("toolgate.toml", text.as_str()), ("policy.toml", "")], [("toolgate.toml", ""), ("policy.toml", &text)]] {
                let outcome = conf::from_texts(&files, &|_| None);
                let faults = outcome.check(Records::default());
                let rendered = outcome.sources.render(&faults);
                proptest::prop_assert_eq!(faults.is_empty(), rendered.is_empty());
                proptest::prop_assert!(rendered.lines().filter(|line| line.contains("error: ") || line.contains("warning: ")).count() >= faults.len());
            }
        }
    }
}
