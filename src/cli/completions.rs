//! `toolgate completions` and `toolgate man`: of the same definition that parses the command line.

use std::{path::Path, process::ExitCode};

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, client::Failure, print};

/// Prints the completions of a shell.
pub(super) fn shell(shell: Shell) -> Result<ExitCode, Failure> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "toolgate", &mut out);
    print::text(&String::from_utf8_lossy(&out))
}

/// Prints the manual page, or writes one a command into a folder.
pub(super) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let command = Cli::command();
    if let Some(folder) = folder {
        let failed = |why: std::io::Error| Failure::Broken(format!("{}: {why}", folder.display()));
        std::fs::create_dir_all(folder).map_err(failed)?;
        clap_mangen::generate_to(command, folder).map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = Vec::new();
    clap_mangen::Man::new(command).render(&mut out).map_err(|why| Failure::Broken(why.to_string()))?;
    print::text(&String::from_utf8_lossy(&out))
}
