//! The policy of the benches: as large as asked for, each tool on a server of its own, each key with a grant on one of them.

use std::collections::HashMap;

use serde_json::json;
use toolgate::{
    conf::{self, Conf},
    model::{
        id::KeyDigest,
        mcp::Revision,
        pin::Pin,
        records::{
            ApprovalStatus, Class, Decision, Definition, DiscoveryRecord, Grant, Key, Owned, Records, Server,
            ToolRecord,
        },
    },
    policy::{
        compile::{Handles, Inputs, ServerSecrets, compile},
        snapshot::Snapshot,
    },
};

use super::{START_NS, UNIX, traffic::token};

/// Which checks the policy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Rate limits of keys and servers.
    pub rates: bool,
    /// A real `inputSchema`; else the least that is accepted.
    pub schema_in: bool,
    /// `secrets` and `personal_data` on arguments.
    pub guards_in: bool,
    /// The same on results.
    pub guards_out: bool,
    /// An `outputSchema`.
    pub schema_out: bool,
}

impl Checks {
    /// The full chain of contract §12.
    pub const ALL: Self = Self { rates: true, schema_in: true, guards_in: true, guards_out: true, schema_out: true };
    /// Key, grant and approval only.
    pub const NONE: Self =
        Self { rates: false, schema_in: false, guards_in: false, guards_out: false, schema_out: false };
    /// The ladder: each step adds one check.
    pub const LADDER: [(&'static str, Self); 6] = [
        ("key, grant, approval", Self::NONE),
        ("+ rates", Self { rates: true, ..Self::NONE }),
        ("+ schema in", Self { rates: true, schema_in: true, ..Self::NONE }),
        ("+ guardrails in", Self { guards_out: false, schema_out: false, ..Self::ALL }),
        ("+ guardrails out", Self { schema_out: false, ..Self::ALL }),
        ("+ schema out", Self::ALL),
    ];
}

/// What a policy is compiled from.
pub struct Source {
    conf: Conf,
    records: Records,
    secrets: HashMap<(String, String), ServerSecrets>,
    checks: Checks,
}

impl Source {
    /// A policy of `size` tools, keys and servers: each tool on its own server, each key with a grant on one of them.
    pub fn new(size: usize, checks: Checks) -> Self {
        let conf_text =
            "[policy]\nfiles = ['/policy.toml']\n[egress]\nallow_http = true\nallow_networks = ['127.0.0.0/8']\n";
        let policy = policy_text(checks);
        let outcome = conf::from_texts(&[("/toolgate.toml", conf_text), ("/policy.toml", &policy)], &|_| None);
        let loaded = outcome.into_loaded().unwrap_or_else(|r| panic!("{}", r.sources.render(&r.faults)));
        let (mut records, faults) = conf::resolve(loaded.policy, &loaded.conf, &loaded.sources);
        assert!(faults.is_empty(), "{}", loaded.sources.render(&faults));
        let (server, key, grant) = (records.servers.remove(0), records.keys.remove(0), records.grants.remove(0));
        let mut secrets = HashMap::new();
        for n in 0..size {
            let slug = format!("server-{n:06}");
            records
                .servers
                .push(Owned { value: Server { slug: slug.clone(), ..server.value.clone() }, ..server.clone() });
            let id = format!("key-{n:06}");
            let sha256 = KeyDigest::of(token(n).as_bytes());
            records.keys.push(Owned { value: Key { id: id.clone(), sha256, ..key.value.clone() }, ..key.clone() });
            let value = Grant { key: id, server: slug.clone(), ..grant.value.clone() };
            records.grants.push(Owned { value, ..grant.clone() });
            records.tools.push(tool(&slug, checks));
            records.discoveries.push(DiscoveryRecord {
                organization: "acme".to_owned(),
                server: slug.clone(),
                revision: Some(Revision::MODERN),
            });
            let credential = vec![("authorization".to_owned(), format!("Bearer upstream-token-{n:06}").into_bytes())];
            secrets.insert(("acme".to_owned(), slug), ServerSecrets { credential, ..ServerSecrets::default() });
        }
        Self { conf: loaded.conf, records, secrets, checks }
    }

    /// Compiles it.
    pub fn compile(&self, handles: &mut Handles) -> Snapshot {
        let inputs = Inputs {
            conf: &self.conf,
            records: &self.records,
            secrets: &self.secrets,
            users: &HashMap::new(),
            state_key: [7; 32],
            revision: 1,
            created: UNIX,
            now_ms: START_NS / 1_000_000,
        };
        compile(&inputs, handles).map(|(snapshot, _)| snapshot).unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    /// How many tools there are.
    pub fn size(&self) -> usize {
        self.records.tools.len()
    }

    /// What it asks for.
    pub fn checks(&self) -> Checks {
        self.checks
    }
}

fn policy_text(checks: Checks) -> String {
    let rate = |rate: &str| if checks.rates { format!("rate_limit = '{rate}'\n") } else { String::new() };
    let stage = match (checks.guards_in, checks.guards_out) {
        (false, false) => None,
        (true, false) => Some("input"),
        (false, true) => Some("output"),
        (true, true) => Some("both"),
    };
    let guards: String = ["secrets", "personal_data"]
        .iter()
        .zip(stage.iter().cycle())
        .map(|(detector, stage)| {
            format!(
                "[[guardrail]]\nname = 'no-{detector}'\nstage = '{stage}'\ndetector = '{detector}'\naction = 'block'\n"
            )
        })
        .collect();
    let digest = "0".repeat(64);
    let (of_key, of_server) = (rate("100000000/s"), rate("100000000/s"));
    format!(
        "[[organization]]\nid = 'acme'\nplan = 'business'\nstatus = 'active'\nsubscription = 'active'\n\
         [[project]]\nid = 'support'\n\
         [[server]]\nslug = 'template'\nurl = 'http://127.0.0.1:9/mcp'\nprotocol = '2026-07-28'\n{of_server}\
         [[key]]\nid = 'template'\nproject = 'support'\nenvironment = 'production'\nsha256 = '{digest}'\n{of_key}\
         [[grant]]\nkey = 'template'\nserver = 'template'\naccess = 'write'\n{guards}"
    )
}

/// A tool that was listed and approved.
fn tool(slug: &str, checks: Checks) -> ToolRecord {
    let input = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 200, "description": "One line that says what is wrong."},
            "body": {"type": "string", "maxLength": 20_000, "description": "What was done, expected and seen."},
            "labels": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 16},
            "priority": {"enum": ["low", "normal", "high"]},
            "assignees": {"type": "array", "items": {"type": "object", "properties": {
                "id": {"type": "integer", "minimum": 1}, "team": {"type": "string"}
            }, "required": ["id"], "additionalProperties": false}},
            "notify": {"type": "boolean"},
            "estimate": {"type": "number", "minimum": 0}
        },
        "required": ["title", "body"],
        "additionalProperties": false
    });
    let output = json!({
        "type": "object",
        "properties": {
            "number": {"type": "integer"}, "state": {"enum": ["open", "closed"]}, "url": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}}, "score": {"type": "number"}
        },
        "required": ["number", "state"]
    });
    let mut definition = json!({
        "name": "create_issue",
        "description": "Creates an issue in the tracker and gives back its number.",
        "inputSchema": if checks.schema_in { input } else { json!({"type": "object"}) }
    });
    if checks.schema_out {
        definition["outputSchema"] = output;
    }
    let text = definition.to_string();
    let sha256 = Pin::of_definition(text.as_bytes()).unwrap();
    let definition = Definition { sha256, json: text.into() };
    ToolRecord {
        organization: "acme".to_owned(),
        server: slug.to_owned(),
        name: "create_issue".to_owned(),
        recorded: 1,
        current: Some(definition.clone()),
        fault: None,
        pin: Some(sha256),
        pin_seen: true,
        changed: false,
        approved: Some(definition),
        decision: Some(Decision { status: ApprovalStatus::Approved, class: Class::Write, labels: Vec::new() }),
    }
}
