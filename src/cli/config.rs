//! `toolgate config`: the conf that is in force, its schema for editors, and what an option is for. Speaks to no gateway.

use std::{io::Write as _, path::Path, process::ExitCode};

use clap::Subcommand;
use serde_json::{Value as Json, json};

use super::{
    client::Failure,
    print::{self, Out},
};
use crate::conf::{self, Conf, Explained};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the conf that is in force: what the file says and the defaults of what it does not say. Secrets are masked.
    Dump,
    /// Print the JSON Schema of conf files, for editors.
    Schema {
        /// Of policy files instead.
        #[arg(long)]
        policy: bool,
    },
    /// Tell what an option is for, what may be written, its default, and its value in the conf file.
    Explain {
        /// The option, such as limits.in_flight, or a section.
        key: String,
    },
}

/// Runs the command.
pub(super) fn run(path: &Path, out: Out, command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Schema { policy } => {
            let schema = if *policy { conf::policy_schema() } else { conf::schema() };
            print::text(&format!("{schema:#}\n"))
        }
        Command::Dump => match read(path) {
            Ok(conf) => out.value(&conf::values(&conf), |_| conf::dump(&conf)),
            Err(faults) => faulty(&faults),
        },
        Command::Explain { key } => {
            let conf = read(path).ok();
            let options = conf::explain(key, conf.as_ref()).map_err(Failure::Usage)?;
            let json: Vec<Json> = options.iter().map(as_json).collect();
            out.value(&json!({ "options": json }), |_| options.iter().map(|option| shown(option, path)).collect())
        }
    }
}

fn read(path: &Path) -> Result<Conf, String> {
    let loaded = conf::load(path).into_loaded();
    loaded.map(|loaded| loaded.conf).map_err(|rejected| rejected.sources.render(&rejected.faults))
}

fn faulty(faults: &str) -> Result<ExitCode, Failure> {
    let _ = std::io::stderr().lock().write_all(faults.as_bytes());
    Ok(ExitCode::from(super::FAULTY))
}

fn as_json(option: &Explained) -> Json {
    json!({
        "key": option.key, "about": option.about, "form": option.form, "default": option.default,
        "value": option.value, "restart": option.restart,
    })
}

fn shown(option: &Explained, path: &Path) -> String {
    let changed = if option.restart { "by a restart only" } else { "by a reload" };
    let value = match &option.value {
        Some(value) => format!("  value    {value} in {}\n", path.display()),
        None => format!("  value    unknown: {} cannot be read\n", path.display()),
    };
    format!(
        "{}\n  {}\n  form     {}\n  default  {}\n{value}  changed  {changed}\n",
        option.key, option.about, option.form, option.default
    )
}
