//! A policy of any size and calls that pass it: what the benches measure the line on. No sockets, no clock.
//!
//! Everything is made by the product's own doors: the conf and the policy from text, the snapshot by `policy::compile`.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::expect_used)]

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use toolgate::{
    call::{
        Admission, Admitted, Asked, Caller, Charged, Now, Subject, admit,
        answer::{Heard, IdRule, hear},
        attribution, authenticate, charge,
        input::Asking,
        output::{self, Exchange},
        route, throttle,
    },
    conf::{self, Conf},
    model::{
        id::KeyDigest,
        jsonrpc::Document,
        mcp::Revision,
        pin::Pin,
        records::{Class, Decision, Definition, DiscoveryRecord, Grant, Key, Owned, Records, Server, ToolRecord},
    },
    policy::{
        compile::{Handles, Inputs, ServerSecrets, compile},
        snapshot::{KeyPolicy, Snapshot, ToolPolicy},
    },
    upstream::{
        client::Client,
        dns::Resolver,
        envelope::{self, CallMeta, OurId},
        server::Registry,
        sessions::{SessionLimits, Sessions},
    },
};

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

/// How many different calls go round: each with its own key, server and tool, spread over the policy. The same in every size, so
/// that what differs is the size of the policy and not how many tools are kept warm in the caches.
const CALLS: usize = 8;
/// The same for traffic that is spread over many tools.
const CALLS_SPREAD: usize = 256;
/// Nanoseconds between two calls, and where the clock of the budgets starts.
const STEP_NS: u64 = 1_000;
const START_NS: u64 = 3_600_000_000_000;
/// Seconds since 1970.
const UNIX: i64 = 1_800_000_000;
/// Text of an ordinary ticket; nothing in it is a secret or personal.
const PROSE: &str = "The export job of the reporting service stops after the third page when the filter names more than one \
    region. Steps: open the report, choose two regions, press export, wait until the progress bar shows page three. Expected: \
    the file has all pages. Seen: the job ends without a message and the file is cut. It began with the release of last week; \
    the build before it is fine. Please have a look at how the cursor is passed on, and tell the team which branch holds the fix.";

/// A compiled policy and the calls that pass it.
pub struct World {
    /// The policy.
    pub snapshot: Arc<Snapshot>,
    /// The calls.
    pub calls: Vec<Call>,
    turn: usize,
}

/// A request as it arrives, and what its server answers.
pub struct Call {
    /// Path of the endpoint.
    pub path: String,
    /// The head.
    pub head: HeaderMap,
    /// The body, about 1 KiB.
    pub body: Vec<u8>,
    /// The server's answer to it, about 1 KiB.
    pub answer: Vec<u8>,
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

    /// The policy with calls that pass it.
    pub fn world(&self, snapshot: Snapshot, calls: usize) -> World {
        let size = self.records.tools.len();
        let count = calls.min(size);
        let calls = (0..count).map(|n| call(n * size / count, self.checks)).collect();
        World { snapshot: Arc::new(snapshot), calls, turn: 0 }
    }
}

/// Handles of which nothing is kept yet.
pub fn handles() -> Handles {
    let client = Arc::new(Client::new(Resolver::system()));
    Handles::new(Registry::new(Sessions::new(client, SessionLimits::default())))
}

impl World {
    /// A policy of that size, compiled, with its calls.
    pub fn new(size: usize, checks: Checks) -> Self {
        Self::with_calls(size, checks, CALLS)
    }

    /// The same for traffic over many of its tools.
    pub fn spread(size: usize, checks: Checks) -> Self {
        Self::with_calls(size, checks, CALLS_SPREAD)
    }

    fn with_calls(size: usize, checks: Checks, calls: usize) -> Self {
        let source = Source::new(size, checks);
        let snapshot = source.compile(&mut handles());
        source.world(snapshot, calls)
    }

    /// The time of the next decision.
    pub fn now(&mut self) -> Now {
        self.turn += 1;
        Now { unix: UNIX, nanos: START_NS + self.turn as u64 * STEP_NS }
    }

    /// The next call in turn.
    pub fn next(&self) -> &Call {
        &self.calls[self.turn % self.calls.len()]
    }

    /// One call from the head to the released result; its length.
    pub fn run(&mut self) -> usize {
        let now = self.now();
        let call = self.next();
        let key = identify(&self.snapshot, call, now);
        let mut asked = Asked::default();
        let admitted = admitted(&self.snapshot, key, call, &mut asked, now);
        let sent = upstream_body(&admitted);
        let result = release(&self.snapshot, key, &admitted, &asked, &call.answer);
        sent.len() + result.len()
    }
}

/// Rows 2 to 13 of contract §2: the verdict on key and route.
pub fn identify<'s>(snapshot: &'s Snapshot, call: &Call, now: Now) -> &'s KeyPolicy {
    let settings = &snapshot.settings;
    let endpoint = route::endpoint(&call.path, &settings.base_path).unwrap();
    assert_eq!(endpoint, route::Endpoint::Aggregated);
    let client = authenticate::client_address(&call.head, IpAddr::from([127, 0, 0, 1]), &settings.trusted_proxies);
    let digest = authenticate::bearer(&call.head).unwrap();
    let key = &*authenticate::key(snapshot, &digest, now).unwrap().key;
    authenticate::standing(key, client).unwrap();
    throttle::key(key, now).unwrap();
    attribution::read(&call.head, None, &settings.attribution_prefix).unwrap();
    key
}

/// The request side of the line.
pub fn admitted(snapshot: &Snapshot, key: &KeyPolicy, call: &Call, asked: &mut Asked, now: Now) -> Admitted {
    let caller = Caller { snapshot, key, granted: None, user: None };
    match admit(&caller, &call.head, &call.body, asked) {
        Ok(Admission::Call(checked)) => match charge(*checked, &snapshot.settings, now).unwrap() {
            Charged::Admitted(admitted) => admitted,
            Charged::Unpaid(_) => panic!("a limit of one node says at once"),
        },
        other => panic!("{other:?}"),
    }
}

/// The tool of a call.
pub fn called_tool(call: &Admitted) -> &ToolPolicy {
    match &call.checked.subject {
        Subject::Tool(tool) => tool,
        Subject::Passed { .. } => panic!("a call of a tool"),
    }
}

/// What goes to the server.
pub fn upstream_body(admitted: &Admitted) -> Vec<u8> {
    let checked = &admitted.checked;
    let meta = CallMeta { client_capabilities: checked.meta.capabilities.as_deref(), ..CallMeta::default() };
    envelope::call_body(Revision::MODERN, OurId(7), checked.subject.title(), &checked.arguments, &meta)
}

/// The response side of the line.
pub fn release(snapshot: &Snapshot, key: &KeyPolicy, call: &Admitted, asked: &Asked, answer: &[u8]) -> Vec<u8> {
    let settings = &snapshot.settings;
    let mut exchange = Exchange {
        call,
        asked,
        key,
        settings,
        our_id: "g7",
        nonce: [0; 12],
        notes: Vec::new(),
        asking: Asking::default(),
        progress_dropped: 0,
    };
    let mut scratch = Vec::new();
    let document = Document::parse(answer, &mut scratch).unwrap();
    match hear(&document, "g7", IdRule::Ours) {
        Ok(Heard::Result(result)) => output::release(&mut exchange, &document, &result).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn token(n: usize) -> String {
    format!("toolgate_live_k{n:07}_Zk3rW8pTq1LxV6nB9yHs2JdM5cGf7AeU4oXi0bRv")
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
        decision: Some(Decision {
            status: toolgate::model::records::ApprovalStatus::Approved,
            class: Class::Write,
            labels: Vec::new(),
        }),
    }
}

fn call(n: usize, checks: Checks) -> Call {
    let name = format!("server-{n:06}_create_issue");
    let body = json!({
        "jsonrpc": "2.0", "id": n + 1, "method": "tools/call", "params": {
            "name": name,
            "arguments": {
                "title": format!("Export stops at page three, case {n}"),
                "body": PROSE, "labels": ["export", "regression", "reporting"], "priority": "high",
                "assignees": [{"id": 42, "team": "reports"}, {"id": 7}], "notify": true, "estimate": 2.5
            },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
                "io.modelcontextprotocol/clientCapabilities": {}
            }
        }
    });
    let structured = json!({
        "number": 4711, "state": "open", "url": "https://tracker.example.com/issues/4711",
        "labels": ["export", "regression"], "score": 0.75
    });
    let mut result = json!({
        "resultType": "complete",
        "content": [{"type": "text", "text": format!("Created issue 4711. {PROSE}")}, {"type": "text", "text": structured.to_string()}]
    });
    if checks.schema_out {
        result["structuredContent"] = structured;
    }
    let answer = json!({"jsonrpc": "2.0", "id": "g7", "result": result});
    let head = [
        ("host", "gateway.example.com".to_owned()),
        ("authorization", format!("Bearer {}", token(n))),
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", "tools/call".to_owned()),
        ("mcp-name", name),
        ("user-agent", "bench/1.0".to_owned()),
        ("x-toolgate-user", "ann".to_owned()),
    ];
    let pair = |(name, value): &(&str, String)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    Call {
        path: "/gateway/mcp".to_owned(),
        head: head.iter().map(pair).collect(),
        body: body.to_string().into_bytes(),
        answer: answer.to_string().into_bytes(),
    }
}
