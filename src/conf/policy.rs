//! The policy's objects as they are written, in files and in the management API alike (contract §5): one table of members
//! each, from which both are read and written.
//!
//! Judges each object by itself. What objects must be together is judged by `resolve`.

use serde_json::Value as Json;

use super::{
    codec::{
        Anything, Bool, Bytes, Count, Digest, FilePath, Id, List, Moment, Net, Opt, PinHex, Rates, Slug, Strings, Time,
        Word, words,
    },
    credential::{Headers, Secret},
    fault::Fault,
    net::Urls,
    read::{Form, Member, Places, Reader, Written, members, read_form, unknown, write_form},
    value::{Node, Table, Value},
};
use crate::model::{
    id::KeyDigest,
    mcp::Revision,
    pin::Pin,
    records::{
        Access, Approval, ApprovalStatus, Class, Grant, Guardrail, Key, Label, Organization, OrganizationStatus,
        Origin, Owned, Plan, Project, Protocol, Records, Server, SessionMode, Subscription,
    },
    units::shown,
};

/// The names of the objects, as `[[name]]` in a file.
pub(super) const KINDS: [&str; 7] = ["organization", "project", "server", "key", "grant", "approval", "guardrail"];

/// The most calls that a server may be given at one time.
const IN_FLIGHT_MAX: u32 = 1_000_000;

/// An object, where it was written, and where each of its members stands.
#[derive(Clone, Debug)]
pub(super) struct Item<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
    pub(super) places: Places,
}

/// Policy objects as they were written: an `organization` that was left out is empty until [`super::resolve`] settles it.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(super) organizations: Vec<Item<Organization>>,
    pub(super) projects: Vec<Item<Project>>,
    pub(super) servers: Vec<Item<Server>>,
    pub(super) keys: Vec<Item<Key>>,
    pub(super) grants: Vec<Item<Grant>>,
    pub(super) approvals: Vec<Item<Approval>>,
    pub(super) guardrails: Vec<Item<Guardrail>>,
}

impl Policy {
    /// Adds objects of the management API behind what files hold. Tools and discoveries are not written and not looked at.
    pub fn add(&mut self, records: Records) {
        fn items<T>(owned: Vec<Owned<T>>) -> impl Iterator<Item = Item<T>> {
            owned.into_iter().map(|owned| Item { value: owned.value, origin: owned.origin, places: Places::default() })
        }
        self.organizations.extend(items(records.organizations));
        self.projects.extend(items(records.projects));
        self.servers.extend(items(records.servers));
        self.keys.extend(items(records.keys));
        self.grants.extend(items(records.grants));
        self.approvals.extend(items(records.approvals));
        self.guardrails.extend(items(records.guardrails));
    }
}

/// An object as it stands in the policy, read through the flat form that its members are written in.
pub(super) trait Object: Sized {
    /// What a person calls it in a file: `[[server]]`.
    const KIND: &'static str;
    type Form: Form;
    /// Judges the members together.
    fn of_form(form: Self::Form, reader: &mut Reader<'_>, places: &Places) -> Self;
    fn to_form(&self) -> Self::Form;
    /// What a person calls this one: server `github`.
    fn title(&self) -> String;
    /// Its organization; empty for what has none of its own, or not yet.
    fn home(&self) -> &str;
    /// Whether it has no name to tell it by, because that is missing or faulty.
    fn is_nameless(&self) -> bool;
}

/// Objects whose form is the object itself.
macro_rules! plain_objects {
    ($($name:ident $kind:literal $id:ident $home:expr, $check:expr;)+) => {$(
        impl Object for $name {
            const KIND: &'static str = $kind;
            type Form = Self;
            fn of_form(form: Self, reader: &mut Reader<'_>, places: &Places) -> Self {
                let check: fn(&Self, &mut Reader<'_>, &Places) = $check;
                check(&form, reader, places);
                form
            }
            fn to_form(&self) -> Self {
                self.clone()
            }
            fn title(&self) -> String {
                titled($kind, &self.$id)
            }
            fn home(&self) -> &str {
                let home: fn(&Self) -> &str = $home;
                home(self)
            }
            fn is_nameless(&self) -> bool {
                self.$id.is_empty()
            }
        }
    )+};
}

/// What a person calls an object: by its name, or by its kind if it has none.
pub(super) fn titled(kind: &str, name: &str) -> String {
    if name.is_empty() { format!("[[{kind}]]") } else { format!("{kind} `{}`", shown(name)) }
}

plain_objects! {
    Organization "organization" id |_| "", |_, _, _| {};
    Project "project" id |project| &project.organization, |_, _, _| {};
    Server "server" slug |server| &server.organization, check_server;
    Key "key" id |key| &key.organization, check_key;
    Approval "approval" tool |approval| &approval.organization, |_, _, _| {};
}

impl Form for Organization {
    const MEMBERS: &'static [Member<Self>] = members! {
        id: Id, required;
        plan: Word<Plan>, required;
        status: Word<OrganizationStatus>, required;
        subscription: Word<Subscription>, required;
    };
    fn blank() -> Self {
        Self {
            id: String::new(),
            plan: Plan::Starter,
            status: OrganizationStatus::Suspended,
            subscription: Subscription::None,
        }
    }
}

impl Form for Project {
    const MEMBERS: &'static [Member<Self>] = members! {
        id: Id, required;
        organization: Id;
        archived: Bool;
    };
    fn blank() -> Self {
        Self { id: String::new(), organization: String::new(), archived: false }
    }
}

impl Form for Server {
    const MEMBERS: &'static [Member<Self>] = members! {
        organization: Id;
        slug: Slug, required;
        url: Urls, required;
        enabled: Bool;
        projects: List<Id>;
        environments: List<Id>;
        protocol: Word<Protocol>;
        session: Word<SessionMode>;
        timeout: Opt<Time<1, 86_400>>;
        result_limit: Opt<Bytes<1, { 1 << 30 }>>;
        rate_limit: Opt<Rates>;
        max_in_flight: Count<1, IN_FLIGHT_MAX>;
        http2: Bool;
        ca: Opt<FilePath>;
        client_certificate: Opt<FilePath>;
        client_key: Opt<Secret>;
        credential: Headers;
    };
    fn blank() -> Self {
        Self {
            organization: String::new(),
            slug: String::new(),
            url: String::new(),
            enabled: true,
            projects: Vec::new(),
            environments: Vec::new(),
            protocol: Protocol::Auto,
            session: SessionMode::PerKey,
            timeout: None,
            result_limit: None,
            rate_limit: None,
            max_in_flight: 1000,
            http2: false,
            ca: None,
            client_certificate: None,
            client_key: None,
            credential: std::collections::BTreeMap::new(),
        }
    }
}

fn check_server(_: &Server, reader: &mut Reader<'_>, places: &Places) {
    for (one, other) in [("client_certificate", "client_key"), ("client_key", "client_certificate")] {
        if let (Some(at), false) = (places.of(one), places.has(other)) {
            reader.fault(&at, format!("`{one}` needs `{other}` beside it"));
        }
    }
}

impl Form for Key {
    const MEMBERS: &'static [Member<Self>] = members! {
        id: Id, required;
        organization: Id;
        project: Id, required;
        environment: Id, required;
        sha256: Digest, required;
        expires: Opt<Moment>;
        disabled: Bool;
        revoked: Bool;
        allow_ips: List<Net>;
        rate_limit: Opt<Rates>;
        previous_sha256: Opt<Digest>;
        previous_expires: Opt<Moment>;
    };
    fn blank() -> Self {
        Self {
            id: String::new(),
            organization: String::new(),
            project: String::new(),
            environment: String::new(),
            sha256: KeyDigest([0; 32]),
            expires: None,
            disabled: false,
            revoked: false,
            allow_ips: Vec::new(),
            rate_limit: None,
            previous_sha256: None,
            previous_expires: None,
        }
    }
}

fn check_key(key: &Key, reader: &mut Reader<'_>, places: &Places) {
    let previous = places.of("previous_sha256");
    match (&previous, places.of("previous_expires")) {
        (None, Some(at)) => reader.fault(&at, "`previous_expires` needs `previous_sha256` beside it"),
        (Some(at), None) => {
            let origin = reader.origin(at);
            let message = "`previous_sha256` has no `previous_expires`: the old token stays good for ever";
            reader.faults.push(Fault::warning(origin, message));
        }
        _ => {}
    }
    if let (Some(at), Some(digest)) = (previous, key.previous_sha256)
        && digest == key.sha256
    {
        reader.fault(&at, "`previous_sha256` is the same as `sha256`");
    }
}

/// `[[grant]]` as it is written: what `access` says and what `tools` names become one [`Access`].
pub(super) struct GrantForm {
    key: String,
    server: String,
    access: Option<AccessWord>,
    tools: Vec<String>,
    confirm_trifecta: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AccessWord {
    Read,
    Write,
    Selected,
}

impl Form for GrantForm {
    const MEMBERS: &'static [Member<Self>] = members! {
        key: Id, required;
        server: Slug, required;
        access: Opt<Word<AccessWord>>, required;
        tools: Strings;
        confirm_trifecta: Bool;
    };
    fn blank() -> Self {
        let empty = String::new;
        Self { key: empty(), server: empty(), access: None, tools: Vec::new(), confirm_trifecta: false }
    }
}

impl Object for Grant {
    const KIND: &'static str = "grant";
    type Form = GrantForm;
    fn of_form(form: GrantForm, reader: &mut Reader<'_>, places: &Places) -> Self {
        let access = places.of("access").unwrap_or_default();
        let tools = places.of("tools").unwrap_or_else(|| access.clone());
        // A `tools` that is no list is at fault for that already.
        let named = places.has("tools") && places.count("tools") != Some(0);
        match (form.access, !named) {
            (Some(AccessWord::Selected), true) => {
                reader.fault(&tools, "access `selected` needs `tools` that it covers")
            }
            (Some(AccessWord::Read | AccessWord::Write), false) => {
                reader.fault(&tools, "`tools` belongs to access `selected`; `read` and `write` cover the whole server");
            }
            _ => {}
        }
        Self {
            key: form.key,
            server: form.server,
            access: match form.access {
                Some(AccessWord::Read) | None => Access::Read,
                Some(AccessWord::Write) => Access::Write,
                Some(AccessWord::Selected) => Access::Selected(form.tools),
            },
            confirm_trifecta: form.confirm_trifecta,
        }
    }
    fn to_form(&self) -> GrantForm {
        let (access, tools) = match &self.access {
            Access::Read => (AccessWord::Read, Vec::new()),
            Access::Write => (AccessWord::Write, Vec::new()),
            Access::Selected(tools) => (AccessWord::Selected, tools.clone()),
        };
        let (key, server) = (self.key.clone(), self.server.clone());
        GrantForm { key, server, access: Some(access), tools, confirm_trifecta: self.confirm_trifecta }
    }
    fn title(&self) -> String {
        format!("grant of server `{}` to key `{}`", shown(&self.server), shown(&self.key))
    }
    fn home(&self) -> &str {
        ""
    }
    fn is_nameless(&self) -> bool {
        self.key.is_empty() || self.server.is_empty()
    }
}

impl Form for Approval {
    const MEMBERS: &'static [Member<Self>] = members! {
        organization: Id;
        server: Slug, required;
        tool: Anything, required;
        sha256: PinHex, required;
        class: Word<Class>;
        labels: List<Word<Label>>, required;
        status: Word<ApprovalStatus>;
    };
    fn blank() -> Self {
        Self {
            organization: String::new(),
            server: String::new(),
            tool: String::new(),
            sha256: Pin([0; 32]),
            class: Class::Write,
            labels: Vec::new(),
            status: ApprovalStatus::Approved,
        }
    }
}

words! {
    Plan {
        "starter" = Plan::Starter, "team" = Plan::Team, "business" = Plan::Business, "enterprise" = Plan::Enterprise,
    }
    OrganizationStatus { "active" = OrganizationStatus::Active, "suspended" = OrganizationStatus::Suspended }
    Subscription { "active" = Subscription::Active, "trial" = Subscription::Trial, "none" = Subscription::None }
    Protocol {
        "auto" = Protocol::Auto,
        "2026-07-28" = Protocol::Fixed(Revision::V2026_07_28),
        "2025-11-25" = Protocol::Fixed(Revision::V2025_11_25),
        "2025-06-18" = Protocol::Fixed(Revision::V2025_06_18),
        "2025-03-26" = Protocol::Fixed(Revision::V2025_03_26),
    }
    SessionMode { "per_key" = SessionMode::PerKey, "shared" = SessionMode::Shared }
    AccessWord { "read" = AccessWord::Read, "write" = AccessWord::Write, "selected" = AccessWord::Selected }
    Class { "read" = Class::Read, "write" = Class::Write }
    Label {
        "private_data" = Label::PrivateData, "untrusted_content" = Label::UntrustedContent, "sends_out" = Label::SendsOut,
    }
    ApprovalStatus { "approved" = ApprovalStatus::Approved, "blocked" = ApprovalStatus::Blocked }
}

/// Reads the objects of a policy file into `policy`; a faulty one too, so that what refers to it is not reported as well.
pub(super) fn read_policy(reader: &mut Reader<'_>, table: &Table, policy: &mut Policy) {
    for entry in &table.0 {
        match entry.name.as_str() {
            "organization" => read_list(reader, &entry.value, &mut policy.organizations),
            "project" => read_list(reader, &entry.value, &mut policy.projects),
            "server" => read_list(reader, &entry.value, &mut policy.servers),
            "key" => read_list(reader, &entry.value, &mut policy.keys),
            "grant" => read_list(reader, &entry.value, &mut policy.grants),
            "approval" => read_list(reader, &entry.value, &mut policy.approvals),
            "guardrail" => read_list(reader, &entry.value, &mut policy.guardrails),
            name if super::options::Conf::SECTIONS.contains(&name) => {
                reader.fault(&entry.at, format!("`[{name}]` belongs in the conf file, not in a policy file"));
            }
            name => {
                unknown(reader, entry, format!("unknown kind of object `{}`", shown(name)), KINDS.into_iter());
            }
        }
    }
}

fn read_list<T: Object>(reader: &mut Reader<'_>, value: &Value, into: &mut Vec<Item<T>>) {
    let kind = format!("[[{}]]", T::KIND);
    let tables: &[Value] = match &value.node {
        Node::List(list) => list,
        Node::Table(_) => {
            reader.fault(&value.span, format!("each {} is written `{kind}`, with two brackets", T::KIND));
            std::slice::from_ref(value)
        }
        _ => {
            reader.fault(&value.span, format!("`{}` must be written as `{kind}`, not as {}", T::KIND, value.kind()));
            return;
        }
    };
    for value in tables {
        let Node::Table(table) = &value.node else {
            reader.fault(&value.span, format!("{kind} must be a table, not {}", value.kind()));
            continue;
        };
        let (form, places) = read_form(reader, &Written { table, span: value.span.clone(), kind: &kind });
        let object = T::of_form(form, reader, &places);
        let origin = match &reader.file {
            Some(path) => Origin::File { path: std::sync::Arc::clone(path), span: value.span.clone() },
            None => Origin::Api,
        };
        into.push(Item { value: object, origin, places });
    }
}

/// Reads one object as the management API writes it. Credentials must be `{ credential = NAME }` and paths absolute.
fn from_json<T: Object>(json: &Json) -> Result<T, Vec<Fault>> {
    let mut reader = Reader::of_api();
    let value = Value::from_json(json);
    let Node::Table(table) = &value.node else {
        return Err(vec![Fault::error(None, format!("a {} must be an object, not {}", T::KIND, value.kind()))]);
    };
    let kind = format!("the {}", T::KIND);
    let (form, places) = read_form(&mut reader, &Written { table, span: 0..0, kind: &kind });
    let object = T::of_form(form, &mut reader, &places);
    if reader.faults.iter().any(Fault::is_error) { Err(reader.faults) } else { Ok(object) }
}

fn to_json<T: Object>(object: &T) -> Json {
    write_form(&object.to_form())
}

/// The two directions of each object, by name.
macro_rules! json_doors {
    ($($name:ident $from:ident $to:ident;)+) => {$(
        /// Reads the object from the management API's JSON; `null` is as good as left out.
        ///
        /// # Errors
        /// Every fault; none has a place, each names its member.
        pub fn $from(json: &Json) -> Result<$name, Vec<Fault>> {
            from_json(json)
        }

        /// The object in the shape of files, as the management API shows it: defaults filled in, what is none left out.
        #[must_use]
        pub fn $to(object: &$name) -> Json {
            to_json(object)
        }
    )+};
}

json_doors! {
    Organization organization_from_json organization_to_json;
    Project project_from_json project_to_json;
    Server server_from_json server_to_json;
    Key key_from_json key_to_json;
    Grant grant_from_json grant_to_json;
    Approval approval_from_json approval_to_json;
    Guardrail guardrail_from_json guardrail_to_json;
}
