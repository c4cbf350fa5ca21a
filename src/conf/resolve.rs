//! What policy objects must be together: every `organization` settled, every reference known, nothing twice (contract §5).
//!
//! Looks at objects of files and of the management API alike; files come first. Tools are not looked at: whether a server
//! lists a tool that a grant or an approval names is known only to discovery.

use std::collections::HashMap;

use super::{
    court::{Court, Known, Names, item_place, owned, place},
    fault::{Fault, FaultCode, Sources},
    options::Conf,
    policy::{Item, Object, Policy},
};
use crate::model::{
    id::KeyDigest,
    records::{Approval, Grant, Guardrail, Key, Organization, Origin, Owned, Project, Records, Server},
    units::shown,
};

/// Settles what was left out and judges the objects together. The records are whole only if no fault is an error.
///
/// `conf` decides what a server's URL and credential headers may be; `sources` names places in the words of faults.
#[must_use]
pub fn resolve(policy: Policy, conf: &Conf, sources: &Sources) -> (Records, Vec<Fault>) {
    let mut court = Court::new(conf, sources);
    let records = Records {
        organizations: organizations(&mut court, policy.organizations),
        projects: projects(&mut court, policy.projects),
        servers: servers(&mut court, policy.servers),
        keys: keys(&mut court, policy.keys),
        grants: grants(&mut court, policy.grants),
        approvals: approvals(&mut court, policy.approvals),
        guardrails: guardrails(&mut court, policy.guardrails),
        ..Records::default()
    };
    (records, court.faults)
}

fn organizations(court: &mut Court<'_>, items: Vec<Item<Organization>>) -> Vec<Owned<Organization>> {
    let mut seen = HashMap::new();
    for item in &items {
        if court.first(&mut seen, item, ("id", item.value.id.clone())) {
            court.known.add_organization(&item.value.id, item.origin != Origin::Api);
        }
    }
    items.into_iter().map(owned).collect()
}

fn projects(court: &mut Court<'_>, items: Vec<Item<Project>>) -> Vec<Owned<Project>> {
    let mut seen = HashMap::new();
    let mut settle = |mut item: Item<Project>| {
        item.value.organization = court.settle(&item, &item.value.organization, |_, _| true);
        let Project { id, organization, .. } = &item.value;
        if court.first(&mut seen, &item, ("id", (organization.clone(), id.clone()))) {
            court.known.projects.add(organization, id);
        }
        owned(item)
    };
    items.into_iter().map(&mut settle).collect()
}

fn servers(court: &mut Court<'_>, items: Vec<Item<Server>>) -> Vec<Owned<Server>> {
    let mut seen = HashMap::new();
    let mut settle = |mut item: Item<Server>| {
        let fits = |known: &Known, home: &str| item.value.projects.iter().all(|id| known.projects.has(home, id));
        item.value.organization = court.settle(&item, &item.value.organization, fits);
        let Server { slug, organization, .. } = &item.value;
        all_known(court, &item, &PROJECTS, &item.value.projects);
        if court.first(&mut seen, &item, ("slug", (organization.clone(), slug.clone()))) {
            court.known.servers.add(organization, slug);
        }
        check_url(court, &item);
        check_credential(court, &item);
        owned(item)
    };
    items.into_iter().map(&mut settle).collect()
}

fn keys(court: &mut Court<'_>, items: Vec<Item<Key>>) -> Vec<Owned<Key>> {
    let mut seen = HashMap::new();
    let mut digests = HashMap::new();
    let mut settle = |mut item: Item<Key>| {
        let fits = |known: &Known, home: &str| known.projects.has(home, &item.value.project);
        item.value.organization = court.settle(&item, &item.value.organization, fits);
        let Key { id, organization, project, revoked, .. } = &item.value;
        all_known(court, &item, &PROJECT, std::slice::from_ref(project));
        if court.first(&mut seen, &item, ("id", id.clone())) {
            court.known.keys.insert(id.clone(), (organization.clone(), *revoked));
        }
        check_digests(court, &item, &mut digests);
        owned(item)
    };
    items.into_iter().map(&mut settle).collect()
}

fn grants(court: &mut Court<'_>, items: Vec<Item<Grant>>) -> Vec<Owned<Grant>> {
    let mut seen = HashMap::new();
    for item in &items {
        let Grant { key, server, .. } = &item.value;
        court.first(&mut seen, item, ("key", (key.clone(), server.clone())));
        let Some((home, revoked)) = court.known.keys.get(key).cloned() else {
            if !key.is_empty() {
                let message = format!("{} names key `{}`, which does not exist", item.value.title(), shown(key));
                let fault = Fault::error(place(item, "key"), message);
                court.lost(fault, key, |known| known.keys.keys().map(String::as_str).collect());
            }
            continue;
        };
        if revoked {
            let message = format!("key `{}` is revoked, so the grant gives nothing", shown(key));
            court.faults.push(Fault::warning(place(item, "key"), message).of(FaultCode::KeyRevoked));
        }
        known_in(court, item, (&SERVER, &home), std::slice::from_ref(server));
    }
    items.into_iter().map(owned).collect()
}

fn approvals(court: &mut Court<'_>, items: Vec<Item<Approval>>) -> Vec<Owned<Approval>> {
    let mut seen = HashMap::new();
    let mut settle = |mut item: Item<Approval>| {
        let fits = |known: &Known, home: &str| known.servers.has(home, &item.value.server);
        item.value.organization = court.settle(&item, &item.value.organization, fits);
        let Approval { organization, server, tool, .. } = &item.value;
        all_known(court, &item, &SERVER, std::slice::from_ref(server));
        court.first(&mut seen, &item, ("tool", (organization.clone(), server.clone(), tool.clone())));
        owned(item)
    };
    items.into_iter().map(&mut settle).collect()
}

fn guardrails(court: &mut Court<'_>, items: Vec<Item<Guardrail>>) -> Vec<Owned<Guardrail>> {
    let mut seen = HashMap::new();
    let mut settle = |mut item: Item<Guardrail>| {
        let fits = |known: &Known, home: &str| {
            item.value.servers.iter().all(|slug| known.servers.has(home, slug))
                && item.value.projects.iter().all(|id| known.projects.has(home, id))
        };
        item.value.organization = court.settle(&item, &item.value.organization, fits);
        all_known(court, &item, &SERVERS, &item.value.servers);
        all_known(court, &item, &PROJECTS, &item.value.projects);
        court.first(&mut seen, &item, ("name", (item.value.organization.clone(), item.value.name.clone())));
        owned(item)
    };
    items.into_iter().map(&mut settle).collect()
}

/// A member that refers to objects of the same organization: its name, what it refers to, and where those are known.
struct Reference {
    member: &'static str,
    what: &'static str,
    names: fn(&Known) -> &Names,
}

const PROJECT: Reference = Reference { member: "project", what: "project", names: |known| &known.projects };
const PROJECTS: Reference = Reference { member: "projects", ..PROJECT };
const SERVER: Reference = Reference { member: "server", what: "server", names: |known| &known.servers };
const SERVERS: Reference = Reference { member: "servers", ..SERVER };

/// Reports the names that the object's own organization does not have.
fn all_known<T: Object>(court: &mut Court<'_>, item: &Item<T>, reference: &Reference, names: &[String]) {
    let home = item.value.home().to_owned();
    known_in(court, item, (reference, &home), names);
}

fn known_in<T: Object>(court: &mut Court<'_>, item: &Item<T>, (reference, home): (&Reference, &str), names: &[String]) {
    if !court.known.has_organization(home) {
        return; // The organization itself is at fault, which was said already.
    }
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() || (reference.names)(&court.known).has(home, name) {
            continue;
        }
        let (what, title) = (reference.what, item.value.title());
        let message =
            format!("{title} names {what} `{}`, which organization `{}` does not have", shown(name), shown(home));
        let fault = Fault::error(item_place(item, reference.member, index), message);
        court.lost(fault, name, |known| (reference.names)(known).of(home));
    }
}

/// `http://` is for where `egress.allow_http` opens it. What the API made while it was open is a warning once it is closed.
fn check_url(court: &mut Court<'_>, item: &Item<Server>) {
    if court.conf.egress.allow_http || !item.value.url.to_ascii_lowercase().starts_with("http://") {
        return;
    }
    let message =
        format!("the URL of {} begins with `http://`, which `egress.allow_http` does not allow", item.value.title());
    let fault = match item.origin {
        Origin::File { .. } => Fault::error(place(item, "url"), message),
        Origin::Api => Fault::warning(None, message),
    };
    court.faults.push(fault.of(FaultCode::InvalidUrl));
}

/// No credential in a header that attribution owns.
fn check_credential(court: &mut Court<'_>, item: &Item<Server>) {
    let prefix = court.conf.attribution.prefix.to_ascii_lowercase();
    let taken: Vec<&String> =
        item.value.credential.keys().filter(|name| name.to_ascii_lowercase().starts_with(&prefix)).collect();
    for name in taken {
        let title = item.value.title();
        let message =
            format!("{title} has its credential in `{}`, which is a header of `attribution.prefix`", shown(name));
        court.faults.push(Fault::error(place(item, "credential"), message).of(FaultCode::InvalidCredential));
    }
}

/// No two keys with one token, the old tokens of rotations included.
fn check_digests(court: &mut Court<'_>, item: &Item<Key>, digests: &mut HashMap<KeyDigest, String>) {
    let id = &item.value.id;
    let written = [("sha256", Some(item.value.sha256)), ("previous_sha256", item.value.previous_sha256)];
    for (member, digest) in written {
        // One that could not be read is all zeros, which is no token's digest.
        let Some(digest) = digest.filter(|digest| *digest != KeyDigest([0; 32])) else { continue };
        match digests.get(&digest) {
            Some(other) if other != id => {
                let message = format!("keys `{}` and `{}` have the same token", shown(other), shown(id));
                court.error(place(item, member), message);
            }
            _ => {
                digests.insert(digest, id.clone());
            }
        }
    }
}
