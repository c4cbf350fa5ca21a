//! The tool lists of real servers through a running gateway: discovered, approved, listed on both endpoints in every revision, and checked.
//!
//! All that are kept beside the project (`TOOLGATE_SHARED`, else `../shared`), or the few in `tests/cases/schemas`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::support::{
    Faults,
    client::Client,
    gateway::{Gateway, Gw},
    policy::Access::Write,
    run,
    upstream::{Up, Upstream},
};

/// Tools that are isolated for a reason that only a compiler of schemas sees: list, tool, and what the reason says.
const UNUSABLE: &[(&str, &str, &str)] = &[("sylphx-pdf-reader-live", "read_pdf", "inputSchema")];

/// One server's list.
struct List {
    slug: String,
    tools: Vec<Value>,
}

fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("TOOLGATE_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let all = shared.join("schemas");
    if all.is_dir() { all } else { root.join("tests/cases/schemas") }
}

fn lists() -> Vec<List> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder()).expect("lists").map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let list: Value = serde_json::from_slice(&fs::read(&path).unwrap()).expect("JSON");
            let tools = list["tools"].as_array().expect("tools").clone();
            List { slug: path.file_stem().unwrap().to_str().unwrap().to_owned(), tools }
        })
        .collect()
}

impl List {
    /// The names that must be isolated, each with a word of its reason; by what the contract says of a definition.
    fn isolated(&self) -> BTreeMap<&str, &'static str> {
        let mut seen = BTreeSet::new();
        let mut out = BTreeMap::new();
        for tool in &self.tools {
            let Some(name) = tool["name"].as_str() else { continue };
            if !seen.insert(name) {
                out.insert(name, "name");
            } else if tool.get("inputSchema").is_none() || tool["inputSchema"]["type"] != "object" {
                out.insert(name, "inputSchema");
            }
        }
        let unusable = UNUSABLE.iter().filter(|(list, ..)| *list == self.slug);
        out.extend(unusable.map(|(_, tool, reason)| (*tool, *reason)));
        out
    }

    /// What is listed, by name.
    fn listed(&self) -> BTreeMap<&str, &Value> {
        let isolated = self.isolated();
        let named = self.tools.iter().filter_map(|tool| Some((tool["name"].as_str()?, tool)));
        named.filter(|(name, _)| !isolated.contains_key(name)).collect()
    }
}

async fn gateway(lists: &[List]) -> (Gw, Vec<Up>) {
    let mut gateway = Gateway::new();
    let mut ups = Vec::new();
    for list in lists {
        let up = list.tools.iter().cloned().fold(Upstream::new().page(40), Upstream::definition).run().await;
        gateway = gateway.server(&list.slug, &up).grant("ann", &list.slug, Write);
        ups.push(up);
    }
    let gw = gateway.approve_all().run().await;
    for list in lists {
        // Ready is ready after ten seconds, also with servers that were not listed yet.
        let client = gw.client("ann").server(&list.slug);
        let whole = async || (client.list().await.len() == list.listed().len()).then_some(());
        crate::support::eventually(&format!("the list of {}", list.slug), whole).await;
    }
    (gw, ups)
}

const REVISIONS: [Option<&str>; 4] = [None, Some("2025-11-25"), Some("2025-06-18"), Some("2025-03-26")];

fn speaking(client: Client, revision: Option<&'static str>) -> Client {
    match revision {
        None => client,
        Some(revision) => client.legacy(revision),
    }
}

/// A listed tool is the approved definition, but for what the contract takes out or opens.
#[track_caller]
fn check_listed(tool: &Value, definition: &Value, revision: Option<&str>) {
    assert_eq!(tool["inputSchema"], definition["inputSchema"]);
    assert_eq!(tool["description"], definition["description"]);
    assert_eq!(tool["annotations"], definition["annotations"]);
    assert!(tool.get("_meta").is_none() && tool.get("execution").is_none(), "{tool}");
    let output = tool.get("outputSchema");
    match definition.get("outputSchema") {
        Some(_) if revision != Some("2025-03-26") => {
            let alternatives = output.and_then(|schema| schema["anyOf"].as_array()).map(Vec::len);
            assert!(output.is_none() || alternatives == Some(2), "{tool}");
        }
        _ => assert!(output.is_none(), "{tool}"),
    }
}

#[test]
fn every_list_is_shown_whole_but_for_its_bad_tools() {
    run(async {
        let lists = lists();
        let (gw, _ups) = gateway(&lists).await;
        let mut faults = Faults::default();
        for revision in REVISIONS {
            let all = speaking(gw.client("ann"), revision).list().await;
            let expected: usize = lists.iter().map(|list| list.listed().len()).sum();
            let row = async { assert_eq!(all.len(), expected, "tools on the aggregated endpoint") };
            faults.row(format!("all together, {revision:?}"), row).await;
            let names: BTreeSet<&str> = all.iter().filter_map(|tool| tool["name"].as_str()).collect();
            for list in &lists {
                let client = speaking(gw.client("ann").server(&list.slug), revision);
                let row = async {
                    let shown = client.list().await;
                    let listed = list.listed();
                    let have: Vec<&str> = shown.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
                    assert_eq!(have.iter().copied().collect::<BTreeSet<_>>(), listed.keys().copied().collect());
                    for tool in &shown {
                        check_listed(tool, listed[tool["name"].as_str().unwrap()], revision);
                    }
                    for name in listed.keys() {
                        let exposed = exposed(&list.slug, name);
                        assert!(names.contains(exposed.as_str()), "{exposed} is not on the aggregated endpoint");
                    }
                };
                faults.row(format!("{}, {revision:?}", list.slug), row).await;
            }
        }
        faults.assert_none(4 * (lists.len() + 1));
    });
}

/// The exposed name, made here from the contract's words (§1).
fn exposed(slug: &str, tool: &str) -> String {
    let whole = format!("{slug}_{tool}");
    let clean: String =
        whole.chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' }).collect();
    if clean.len() <= 64 {
        return clean;
    }
    format!("{}_{}", &clean[..55], &crate::support::pin::hex(whole.as_bytes())[..8])
}

#[test]
fn every_schema_decides_and_the_bad_ones_say_why() {
    run(async {
        let lists = lists();
        let (gw, ups) = gateway(&lists).await;
        let mut faults = Faults::default();
        let mut tools = 0;
        for (list, up) in lists.iter().zip(&ups) {
            let client = gw.client("ann").server(&list.slug);
            let isolated = list.isolated();
            for (name, definition) in list.listed() {
                tools += 1;
                let row = async {
                    let called = up.calls().len();
                    let answer = client.call(name, json!({ "no_such_member_of_any_schema": {} })).await;
                    let strict = definition["inputSchema"]["additionalProperties"] == false;
                    let required = definition["inputSchema"]["required"].as_array().is_some_and(|r| !r.is_empty());
                    if strict || required {
                        let message = answer.refused("invalid_tool_arguments");
                        assert!(message.contains("do not match its input schema"), "{message}");
                        assert_eq!(up.calls().len(), called, "the server saw it");
                    } else {
                        assert_eq!(up.calls().len(), called + 1, "{}", answer.wire());
                    }
                };
                faults.row(format!("{}: {name}", list.slug), row).await;
            }
            for (name, reason) in isolated {
                tools += 1;
                let row = async {
                    let answer = client.call(name, json!({})).await;
                    // The pin is on the first of two of a name; the one that is recorded may be the other.
                    let code = answer.result()["_meta"]["toolgate/refusal"]["code"].as_str().unwrap_or_default();
                    if reason == "name" && code == "tool_definition_changed" {
                        return;
                    }
                    let message = answer.refused("invalid_tool_arguments");
                    assert!(message.contains("cannot check") && message.contains(reason), "{message}");
                    eprintln!("isolated: {}: {name}: {message}", list.slug);
                };
                faults.row(format!("{}: {name}, isolated", list.slug), row).await;
            }
            up.assert_spoken_to_well();
        }
        faults.assert_none(tools);
    });
}
