//! The shapes of bodies and answers, for the OpenAPI document alone: what is read and written goes through `conf`, whose tables of
//! members a test holds these against.
#![allow(dead_code, reason = "these types are described, never made")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;
use utoipa::{IntoParams, ToSchema};

/// An organization.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Organization {
    /// Unique.
    id: String,
    /// What it pays for.
    plan: Plan,
    /// Whether a hold is on it.
    status: Standing,
    /// Whether it pays.
    subscription: Subscription,
}

/// An organization as it is, with its owner.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownOrganization {
    /// Unique.
    id: String,
    /// What it pays for.
    plan: Plan,
    /// Whether a hold is on it.
    status: Standing,
    /// Whether it pays.
    subscription: Subscription,
    /// Who owns it.
    managed_by: ManagedBy,
}

/// Members of an organization to change; `null` takes one back to its default.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchOrganization {
    /// What it pays for.
    plan: Option<Plan>,
    /// Whether a hold is on it.
    status: Option<Standing>,
    /// Whether it pays.
    subscription: Option<Subscription>,
}

/// A project.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Project {
    /// Unique in its organization.
    id: String,
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// Its keys are refused.
    archived: Option<bool>,
}

/// A project as it is, with its owner.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownProject {
    /// Unique in its organization.
    id: String,
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// Its keys are refused.
    archived: Option<bool>,
    /// Who owns it.
    managed_by: ManagedBy,
}

/// Members of a project to change; `null` takes one back to its default.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchProject {
    /// Its keys are refused.
    archived: Option<bool>,
}

/// An MCP server.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// Unique in the organization: `[a-z0-9][a-z0-9_-]{0,39}`.
    slug: String,
    /// Its MCP endpoint: public HTTPS, unless `egress` opens more.
    url: String,
    /// Off: it looks absent.
    enabled: Option<bool>,
    /// Projects that may use it; empty: all.
    projects: Option<Vec<String>>,
    /// Environments that may use it; empty: all.
    environments: Option<Vec<String>>,
    /// `auto`, or the revision to speak.
    protocol: Option<String>,
    /// `per_key` or `shared`.
    session: Option<String>,
    /// Wall clock of a call: `30s`.
    timeout: Option<String>,
    /// Largest answer: `1MiB`.
    result_limit: Option<String>,
    /// Calls across every key: `600/min`.
    rate_limit: Option<String>,
    /// Calls at one time.
    max_in_flight: Option<u32>,
    /// Speak HTTP/2 to it.
    http2: Option<bool>,
    /// What else than tools is passed through: `resources`, `prompts`, `completion`.
    passthrough: Option<Vec<String>>,
    /// Absolute path of a PEM bundle.
    ca: Option<String>,
    /// Absolute path of a PEM certificate.
    client_certificate: Option<String>,
    /// Its key.
    client_key: Option<CredentialRef>,
    /// Headers that carry the credential, at most 8.
    credential: Option<BTreeMap<String, CredentialRef>>,
    /// `shared`, or `per_user`: each call goes out with the credential of the user that its attribution names.
    credential_mode: Option<String>,
    /// Where a person connects an account; needed with `per_user`.
    connect_url: Option<String>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
}

/// An MCP server as it is, with its owner.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownServer {
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// Unique in the organization: `[a-z0-9][a-z0-9_-]{0,39}`.
    slug: String,
    /// Its MCP endpoint: public HTTPS, unless `egress` opens more.
    url: String,
    /// Off: it looks absent.
    enabled: Option<bool>,
    /// Projects that may use it; empty: all.
    projects: Option<Vec<String>>,
    /// Environments that may use it; empty: all.
    environments: Option<Vec<String>>,
    /// `auto`, or the revision to speak.
    protocol: Option<String>,
    /// `per_key` or `shared`.
    session: Option<String>,
    /// Wall clock of a call: `30s`.
    timeout: Option<String>,
    /// Largest answer: `1MiB`.
    result_limit: Option<String>,
    /// Calls across every key: `600/min`.
    rate_limit: Option<String>,
    /// Calls at one time.
    max_in_flight: Option<u32>,
    /// Speak HTTP/2 to it.
    http2: Option<bool>,
    /// What else than tools is passed through: `resources`, `prompts`, `completion`.
    passthrough: Option<Vec<String>>,
    /// Absolute path of a PEM bundle.
    ca: Option<String>,
    /// Absolute path of a PEM certificate.
    client_certificate: Option<String>,
    /// Its key.
    client_key: Option<CredentialRef>,
    /// Headers that carry the credential, at most 8.
    credential: Option<BTreeMap<String, CredentialRef>>,
    /// `shared`, or `per_user`: each call goes out with the credential of the user that its attribution names.
    credential_mode: Option<String>,
    /// Where a person connects an account; needed with `per_user`.
    connect_url: Option<String>,
    /// Who owns it.
    managed_by: ManagedBy,
    /// The revision that discovery settled.
    settled_protocol: Option<String>,
}

/// Members of an MCP server to change; `null` takes one back to its default.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchServer {
    /// Its MCP endpoint: public HTTPS, unless `egress` opens more.
    url: Option<String>,
    /// Off: it looks absent.
    enabled: Option<bool>,
    /// Projects that may use it; empty: all.
    projects: Option<Vec<String>>,
    /// Environments that may use it; empty: all.
    environments: Option<Vec<String>>,
    /// `auto`, or the revision to speak.
    protocol: Option<String>,
    /// `per_key` or `shared`.
    session: Option<String>,
    /// Wall clock of a call: `30s`.
    timeout: Option<String>,
    /// Largest answer: `1MiB`.
    result_limit: Option<String>,
    /// Calls across every key: `600/min`.
    rate_limit: Option<String>,
    /// Calls at one time.
    max_in_flight: Option<u32>,
    /// Speak HTTP/2 to it.
    http2: Option<bool>,
    /// What else than tools is passed through: `resources`, `prompts`, `completion`.
    passthrough: Option<Vec<String>>,
    /// Absolute path of a PEM bundle.
    ca: Option<String>,
    /// Absolute path of a PEM certificate.
    client_certificate: Option<String>,
    /// Its key.
    client_key: Option<CredentialRef>,
    /// Headers that carry the credential, at most 8.
    credential: Option<BTreeMap<String, CredentialRef>>,
    /// `shared`, or `per_user`: each call goes out with the credential of the user that its attribution names.
    credential_mode: Option<String>,
    /// Where a person connects an account; needed with `per_user`.
    connect_url: Option<String>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
}

/// A key of an agent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Key {
    /// Unique everywhere.
    id: String,
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// Its project.
    project: String,
    /// Its environment.
    environment: String,
    /// SHA-256 of its token; without it a token is drawn.
    sha256: Option<String>,
    /// Not valid from then on (RFC 3339).
    expires: Option<String>,
    /// Turned off.
    disabled: Option<bool>,
    /// Gone for good.
    revoked: Option<bool>,
    /// Networks that it may be used from; empty: anywhere.
    allow_ips: Option<Vec<String>>,
    /// Requests: `120/min`.
    rate_limit: Option<String>,
    /// SHA-256 of the old token during a rotation.
    previous_sha256: Option<String>,
    /// Until when the old token is good.
    previous_expires: Option<String>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
}

/// A key of an agent as it is, with its owner.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownKey {
    /// Unique everywhere.
    id: String,
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// Its project.
    project: String,
    /// Its environment.
    environment: String,
    /// SHA-256 of its token; without it a token is drawn.
    sha256: Option<String>,
    /// Not valid from then on (RFC 3339).
    expires: Option<String>,
    /// Turned off.
    disabled: Option<bool>,
    /// Gone for good.
    revoked: Option<bool>,
    /// Networks that it may be used from; empty: anywhere.
    allow_ips: Option<Vec<String>>,
    /// Requests: `120/min`.
    rate_limit: Option<String>,
    /// SHA-256 of the old token during a rotation.
    previous_sha256: Option<String>,
    /// Until when the old token is good.
    previous_expires: Option<String>,
    /// Who owns it.
    managed_by: ManagedBy,
    /// When it was used last since the gateway started; null: not since then.
    last_used: Option<String>,
    /// It can read private data, take in untrusted content and send data out.
    trifecta: bool,
    /// Shown once: when the key is made or rotated.
    token: Option<String>,
    /// After a revocation with `wait`: nodes that do not serve it yet.
    behind: Option<Vec<String>>,
}

/// Members of a key of an agent to change; `null` takes one back to its default.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchKey {
    /// Its project.
    project: Option<String>,
    /// Its environment.
    environment: Option<String>,
    /// Not valid from then on (RFC 3339).
    expires: Option<String>,
    /// Turned off.
    disabled: Option<bool>,
    /// Networks that it may be used from; empty: anywhere.
    allow_ips: Option<Vec<String>>,
    /// Requests: `120/min`.
    rate_limit: Option<String>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
}

/// A guardrail.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Guardrail {
    /// Unique in its organization.
    name: String,
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// `input`, `output` or `both`.
    stage: String,
    /// What is looked for.
    detector: String,
    /// `block`, `redact` or `observe`.
    action: String,
    /// Slugs; empty: all.
    servers: Option<Vec<String>>,
    /// The servers' own tool names; empty: all.
    tools: Option<Vec<String>>,
    /// Projects of the key; empty: all.
    projects: Option<Vec<String>>,
    /// `block` or `allow`.
    on_engine_error: Option<String>,
    /// Of `secrets` and `personal_data`; empty: all.
    types: Option<Vec<String>>,
    /// Of `keywords`.
    words: Option<Vec<String>>,
    /// Of `pattern`.
    patterns: Option<Vec<String>>,
    /// Of `urls`: only these hosts.
    allow: Option<Vec<String>>,
    /// Of `urls`: never these hosts.
    deny: Option<Vec<String>>,
    /// Of `engine`: where to POST.
    url: Option<String>,
    /// Of `engine`: time limit of a question.
    timeout: Option<String>,
}

/// A guardrail as it is, with its owner.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownGuardrail {
    /// Unique in its organization.
    name: String,
    /// Owner; may be left out where there is one only.
    organization: Option<String>,
    /// `input`, `output` or `both`.
    stage: String,
    /// What is looked for.
    detector: String,
    /// `block`, `redact` or `observe`.
    action: String,
    /// Slugs; empty: all.
    servers: Option<Vec<String>>,
    /// The servers' own tool names; empty: all.
    tools: Option<Vec<String>>,
    /// Projects of the key; empty: all.
    projects: Option<Vec<String>>,
    /// `block` or `allow`.
    on_engine_error: Option<String>,
    /// Of `secrets` and `personal_data`; empty: all.
    types: Option<Vec<String>>,
    /// Of `keywords`.
    words: Option<Vec<String>>,
    /// Of `pattern`.
    patterns: Option<Vec<String>>,
    /// Of `urls`: only these hosts.
    allow: Option<Vec<String>>,
    /// Of `urls`: never these hosts.
    deny: Option<Vec<String>>,
    /// Of `engine`: where to POST.
    url: Option<String>,
    /// Of `engine`: time limit of a question.
    timeout: Option<String>,
    /// Who owns it.
    managed_by: ManagedBy,
}

/// Members of a guardrail to change; `null` takes one back to its default.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchGuardrail {
    /// `input`, `output` or `both`.
    stage: Option<String>,
    /// What is looked for.
    detector: Option<String>,
    /// `block`, `redact` or `observe`.
    action: Option<String>,
    /// Slugs; empty: all.
    servers: Option<Vec<String>>,
    /// The servers' own tool names; empty: all.
    tools: Option<Vec<String>>,
    /// Projects of the key; empty: all.
    projects: Option<Vec<String>>,
    /// `block` or `allow`.
    on_engine_error: Option<String>,
    /// Of `secrets` and `personal_data`; empty: all.
    types: Option<Vec<String>>,
    /// Of `keywords`.
    words: Option<Vec<String>>,
    /// Of `pattern`.
    patterns: Option<Vec<String>>,
    /// Of `urls`: only these hosts.
    allow: Option<Vec<String>>,
    /// Of `urls`: never these hosts.
    deny: Option<Vec<String>>,
    /// Of `engine`: where to POST.
    url: Option<String>,
    /// Of `engine`: time limit of a question.
    timeout: Option<String>,
}

/// A grant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrantBody {
    /// What it covers.
    access: Access,
    /// With `selected`: the server's own tool names.
    tools: Option<Vec<String>>,
    /// As in the path.
    key: Option<String>,
    /// As in the path.
    server: Option<String>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
}

/// A grant as it is, with its owner.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownGrant {
    /// The key's id.
    key: String,
    /// The server's slug.
    server: String,
    /// What it covers.
    access: Access,
    /// With `selected`: the server's own tool names.
    tools: Option<Vec<String>>,
    /// A person confirmed that it helps to close the trifecta.
    confirm_trifecta: bool,
    /// Who owns it.
    managed_by: ManagedBy,
}

/// A tool.
#[derive(Deserialize, ToSchema)]
pub(super) struct Tool {
    /// The server's own name for it.
    name: String,
    /// Its name on the aggregated endpoint.
    exposed_name: String,
    /// The server's slug.
    server: String,
    /// Owner.
    organization: String,
    /// What may be done with it.
    status: ToolStatus,
    /// Hash of the current definition; null: no longer listed.
    sha256: Option<String>,
    /// Hash of the approved definition.
    approved_sha256: Option<String>,
    /// null: nobody has decided.
    class: Option<Class>,
    /// null: nobody has decided.
    labels: Option<Vec<Label>>,
    /// Why it can never be listed.
    fault: Option<String>,
    /// `file`: a policy file pins it.
    managed_by: ManagedBy,
}

/// A tool with its definitions.
#[derive(Deserialize, ToSchema)]
pub(super) struct ShownTool {
    /// The server's own name for it.
    name: String,
    /// Its name on the aggregated endpoint.
    exposed_name: String,
    /// The server's slug.
    server: String,
    /// Owner.
    organization: String,
    /// What may be done with it.
    status: ToolStatus,
    /// Hash of the current definition; null: no longer listed.
    sha256: Option<String>,
    /// Hash of the approved definition.
    approved_sha256: Option<String>,
    /// null: nobody has decided.
    class: Option<Class>,
    /// null: nobody has decided.
    labels: Option<Vec<Label>>,
    /// Why it can never be listed.
    fault: Option<String>,
    /// `file`: a policy file pins it.
    managed_by: ManagedBy,
    /// As the server lists it now.
    #[schema(required = false)]
    definition: Json,
    /// As it was approved.
    #[schema(required = false)]
    approved_definition: Json,
    /// What changed between them.
    diff: Vec<Difference>,
    /// `inputSchema` and `outputSchema`, where they changed: what the change does to what the schema takes as a whole.
    effects: BTreeMap<String, Effect>,
    /// What to look at twice.
    warnings: Option<Vec<Warning>>,
    /// What annotations and name suggest.
    suggested: Option<Suggested>,
}

/// What a change does to what a schema takes; nothing is approved by it.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Effect {
    /// It takes what it took.
    Same,
    /// It takes something that it did not take before.
    Wider,
    /// It takes nothing new.
    Narrower,
    /// Cannot be told.
    Unknown,
}

/// One member that differs.
#[derive(Deserialize, ToSchema)]
pub(super) struct Difference {
    /// Where, as a JSON Pointer.
    path: String,
    /// `added`, `removed` or `changed`.
    change: String,
    /// What it means.
    meaning: String,
    /// Of a schema: `wider`, `narrower` or `unknown`.
    effect: Option<String>,
    /// The text piece by piece, hidden characters written out.
    text: Vec<Piece>,
    /// The approved value.
    #[schema(required = false)]
    before: Json,
    /// The current value.
    #[schema(required = false)]
    after: Json,
}

/// A piece of a changed text.
#[derive(Deserialize, ToSchema)]
pub(super) struct Piece {
    /// `same`, `removed` or `added`.
    op: String,
    /// The text.
    text: String,
}

/// Something to look at twice.
#[derive(Deserialize, ToSchema)]
pub(super) struct Warning {
    /// Of which kind.
    kind: String,
    /// Where, as a JSON Pointer.
    path: String,
    /// What, in words.
    message: String,
}

/// A suggestion; nothing is decided by it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Suggested {
    /// Class.
    class: Class,
    /// Labels.
    labels: Vec<Label>,
}

/// Approves what was reviewed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Approve {
    /// Hash of the definition that was reviewed.
    expected_sha256: String,
    /// What a `read` grant may call.
    class: Class,
    /// Legs of the trifecta; an empty list is a statement.
    labels: Vec<Label>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
    /// Why, for the audit record; at most 1000 characters.
    #[schema(max_length = 1000)]
    note: Option<String>,
}

/// Blocks a tool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    /// Why, for the audit record; at most 1000 characters.
    #[schema(max_length = 1000)]
    note: Option<String>,
}

/// Class or labels to change.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Terms {
    /// Class.
    class: Option<Class>,
    /// Labels.
    labels: Option<Vec<Label>>,
    /// Says that a key may get the trifecta; must be the boolean `true`.
    confirm_trifecta: Option<bool>,
}

/// How a token is rotated.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotate {
    /// How long the old token stays good: `24h` unless said.
    overlap: Option<String>,
}

/// A call to explain.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Explain {
    /// The key's id.
    key: String,
    /// The path that a client would POST to.
    endpoint: String,
    /// The tool's name as it would be sent there.
    tool: String,
    /// The arguments; left out: `{}`.
    #[schema(required = false)]
    arguments: Json,
    /// Where the call would come from.
    client_ip: Option<String>,
    /// Whom the call would be for, as the attribution header names it.
    user: Option<String>,
}

/// What would happen to a call.
#[derive(Deserialize, ToSchema)]
pub(super) struct Explained {
    /// `allowed` or `refused`.
    verdict: String,
    /// The code of the refusal.
    code: Option<String>,
    /// The type of the refusal.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `http`, `rpc` or `tool_result`.
    surface: Option<String>,
    /// The HTTP status or JSON-RPC code.
    number: Option<i64>,
    /// What the caller would read.
    message: Option<String>,
    /// Every check that was made, in order.
    checks: Vec<Check>,
}

/// A check of a call.
#[derive(Deserialize, ToSchema)]
pub(super) struct Check {
    /// Which.
    check: String,
    /// `passed`, `refused` or `not_judged`.
    verdict: String,
    /// Why.
    why: String,
    /// The object that decided.
    decided_by: Option<String>,
}

/// Who changed what.
#[derive(Deserialize, ToSchema)]
pub(super) struct AuditRecord {
    /// Its number, without gaps.
    seq: u64,
    /// The commit that it belongs to.
    revision: u64,
    /// When (RFC 3339).
    at: String,
    /// A token's name, the peer of the socket, a policy file, or discovery.
    who: String,
    /// The action: `tool.approve`.
    what: String,
    /// Owner of the target.
    organization: String,
    /// The object.
    target: String,
    /// The object before; null: it was made.
    #[schema(required = false)]
    before: Json,
    /// The object after; null: it was removed.
    #[schema(required = false)]
    after: Json,
}

/// What runs.
#[derive(Deserialize, ToSchema)]
pub(super) struct Status {
    /// Of the gateway.
    version: String,
    /// Of the policy.
    revision: u64,
    /// Since it started.
    uptime_seconds: u64,
    /// Where the store is.
    store: String,
    /// How many.
    organizations: u64,
    /// How many.
    projects: u64,
    /// How many.
    servers: u64,
    /// How many.
    keys: u64,
    /// How many.
    grants: u64,
    /// How many.
    guardrails: u64,
    /// How many by state.
    tools: BTreeMap<String, u64>,
    /// Keys that close the trifecta.
    trifecta_keys: Vec<String>,
    /// What a person should know of conf and policy.
    warnings: Vec<String>,
}

/// The nodes that share the store.
#[derive(Deserialize, ToSchema)]
pub(super) struct Nodes {
    /// By name.
    nodes: Vec<Node>,
}

/// A node, as it says of itself.
#[derive(Deserialize, ToSchema)]
pub(super) struct Node {
    /// What it is called.
    name: String,
    /// Drawn at its start.
    node: String,
    /// It is the one that answers.
    this: bool,
    /// It was heard of in the last seconds.
    live: bool,
    /// Since it was heard of last.
    silent_seconds: u64,
    /// That it serves.
    revision: u64,
    /// That it could not take.
    rejected: Option<u64>,
    /// Why not.
    why: String,
    /// SHA-256 of its policy files.
    files: String,
    /// Of the gateway.
    version: String,
}

/// Members of a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Waiting {
    /// How long to wait until every node serves it, at most `60s`; those that do not are named in `behind`.
    wait: Option<String>,
}

/// What a reload came to.
#[derive(Deserialize, ToSchema)]
pub(super) struct Reloaded {
    /// That is live.
    revision: u64,
    /// What a person should know.
    warnings: Vec<String>,
    /// Options that changed and hold only after a restart.
    restart_required: Vec<String>,
}

/// The process that serves after an upgrade.
#[derive(Deserialize, ToSchema)]
pub(super) struct Upgraded {
    /// Its number; the one before drains and ends.
    pid: u32,
    /// Its version.
    version: String,
}

/// What was deleted.
#[derive(Deserialize, ToSchema)]
pub(super) struct Deleted {
    /// Kind and name.
    deleted: String,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Organizations {
    /// In order.
    organizations: Vec<ShownOrganization>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Projects {
    /// In order.
    projects: Vec<ShownProject>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Servers {
    /// In order.
    servers: Vec<ShownServer>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Tools {
    /// In order.
    tools: Vec<Tool>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Keys {
    /// In order.
    keys: Vec<ShownKey>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A user's credential for a server.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialBody {
    /// Names and values of the headers that carry it, at most 8.
    headers: BTreeMap<String, String>,
}

/// What may be shown of a user's credential.
#[derive(Deserialize, ToSchema)]
pub(super) struct UserCredential {
    /// The server's slug.
    server: String,
    /// The user.
    user: String,
    /// The names of its headers.
    headers: Vec<String>,
    /// When it was stored.
    stored: String,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct UserCredentials {
    /// By user.
    credentials: Vec<UserCredential>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Grants {
    /// In order.
    grants: Vec<ShownGrant>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Guardrails {
    /// In order.
    guardrails: Vec<ShownGuardrail>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// A list, or a page of it.
#[derive(Deserialize, ToSchema)]
pub(super) struct Audit {
    /// In order.
    audit: Vec<AuditRecord>,
    /// Path of the next page; left out on the last.
    next: Option<String>,
}

/// The envelope of every refusal.
#[derive(Deserialize, ToSchema)]
pub(super) struct Error {
    /// Why.
    error: ErrorBody,
}

/// Why a call is refused.
#[derive(Deserialize, ToSchema)]
pub(super) struct ErrorBody {
    /// Of which type.
    #[serde(rename = "type")]
    kind: String,
    /// The fixed code; null where there is none.
    code: Option<String>,
    /// For a person.
    message: String,
}

/// Where a secret is to be read from.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CredentialRef {
    /// A systemd credential, or a file in `admin.secrets`.
    credential: String,
}

/// What an organization pays for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Plan {
    /// As it says.
    Starter,
    /// As it says.
    Team,
    /// As it says.
    Business,
    /// As it says.
    Enterprise,
}

/// Whether a hold is on an organization.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// As it says.
    Active,
    /// As it says.
    Suspended,
}

/// Whether an organization pays.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Subscription {
    /// As it says.
    Active,
    /// As it says.
    Trial,
    /// As it says.
    None,
}

/// What a grant covers.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Access {
    /// As it says.
    Read,
    /// As it says.
    Write,
    /// As it says.
    Selected,
}

/// Whether a tool only reads.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    /// As it says.
    Read,
    /// As it says.
    Write,
}

/// A leg of the trifecta.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Label {
    /// As it says.
    PrivateData,
    /// As it says.
    UntrustedContent,
    /// As it says.
    SendsOut,
}

/// What may be done with a tool.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolStatus {
    /// As it says.
    Pending,
    /// As it says.
    Approved,
    /// As it says.
    Changed,
    /// As it says.
    Removed,
    /// As it says.
    Blocked,
}

/// Who owns an object.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ManagedBy {
    /// As it says.
    File,
    /// As it says.
    Api,
}

/// Members of a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Home {
    /// Needed where several organizations have the name.
    organization: Option<String>,
}

/// Members of a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Narrow {
    /// Only those of this organization.
    organization: Option<String>,
}

/// Members of a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Paging {
    /// Entries of a page, 1 to 1000; left out: all.
    limit: Option<u32>,
    /// Where the page begins; as `next` has it.
    after: Option<String>,
}

/// Members of a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ByStatus {
    /// Only tools of this status.
    status: Option<ToolStatus>,
}

/// Members of a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Changing {
    /// The revision that the change is made for; as `If-Match`.
    expected_revision: Option<u64>,
}

/// Members of a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ToolPath {
    /// The server's slug.
    slug: String,
    /// The server's own name for the tool.
    tool: String,
}

/// Members of a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct CredentialPath {
    /// The server's slug.
    slug: String,
    /// The user, as the attribution header names it.
    user: String,
}

/// Members of a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct GrantPath {
    /// The key's id.
    id: String,
    /// The server's slug.
    slug: String,
}
