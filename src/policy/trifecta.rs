//! The lethal trifecta: a key that can read private data, take in what others wrote, and send data out (contract §9, security 1.5).
//!
//! Judged over the union of a key's grants: what it may call once every tool it was granted is callable. A disabled server, a
//! disabled key and a tool that is not listed just now count; a blocked tool, a revoked key and a server outside the key's
//! project or environment do not. Pure: who asks, and whether a person confirmed, is known above.

use std::collections::{BTreeSet, HashMap};

use super::approval::{self, ToolState};
use crate::{
    conf::{Fault, FaultCode, FileSpan},
    model::{
        records::{Access, Approval, ApprovalStatus, Class, Grant, Key, Label, Origin, Owned, Records, Server},
        units::shown,
    },
};

/// The most tools that a message names for one leg.
pub const TOOLS_NAMED_MAX: usize = 5;

/// What each key could do.
#[derive(Debug)]
pub struct Trifecta<'r> {
    /// By organization, then by slug.
    servers: HashMap<&'r str, HashMap<&'r str, Brings<'r>>>,
    grants: HashMap<&'r str, Vec<&'r Owned<Grant>>>,
    keys: Vec<&'r Owned<Key>>,
}

/// What a server's tools bring.
#[derive(Debug)]
struct Brings<'r> {
    server: &'r Server,
    read: u8,
    write: u8,
    tools: HashMap<&'r str, (Class, u8)>,
}

const ALL: u8 = 0b111;
const LEGS: [(Label, &str); 3] = [
    (Label::PrivateData, "private data"),
    (Label::UntrustedContent, "untrusted content"),
    (Label::SendsOut, "a way to send data out"),
];

impl<'r> Trifecta<'r> {
    /// Over everything that is known.
    #[must_use]
    pub fn of(records: &'r Records) -> Self {
        let mut all = Self::without_tools(records, |_| true);
        let mut pins: HashMap<(&str, &str, &str), &Approval> = HashMap::with_capacity(records.approvals.len());
        for owned in &records.approvals {
            let pin = &owned.value;
            pins.insert((&pin.organization, &pin.server, &pin.tool), pin);
        }
        for tool in &records.tools {
            let pin = pins.remove(&(tool.organization.as_str(), tool.server.as_str(), tool.name.as_str()));
            if approval::state(tool, pin) == ToolState::Blocked {
                continue;
            }
            // A pin lives as long as the records, so its labels may be kept.
            let terms = match pin {
                Some(pin) => Some((pin.class, pin.labels.as_slice())),
                None => approval::terms(tool, None),
            };
            if let Some((class, labels)) = terms {
                all.add((&tool.organization, &tool.server, &tool.name), class, labels);
            }
        }
        for pin in pins.into_values().filter(|pin| pin.status == ApprovalStatus::Approved) {
            all.add((&pin.organization, &pin.server, &pin.tool), pin.class, &pin.labels);
        }
        all
    }

    /// Over the files' own objects alone.
    #[must_use]
    pub fn of_files(records: &'r Records) -> Self {
        let mut files = Self::without_tools(records, |origin| *origin != Origin::Api);
        let pins = records.approvals.iter().filter(|owned| owned.origin != Origin::Api).map(|owned| &owned.value);
        for pin in pins.filter(|pin| pin.status == ApprovalStatus::Approved) {
            files.add((&pin.organization, &pin.server, &pin.tool), pin.class, &pin.labels);
        }
        files
    }

    /// The keys that have all three legs.
    pub fn closed(&self) -> impl Iterator<Item = &'r Owned<Key>> {
        self.keys.iter().copied().filter(|key| self.is_closed(&key.value))
    }

    /// Whether every grant that brings the key a leg stands in a file and says `confirm_trifecta = true`.
    #[must_use]
    pub fn is_confirmed_by_files(&self, key: &Key) -> bool {
        self.unconfirmed(key).is_none()
    }

    /// The key's tools by leg, for a person.
    #[must_use]
    pub fn describe(&self, key: &Key) -> String {
        let legs = LEGS.map(|(label, what)| {
            let mut tools = self.tools(key, bit(label));
            tools.sort_unstable();
            let more = tools.len().saturating_sub(TOOLS_NAMED_MAX);
            tools.truncate(TOOLS_NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{what} ({}{more})", tools.join(", "))
        });
        let [private, untrusted, out] = legs;
        format!("key `{}` would have {private}, {untrusted} and {out}", shown(&key.id))
    }

    fn without_tools(records: &'r Records, counts: impl Fn(&Origin) -> bool) -> Self {
        let mut servers: HashMap<&str, HashMap<&str, Brings<'_>>> = HashMap::new();
        for server in records.servers.iter().filter(|server| counts(&server.origin)) {
            let server = &server.value;
            let brings = Brings { server, read: 0, write: 0, tools: HashMap::new() };
            servers.entry(&server.organization).or_default().insert(&server.slug, brings);
        }
        let mut grants: HashMap<&str, Vec<&Owned<Grant>>> = HashMap::new();
        for grant in records.grants.iter().filter(|grant| counts(&grant.origin)) {
            grants.entry(&grant.value.key).or_default().push(grant);
        }
        let keys = records.keys.iter().filter(|key| counts(&key.origin) && !key.value.revoked).collect();
        Self { servers, grants, keys }
    }

    fn add(&mut self, (organization, server, tool): (&'r str, &'r str, &'r str), class: Class, labels: &[Label]) {
        let mask = labels.iter().fold(0, |mask, label| mask | bit(*label));
        let brings = self.servers.get_mut(organization).and_then(|servers| servers.get_mut(server));
        let Some(brings) = brings.filter(|_| mask != 0) else { return };
        brings.write |= mask;
        if class == Class::Read {
            brings.read |= mask;
        }
        brings.tools.insert(tool, (class, mask));
    }

    fn is_closed(&self, key: &Key) -> bool {
        self.reaching(key).fold(0, |mask, (grant, brings)| mask | brings.legs(&grant.value.access)) == ALL
    }

    /// The grants of the key that let it reach a server, and what that server brings.
    fn reaching<'t>(&'t self, key: &'t Key) -> impl Iterator<Item = (&'r Owned<Grant>, &'t Brings<'r>)> {
        let within = |list: &[String], name: &String| list.is_empty() || list.contains(name);
        let servers = self.servers.get(key.organization.as_str());
        self.grants.get(key.id.as_str()).into_iter().flatten().filter_map(move |grant| {
            let brings = servers?.get(grant.value.server.as_str())?;
            let Server { projects, environments, .. } = brings.server;
            let inside = within(projects, &key.project) && within(environments, &key.environment);
            inside.then_some((*grant, brings))
        })
    }

    /// The first grant that brings a leg and was not confirmed in a file.
    fn unconfirmed(&self, key: &Key) -> Option<&'r Owned<Grant>> {
        let mut bringing = self.reaching(key).filter(|(grant, brings)| brings.legs(&grant.value.access) != 0);
        bringing.find(|(grant, _)| grant.origin == Origin::Api || !grant.value.confirm_trifecta).map(|(grant, _)| grant)
    }

    fn tools(&self, key: &Key, leg: u8) -> Vec<String> {
        let mut tools = Vec::new();
        for (grant, brings) in self.reaching(key) {
            for (name, (class, mask)) in &brings.tools {
                if mask & leg != 0 && covers(&grant.value.access, name, *class) {
                    tools.push(format!("`{}/{}`", brings.server.slug, shown(name)));
                }
            }
        }
        tools
    }
}

impl Brings<'_> {
    fn legs(&self, access: &Access) -> u8 {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
            Access::Selected(names) => {
                let of = |name: &String| self.tools.get(name.as_str()).map_or(0, |(_, mask)| *mask);
                names.iter().fold(0, |mask, name| mask | of(name))
            }
        }
    }
}

/// What the policy files have to answer for: an error where their own objects close a key's trifecta without every grant that
/// brings a leg saying so, a warning where they do it together with what the API made. `kept` are the keys that the API confirmed.
#[must_use]
pub fn faults(records: &Records, kept: &BTreeSet<String>) -> Vec<Fault> {
    let files = Trifecta::of_files(records);
    let mut faults = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for key in files.closed() {
        seen.insert(&key.value.id);
        if kept.contains(&key.value.id) {
            continue;
        }
        if let Some(grant) = files.unconfirmed(&key.value) {
            let message = format!("{}: the lethal trifecta", files.describe(&key.value));
            let hint =
                "if that is meant, write `confirm_trifecta = true` in every grant of the key that brings one of them";
            let fault = Fault::error(FileSpan::of(&grant.origin), message).hint(hint);
            faults.push(fault.of(FaultCode::TrifectaUnconfirmed));
        }
    }
    let all = Trifecta::of(records);
    for key in all.closed().filter(|key| !seen.contains(key.value.id.as_str()) && !kept.contains(&key.value.id)) {
        if all.unconfirmed(&key.value).is_some() {
            let message = format!("{}: nobody confirmed that", all.describe(&key.value));
            faults.push(Fault::warning(FileSpan::of(&key.origin), message).of(FaultCode::TrifectaUnconfirmed));
        }
    }
    faults
}

const fn bit(label: Label) -> u8 {
    match label {
        Label::PrivateData => 0b001,
        Label::UntrustedContent => 0b010,
        Label::SendsOut => 0b100,
    }
}

fn covers(access: &Access, tool: &str, class: Class) -> bool {
    match access {
        Access::Read => class == Class::Read,
        Access::Write => true,
        Access::Selected(names) => names.iter().any(|name| name == tool),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use super::{Trifecta, faults};
    use crate::{
        conf,
        model::records::{Decision, Origin, Records, ToolRecord},
    };

    const BASE: &str = "
[[organization]]
id = 'acme'
plan = 'business'
status = 'active'
subscription = 'active'
[[project]]
id = 'support'
[[project]]
id = 'sales'
[[key]]
id = 'k'
project = 'support'
environment = 'production'
sha256 = '1111111111111111111111111111111111111111111111111111111111111111'
";

    fn server(slug: &str, label: &str, class: &str, more: &str) -> String {
        format!(
            "[[server]]\nslug = '{slug}'\nurl = 'https://{slug}.example/mcp'\n{more}\n[[approval]]\nserver = '{slug}'\n\
             tool = 't'\nsha256 = '{}'\nclass = '{class}'\nlabels = [{label}]\n",
            "2".repeat(64)
        )
    }

    fn grant(slug: &str, access: &str) -> String {
        format!("[[grant]]\nkey = 'k'\nserver = '{slug}'\naccess = {access}\n")
    }

    fn records(more: &str) -> Records {
        let text = format!("{BASE}{more}");
        let outcome =
            conf::from_texts(&[("conf.toml", "[policy]\nfiles = ['policy.toml']"), ("policy.toml", &text)], &|_| None);
        let loaded = outcome.into_loaded().unwrap_or_else(|r| panic!("{}", r.sources.render(&r.faults)));
        let (records, faults) = conf::resolve(loaded.policy, &loaded.conf, &loaded.sources);
        assert!(faults.iter().all(|fault| !fault.is_error()), "{}", loaded.sources.render(&faults));
        records
    }

    /// Three servers that bring a leg each, by a tool of that class.
    fn three(class: &str, more: &str) -> String {
        ["'private_data'", "'untrusted_content'", "'sends_out'"]
            .iter()
            .zip(["a", "b", "c"])
            .map(|(label, slug)| server(slug, label, class, more))
            .collect()
    }

    fn is_closed(records: &Records) -> bool {
        Trifecta::of(records).closed().next().is_some()
    }

    #[test]
    fn only_what_the_key_could_call_counts() {
        let grants = |access: &str| ["a", "b", "c"].map(|slug| grant(slug, access)).concat();
        let rows = [
            ("write grants", three("write", "") + &grants("'write'"), true),
            ("read grants of tools that read", three("read", "") + &grants("'read'"), true),
            ("read grants of tools that write", three("write", "") + &grants("'read'"), false),
            ("selected", three("write", "") + &grants("'selected'\ntools = ['t']"), true),
            ("another tool selected", three("write", "") + &grants("'selected'\ntools = ['u']"), false),
            ("two of three", three("write", "") + &grant("a", "'write'") + &grant("b", "'write'"), false),
            ("outside the project", three("write", "projects = ['sales']") + &grants("'write'"), false),
            ("outside the environment", three("write", "environments = ['test']") + &grants("'write'"), false),
            (
                "inside both",
                three("write", "projects = ['support']\nenvironments = ['production']") + &grants("'write'"),
                true,
            ),
            ("disabled, for now", three("write", "enabled = false") + &grants("'write'"), true),
            (
                "one tool brings all",
                server("a", "'private_data', 'untrusted_content', 'sends_out'", "write", "") + &grant("a", "'write'"),
                true,
            ),
        ];
        for (what, text, closed) in rows {
            let records = records(&text);
            assert_eq!(is_closed(&records), closed, "{what}");
            let errors = faults(&records, &Default::default());
            assert_eq!(errors.iter().any(conf::Fault::is_error), closed, "{what}: {errors:?}");
        }
    }

    #[test]
    fn blocked_tools_and_revoked_keys_do_not_count() {
        let all = three("write", "") + &["a", "b", "c"].map(|slug| grant(slug, "'write'")).concat();
        let mut blocked = records(&all);
        blocked.approvals[0].value.status = crate::model::records::ApprovalStatus::Blocked;
        assert!(!is_closed(&blocked));
        let mut by_hand = records(&all);
        by_hand.tools.push(ToolRecord {
            organization: "acme".into(),
            server: "a".into(),
            name: "t".into(),
            recorded: 1,
            current: None,
            fault: None,
            pin: None,
            pin_seen: false,
            changed: false,
            approved: None,
            decision: Some(Decision {
                status: crate::model::records::ApprovalStatus::Blocked,
                class: crate::model::records::Class::Write,
                labels: Vec::new(),
            }),
        });
        assert!(!is_closed(&by_hand));
        let mut revoked = records(&all);
        revoked.keys[0].value.revoked = true;
        assert!(!is_closed(&revoked));
    }

    #[test]
    fn files_confirm_in_every_grant_that_brings_a_leg() {
        let confirmed = |slug: &str| grant(slug, "'write'") + "confirm_trifecta = true\n";
        let plain = server("d", "", "write", "") + &grant("d", "'write'");
        let errors = |text: &str| faults(&records(text), &Default::default()).iter().filter(|f| f.is_error()).count();
        let all = three("write", "") + &plain;
        assert_eq!(errors(&(all.clone() + &confirmed("a") + &confirmed("b") + &confirmed("c"))), 0);
        assert_eq!(errors(&(all.clone() + &confirmed("a") + &confirmed("b") + &grant("c", "'write'"))), 1);
        let text = all + &["a", "b", "c"].map(|slug| grant(slug, "'write'")).concat();
        let kept = std::iter::once("k".to_owned()).collect();
        assert!(faults(&records(&text), &kept).is_empty());
        let fault = faults(&records(&text), &Default::default()).remove(0);
        for name in ["`k`", "`a/t`", "`b/t`", "`c/t`"] {
            assert!(fault.message.contains(name), "{name}: {}", fault.message);
        }
        assert!(!fault.message.contains("d/t"), "{}", fault.message);
    }

    #[test]
    fn what_files_close_only_with_the_api_is_a_warning() {
        let text = three("write", "") + &["a", "b", "c"].map(|slug| grant(slug, "'write'")).concat();
        let mut records = records(&text);
        records.grants[1].origin = Origin::Api;
        let found = faults(&records, &Default::default());
        assert!(found.len() == 1 && !found[0].is_error(), "{found:?}");
    }
}
