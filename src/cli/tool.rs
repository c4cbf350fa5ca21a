//! `toolgate tool`: the reviewer's command.

mod review;

use std::{fmt::Write as _, io::Read as _, process::ExitCode};

use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value as Json, json};

use super::{
    client::{Api, Failure, path, put},
    print::Out,
};

/// Commands on tools.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List tools of one server, or of all. With --changed only what a reviewer must look at; exits 1 if there is any.
    List {
        /// The server's slug; none: every server.
        slug: Option<String>,
        /// Only tools whose definition changed after it was approved; exit 1 if there is one.
        #[arg(long)]
        changed: bool,
        /// Only tools of this status.
        #[arg(long, conflicts_with = "changed")]
        status: Option<Status>,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Show a tool as its server lists it.
    Show(Named),
    /// Show what changed since a tool was approved, member by member, and what to look at twice.
    Diff(Named),
    /// Approve the definition that was reviewed, named by its hash.
    Approve {
        #[command(flatten)]
        named: Named,
        /// The hash of the definition that was reviewed, as `tool diff` shows it.
        #[arg(long)]
        sha256: String,
        /// What a `read` grant may call.
        #[arg(long)]
        class: Class,
        /// Legs of the trifecta: `none`, or a list of private_data, untrusted_content, sends_out.
        #[arg(long, value_delimiter = ',', required = true)]
        labels: Vec<Label>,
        /// Confirm that keys get the trifecta by it.
        #[arg(long)]
        confirm_trifecta: bool,
        /// Why, for the audit record.
        #[arg(long)]
        note: Option<String>,
    },
    /// Approve every tool of a list that was reviewed: what `tool list --json` printed, with `class` and `labels` filled in.
    ApproveAll {
        /// The file; `-` for standard input.
        file: String,
        /// Confirm that keys get the trifecta by it.
        #[arg(long)]
        confirm_trifecta: bool,
    },
    /// Block a tool by hand; also one that a policy file pins.
    Block {
        #[command(flatten)]
        named: Named,
        /// Why, for the audit record.
        #[arg(long)]
        note: Option<String>,
    },
    /// Change class or labels of an approved tool.
    Set {
        #[command(flatten)]
        named: Named,
        /// What a `read` grant may call.
        #[arg(long)]
        class: Option<Class>,
        /// Legs of the trifecta: `none`, or a list.
        #[arg(long, value_delimiter = ',')]
        labels: Vec<Label>,
        /// Confirm that keys get the trifecta by it.
        #[arg(long)]
        confirm_trifecta: bool,
    },
    /// Print the decisions as `[[approval]]` lines of a policy file, to be reviewed in a repository.
    Export {
        /// The server's slug; none: every server.
        slug: Option<String>,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
    },
}

/// A tool by its name.
#[derive(Debug, clap::Args)]
pub(super) struct Named {
    /// The server's slug.
    slug: String,
    /// The server's own name for the tool.
    tool: String,
    /// Needed where several organizations have that slug.
    #[arg(long)]
    organization: Option<String>,
}

impl Named {
    fn path(&self, action: Option<&str>) -> String {
        let mut segments = vec!["servers", &self.slug, "tools", &self.tool];
        segments.extend(action);
        path(&segments, self.organization.as_deref())
    }
}

/// What may be done with a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Status {
    /// Nobody has decided.
    Pending,
    /// Callable.
    Approved,
    /// Its definition is another one than approved.
    Changed,
    /// No longer listed.
    Removed,
    /// Blocked by hand.
    Blocked,
}

/// What a `read` grant may call.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Class {
    /// Reads only.
    Read,
    /// May change something.
    Write,
}

/// A leg of the trifecta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Label {
    /// No leg.
    None,
    /// Gives access to private data.
    PrivateData,
    /// Brings in content that others control.
    UntrustedContent,
    /// Can send data out.
    SendsOut,
}

pub(super) const COLUMNS: [(&str, &str); 8] = [
    ("SERVER", "/server"),
    ("TOOL", "/name"),
    ("STATUS", "/status"),
    ("CLASS", "/class"),
    ("LABELS", "/labels"),
    ("MANAGED BY", "/managed_by"),
    ("SHA256", "/sha256"),
    ("FAULT", "/fault"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { slug, changed, status, organization } => {
            let status = if *changed { Some(Status::Changed) } else { *status };
            let tools = collect(api, slug.as_deref(), organization.as_deref(), status)?;
            out.list("tools", &tools, &COLUMNS)?;
            Ok(if *changed && !tools.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        }
        Command::Show(named) => out.value(&api.get(&named.path(None))?, review::show),
        Command::Diff(named) => out.value(&api.get(&named.path(None))?, review::diff),
        Command::Approve { named, sha256, class, labels, confirm_trifecta, note } => {
            let mut body = Map::new();
            put(&mut body, "expected_sha256", Some(sha256.as_str()));
            put(&mut body, "class", Some(word(class)));
            put(&mut body, "labels", Some(words(labels)?));
            put(&mut body, "confirm_trifecta", confirm_trifecta.then_some(true));
            put(&mut body, "note", note.as_deref());
            out.object(&api.post(&named.path(Some("approve")), Some(&body))?)
        }
        Command::ApproveAll { file, confirm_trifecta } => approve_all(api, out, file, *confirm_trifecta),
        Command::Block { named, note } => {
            let mut body = Map::new();
            put(&mut body, "note", note.as_deref());
            out.object(&api.post(&named.path(Some("block")), Some(&body))?)
        }
        Command::Set { named, class, labels, confirm_trifecta } => {
            let mut body = Map::new();
            put(&mut body, "class", class.as_ref().map(word));
            put(&mut body, "labels", (!labels.is_empty()).then(|| words(labels)).transpose()?);
            put(&mut body, "confirm_trifecta", confirm_trifecta.then_some(true));
            out.object(&api.patch(&named.path(None), &body)?)
        }
        Command::Export { slug, organization } => {
            let tools = collect(api, slug.as_deref(), organization.as_deref(), None)?;
            let approvals: Vec<Json> = tools.iter().filter_map(approval).collect();
            out.value(&json!({ "approval": approvals }), |_| approvals.iter().map(approval_lines).collect())
        }
    }
}

/// Tools of one server or of all, by server and name.
fn collect(
    api: &Api,
    slug: Option<&str>,
    organization: Option<&str>,
    status: Option<Status>,
) -> Result<Vec<Json>, Failure> {
    let mut list = match slug {
        Some(slug) => path(&["servers", slug, "tools"], organization),
        None => path(&["tools"], organization),
    };
    if let Some(status) = status {
        let joint = if list.contains('?') { '&' } else { '?' };
        let _ = write!(list, "{joint}status={}", word(&status));
    }
    api.list(&list, "tools")
}

/// Approves every tool of a list; each is bound to the hash in the list.
fn approve_all(api: &Api, out: Out, file: &str, confirm_trifecta: bool) -> Result<ExitCode, Failure> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().lock().read_to_string(&mut text).map(|_| ()),
        file => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|why| Failure::Usage(format!("{file}: {why}")))?;
    let wrong = |why: &str| Failure::Usage(format!("{file}: {why}"));
    let list: Json = serde_json::from_str(&text).map_err(|why| wrong(&why.to_string()))?;
    let tools = list.get("tools").and_then(Json::as_array).ok_or_else(|| wrong("there is no list `tools`"))?;
    let mut done = Vec::new();
    for tool in tools {
        let text = |name: &str| tool.get(name).and_then(Json::as_str);
        let (Some(server), Some(name)) = (text("server"), text("name")) else {
            return Err(wrong("each of `tools` needs `server` and `name`"));
        };
        let mut body = Map::new();
        for (member, value) in
            [("expected_sha256", tool.get("sha256")), ("class", tool.get("class")), ("labels", tool.get("labels"))]
        {
            let missing = || wrong(&format!("`{server}/{name}` needs `{}`", member.trim_start_matches("expected_")));
            put(&mut body, member, Some(value.filter(|value| !value.is_null()).ok_or_else(missing)?.clone()));
        }
        put(&mut body, "confirm_trifecta", confirm_trifecta.then_some(true));
        let at = path(&["servers", server, "tools", name, "approve"], text("organization"));
        done.push(api.post(&at, Some(&body)).map_err(|failure| match failure {
            Failure::Refused { code, message } => Failure::Refused {
                code,
                message: format!("{server}/{name}: {message} ({} approved before it)", done.len()),
            },
            other => other,
        })?);
    }
    out.list("tools", &done, &COLUMNS)
}

/// The decision on a tool in the shape of `[[approval]]`; none while nobody has decided.
fn approval(tool: &Json) -> Option<Json> {
    let sha256 = tool.get("approved_sha256").filter(|pin| !pin.is_null())?;
    let blocked = tool.get("status").and_then(Json::as_str) == Some("blocked");
    let status = if blocked { "blocked" } else { "approved" };
    let of = |name: &str| tool.get(name).cloned().unwrap_or_default();
    Some(json!({
        "organization": of("organization"), "server": of("server"), "tool": of("name"), "sha256": sha256,
        "class": of("class"), "labels": of("labels"), "status": status,
    }))
}

fn approval_lines(approval: &Json) -> String {
    let mut out = "[[approval]]\n".to_owned();
    for name in ["organization", "server", "tool", "sha256", "class", "labels", "status"] {
        // A JSON string or list of plain strings is one of TOML too, but for DEL.
        let value = approval.get(name).cloned().unwrap_or_default().to_string().replace('\u{7f}', "\\u007F");
        let _ = writeln!(out, "{name} = {value}");
    }
    out.push('\n');
    out
}

fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn words(labels: &[Label]) -> Result<Vec<String>, Failure> {
    if labels.contains(&Label::None) {
        return match labels {
            [_] => Ok(Vec::new()),
            _ => Err(Failure::Usage("`none` stands alone in --labels".to_owned())),
        };
    }
    Ok(labels.iter().map(word).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use serde_json::json;

    use super::{approval, approval_lines};

    #[test]
    fn exported_decisions_read_as_toml() {
        let tool = json!({
            "organization": "acme", "server": "gh", "name": "odd \"name\"\u{7f}\u{1b}é", "status": "approved",
            "approved_sha256": "0".repeat(64), "class": "read", "labels": ["private_data"]
        });
        let written: toml::Table = approval_lines(&approval(&tool).unwrap()).parse().unwrap();
        let one = &written["approval"][0];
        assert_eq!(one["tool"].as_str(), tool["name"].as_str());
        assert_eq!(one["labels"][0].as_str(), Some("private_data"));
        assert!(approval(&json!({ "approved_sha256": null })).is_none());
    }
}
