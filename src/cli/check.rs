//! `toolgate check`: every fault at once, exit 78 if one is an error. Writes nothing.

use std::{io::Write as _, path::Path, process::ExitCode, sync::Arc};

use serde_json::json;

use super::{client::Failure, print::Out};
use crate::{
    conf::Fault,
    control,
    policy::compile::Handles,
    upstream::{
        client::Client,
        dns::Resolver,
        server::Registry,
        sessions::{SessionLimits, Sessions},
    },
};

/// Runs the command: for a person on standard error, for a program as JSON on standard output.
pub(super) fn run(conf: &Path, out: Out) -> Result<ExitCode, Failure> {
    let client = Arc::new(Client::new(Resolver::system()));
    let mut handles = Handles::new(Registry::new(Sessions::new(client, SessionLimits::default())));
    let (faults, sources) = control::check(conf, &mut handles);
    let is_faulty = faults.iter().any(Fault::is_error);
    if out.json {
        out.object(&json!({ "faults": sources.to_json(&faults) }))?;
    } else {
        let ok = if is_faulty { String::new() } else { format!("{}: ok\n", conf.display()) };
        let _ = write!(std::io::stderr().lock(), "{}{ok}", sources.render(&faults));
    }
    Ok(if is_faulty { ExitCode::from(super::FAULTY) } else { ExitCode::SUCCESS })
}
