//! The `toolgate` binary: argv to command to exit code.

use std::process::ExitCode;

use clap::Parser as _;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolgate::cli::run(&toolgate::cli::Cli::parse())
}
