//! Conf and policy as written: the cases of `tests/cases/conf/`, the contract's examples, and the files that are shipped.
//!
//! A case is text in sections: `=== file PATH` (the conf is `toolgate.toml`; it and `policy.toml` are empty when left out),
//! `=== env`, `=== api KIND` (objects that the management API made), `=== json KIND` (JSON that the API is sent),
//! and what is expected: `=== faults` as rendered, and `=== records` as JSON. `UPDATE=1` writes what is expected anew.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use serde_json::{Value as Json, json};
use toolgate::{
    conf::{self, Fault, Outcome, Sources, policy},
    model::records::{Origin, Owned, Records},
};

mod check;
mod options;
mod policy_files;

#[derive(Default)]
struct Case {
    files: Vec<(String, String)>,
    env: BTreeMap<String, String>,
    api: Vec<(String, Json)>,
    json: Vec<(String, Json)>,
}

fn parse(text: &str) -> (Case, Vec<(String, String)>) {
    let mut sections: Vec<(String, String)> = vec![(String::new(), String::new())];
    for line in text.lines() {
        match line.strip_prefix("=== ") {
            Some(head) => sections.push((head.to_owned(), String::new())),
            None => {
                let body = &mut sections.last_mut().unwrap().1;
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    let mut case = Case::default();
    for (head, body) in &sections {
        let json = || serde_json::from_str(body).unwrap_or_else(|why| panic!("{head}: {why}"));
        match head.split_once(' ').unwrap_or((head, "")) {
            ("file", path) => case.files.push((path.to_owned(), body.clone())),
            ("env", _) => {
                let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
                case.env.extend(body.lines().filter_map(pair));
            }
            ("api", kind) => case.api.push((kind.to_owned(), json())),
            ("json", kind) => case.json.push((kind.to_owned(), json())),
            ("faults" | "records" | "", _) => {}
            (other, _) => panic!("no such section: {other}"),
        }
    }
    (case, sections)
}

fn outcome(case: &Case) -> Outcome {
    let mut files: Vec<(&str, &str)> = case.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    if !files.iter().any(|(path, _)| *path == "toolgate.toml") {
        files.insert(0, ("toolgate.toml", ""));
    }
    if !files.iter().any(|(path, _)| *path == "policy.toml") {
        files.push(("policy.toml", ""));
    }
    files.sort_by_key(|(path, _)| *path != "toolgate.toml");
    conf::from_texts(&files, &|name| case.env.get(name).cloned())
}

fn from_api<T>(objects: &mut Vec<Owned<T>>, json: &Json, read: fn(&Json) -> Result<T, Vec<Fault>>) {
    objects.push(Owned { value: read(json).unwrap(), origin: Origin::Api });
}

fn api(case: &Case) -> Records {
    let mut records = Records::default();
    for (kind, json) in &case.api {
        match kind.as_str() {
            "organization" => from_api(&mut records.organizations, json, policy::organization_from_json),
            "project" => from_api(&mut records.projects, json, policy::project_from_json),
            "server" => from_api(&mut records.servers, json, policy::server_from_json),
            "key" => from_api(&mut records.keys, json, policy::key_from_json),
            "grant" => from_api(&mut records.grants, json, policy::grant_from_json),
            "approval" => from_api(&mut records.approvals, json, policy::approval_from_json),
            "guardrail" => from_api(&mut records.guardrails, json, policy::guardrail_from_json),
            other => panic!("no such kind: {other}"),
        }
    }
    records
}

fn json_faults(kind: &str, json: &Json) -> Vec<Fault> {
    let read = match kind {
        "organization" => policy::organization_from_json(json).map(|_| ()),
        "project" => policy::project_from_json(json).map(|_| ()),
        "server" => policy::server_from_json(json).map(|_| ()),
        "key" => policy::key_from_json(json).map(|_| ()),
        "grant" => policy::grant_from_json(json).map(|_| ()),
        "approval" => policy::approval_from_json(json).map(|_| ()),
        "guardrail" => policy::guardrail_from_json(json).map(|_| ()),
        other => panic!("no such kind: {other}"),
    };
    read.err().unwrap_or_default()
}

fn list<T>(objects: &[Owned<T>], write: fn(&T) -> Json) -> Json {
    objects.iter().map(|owned| write(&owned.value)).collect()
}

fn records_json(records: &Records) -> Json {
    json!({
        "organization": list(&records.organizations, policy::organization_to_json),
        "project": list(&records.projects, policy::project_to_json),
        "server": list(&records.servers, policy::server_to_json),
        "key": list(&records.keys, policy::key_to_json),
        "grant": list(&records.grants, policy::grant_to_json),
        "approval": list(&records.approvals, policy::approval_to_json),
        "guardrail": list(&records.guardrails, policy::guardrail_to_json),
    })
}

fn resolved(case: &Case) -> Records {
    let conf::Loaded { conf, mut policy, sources, .. } = outcome(case).into_loaded().unwrap();
    policy.add(api(case));
    let (records, faults) = conf::resolve(policy, &conf, &sources);
    assert!(!faults.iter().any(Fault::is_error), "{}", sources.render(&faults));
    records
}

/// What a case's section should hold.
fn actual(case: &Case, head: &str) -> String {
    if head == "records" {
        return serde_json::to_string_pretty(&records_json(&resolved(case))).unwrap() + "\n";
    }
    if let Some((kind, json)) = case.json.first() {
        return Sources::default().render(&json_faults(kind, json));
    }
    let outcome = outcome(case);
    let faults = outcome.check(api(case));
    outcome.sources.render(&faults)
}

#[test]
fn every_case_gives_the_faults_it_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/conf");
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    paths.sort();
    assert!(paths.len() >= 40, "{} cases", paths.len());
    let mut wrong = String::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let (case, sections) = parse(&text);
        assert!(
            sections.iter().any(|(head, _)| head == "faults" || head == "records"),
            "{} expects nothing",
            path.display()
        );
        let mut fresh = String::new();
        for (head, body) in &sections {
            let expected = matches!(head.as_str(), "faults" | "records");
            let body = if expected { &actual(&case, head) } else { body };
            // What stands in a case where a secret could is called so.
            assert!(!expected || !body.contains("hunter2"), "{} shows a secret", path.display());
            if !head.is_empty() {
                let _ = writeln!(fresh, "=== {head}");
            }
            fresh.push_str(body);
        }
        if fresh != text {
            if std::env::var_os("UPDATE").is_some() {
                fs::write(&path, fresh).unwrap();
            } else {
                let _ = writeln!(wrong, "{} should be:\n{fresh}", path.display());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn files_are_read_from_the_disk_in_name_order() {
    let folder = std::env::temp_dir().join(format!("toolgate-conf-[{}]", std::process::id()));
    fs::create_dir_all(folder.join("policy.d")).unwrap();
    fs::write(folder.join("toolgate.toml"), "[policy]\nfiles = [\"policy.d/*.toml\", \"policy.d/b.toml\"]\n").unwrap();
    let organization = |id| {
        format!("[[organization]]\nid = \"{id}\"\nplan = \"team\"\nstatus = \"active\"\nsubscription = \"none\"\n")
    };
    for (file, id) in [("b.toml", "b"), ("a.toml", "a"), (".hidden.toml", "hidden"), ("c.toml.bak", "c")] {
        fs::write(folder.join("policy.d").join(file), organization(id)).unwrap();
    }
    let loaded = conf::load(&folder.join("toolgate.toml")).into_loaded().unwrap();
    assert_eq!(loaded.warnings, []);
    let (records, _) = conf::resolve(loaded.policy, &loaded.conf, &loaded.sources);
    let ids: Vec<_> = records.organizations.iter().map(|owned| owned.value.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    fs::write(folder.join("policy.d/b.toml"), b"\n\xff").unwrap();
    let rejected = conf::load(&folder.join("toolgate.toml")).into_loaded().unwrap_err();
    let rendered = rejected.sources.render(&rejected.faults);
    assert!(rendered.contains("policy.d/b.toml: it is not UTF-8 in line 2"), "{rendered}");
    let conf::Rejected { faults, .. } = conf::load(&folder.join("none.toml")).into_loaded().unwrap_err();
    assert!(faults[0].message.contains("none.toml"), "{faults:?}");
    fs::remove_dir_all(&folder).unwrap();
}

proptest::proptest! {
    /// Whatever a file holds, reading it ends in faults or in a conf, and every fault can be shown.
    #[test]
    fn no_text_breaks_the_reader(cut in 0usize..6000, put in "[\\[\\]{}\"'=.,#\\$a-z0-9é\\n\\\\ -]{0,12}", gap in 0usize..40) {
        for text in [policy_files::EXAMPLE, &conf::reference()] {
            let edge = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let (from, to) = (edge(cut), edge(cut + gap));
            let text = format!("{}{put}{}", &text[..from], &text[to..]);
            for files in [[("toolgate.toml", text.as_str()), ("policy.toml", "")], [("toolgate.toml", ""), ("policy.toml", &text)]] {
                let outcome = conf::from_texts(&files, &|_| None);
                let faults = outcome.check(Records::default());
                let rendered = outcome.sources.render(&faults);
                proptest::prop_assert_eq!(faults.is_empty(), rendered.is_empty());
                proptest::prop_assert!(rendered.lines().filter(|line| line.contains("error: ") || line.contains("warning: ")).count() >= faults.len());
            }
        }
    }
}
