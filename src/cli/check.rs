//! `toolgate check`: every fault at once, exit 78 if one is an error. Writes nothing.

use std::{io::Write as _, path::Path, process::ExitCode, sync::Arc};

use crate::{
    control,
    policy::compile::Handles,
    upstream::{
        client::Client,
        dns::Resolver,
        server::Registry,
        sessions::{SessionLimits, Sessions},
    },
};

/// Runs the command.
pub(super) fn run(conf: &Path) -> ExitCode {
    let client = Arc::new(Client::new(Resolver::system()));
    let mut handles = Handles::new(Registry::new(Sessions::new(client, SessionLimits::default())));
    let (text, code) = match control::check(conf, &mut handles) {
        Ok(warnings) => (format!("{warnings}{}: ok\n", conf.display()), ExitCode::SUCCESS),
        Err(faults) => (faults, ExitCode::from(78)),
    };
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = err.write_all(b"\n");
    }
    code
}
