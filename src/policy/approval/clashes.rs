//! Names of one listing that cannot be told apart (contract §6).

use std::collections::BTreeMap;

use super::ListedTool;
use crate::model::name::exposed;

/// Why names of this listing cannot be told apart, by name.
pub(super) fn clashes(server: &str, listed: &[ListedTool]) -> BTreeMap<String, String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in listed {
        *times.entry(&tool.name).or_default() += 1;
    }
    let mut bearers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in times.keys() {
        bearers.entry(exposed(server, name)).or_default().push(name);
    }
    let mut faults = BTreeMap::new();
    for (exposed, names) in bearers {
        for name in &names {
            match times.get(name) {
                Some(times @ 2..) => {
                    faults.insert((*name).to_owned(), format!("its server lists this name {times} times"))
                }
                _ if names.len() > 1 => {
                    let reason = format!("{} tools of its server have the exposed name `{exposed}`", names.len());
                    faults.insert((*name).to_owned(), reason)
                }
                _ => None,
            };
        }
    }
    faults
}
