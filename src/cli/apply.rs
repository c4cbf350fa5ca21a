//! `toolgate apply`: makes what policy files say through the API, object by object; what is there already stays as it is.
//!
//! For those who keep a policy in a repository and let a pipeline bring it to a gateway that does not read files. The same file
//! again changes nothing; what no file names is left alone.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use serde_json::{Map, Value as Json, json};

use super::{
    client::{Api, Failure, path},
    print::Out,
};

/// What to apply.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Policy files, applied together: first every organization, then every project, and so on.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Only tell what would be made and changed.
    #[arg(long)]
    dry_run: bool,
    /// Confirm that keys get the trifecta by it.
    #[arg(long)]
    confirm_trifecta: bool,
}

/// Kinds in the order in which one may name another, the API's word for the list, and the member that names one.
const KINDS: [(&str, &str, &str); 7] = [
    ("organization", "organizations", "id"),
    ("project", "projects", "id"),
    ("server", "servers", "slug"),
    ("key", "keys", "id"),
    ("guardrail", "guardrails", "name"),
    ("approval", "", "tool"),
    ("grant", "", "server"),
];

const COLUMNS: [(&str, &str); 3] = [("KIND", "/kind"), ("NAME", "/name"), ("RESULT", "/result")];

/// An object as a file writes it: the place of its kind, and its members.
type Written = (usize, Map<String, Json>);

/// Runs the command. The first refusal ends it; what was done before stays, and doing it again goes on from there.
pub(super) fn run(api: &Api, out: Out, asked: &Arguments) -> Result<ExitCode, Failure> {
    let mut objects: Vec<Written> = Vec::new();
    for file in &asked.files {
        objects.extend(read(file)?);
    }
    objects.sort_by_key(|(kind, _)| *kind);
    let applying = Applying { api, dry_run: asked.dry_run, confirm: asked.confirm_trifecta };
    let mut done = Vec::new();
    for (kind, members) in objects {
        let Some((kind, list, id)) = KINDS.get(kind).copied() else { continue };
        let text = |name: &str| members.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
        let name = match kind {
            "approval" => format!("{}/{}", text("server"), text("tool")),
            "grant" => format!("{}/{}", text("key"), text("server")),
            _ => text(id),
        };
        let result = match kind {
            "approval" => applying.approval(&members),
            "grant" => applying.grant(&members),
            _ => applying.object((list, &name), &members),
        };
        let result = result.map_err(|failure| with_place(failure, kind, &name, done.len()))?;
        done.push(json!({ "kind": kind, "name": name, "result": result }));
    }
    out.list("applied", &done, &COLUMNS)
}

fn with_place(failure: Failure, kind: &str, name: &str, before: usize) -> Failure {
    match failure {
        Failure::Refused { code, message } => Failure::Refused {
            code,
            message: format!("{kind} `{name}`: {message} ({before} objects before it are as written)"),
        },
        other => other,
    }
}

/// The objects of a file, each with the place of its kind.
fn read(file: &Path) -> Result<Vec<Written>, Failure> {
    let wrong = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|why| wrong(why.to_string()))?;
    let table: toml::Table = text.parse().map_err(|why: toml::de::Error| wrong(why.to_string()))?;
    let mut objects = Vec::new();
    for (name, value) in table {
        let place = KINDS.iter().position(|(kind, _, _)| *kind == name);
        let (Some(place), toml::Value::Array(items)) = (place, value) else {
            return Err(wrong(format!("`{name}` is no kind of object of a policy file")));
        };
        for item in items {
            match as_json(item) {
                Json::Object(members) => objects.push((place, members)),
                _ => return Err(wrong(format!("`[[{name}]]` must be a table"))),
            }
        }
    }
    Ok(objects)
}

/// A value as the API writes it: a moment is a string.
fn as_json(value: toml::Value) -> Json {
    match value {
        toml::Value::String(text) => Json::from(text),
        toml::Value::Integer(number) => Json::from(number),
        toml::Value::Float(number) => Json::from(number),
        toml::Value::Boolean(is) => Json::from(is),
        toml::Value::Datetime(moment) => Json::from(moment.to_string()),
        toml::Value::Array(items) => items.into_iter().map(as_json).collect(),
        toml::Value::Table(members) => members.into_iter().map(|(name, value)| (name, as_json(value))).collect(),
    }
}

struct Applying<'a> {
    api: &'a Api,
    dry_run: bool,
    confirm: bool,
}

const MADE: &str = "made";
const CHANGED: &str = "changed";
const SAME: &str = "unchanged";

impl Applying<'_> {
    fn object(&self, (list, name): (&str, &str), members: &Map<String, Json>) -> Result<&'static str, Failure> {
        let of_organization = matches!(list, "projects" | "servers" | "guardrails");
        let home = members.get("organization").and_then(Json::as_str).filter(|_| of_organization);
        let at = path(&[list, name], home);
        let Some(before) = self.find(&at)? else {
            return self.did(MADE, || self.api.post(&path(&[list], None), Some(&self.confirmed(members))));
        };
        if !differs(members, &before) {
            return Ok(SAME);
        }
        let revoked = |json: Option<&Json>| json == Some(&Json::Bool(true));
        if list == "keys" && revoked(members.get("revoked")) && !revoked(before.get("revoked")) {
            return self.did(CHANGED, || self.api.post(&path(&[list, name, "revoke"], None), None));
        }
        if self.dry_run {
            return Ok(CHANGED);
        }
        let after = self.api.patch(&at, &self.confirmed(members))?;
        Ok(if after == before { SAME } else { CHANGED })
    }

    fn grant(&self, members: &Map<String, Json>) -> Result<&'static str, Failure> {
        let text = |name: &str| members.get(name).and_then(Json::as_str).unwrap_or_default();
        let (key, server) = (text("key"), text("server"));
        let list = self.find(&path(&["keys", key, "grants"], None))?.unwrap_or_default();
        let grants = list.get("grants").and_then(Json::as_array);
        let before = grants.and_then(|grants| grants.iter().find(|grant| grant.get("server") == members.get("server")));
        if before.is_some_and(|before| !differs(members, before)) {
            return Ok(SAME);
        }
        let mut body = self.confirmed(members);
        body.remove("organization");
        let result = if before.is_some() { CHANGED } else { MADE };
        self.did(result, || self.api.put(&path(&["keys", key, "grants", server], None), &body))
    }

    fn approval(&self, members: &Map<String, Json>) -> Result<&'static str, Failure> {
        let text = |name: &str| members.get(name).and_then(Json::as_str);
        let at = |action: Option<&str>| {
            let mut segments =
                vec!["servers", text("server").unwrap_or_default(), "tools", text("tool").unwrap_or_default()];
            segments.extend(action);
            path(&segments, text("organization"))
        };
        let tool = self.api.get(&at(None))?;
        let now = |name: &str| tool.get(name).and_then(Json::as_str);
        if text("status") == Some("blocked") {
            let blocked = now("status") == Some("blocked");
            return if blocked { Ok(SAME) } else { self.did(CHANGED, || self.api.post(&at(Some("block")), None)) };
        }
        let class = members.get("class").cloned().unwrap_or_else(|| json!("write"));
        let labels = members.get("labels").cloned().unwrap_or_default();
        let pinned = now("status") == Some("approved") && now("approved_sha256") == text("sha256");
        if pinned && tool.get("class") == Some(&class) && tool.get("labels") == Some(&labels) {
            return Ok(SAME);
        }
        let mut body = Map::new();
        body.insert("expected_sha256".to_owned(), members.get("sha256").cloned().unwrap_or_default());
        body.insert("class".to_owned(), class);
        body.insert("labels".to_owned(), labels);
        self.did(CHANGED, || self.api.post(&at(Some("approve")), Some(&self.confirmed(&body))))
    }

    /// What is there; none: nothing is.
    fn find(&self, at: &str) -> Result<Option<Json>, Failure> {
        match self.api.get(at) {
            Ok(found) => Ok(Some(found)),
            Err(Failure::Refused { code, .. }) if code.as_deref() == Some("not_found") => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn did(&self, result: &'static str, call: impl FnOnce() -> Result<Json, Failure>) -> Result<&'static str, Failure> {
        if !self.dry_run {
            call()?;
        }
        Ok(result)
    }

    fn confirmed(&self, members: &Map<String, Json>) -> Map<String, Json> {
        let mut members = members.clone();
        if self.confirm {
            members.insert("confirm_trifecta".to_owned(), Json::Bool(true));
        }
        members
    }
}

/// Whether a member that was written is another one now. How a value is written may differ too; the API tells then.
fn differs(members: &Map<String, Json>, before: &Json) -> bool {
    members.iter().any(|(name, value)| name != "confirm_trifecta" && before.get(name) != Some(value))
}
