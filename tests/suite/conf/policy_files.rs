//! The policy's objects: the contract's example, defaults, and the two directions of JSON.

use std::time::Duration;

use serde_json::{Value as Json, json};
use toolgate::{
    conf::{self, Fault, policy},
    model::{
        id::KeyDigest,
        mcp::Revision,
        pin::Pin,
        records::{
            Access, Approval, ApprovalStatus, Class, CredentialMode, Detector, Grant, GuardAction, GuardStage,
            Guardrail, Key, Label, OnEngineError, Organization, OrganizationStatus, Origin, Owned, Passthrough, Plan,
            Project, Protocol, Records, SecretRef, Server, SessionMode, Subscription,
        },
        units::{Rate, RateUnit, Size, Span},
    },
};

/// The contract's policy (§5), with the hashes filled in.
pub(super) const EXAMPLE: &str = r#"
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
passthrough = ["resources", "prompts", "completion"]   # beside tools, on its own endpoint; empty: nothing
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
    let loaded = outcome.into_loaded().unwrap();
    conf::resolve(loaded.policy, &loaded.conf, &loaded.sources).0
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
            passthrough: vec![Passthrough::Resources, Passthrough::Prompts, Passthrough::Completion],
            ca: Some("/etc/ca.pem".into()),
            client_certificate: Some("/etc/client.pem".into()),
            client_key: Some(SecretRef::File("/etc/client.key".into())),
            credential: [("Authorization".into(), SecretRef::Env("GITHUB_MCP_AUTH".into()))].into(),
            credential_mode: CredentialMode::Shared,
            connect_url: None,
        }
    );
    let origin = &records.servers[0].origin;
    let Origin::File { path, span } = origin else { panic!("{origin:?}") };
    assert_eq!((&**path, &EXAMPLE[span.clone()]), ("etc/p/policy.toml", "[[server]]"));
}

#[test]
fn the_contracts_keys_grants_and_approvals_are_read_as_it_says() {
    let records = example();
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
    assert!(server.enabled && !server.http2 && server.passthrough.is_empty());
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
