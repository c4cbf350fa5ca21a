//! The compiled policy: immutable, shared, complete. What a call asks of it, it answers without a lock or an allocation.
//!
//! Built by `compile.rs`, published through `live.rs`. Knows no socket, no clock and no store.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use ipnet::IpNet;

use super::{
    approval::ToolState,
    guard::{CredentialMask, GuardPlan},
    issuers::Issuer,
    schema::{ToolSchemas, advertise},
    users::Users,
};
use crate::{
    budget::{Limit, Used},
    model::{
        id::KeyDigest,
        jsonrpc::Document,
        mcp::Revision,
        records::{Class, Passthrough, SessionMode},
        units::Rate,
    },
    refusal::{Refusal, Voice},
    upstream::{Upstream, engine::Engine},
};

/// Everything that a call is decided by. One call loads one and keeps it to its end (invariant 3).
pub struct Snapshot {
    /// The store's revision that this was compiled from; grows by every change.
    pub revision: u64,
    /// When it was compiled, in seconds since 1970.
    pub created: i64,
    /// What the line needs of the conf.
    pub settings: Arc<Settings>,
    /// Digest of a token to its key; revoked keys are not here.
    pub keys: HashMap<KeyDigest, Token>,
    /// Those whose tokens are taken beside keys.
    pub issuers: Vec<Arc<Issuer>>,
    /// Keys by id, for which such tokens may stand; empty without issuers.
    pub by_id: HashMap<Arc<str>, Token>,
    /// By id.
    pub organizations: HashMap<Arc<str>, Arc<OrganizationPolicy>>,
    /// Bytes of `tools/list` answers kept in views, against `settings.list_cache_bytes_max`.
    pub list_cache_bytes: AtomicU64,
}

/// What the line needs of the conf (contract §10).
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// `gateway.product`
    pub product: String,
    /// `gateway.console`
    pub console: String,
    /// `gateway.base_path`, without a trailing slash.
    pub base_path: String,
    /// `gateway.allowed_origins`
    pub allowed_origins: Vec<String>,
    /// `gateway.trusted_proxies`
    pub trusted_proxies: Vec<IpNet>,
    /// `attribution.prefix`, lower case.
    pub attribution_prefix: String,
    /// `attribution.prefix`, for messages.
    pub attribution_prefix_written: String,
    /// `limits.arguments`, bytes.
    pub arguments_bytes_max: u64,
    /// `limits.request_body`, bytes.
    pub body_bytes_max: u64,
    /// `limits.headers`, bytes.
    pub headers_bytes_max: u64,
    /// `limits.in_flight`, requests.
    pub in_flight_max: u64,
    /// `limits.list_cache`, bytes.
    pub list_cache_bytes_max: u64,
    /// `timeouts.request_body`
    pub request_body_timeout: Duration,
    /// `timeouts.request_header`
    pub request_header_timeout: Duration,
    /// `timeouts.keep_alive`
    pub keep_alive_timeout: Duration,
    /// `timeouts.connect`
    pub connect_timeout: Duration,
    /// `timeouts.drain`
    pub drain_timeout: Duration,
    /// `rate_limits.failed_auth`; none: off.
    pub failed_auth: Option<Rate>,
    /// `discovery.interval`
    pub discovery_interval: Duration,
    /// `discovery.max_age`
    pub discovery_max_age: Duration,
    /// The store's key that seals `requestState`.
    pub state_key: [u8; 32],
    /// What clients are told of OAuth; none: nothing.
    pub resource: Option<Resource>,
}

/// The gateway as a protected resource (RFC 9728).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Where its metadata are, for `WWW-Authenticate`.
    pub metadata_url: String,
    /// The metadata, JSON.
    pub document: String,
}

/// Where clients look for the metadata: before the resource's path.
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

impl Default for Settings {
    /// What holds before the first policy: the conf's defaults.
    fn default() -> Self {
        Self {
            product: "Toolgate".to_owned(),
            console: "the Toolgate console".to_owned(),
            base_path: "/gateway".to_owned(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            attribution_prefix: "x-toolgate-".to_owned(),
            attribution_prefix_written: "X-Toolgate-".to_owned(),
            arguments_bytes_max: 256 << 10,
            body_bytes_max: 1 << 20,
            headers_bytes_max: 64 << 10,
            in_flight_max: 10_000,
            list_cache_bytes_max: 64 << 20,
            request_body_timeout: Duration::from_secs(30),
            request_header_timeout: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(75),
            connect_timeout: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(30),
            failed_auth: None,
            discovery_interval: Duration::from_secs(60),
            discovery_max_age: Duration::from_secs(3600),
            state_key: [0; 32],
            resource: None,
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("product", &self.product).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Settings {
    /// By which names a refusal of `tool` speaks.
    #[must_use]
    pub fn voice<'a>(&'a self, tool: &'a str) -> Voice<'a> {
        Voice {
            tool,
            product: &self.product,
            console: &self.console,
            prefix: &self.attribution_prefix_written,
            connect_url: None,
            passed: false,
        }
    }
}

/// One of the tokens of a key.
#[derive(Clone, Debug)]
pub struct Token {
    /// The key.
    pub key: Arc<KeyPolicy>,
    /// Not valid from this moment on, in seconds since 1970.
    pub expires: Option<i64>,
}

/// A key, compiled.
#[derive(Debug)]
pub struct KeyPolicy {
    /// The id, for logs.
    pub id: Arc<str>,
    /// Its organization.
    pub organization: Arc<OrganizationPolicy>,
    /// Its project.
    pub project: Arc<str>,
    /// Peers that may use it; empty: any.
    pub allow_ips: Vec<IpNet>,
    /// The first of rows 7 to 10 of contract §2 that applies.
    pub standing: Option<Refusal>,
    /// Requests.
    pub rate: Option<Limit>,
    /// When it was used last; outside the snapshot, so a reload forgets nothing.
    pub used: Arc<Used>,
    /// What it may use; shared by keys with the same grants, project and environment.
    pub view: Arc<View>,
}

/// What a set of grants lets a key see: shared by every key for which it is the same.
#[derive(Debug, Default)]
pub struct View {
    /// By slug: the granted servers that are enabled, and inside the key's project and environment.
    pub servers: HashMap<Arc<str>, ViewServer>,
    /// Answers of `tools/list` on the aggregated endpoint, a revision each.
    pub aggregated: [OnceLock<Arc<str>>; 4],
}

/// A granted, reachable server in a view.
#[derive(Debug)]
pub struct ViewServer {
    /// The server.
    pub server: Arc<ServerPolicy>,
    /// What is granted.
    pub access: AccessPolicy,
    /// Answers of `tools/list` on the server's own endpoint, a revision each.
    pub lists: [OnceLock<Arc<str>>; 4],
}

/// What a grant covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Tools of class `read`.
    Read,
    /// Every tool.
    Write,
    /// The named ones.
    Selected(HashSet<Arc<str>>),
}

impl AccessPolicy {
    /// Whether a call of `tool` is covered.
    #[must_use]
    pub fn covers(&self, tool: &ToolPolicy) -> bool {
        match self {
            Self::Write => true,
            // An undecided tool has no class: its state refuses the call.
            Self::Read => tool.class != Some(Class::Write),
            Self::Selected(names) => names.contains(&tool.name),
        }
    }
}

/// An organization, compiled.
#[derive(Debug)]
pub struct OrganizationPolicy {
    /// Its id.
    pub id: Arc<str>,
    /// Every server, enabled or not, by slug.
    pub servers: HashMap<Arc<str>, Arc<ServerPolicy>>,
    /// Every tool ever recorded, by exposed name. Routing looks the whole name up; it never splits it (contract §1).
    pub exposed: HashMap<Arc<str>, (Arc<ServerPolicy>, Arc<ToolPolicy>)>,
    /// External guardrail engines, by the rule's name.
    pub engines: HashMap<Arc<str>, Arc<Engine>>,
}

/// A server, compiled.
#[derive(Debug)]
pub struct ServerPolicy {
    /// Its organization's id.
    pub organization: Arc<str>,
    /// Its slug.
    pub slug: Arc<str>,
    /// Off: it looks absent.
    pub enabled: bool,
    /// The revision to speak: fixed by the policy or settled by discovery; none: never answered.
    pub revision: Option<Revision>,
    /// Legacy sessions.
    pub session: SessionMode,
    /// Wall clock of a call.
    pub timeout: Duration,
    /// Largest answer, bytes.
    pub result_bytes_max: u64,
    /// Calls across every key.
    pub rate: Option<Limit>,
    /// Calls at one time.
    pub max_in_flight: u32,
    /// Finds the credential that we hold in whatever the server sends.
    pub mask: CredentialMask,
    /// What its own endpoint passes through beside tools.
    pub passthrough: Vec<Passthrough>,
    /// Rules on what is passed through, on the way in and on the way out: those that name no tool.
    pub passing: [Guards; 2],
    /// Those for whom it is called, where each has a credential; none: it is called with its own.
    pub users: Option<Users>,
    /// How it is spoken to; lives on across snapshots.
    pub upstream: Arc<Upstream>,
    /// Every tool ever recorded, by the server's own name.
    pub tools: HashMap<Arc<str>, Arc<ToolPolicy>>,
}

impl ServerPolicy {
    /// Where a person connects an account to it.
    #[must_use]
    pub fn connect_url(&self) -> Option<&str> {
        self.users.as_ref().map(|users| &*users.connect_url)
    }
}

/// A tool, compiled.
#[derive(Debug)]
pub struct ToolPolicy {
    /// The server's own name.
    pub name: Arc<str>,
    /// The name on the aggregated endpoint.
    pub exposed: Arc<str>,
    /// What a `read` grant may call; none while nobody has decided.
    pub class: Option<Class>,
    /// Whether it may be called.
    pub state: ToolState,
    /// Why it can never be listed (contract §6); of a clash with another server's tool as well.
    pub fault: Option<Arc<str>>,
    /// The compiled schemas of the approved definition, or why they cannot be used.
    pub schemas: Result<Arc<ToolSchemas>, String>,
    /// The tool as listed; none unless callable.
    pub listed: Option<Arc<Listed>>,
    /// Rules on arguments.
    pub input: Guards,
    /// Rules on results.
    pub output: Guards,
}

/// The approved definition as advertised: a fragment for each revision and name, made when it is first listed, so that a
/// policy of many tools holds only what some client asked for.
#[derive(Debug)]
pub struct Listed {
    definition: Arc<str>,
    exposed: (Arc<str>, [OnceLock<Box<str>>; 4]),
    own: (Arc<str>, [OnceLock<Box<str>>; 4]),
}

impl Listed {
    /// A definition that parses and compiles, and its two names.
    #[must_use]
    pub fn new(definition: Arc<str>, exposed: &str, own: &str) -> Self {
        Self { definition, exposed: (exposed.into(), Default::default()), own: (own.into(), Default::default()) }
    }

    /// The fragment of the aggregated endpoint.
    #[must_use]
    pub fn exposed(&self, revision: Revision) -> &str {
        self.fragment(&self.exposed, revision)
    }

    /// The fragment of the server's own endpoint.
    #[must_use]
    pub fn own(&self, revision: Revision) -> &str {
        self.fragment(&self.own, revision)
    }

    fn fragment<'l>(&self, (name, slots): &'l (Arc<str>, [OnceLock<Box<str>>; 4]), revision: Revision) -> &'l str {
        let Some(slot) = slots.get(revision.index()) else { return "{}" };
        slot.get_or_init(|| {
            let mut scratch = Vec::new();
            match Document::parse(self.definition.as_bytes(), &mut scratch) {
                Ok(document) => advertise(&document.spanned_root(), name, revision).into(),
                Err(_) => "{}".into(),
            }
        })
    }
}

/// The rules of one tool and stage, by the project of the calling key.
#[derive(Clone, Debug)]
pub struct Guards {
    /// For every project that no rule names.
    pub default: Arc<GuardPlan>,
    /// For projects that some rule names.
    pub by_project: Arc<HashMap<Arc<str>, Arc<GuardPlan>>>,
}

impl Guards {
    /// The rules for a key of `project`.
    #[must_use]
    pub fn plan(&self, project: &str) -> &Arc<GuardPlan> {
        self.by_project.get(project).unwrap_or(&self.default)
    }
}
