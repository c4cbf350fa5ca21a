//! `toolgate fleet`: the nodes that share the store, and what each serves.

use std::{collections::BTreeSet, process::ExitCode};

use serde_json::Value as Json;

use super::{
    client::{Api, Failure},
    print::{self, Out},
};

const COLUMNS: [(&str, &str); 8] = [
    ("NAME", "/name"),
    ("LIVE", "/live"),
    ("SILENT", "/silent_seconds"),
    ("REVISION", "/revision"),
    ("REJECTED", "/rejected"),
    ("FILES", "/files"),
    ("VERSION", "/version"),
    ("WHY", "/why"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out) -> Result<ExitCode, Failure> {
    let answer = api.get("/v1/nodes")?;
    let mut nodes = answer.get("nodes").and_then(Json::as_array).cloned().unwrap_or_default();
    if out.json {
        return out.value(&answer, |_| String::new());
    }
    let live = |node: &&Json| node.get("live") == Some(&Json::Bool(true));
    let files: BTreeSet<String> =
        nodes.iter().filter(live).map(|node| node.get("files").unwrap_or_default().to_string()).collect();
    for node in &mut nodes {
        // As long as it tells files apart at a glance.
        if let Some(Json::String(files)) = node.get_mut("files") {
            files.truncate(8);
        }
    }
    let shown = out.list("nodes", &nodes, &COLUMNS)?;
    if files.len() > 1 {
        print::text("\nThe policy files of these nodes differ: what files own is not the same on each of them.\n")?;
    }
    Ok(shown)
}
