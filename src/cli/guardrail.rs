//! `toolgate guardrail`.

use std::process::ExitCode;

use clap::Subcommand;

use super::{
    client::{Api, Failure, members, path, put},
    print::Out,
    screening,
};

/// Commands on guardrails.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the guardrails.
    List {
        /// Only those of this organization.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Show a guardrail.
    Show {
        /// Its name.
        name: String,
        /// Needed where several organizations have one of that name.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Make a guardrail: `guardrail add no-secrets stage=input detector=secrets action=block`.
    Add {
        /// Its name.
        name: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE")]
        members: Vec<String>,
        /// Its owner; needed where there are several organizations.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Change members of a guardrail; `null` takes one back to its default.
    Set {
        /// Its name.
        name: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE", required = true)]
        members: Vec<String>,
        /// Needed where several organizations have one of that name.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Delete a guardrail that nothing refers to.
    Delete {
        /// Its name.
        name: String,
        /// Needed where several organizations have one of that name.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Try text or a JSON file against the guardrails of the policy files: which rule matches where, and what follows.
    Test(screening::Arguments),
}

const COLUMNS: [(&str, &str); 7] = [
    ("NAME", "/name"),
    ("ORGANIZATION", "/organization"),
    ("STAGE", "/stage"),
    ("DETECTOR", "/detector"),
    ("ACTION", "/action"),
    ("SERVERS", "/servers"),
    ("MANAGED BY", "/managed_by"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { organization } => {
            out.list("guardrails", &api.list(&path(&["guardrails"], organization.as_deref()), "guardrails")?, &COLUMNS)
        }
        Command::Show { name, organization } => {
            out.object(&api.get(&path(&["guardrails", name], organization.as_deref()))?)
        }
        Command::Add { name, members: written, organization } => {
            let mut body = members(written)?;
            put(&mut body, "name", Some(name.as_str()));
            put(&mut body, "organization", organization.as_deref());
            out.object(&api.post("/v1/guardrails", Some(&body))?)
        }
        Command::Set { name, members: written, organization } => {
            out.object(&api.patch(&path(&["guardrails", name], organization.as_deref()), &members(written)?)?)
        }
        Command::Delete { name, organization } => {
            out.object(&api.delete(&path(&["guardrails", name], organization.as_deref()))?)
        }
        // Judged without a gateway, see `run` of the command line.
        Command::Test(_) => Ok(ExitCode::from(super::USAGE)),
    }
}
