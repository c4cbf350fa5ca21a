//! Reads a conf file's sections, and judges what options must be together.

use std::ops::Range;

use super::{
    fault::{Fault, FileSpan},
    net::Address,
    options::Conf,
    read::{Form, Places, Reader, Written, read_defaults, read_form, unknown},
    value::{Node, Table},
};
use crate::model::units::shown;

/// Where the sections' members stand.
#[derive(Default)]
pub(super) struct Sections(Vec<(&'static str, Places)>);

impl Sections {
    /// The places of a section's members.
    pub(super) fn of(&self, section: &str) -> Option<&Places> {
        self.0.iter().find(|(name, _)| *name == section).map(|(_, places)| places)
    }

    fn member(&self, section: &str, member: &str) -> Option<Range<usize>> {
        self.of(section)?.of(member)
    }
}

/// Reads the conf: each section, then what they must be together.
pub(super) fn read_conf(reader: &mut Reader<'_>, table: &Table) -> (Conf, Sections) {
    let (conf, places) = Conf::read_sections(reader, table);
    for entry in &table.0 {
        let name = entry.name.as_str();
        if super::policy::KINDS.contains(&name) {
            let origin = reader.origin(&entry.at);
            let fault = Fault::error(origin, format!("`[[{name}]]` belongs in a policy file, not in the conf"));
            reader.faults.push(fault.hint("name the policy file in `policy.files`"));
        } else if !Conf::SECTIONS.contains(&name) {
            let message = format!("unknown section `{}` in the conf", shown(name));
            unknown(reader, entry, message, Conf::SECTIONS.iter().copied());
        }
    }
    check_listeners(reader, &conf, &places);
    check_tokens(reader, &conf, &places);
    check_discovery(reader, &conf, &places);
    super::auth::check(reader, &conf, &places);
    (conf, places)
}

pub(super) fn read_section<F: Form>(
    reader: &mut Reader<'_>,
    table: &Table,
    name: &'static str,
    all: &mut Sections,
) -> F {
    let empty = Table::default();
    let mut written = Written { table: &empty, span: 0..0, kind: &format!("[{name}]") };
    if let Some(entry) = table.get(name) {
        match &entry.value.node {
            Node::Table(table) => written.table = table,
            _ => reader.fault(&entry.at, format!("`{name}` must be a section, `[{name}]`, not {}", entry.value.kind())),
        }
    }
    reader.within(name, |reader| {
        let (mut form, places) = read_form(reader, &written);
        read_defaults(reader, &mut form, &places);
        all.0.push((name, places));
        form
    })
}

/// No two listeners at one address, and at least one for agents.
fn check_listeners(reader: &mut Reader<'_>, conf: &Conf, places: &Sections) {
    let gateway = places.of("gateway");
    let written = gateway.and_then(|places| places.count("listen"));
    if let (Some(0), Some(at)) = (written, places.member("gateway", "listen")) {
        reader.fault(&at, "`gateway.listen` must name at least one address");
    }
    if written.is_some_and(|written| written > conf.gateway.listen.len()) {
        return; // Some entry is faulty, so indices say nothing.
    }
    let agents = conf.gateway.listen.iter().enumerate().map(|(index, listen)| {
        (
            format!("gateway.listen[{index}]"),
            listen.address.clone(),
            gateway.and_then(|places| places.item("listen", index)),
        )
    });
    let ops = conf.ops.listen.iter().cloned().map(|at| ("ops.listen".to_owned(), at, places.member("ops", "listen")));
    let admin = conf.admin.listen.map(Address::Tcp).into_iter();
    let admin = admin.map(|at| ("admin.listen".to_owned(), at, places.member("admin", "listen")));
    let socket = conf.admin.socket.clone().map(Address::Unix).into_iter();
    let socket = socket.map(|at| ("admin.socket".to_owned(), at, places.member("admin", "socket")));
    let mut seen: Vec<(String, Address, Option<Range<usize>>)> = Vec::new();
    for (name, address, at) in agents.chain(ops).chain(admin).chain(socket) {
        let any_port = matches!(address, Address::Tcp(address) if address.port() == 0);
        match seen.iter().find(|(_, other, _)| *other == address && !any_port) {
            Some((other, _, other_at)) => {
                let origin = at.as_ref().or(other_at.as_ref()).and_then(|at| reader.origin(at));
                reader.faults.push(Fault::error(origin, format!("`{name}` and `{other}` are both `{address}`")));
            }
            None => seen.push((name, address, at)),
        }
    }
}

/// Tokens are told apart by name and digest, and a TCP listener without any answers nobody.
fn check_tokens(reader: &mut Reader<'_>, conf: &Conf, places: &Sections) {
    let tokens = &conf.admin.tokens;
    if places.of("admin").and_then(|places| places.count("tokens")).is_some_and(|written| written > tokens.len()) {
        return; // Some entry is faulty, so indices say nothing.
    }
    let at = |index| places.of("admin").and_then(|places| places.item("tokens", index)).unwrap_or_default();
    for (index, token) in tokens.iter().enumerate() {
        let before = || tokens.iter().take(index);
        if before().any(|other| other.name == token.name) {
            reader.fault(&at(index), format!("`admin.tokens` names `{}` twice", shown(&token.name)));
        } else if let Some(other) = before().find(|other| other.sha256 == token.sha256) {
            let (name, other) = (shown(&token.name), shown(&other.name));
            reader.fault(&at(index), format!("`admin.tokens`: `{name}` and `{other}` have the same token"));
        }
    }
    if conf.admin.listen.is_some() && tokens.is_empty() {
        let origin: Option<FileSpan> = places.member("admin", "listen").and_then(|at| reader.origin(&at));
        let message = "`admin.listen` is set, but no `admin.tokens`: every call there is refused";
        reader.faults.push(Fault::warning(origin, message));
    }
}

fn check_discovery(reader: &mut Reader<'_>, conf: &Conf, places: &Sections) {
    let (interval, max_age) = (conf.discovery.interval, conf.discovery.max_age);
    if max_age < interval {
        let at = places.member("discovery", "max_age").or_else(|| places.member("discovery", "interval"));
        let origin = at.and_then(|at| reader.origin(&at));
        let message = format!(
            "`discovery.max_age` ({max_age}) is shorter than `discovery.interval` ({interval}): calls are refused in between"
        );
        reader.faults.push(Fault::warning(origin, message));
    }
}
