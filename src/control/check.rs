//! What `toolgate check` and `toolgate guardrail test` do: judge a conf and its policy without a store. Write nothing.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use super::{secrets, users};
use crate::{
    conf::{self, Fault, Sources},
    model::records::{GuardStage, Records},
    policy::{
        compile::{GuardScope, Handles, Inputs, compile, guard_plan},
        guard::GuardPlan,
        trifecta,
    },
};

/// Judges a conf and its policy: every fault, and the texts to show them with.
#[must_use]
pub fn check(path: &Path, handles: &mut Handles) -> (Vec<Fault>, Sources) {
    let outcome = conf::load(path);
    let mut faults = outcome.check(Records::default());
    let sources = outcome.sources.clone();
    if faults.iter().any(Fault::is_error) {
        return (faults, sources);
    }
    let Ok(loaded) = outcome.into_loaded() else { return (faults, sources) };
    let (records, _) = conf::resolve(loaded.policy, &loaded.conf, &sources);
    let secrets = records
        .servers
        .iter()
        .map(|s| ((s.value.organization.clone(), s.value.slug.clone()), secrets::read(&s.value, &loaded.conf)))
        .collect();
    let inputs = Inputs {
        conf: &loaded.conf,
        records: &records,
        secrets: &secrets,
        users: &HashMap::new(),
        state_key: [0; 32],
        revision: 0,
        created: 0,
        now_ms: 0,
    };
    faults.extend(users::key_fault(&records, &loaded.conf));
    faults.extend(trifecta::faults(&records, &BTreeSet::new()));
    match compile(&inputs, handles) {
        Ok((_, more)) | Err(more) => faults.extend(more),
    }
    (faults, sources)
}

/// The guardrails of a conf's policy files that apply to a scope, compiled as for calls. Without an organization those of the only
/// one that there is.
///
/// # Errors
/// In words: all faults, rendered, or that an organization has to be named.
pub fn guardrails(
    path: &Path,
    organization: Option<&str>,
    (scope, stage): (&GuardScope<'_>, GuardStage),
) -> Result<GuardPlan, String> {
    let outcome = conf::load(path);
    let faults = outcome.check(Records::default());
    let sources = outcome.sources.clone();
    if faults.iter().any(Fault::is_error) {
        return Err(sources.render(&faults));
    }
    let Ok(loaded) = outcome.into_loaded() else { return Err(sources.render(&faults)) };
    let (records, _) = conf::resolve(loaded.policy, &loaded.conf, &sources);
    let known: Vec<&str> = records.organizations.iter().map(|organization| organization.value.id.as_str()).collect();
    let organization = match (organization, known.as_slice()) {
        (Some(named), known) if known.contains(&named) => named,
        (Some(named), known) => return Err(format!("no organization `{named}`; there are: {}\n", known.join(", "))),
        (None, [only]) => only,
        (None, known) => return Err(format!("name one --organization of: {}\n", known.join(", "))),
    };
    guard_plan((&records, organization), scope, stage).map_err(|faults| sources.render(&faults))
}
