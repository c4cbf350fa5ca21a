//! The tables of members of the policy's objects (contract §5), and what members of one object must be together.

use super::{
    codec::{Anything, Bool, Count, Id, List, Opt, Slug, Strings, Word, words},
    credential::{Headers, Secret},
    fault::{Fault, FaultCode},
    measure::{Bytes, Digest, FilePath, Moment, Net, PinHex, Rates, Time},
    net::{Urls, WebAddress},
    policy::{Object, titled},
    read::{Form, Member, Places, Reader, members},
};
use crate::model::{
    id::KeyDigest,
    mcp::Revision,
    pin::Pin,
    records::{
        Access, Approval, ApprovalStatus, Class, CredentialMode, Grant, Key, Label, Organization, OrganizationStatus,
        Passthrough, Plan, Project, Protocol, Server, SessionMode, Subscription,
    },
    units::shown,
};

/// The most calls that a server may be given at one time.
const IN_FLIGHT_MAX: u32 = 1_000_000;

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
        passthrough: List<Word<Passthrough>>;
        ca: Opt<FilePath>;
        client_certificate: Opt<FilePath>;
        client_key: Opt<Secret>;
        credential: Headers;
        credential_mode: Word<CredentialMode>;
        connect_url: Opt<WebAddress>;
    };
    const CODES: &'static [(&'static str, FaultCode)] =
        &[("url", FaultCode::InvalidUrl), ("credential", FaultCode::InvalidCredential)];
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
            passthrough: Vec::new(),
            ca: None,
            client_certificate: None,
            client_key: None,
            credential: std::collections::BTreeMap::new(),
            credential_mode: CredentialMode::Shared,
            connect_url: None,
        }
    }
}

fn check_server(server: &Server, reader: &mut Reader<'_>, places: &Places) {
    let at = |name| places.of(name).unwrap_or_default();
    match (server.credential_mode, places.has("connect_url")) {
        (CredentialMode::PerUser, false) => {
            reader.fault(&at("credential_mode"), "`credential_mode` `per_user` needs `connect_url` beside it");
        }
        (CredentialMode::Shared, true) => {
            reader.fault(&at("connect_url"), "`connect_url` belongs to `credential_mode` `per_user`");
        }
        _ => {}
    }
    if server.credential_mode == CredentialMode::PerUser && server.session == SessionMode::Shared {
        reader.fault(
            &at("session"),
            "`session` `shared` would mix users: it cannot stand beside `credential_mode` `per_user`",
        );
    }
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
    CredentialMode { "shared" = CredentialMode::Shared, "per_user" = CredentialMode::PerUser }
    Passthrough {
        "resources" = Passthrough::Resources, "prompts" = Passthrough::Prompts, "completion" = Passthrough::Completion,
    }
    AccessWord { "read" = AccessWord::Read, "write" = AccessWord::Write, "selected" = AccessWord::Selected }
    Class { "read" = Class::Read, "write" = Class::Write }
    Label {
        "private_data" = Label::PrivateData, "untrusted_content" = Label::UntrustedContent, "sends_out" = Label::SendsOut,
    }
    ApprovalStatus { "approved" = ApprovalStatus::Approved, "blocked" = ApprovalStatus::Blocked }
}
