//! `toolgate serve`: runs the gateway until a signal ends it.

use std::{io::Write as _, path::Path, process::ExitCode};

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _};

use crate::{
    conf::{self, LogFormat, LogLevel},
    server::{Process, Running, StartError},
};

/// Runs the command.
pub(super) fn run(path: &Path, take_over: bool) -> ExitCode {
    if let Ok(loaded) = conf::load(path).into_loaded() {
        start_log(loaded.conf.log.level, loaded.conf.log.format);
    }
    quiet_panics();
    match serve(path, take_over) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut err = std::io::stderr().lock();
            let _ = writeln!(err, "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn serve(path: &Path, take_over: bool) -> Result<(), StartError> {
    let process = Process::new()?;
    let running = if take_over { process.take_over(path)? } else { process.start(path)? };
    running.map_or(Ok(()), Running::run)
}

/// A panic's own text may quote what was worked on, so only its place is logged.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic");
    }));
}

/// The log goes to standard error. The `log` crate is not bridged: Pingora's error texts carry raw heads, keys included.
pub(super) fn start_log(level: LogLevel, format: LogFormat) {
    // Our own words only: other crates speak of addresses, statements and bytes.
    let filter = EnvFilter::new(format!("off,toolgate={}", level.as_str()));
    let base = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let _ = match format {
        LogFormat::Json => tracing::subscriber::set_global_default(
            tracing_subscriber::registry().with(filter).with(base.json().flatten_event(true)),
        ),
        LogFormat::Text => {
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(base))
        }
    };
}
