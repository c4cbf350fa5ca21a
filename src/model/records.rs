//! The policy's objects, resolved: what files and the management API agree to call an organization, a key, a grant (contract §5).
//!
//! `conf/` and `admin/` read their written forms into these; `policy::compile` turns them into a snapshot.
//! Here every default is filled in and every `organization` is known.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{
    id::KeyDigest,
    mcp::Revision,
    pin::Pin,
    units::{Rate, Size, Span},
};

/// Where an object was written; files own what they wrote (contract §5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A policy file: its path, and the byte range of the object's table header or offending value.
    File {
        /// The path as it was opened.
        path: Arc<str>,
        /// Byte range within the file.
        span: std::ops::Range<usize>,
    },
    /// The management API or the CLI.
    Api,
}

/// A policy object and where it came from.
#[derive(Clone, Debug)]
pub struct Owned<T> {
    /// The object.
    pub value: T,
    /// Its owner.
    pub origin: Origin,
}

/// Everything that a snapshot is compiled from, in the order in which it was written.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// `[[organization]]`
    pub organizations: Vec<Owned<Organization>>,
    /// `[[project]]`
    pub projects: Vec<Owned<Project>>,
    /// `[[server]]`
    pub servers: Vec<Owned<Server>>,
    /// `[[key]]`
    pub keys: Vec<Owned<Key>>,
    /// `[[grant]]`
    pub grants: Vec<Owned<Grant>>,
    /// `[[approval]]`: pins written in files. Pins made through the API live in the tool's record.
    pub approvals: Vec<Owned<Approval>>,
    /// `[[guardrail]]`, in evaluation order.
    pub guardrails: Vec<Owned<Guardrail>>,
    /// What discovery and approvals know of each tool.
    pub tools: Vec<ToolRecord>,
    /// What discovery knows of each server.
    pub discoveries: Vec<DiscoveryRecord>,
    /// Credentials of users, sealed.
    pub users: Vec<UserCredential>,
}

/// What an organization pays for; `business` and `enterprise` have the gateway (contract §2 row 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plan {
    /// No gateway.
    Starter,
    /// No gateway.
    Team,
    /// Has the gateway.
    Business,
    /// Has the gateway.
    Enterprise,
}

/// Whether an operator hold is on the organization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrganizationStatus {
    /// In good standing.
    Active,
    /// On hold: `organization_suspended`.
    Suspended,
}

/// Whether there is a subscription or trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subscription {
    /// Paid.
    Active,
    /// In trial.
    Trial,
    /// Neither: `subscription_required`.
    None,
}

/// `[[organization]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Organization {
    /// Unique id.
    pub id: String,
    /// Plan.
    pub plan: Plan,
    /// Standing.
    pub status: OrganizationStatus,
    /// Subscription.
    pub subscription: Subscription,
}

/// `[[project]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Unique in its organization.
    pub id: String,
    /// Owner.
    pub organization: String,
    /// Archived projects refuse their keys: `project_archived`.
    pub archived: bool,
}

/// Where a secret is to be read from; the policy never holds one (invariant 8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file.
    File(PathBuf),
    /// A systemd credential, or a file in `admin.secrets`.
    Credential(String),
}

/// The protocol of a server: fixed, or settled by discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Probed at discovery.
    Auto,
    /// Fixed by the policy.
    Fixed(Revision),
}

/// How legacy upstream sessions are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// One session for each key.
    PerKey,
    /// One session for all keys.
    Shared,
}

/// Whose credential goes along with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialMode {
    /// The server's, for every caller.
    Shared,
    /// The user's that the call names by its attribution; the server's own only asks for its tools.
    PerUser,
}

/// A user's credential for a server, as it is kept: sealed with `store.key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCredential {
    /// The server's organization.
    pub organization: String,
    /// The server's slug.
    pub server: String,
    /// The user, as attribution names it.
    pub user: String,
    /// The names of its headers, to be shown.
    pub headers: Vec<String>,
    /// When it was stored (RFC 3339).
    pub stored: String,
    /// The headers, sealed.
    pub sealed: String,
}

/// What a server's own endpoint may pass through beside tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Passthrough {
    /// `resources/list`, `resources/templates/list`, `resources/read`
    Resources,
    /// `prompts/list`, `prompts/get`
    Prompts,
    /// `completion/complete`
    Completion,
}

/// `[[server]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Owner.
    pub organization: String,
    /// Unique in the organization; `[a-z0-9][a-z0-9_-]{0,39}`.
    pub slug: String,
    /// The MCP endpoint.
    pub url: String,
    /// Off: the server looks absent.
    pub enabled: bool,
    /// Projects that may use it; empty: all.
    pub projects: Vec<String>,
    /// Environments that may use it; empty: all.
    pub environments: Vec<String>,
    /// Era and revision.
    pub protocol: Protocol,
    /// Legacy sessions.
    pub session: SessionMode,
    /// Wall clock of a call; none: `timeouts.call`.
    pub timeout: Option<Span>,
    /// Largest answer; none: `limits.result`.
    pub result_limit: Option<Size>,
    /// Calls across every key; none: no limit.
    pub rate_limit: Option<Rate>,
    /// Calls at one time.
    pub max_in_flight: u32,
    /// Speak HTTP/2 upstream.
    pub http2: bool,
    /// What its own endpoint passes through beside tools; empty: nothing.
    pub passthrough: Vec<Passthrough>,
    /// PEM bundle of a private CA.
    pub ca: Option<PathBuf>,
    /// PEM certificate for mutual TLS.
    pub client_certificate: Option<PathBuf>,
    /// PEM key for mutual TLS.
    pub client_key: Option<SecretRef>,
    /// Headers that carry the credential we hold.
    pub credential: BTreeMap<String, SecretRef>,
    /// Whose credential goes along with a call.
    pub credential_mode: CredentialMode,
    /// Where a person connects an account; needed in the mode `per_user`.
    pub connect_url: Option<String>,
}

/// `[[key]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Unique everywhere.
    pub id: String,
    /// Owner.
    pub organization: String,
    /// The key's project.
    pub project: String,
    /// The key's environment.
    pub environment: String,
    /// SHA-256 of the token.
    pub sha256: KeyDigest,
    /// Not valid from this moment on, in seconds since 1970.
    pub expires: Option<i64>,
    /// Turned off: `key_disabled`.
    pub disabled: bool,
    /// Gone for good: 401.
    pub revoked: bool,
    /// Peers that may use it; empty: any.
    pub allow_ips: Vec<IpNet>,
    /// Requests.
    pub rate_limit: Option<Rate>,
    /// The old token during a rotation.
    pub previous_sha256: Option<KeyDigest>,
    /// The old token is not valid from this moment on, in seconds since 1970.
    pub previous_expires: Option<i64>,
}

/// What a grant covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Tools of class `read`.
    Read,
    /// Every tool.
    Write,
    /// The named tools only.
    Selected(Vec<String>),
}

/// `[[grant]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The key's id.
    pub key: String,
    /// The server's slug, in the key's organization.
    pub server: String,
    /// What it covers.
    pub access: Access,
    /// A person has seen that this grant helps to close the trifecta.
    pub confirm_trifecta: bool,
}

/// Whether a tool only reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Reads only.
    Read,
    /// May change something.
    Write,
}

/// A leg of the trifecta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Gives access to private data.
    PrivateData,
    /// Brings in content that others control.
    UntrustedContent,
    /// Can send data out.
    SendsOut,
}

/// `status` of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalStatus {
    /// Callable while its definition is the pinned one.
    Approved,
    /// Not callable, by hand.
    Blocked,
}

/// `[[approval]]`: a pin (contract §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Owner.
    pub organization: String,
    /// Slug.
    pub server: String,
    /// The server's own tool name.
    pub tool: String,
    /// Hash of the definition that was reviewed.
    pub sha256: Pin,
    /// What a `read` grant may call.
    pub class: Class,
    /// Trifecta legs.
    pub labels: Vec<Label>,
    /// Decision.
    pub status: ApprovalStatus,
}

/// Which side of a call a guardrail looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardStage {
    /// Arguments.
    Input,
    /// Results.
    Output,
    /// Both.
    Both,
}

/// What a guardrail does with a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GuardAction {
    /// Counts and logs.
    Observe,
    /// Replaces the match.
    Redact,
    /// Refuses.
    Block,
}

/// What a guardrail does when its engine fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEngineError {
    /// `guardrail_unavailable`.
    Block,
    /// Lets the call through, counted and logged.
    Allow,
}

/// A detector and its own settings (contract §7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detector {
    /// Credentials; `types` empty: all.
    Secrets {
        /// Type ids.
        types: Vec<String>,
    },
    /// Email, phone, card, IBAN, US SSN; `types` empty: all.
    PersonalData {
        /// Type ids.
        types: Vec<String>,
    },
    /// Instructions to the model.
    PromptInjection,
    /// Zero-width, bidi and tag characters.
    InvisibleText,
    /// Words, without regard to case.
    Keywords {
        /// The words.
        words: Vec<String>,
    },
    /// Linear-time regular expressions.
    Pattern {
        /// The expressions.
        patterns: Vec<String>,
    },
    /// Hosts of URLs.
    Urls {
        /// Only these hosts (and their subdomains); empty: any.
        allow: Vec<String>,
        /// Never these hosts (nor their subdomains).
        deny: Vec<String>,
    },
    /// An external HTTP engine.
    Engine {
        /// Where to POST.
        url: String,
        /// Time limit of one question.
        timeout: Span,
    },
}

impl Detector {
    /// The name that messages, metrics and `[redacted:NAME]` use.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Secrets { .. } => "secrets",
            Self::PersonalData { .. } => "personal_data",
            Self::PromptInjection => "prompt_injection",
            Self::InvisibleText => "invisible_text",
            Self::Keywords { .. } => "keywords",
            Self::Pattern { .. } => "pattern",
            Self::Urls { .. } => "urls",
            Self::Engine { .. } => "engine",
        }
    }
}

/// `[[guardrail]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guardrail {
    /// Unique in its organization.
    pub name: String,
    /// Owner.
    pub organization: String,
    /// Arguments, results or both.
    pub stage: GuardStage,
    /// What is looked for.
    pub detector: Detector,
    /// What happens on a match.
    pub action: GuardAction,
    /// Slugs; empty: all.
    pub servers: Vec<String>,
    /// The servers' own tool names; empty: all.
    pub tools: Vec<String>,
    /// Projects of the key; empty: all.
    pub projects: Vec<String>,
    /// What happens when the engine fails.
    pub on_engine_error: OnEngineError,
}

/// What is known of one tool: its current and its approved definition, and whether it ever drifted (contract §6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// Owner.
    pub organization: String,
    /// Slug.
    pub server: String,
    /// The server's own name for it.
    pub name: String,
    /// Order of recording across the organization; the later of two clashing tools is isolated.
    pub recorded: i64,
    /// The newest definition as the server sent it; none: no longer listed.
    pub current: Option<Definition>,
    /// Why it can never be listed (contract §6), in words a person understands.
    pub fault: Option<String>,
    /// The pin that the two flags below speak of, from a file or an approval.
    pub pin: Option<Pin>,
    /// The pinned bytes were once listed.
    pub pin_seen: bool,
    /// A mismatch was seen after the pinned bytes: sticky until approved again.
    pub changed: bool,
    /// The definition whose hash is [`Self::pin`], kept for checking and advertising.
    pub approved: Option<Definition>,
    /// The decision made through the API, if any.
    pub decision: Option<Decision>,
}

/// A decision on a tool made through the API; a file's pin stands beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Approved or blocked.
    pub status: ApprovalStatus,
    /// Class.
    pub class: Class,
    /// Labels.
    pub labels: Vec<Label>,
}

/// A tool definition and its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// SHA-256 of the RFC 8785 form without `_meta`.
    pub sha256: Pin,
    /// The tool object as the server sent it.
    #[serde(with = "shared_text")]
    pub json: Arc<str>,
}

mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Arc::from)
    }
}

/// What discovery settled for a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryRecord {
    /// Owner.
    pub organization: String,
    /// Slug.
    pub server: String,
    /// The revision that was settled; none: never answered.
    pub revision: Option<Revision>,
}
