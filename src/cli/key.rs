//! `toolgate key`.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value as Json};

use super::{
    client::{Api, Failure, members, path, put},
    print::{self, Out},
};

/// Commands on keys.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the keys.
    List {
        /// Only those of this organization.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Show a key.
    Show {
        /// Its id.
        id: String,
    },
    /// Make a key; its token is printed once.
    Create {
        /// Its id, unique everywhere.
        id: String,
        /// Its project.
        #[arg(long)]
        project: String,
        /// Its environment.
        #[arg(long)]
        environment: String,
        /// Its owner; needed where there are several organizations.
        #[arg(long)]
        organization: Option<String>,
        /// Not valid from then on: 2027-12-31T00:00:00Z.
        #[arg(long)]
        expires: Option<String>,
        /// A network that it may be used from; none: anywhere. May be repeated.
        #[arg(long)]
        allow_ip: Vec<String>,
        /// Requests: 120/min.
        #[arg(long)]
        rate_limit: Option<String>,
    },
    /// Change members of a key: `disabled=true`, `rate_limit=120/min`; `null` takes one back to its default.
    Set {
        /// Its id.
        id: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE", required = true)]
        members: Vec<String>,
        /// Confirm that the key gets the trifecta by it.
        #[arg(long)]
        confirm_trifecta: bool,
    },
    /// Draw a new token, printed once; the old one stays good for a while.
    Rotate {
        /// Its id.
        id: String,
        /// How long the old token stays good; a day unless given.
        #[arg(long)]
        overlap: Option<String>,
    },
    /// Revoke a key for good; also one that a policy file owns.
    Revoke {
        /// Its id.
        id: String,
        /// Wait until every node of the fleet has it, half a minute at most; exit 1 if one has not.
        #[arg(long)]
        wait: bool,
    },
}

const COLUMNS: [(&str, &str); 9] = [
    ("ID", "/id"),
    ("ORGANIZATION", "/organization"),
    ("PROJECT", "/project"),
    ("ENVIRONMENT", "/environment"),
    ("REVOKED", "/revoked"),
    ("DISABLED", "/disabled"),
    ("EXPIRES", "/expires"),
    ("LAST USED", "/last_used"),
    ("MANAGED BY", "/managed_by"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { organization } => {
            out.list("keys", &api.list(&path(&["keys"], organization.as_deref()), "keys")?, &COLUMNS)
        }
        Command::Show { id } => out.object(&api.get(&path(&["keys", id], None))?),
        Command::Create { id, project, environment, organization, expires, allow_ip, rate_limit } => {
            let mut body = Map::new();
            put(&mut body, "id", Some(id.as_str()));
            put(&mut body, "project", Some(project.as_str()));
            put(&mut body, "environment", Some(environment.as_str()));
            put(&mut body, "organization", organization.as_deref());
            put(&mut body, "expires", expires.as_deref());
            put(&mut body, "allow_ips", Some(allow_ip.clone()).filter(|list| !list.is_empty()));
            put(&mut body, "rate_limit", rate_limit.as_deref());
            out.value(&api.post("/v1/keys", Some(&body))?, with_token)
        }
        Command::Set { id, members: written, confirm_trifecta } => {
            let mut body = members(written)?;
            put(&mut body, "confirm_trifecta", confirm_trifecta.then_some(true));
            out.object(&api.patch(&path(&["keys", id], None), &body)?)
        }
        Command::Rotate { id, overlap } => {
            let mut body = Map::new();
            put(&mut body, "overlap", overlap.as_deref());
            out.value(&api.post(&path(&["keys", id, "rotate"], None), Some(&body))?, with_token)
        }
        Command::Revoke { id, wait } => revoke(api, out, (id, *wait)),
    }
}

fn revoke(api: &Api, out: Out, (id, wait): (&str, bool)) -> Result<ExitCode, Failure> {
    let path = path(&["keys", id, "revoke"], None) + if wait { "?wait=30s" } else { "" };
    let key = api.post(&path, None)?;
    let shown = out.object(&key)?;
    match key.get("behind").and_then(Json::as_array) {
        Some(behind) if !behind.is_empty() => Err(Failure::Broken(format!(
            "the key is revoked, but these nodes do not know it yet, or have fallen silent: {}",
            print::cell(key.get("behind"))
        ))),
        _ => Ok(shown),
    }
}

/// A key, and below it the token that is never shown again.
fn with_token(key: &Json) -> String {
    let mut key = key.clone();
    let token = key.as_object_mut().and_then(|members| members.remove("token"));
    let token = token.as_ref().and_then(Json::as_str).unwrap_or_default();
    format!("{}\nThe token, shown this once:\n{token}\n", print::members(&key))
}
