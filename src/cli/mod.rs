//! The command line: a file a command (contract §9 "CLI").

mod check;
mod demo;
pub mod demo_server;
mod serve;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

/// Toolgate: an MCP policy gateway on Pingora.
#[derive(Debug, Parser)]
#[command(name = "toolgate", version, about, max_term_width = 100)]
pub struct Cli {
    /// Judge the conf and its policy, print every fault, and exit: short for `toolgate check`.
    #[arg(short = 't', long = "test")]
    test: bool,
    /// The conf file.
    #[arg(long, global = true, default_value = "conf/toolgate.toml", env = "TOOLGATE_CONF")]
    conf: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Serve,
    /// Judge the conf and its policy and print every fault; exit 78 if one is an error. Writes nothing.
    Check,
    /// Run the gateway with a built-in MCP server behind it, and print calls to try.
    Demo {
        /// Play the calls through, print what came back, and exit 0 if all of it was right.
        #[arg(long)]
        once: bool,
        /// Where agents connect; with --once a free port unless given.
        #[arg(long)]
        listen: Option<SocketAddr>,
    },
}

/// Runs a command line.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    match (&cli.command, cli.test) {
        (Some(Command::Check), _) | (_, true) => check::run(&cli.conf),
        (Some(Command::Serve), false) => serve::run(&cli.conf),
        (Some(Command::Demo { once, listen }), false) => demo::run(*once, *listen),
        (None, false) => {
            let _ = <Cli as clap::CommandFactory>::command().print_help();
            ExitCode::from(64)
        }
    }
}
