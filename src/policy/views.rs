//! Keys and what each may see: grants joined with servers, shared by every key for which they are the same.

use std::{collections::HashMap, sync::Arc};

use super::snapshot::{AccessPolicy, KeyPolicy, OrganizationPolicy, Token, View, ViewServer};
use crate::{
    budget::{self, Scope},
    conf::{Fault, FileSpan},
    model::{
        id::KeyDigest,
        records::{Access, Grant, Key, Organization, OrganizationStatus, Plan, Records, Server, Subscription},
    },
    refusal::Refusal,
};

/// What decides a view: keys that agree in it share one.
#[derive(PartialEq, Eq, Hash)]
struct Signature<'a> {
    organization: &'a str,
    project: &'a str,
    environment: &'a str,
    grants: Vec<(&'a str, u8, Vec<&'a str>)>,
}

/// Every token that may be valid, with its key; revoked keys have none.
pub(super) fn keys(
    records: &Records,
    organizations: &HashMap<Arc<str>, Arc<OrganizationPolicy>>,
    buckets: &mut budget::Registry,
) -> HashMap<KeyDigest, Token> {
    let mut grants: HashMap<&str, Vec<&Grant>> = HashMap::new();
    for grant in &records.grants {
        grants.entry(&grant.value.key).or_default().push(&grant.value);
    }
    let servers: HashMap<(&str, &str), &Server> =
        records.servers.iter().map(|s| ((s.value.organization.as_str(), s.value.slug.as_str()), &s.value)).collect();
    let standing: HashMap<&str, Option<Refusal>> =
        records.organizations.iter().map(|o| (o.value.id.as_str(), standing(&o.value))).collect();
    let archived: std::collections::HashSet<(&str, &str)> = records
        .projects
        .iter()
        .filter(|p| p.value.archived)
        .map(|p| (p.value.organization.as_str(), p.value.id.as_str()))
        .collect();
    let mut views: HashMap<Signature<'_>, Arc<View>> = HashMap::new();
    let mut tokens = HashMap::with_capacity(records.keys.len());
    for owned in &records.keys {
        let key = &owned.value;
        let Some(organization) = organizations.get(key.organization.as_str()).filter(|_| !key.revoked) else {
            continue;
        };
        let granted = grants.get(key.id.as_str()).map_or(&[][..], Vec::as_slice);
        let view = views
            .entry(signature(key, granted))
            .or_insert_with(|| Arc::new(view(key, granted, organization, &servers)));
        let archived = archived.contains(&(key.organization.as_str(), key.project.as_str()));
        let of_organization = standing.get(key.organization.as_str()).cloned().flatten();
        let policy = Arc::new(KeyPolicy {
            id: key.id.as_str().into(),
            organization: Arc::clone(organization),
            project: key.project.as_str().into(),
            allow_ips: key.allow_ips.clone(),
            standing: combined(key.disabled, archived, of_organization),
            used: buckets.used(&key.id),
            rate: key.rate_limit.map(|rate| buckets.obtain(Scope::Key(key.id.clone()), rate)),
            view: Arc::clone(view),
        });
        tokens.insert(key.sha256, Token { key: Arc::clone(&policy), expires: key.expires });
        if let Some(previous) = key.previous_sha256 {
            let expires = [key.expires, key.previous_expires].into_iter().flatten().min();
            tokens.entry(previous).or_insert(Token { key: policy, expires });
        }
    }
    tokens
}

/// Names the limits that a fleet cannot lease: for each call of theirs the store is asked first (contract §8).
pub(super) fn small_limits(records: &Records) -> Vec<Fault> {
    const SHOWN_MAX: usize = 20;
    let of_keys = records.keys.iter().map(|key| (&key.origin, key.value.rate_limit, format!("key `{}`", key.value.id)));
    let of_servers = records
        .servers
        .iter()
        .map(|server| (&server.origin, server.value.rate_limit, format!("server `{}`", server.value.slug)));
    let mut small = of_keys.chain(of_servers).filter_map(|(origin, rate, whose)| {
        let rate = rate.filter(|rate| rate.count < budget::LEASED_MIN)?;
        let text = format!(
            "the rate limit of {whose}, {rate}, is too small to lease: each call waits for the store of `rate_limits.url`, \
             20 ms at most"
        );
        Some(Fault::warning(FileSpan::of(origin), text))
    });
    let mut faults: Vec<Fault> = small.by_ref().take(SHOWN_MAX).collect();
    let more = small.count();
    if more > 0 {
        faults.push(Fault::warning(None, format!("so are {more} more rate limits")));
    }
    if let Some(first) = faults.first_mut() {
        let hint = format!(
            "limits from {} on are leased, by up to two nodes; by more, from 16 times the nodes on",
            budget::LEASED_MIN
        );
        *first = first.clone().hint(hint);
    }
    faults
}

fn signature<'a>(key: &'a Key, grants: &[&'a Grant]) -> Signature<'a> {
    let mut list: Vec<(&str, u8, Vec<&str>)> = grants
        .iter()
        .map(|grant| match &grant.access {
            Access::Read => (grant.server.as_str(), 0, Vec::new()),
            Access::Write => (grant.server.as_str(), 1, Vec::new()),
            Access::Selected(tools) => {
                let mut tools: Vec<&str> = tools.iter().map(String::as_str).collect();
                tools.sort_unstable();
                (grant.server.as_str(), 2, tools)
            }
        })
        .collect();
    list.sort_unstable();
    Signature { organization: &key.organization, project: &key.project, environment: &key.environment, grants: list }
}

fn view(
    key: &Key,
    grants: &[&Grant],
    organization: &OrganizationPolicy,
    servers: &HashMap<(&str, &str), &Server>,
) -> View {
    let within = |list: &[String], name: &str| list.is_empty() || list.iter().any(|item| item == name);
    let mut view = View::default();
    for grant in grants {
        let Some(server) = organization.servers.get(grant.server.as_str()) else { continue };
        let Some(written) = servers.get(&(key.organization.as_str(), grant.server.as_str())) else { continue };
        if !server.enabled
            || !within(&written.projects, &key.project)
            || !within(&written.environments, &key.environment)
        {
            continue;
        }
        let access = match &grant.access {
            Access::Read => AccessPolicy::Read,
            Access::Write => AccessPolicy::Write,
            Access::Selected(tools) => AccessPolicy::Selected(tools.iter().map(|tool| tool.as_str().into()).collect()),
        };
        let granted = ViewServer { server: Arc::clone(server), access, lists: Default::default() };
        view.servers.insert(Arc::clone(&server.slug), granted);
    }
    view
}

/// Rows 8 and 10 of contract §2, for an organization; row 9 stands between them and is put in by [`combined`].
fn standing(organization: &Organization) -> Option<Refusal> {
    if organization.status == OrganizationStatus::Suspended {
        return Some(Refusal::OrganizationSuspended);
    }
    if !matches!(organization.plan, Plan::Business | Plan::Enterprise) {
        return Some(Refusal::PlanFeature);
    }
    (organization.subscription == Subscription::None).then_some(Refusal::SubscriptionRequired)
}

/// The first of rows 7 to 10 that applies.
fn combined(disabled: bool, archived: bool, organization: Option<Refusal>) -> Option<Refusal> {
    match organization {
        _ if disabled => Some(Refusal::KeyDisabled),
        Some(Refusal::OrganizationSuspended) => Some(Refusal::OrganizationSuspended),
        _ if archived => Some(Refusal::ProjectArchived),
        other => other,
    }
}
