//! `toolgate project`.

use std::process::ExitCode;

use clap::Subcommand;

use super::{
    client::{Api, Failure, members, path, put},
    print::Out,
};

/// Commands on projects.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the projects.
    List {
        /// Only those of this organization.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Show a project.
    Show {
        /// Its id.
        id: String,
        /// Needed where several organizations have one of that name.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Make a project: `project add support`.
    Add {
        /// Its id.
        id: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE")]
        members: Vec<String>,
        /// Its owner; needed where there are several organizations.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Change members of a project; `null` takes one back to its default.
    Set {
        /// Its id.
        id: String,
        /// Members, as in a policy file.
        #[arg(value_name = "NAME=VALUE", required = true)]
        members: Vec<String>,
        /// Needed where several organizations have one of that name.
        #[arg(long)]
        organization: Option<String>,
    },
    /// Delete a project that nothing refers to.
    Delete {
        /// Its id.
        id: String,
        /// Needed where several organizations have one of that name.
        #[arg(long)]
        organization: Option<String>,
    },
}

const COLUMNS: [(&str, &str); 4] =
    [("ID", "/id"), ("ORGANIZATION", "/organization"), ("ARCHIVED", "/archived"), ("MANAGED BY", "/managed_by")];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { organization } => {
            out.list("projects", &api.list(&path(&["projects"], organization.as_deref()), "projects")?, &COLUMNS)
        }
        Command::Show { id, organization } => out.object(&api.get(&path(&["projects", id], organization.as_deref()))?),
        Command::Add { id, members: written, organization } => {
            let mut body = members(written)?;
            put(&mut body, "id", Some(id.as_str()));
            put(&mut body, "organization", organization.as_deref());
            out.object(&api.post("/v1/projects", Some(&body))?)
        }
        Command::Set { id, members: written, organization } => {
            out.object(&api.patch(&path(&["projects", id], organization.as_deref()), &members(written)?)?)
        }
        Command::Delete { id, organization } => {
            out.object(&api.delete(&path(&["projects", id], organization.as_deref()))?)
        }
    }
}
