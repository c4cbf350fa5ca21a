//! `toolgate backup`: a copy of the store as of one moment, made while the gateway runs or not.

use std::{path::Path, process::ExitCode};

use super::{client::Failure, print};
use crate::{conf, store::Store};

/// Runs the command.
pub(super) fn run(path: &Path, target: &Path) -> Result<ExitCode, Failure> {
    let loaded = conf::load(path).into_loaded();
    let loaded = loaded.map_err(|rejected| Failure::Broken(rejected.sources.render(&rejected.faults)))?;
    let url = loaded.conf.store.url.expose();
    must_exist(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| Failure::Broken(why.to_string()))?;
    let copied = runtime.block_on(async { Store::open(url).await?.backup_to(target).await });
    copied.map_err(|why| Failure::Broken(why.to_string()))?;
    print::text(&format!("{}: a copy of the store, mode 0600: it holds the digests of keys\n", target.display()))
}

/// Opening would make a store that is missing, and a copy of nothing is none.
pub(super) fn must_exist(url: &str) -> Result<(), Failure> {
    let file = url.strip_prefix("sqlite:").map(|rest| rest.split('?').next().unwrap_or(rest));
    if file.is_some_and(|file| !Path::new(file).exists()) {
        return Err(Failure::Broken("there is no store yet at `store.url`".to_owned()));
    }
    Ok(())
}
