//! `toolgate server`.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value as Json};

use super::{
    client::{Api, Failure, members, path, put},
    print::Out,
};

/// Commands on MCP servers.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the servers.
    List {
        /// Only those of this organization.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Show a server.
    Show {
        /// Its slug.
        slug: String,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Register a server: it is asked for its tools, which wait for approval.
    Add {
        /// Its slug: [a-z0-9][a-z0-9_-]{0,39}.
        slug: String,
        /// Its MCP endpoint.
        url: String,
        /// Its owner; needed where there are several organizations.
        #[arg(long)]
        organization: Option<String>,
        /// A header with a credential of `admin.secrets` or systemd: `Authorization=github`. May be repeated.
        #[arg(long, value_name = "HEADER=NAME")]
        credential: Vec<String>,
        /// A project that may use it; none: all. May be repeated.
        #[arg(long)]
        project: Vec<String>,
        /// An environment that may use it; none: all. May be repeated.
        #[arg(long)]
        environment: Vec<String>,
        /// Other members, as in a policy file: `timeout=10s`, `rate_limit=600/min`.
        #[arg(value_name = "NAME=VALUE")]
        members: Vec<String>,
    },
    /// Change members of a server: `enabled=false`, `rate_limit=600/min`; `null` takes one back to its default.
    Set {
        /// Its slug.
        slug: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE", required = true)]
        members: Vec<String>,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
        /// Confirm that keys get the trifecta by it.
        #[arg(long)]
        confirm_trifecta: bool,
    },
    /// Delete a server, what is known of its tools, and the grants on it that were made through the API.
    Delete {
        /// Its slug.
        slug: String,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Ask a server for its tools now.
    Discover {
        /// Its slug.
        slug: String,
        /// Needed where several organizations have that slug.
        #[arg(long)]
        organization: Option<String>,
    },
}

const COLUMNS: [(&str, &str); 6] = [
    ("SLUG", "/slug"),
    ("ORGANIZATION", "/organization"),
    ("ENABLED", "/enabled"),
    ("PROTOCOL", "/settled_protocol"),
    ("MANAGED BY", "/managed_by"),
    ("URL", "/url"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { organization } => {
            let list = api.list(&path(&["servers"], organization.as_deref()), "servers")?;
            out.list("servers", &list, &COLUMNS)
        }
        Command::Show { slug, organization } => {
            out.object(&api.get(&path(&["servers", slug], organization.as_deref()))?)
        }
        Command::Add { slug, url, organization, credential, project, environment, members: more } => {
            let mut body = members(more)?;
            put(&mut body, "slug", Some(slug.as_str()));
            put(&mut body, "url", Some(url.as_str()));
            put(&mut body, "organization", organization.as_deref());
            put(&mut body, "projects", Some(project.clone()).filter(|list| !list.is_empty()));
            put(&mut body, "environments", Some(environment.clone()).filter(|list| !list.is_empty()));
            put(&mut body, "credential", credentials(credential)?);
            out.object(&api.post("/v1/servers", Some(&body))?)
        }
        Command::Set { slug, members: written, organization, confirm_trifecta } => {
            let mut body = members(written)?;
            put(&mut body, "confirm_trifecta", confirm_trifecta.then_some(true));
            out.object(&api.patch(&path(&["servers", slug], organization.as_deref()), &body)?)
        }
        Command::Delete { slug, organization } => {
            out.object(&api.delete(&path(&["servers", slug], organization.as_deref()))?)
        }
        Command::Discover { slug, organization } => {
            let answer = api.post(&path(&["servers", slug, "discover"], organization.as_deref()), None)?;
            let tools = answer.get("tools").and_then(Json::as_array).cloned().unwrap_or_default();
            out.list("tools", &tools, &super::tool::COLUMNS)
        }
    }
}

fn credentials(written: &[String]) -> Result<Option<Map<String, Json>>, Failure> {
    let mut headers = Map::new();
    for pair in written {
        let (header, name) =
            pair.split_once('=').ok_or_else(|| Failure::Usage(format!("`{pair}` is not written HEADER=NAME")))?;
        headers.insert(header.to_owned(), serde_json::json!({ "credential": name }));
    }
    Ok(Some(headers).filter(|headers| !headers.is_empty()))
}
