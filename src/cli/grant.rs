//! `toolgate grant`.

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use serde_json::Map;

use super::{
    client::{Api, Failure, path, put},
    print::Out,
};

/// Commands on grants.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List the grants of a key.
    List {
        /// The key's id.
        key: String,
    },
    /// Grant a server to a key, or replace that grant.
    Set {
        /// The key's id.
        key: String,
        /// The server's slug.
        server: String,
        /// What it covers: tools of class read, or all.
        #[arg(long, required_unless_present = "tool", conflicts_with = "tool")]
        access: Option<Access>,
        /// Only this tool, by the server's own name. May be repeated.
        #[arg(long)]
        tool: Vec<String>,
        /// Confirm that the key gets the trifecta by it.
        #[arg(long)]
        confirm_trifecta: bool,
    },
    /// Take a grant away.
    Delete {
        /// The key's id.
        key: String,
        /// The server's slug.
        server: String,
    },
}

/// What a grant covers.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Access {
    /// Tools of class `read`.
    Read,
    /// Every tool.
    Write,
}

const COLUMNS: [(&str, &str); 5] =
    [("KEY", "/key"), ("SERVER", "/server"), ("ACCESS", "/access"), ("MANAGED BY", "/managed_by"), ("TOOLS", "/tools")];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::List { key } => {
            out.list("grants", &api.list(&path(&["keys", key, "grants"], None), "grants")?, &COLUMNS)
        }
        Command::Set { key, server, access, tool, confirm_trifecta } => {
            let mut body = Map::new();
            let access = match access {
                Some(Access::Read) => "read",
                Some(Access::Write) => "write",
                None => "selected",
            };
            put(&mut body, "access", Some(access));
            put(&mut body, "tools", Some(tool.clone()).filter(|tools| !tools.is_empty()));
            put(&mut body, "confirm_trifecta", confirm_trifecta.then_some(true));
            out.object(&api.put(&path(&["keys", key, "grants", server], None), &body)?)
        }
        Command::Delete { key, server } => out.object(&api.delete(&path(&["keys", key, "grants", server], None))?),
    }
}
