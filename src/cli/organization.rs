//! `toolgate organization`.

use std::process::ExitCode;

use clap::Subcommand;

use super::{
    client::{Api, Failure, members, path, put},
    print::Out,
};

/// Commands on organizations.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the organizations.
    List,
    /// Show an organization.
    Show {
        /// Its id.
        id: String,
    },
    /// Make an organization: `organization add acme plan=business status=active subscription=active`.
    Add {
        /// Its id.
        id: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE")]
        members: Vec<String>,
    },
    /// Change members of an organization; `null` takes one back to its default.
    Set {
        /// Its id.
        id: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE", required = true)]
        members: Vec<String>,
    },
    /// Delete an organization that nothing refers to.
    Delete {
        /// Its id.
        id: String,
    },
}

const COLUMNS: [(&str, &str); 5] = [
    ("ID", "/id"),
    ("PLAN", "/plan"),
    ("STATUS", "/status"),
    ("SUBSCRIPTION", "/subscription"),
    ("MANAGED BY", "/managed_by"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List => {
            out.list("organizations", &api.list(&path(&["organizations"], None), "organizations")?, &COLUMNS)
        }
        Command::Show { id } => out.object(&api.get(&path(&["organizations", id], None))?),
        Command::Add { id, members: written } => {
            let mut body = members(written)?;
            put(&mut body, "id", Some(id.as_str()));
            out.object(&api.post("/v1/organizations", Some(&body))?)
        }
        Command::Set { id, members: written } => {
            out.object(&api.patch(&path(&["organizations", id], None), &members(written)?)?)
        }
        Command::Delete { id } => out.object(&api.delete(&path(&["organizations", id], None))?),
    }
}
