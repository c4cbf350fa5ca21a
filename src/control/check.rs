//! What `toolgate check` does: judges a conf and its policy without a store. Writes nothing.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use super::{secrets, users};
use crate::{
    conf::{self, Fault},
    model::records::Records,
    policy::{
        compile::{Handles, Inputs, compile},
        trifecta,
    },
};

/// Judges a conf and its policy.
///
/// # Errors
/// All faults, rendered; on success the warnings.
pub fn check(path: &Path, handles: &mut Handles) -> Result<String, String> {
    let outcome = conf::load(path);
    let mut faults = outcome.check(Records::default());
    let sources = outcome.sources.clone();
    if faults.iter().any(Fault::is_error) {
        return Err(sources.render(&faults));
    }
    let Ok(loaded) = outcome.into_loaded() else { return Err(sources.render(&faults)) };
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
    let text = sources.render(&faults);
    if faults.iter().any(Fault::is_error) { Err(text) } else { Ok(text) }
}
