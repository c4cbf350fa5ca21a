//! `toolgate store copy`: everything that a store holds, in another one.

use std::{path::Path, process::ExitCode};

use clap::Subcommand;

use super::{client::Failure, print};
use crate::{conf, store::Store};

/// Commands on the store.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Copy the store of the conf to an empty one: from SQLite to PostgreSQL or back. Stop the gateway first.
    Copy {
        /// `sqlite:PATH` or `postgres://…`; better in the environment, if it holds a password.
        #[arg(long, env = "TOOLGATE_COPY_TO", hide_env_values = true)]
        to: String,
    },
}

/// Runs the command.
pub(super) fn run(path: &Path, command: &Command) -> Result<ExitCode, Failure> {
    let Command::Copy { to } = command;
    let loaded = conf::load(path).into_loaded();
    let loaded = loaded.map_err(|rejected| Failure::Broken(rejected.sources.render(&rejected.faults)))?;
    let url = loaded.conf.store.url.expose();
    super::backup::must_exist(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| Failure::Broken(why.to_string()))?;
    let copied = runtime.block_on(async {
        let (from, target) = (Store::open(url).await?, Store::open(to).await?);
        let copied = from.copy_to(&target).await;
        // The last to close an SQLite file writes its log into it: the file alone is the copy, wherever it is moved.
        target.close().await;
        from.close().await;
        Ok((copied?, target.place().to_owned()))
    });
    let (copied, place) = copied.map_err(|why: crate::store::StoreError| Failure::Broken(why.to_string()))?;
    print::text(&format!(
        "{place}: revision {}, {} records, {} audit records\n",
        copied.revision, copied.records, copied.audits
    ))
}
