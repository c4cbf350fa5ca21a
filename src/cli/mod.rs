//! The command line: a file a command (contract §9 "CLI").
//!
//! What manages a running gateway is a thin client of its unix socket. Exit codes: 0 done; 1 refused, or a finding; 64 wrong usage;
//! 69 no gateway on the socket; 78 a faulty conf.

mod apply;
mod audit;
mod backup;
mod check;
mod client;
mod completions;
mod config;
mod credential;
mod demo;
pub mod demo_server;
mod explain;
mod fleet;
mod grant;
mod guardrail;
mod key;
mod organization;
mod print;
mod project;
mod screening;
mod serve;
mod server;
mod status;
mod store;
mod tool;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use self::client::Failure;

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
    /// The socket of the gateway to manage; `admin.socket` of the conf file unless given.
    #[arg(long, global = true, env = "TOOLGATE_SOCKET")]
    socket: Option<PathBuf>,
    /// Print what the API answers, or `check` finds, as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway.
    Serve {
        /// Standard input is the socket of a gateway that hands over to this one; `toolgate upgrade` sees to it.
        #[arg(long, hide = true)]
        take_over: bool,
    },
    /// Judge the conf and its policy and print every fault; exit 78 if one is an error. With --json on standard output, each with
    /// its file, line and column. Writes nothing.
    Check,
    /// The conf in force, its schema, and what an option is for.
    #[command(subcommand)]
    Config(config::Command),
    /// Run the gateway with a built-in MCP server behind it, and print calls to try.
    Demo {
        /// Play the calls through, print what came back, and exit 0 if all of it was right.
        #[arg(long)]
        once: bool,
        /// Where agents connect; with --once a free port unless given.
        #[arg(long)]
        listen: Option<SocketAddr>,
    },
    /// Register, change and delete MCP servers.
    #[command(subcommand)]
    Server(server::Command),
    /// Review tools: what changed, approve, block.
    #[command(subcommand)]
    Tool(tool::Command),
    /// Make, rotate and revoke the keys of agents.
    #[command(subcommand)]
    Key(key::Command),
    /// Give keys the servers and tools that they need.
    #[command(subcommand)]
    Grant(grant::Command),
    /// Credentials of users, for servers that are called with each user's own.
    #[command(subcommand)]
    Credential(credential::Command),
    /// Guardrails on arguments and results.
    #[command(subcommand)]
    Guardrail(guardrail::Command),
    /// Organizations: plan, standing, subscription.
    #[command(subcommand)]
    Organization(organization::Command),
    /// Projects of an organization.
    #[command(subcommand)]
    Project(project::Command),
    /// Make what policy files say through the API: what is missing is made, what differs is changed, nothing is deleted.
    Apply(apply::Arguments),
    /// Tell what would happen to a call, at which check, and why; asks no server.
    Explain(explain::Arguments),
    /// Who changed what, newest last.
    Audit(audit::Arguments),
    /// What runs, and how much of what there is.
    Status,
    /// Read conf and policy files again, all or nothing.
    Reload,
    /// Let a new process of the installed program take over, without losing a call; the one before drains and ends.
    Upgrade,
    /// Copy the store to a new file, while the gateway runs or not.
    Backup {
        /// The file; it must not exist.
        file: PathBuf,
    },
    /// Copy what the store holds to another one.
    #[command(subcommand)]
    Store(store::Command),
    /// The nodes that share the store, and what each serves.
    Fleet,
    /// Print the completions of a shell.
    Completions {
        /// For which shell.
        shell: Shell,
    },
    /// Print the manual page, or write one a command into a folder.
    Man {
        /// The folder.
        #[arg(long)]
        out: Option<PathBuf>,
    },
}

/// Runs the process's command line.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(error) => {
            let _ = error.print();
            ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
        }
    }
}

/// Runs a command line.
#[must_use]
pub fn run(cli: &Cli) -> ExitCode {
    let command = match (&cli.command, cli.test) {
        (_, true) => &Command::Check,
        (Some(command), false) => command,
        (None, false) => {
            let _ = Cli::command().print_help();
            return ExitCode::from(USAGE);
        }
    };
    let done = match command {
        Command::Check => check::run(&cli.conf, print::Out { json: cli.json }),
        Command::Serve { take_over } => return serve::run(&cli.conf, *take_over),
        Command::Demo { once, listen } => return demo::run(*once, *listen),
        Command::Config(command) => config::run(&cli.conf, print::Out { json: cli.json }, command),
        Command::Guardrail(guardrail::Command::Test(arguments)) => {
            screening::run(&cli.conf, print::Out { json: cli.json }, arguments)
        }
        Command::Backup { file } => backup::run(&cli.conf, file),
        Command::Store(command) => store::run(&cli.conf, command),
        Command::Completions { shell } => completions::shell(*shell),
        Command::Man { out } => completions::man(out.as_deref()),
        command => manage(cli, command),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            let _ = writeln!(std::io::stderr().lock(), "toolgate: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The commands that speak to a running gateway.
fn manage(cli: &Cli, command: &Command) -> Result<ExitCode, Failure> {
    let api = client::Api::open(cli.socket.as_deref(), &cli.conf)?;
    let out = print::Out { json: cli.json };
    match command {
        Command::Server(command) => server::run(&api, out, command),
        Command::Tool(command) => tool::run(&api, out, command),
        Command::Key(command) => key::run(&api, out, command),
        Command::Grant(command) => grant::run(&api, out, command),
        Command::Credential(command) => credential::run(&api, out, command),
        Command::Guardrail(command) => guardrail::run(&api, out, command),
        Command::Organization(command) => organization::run(&api, out, command),
        Command::Project(command) => project::run(&api, out, command),
        Command::Apply(arguments) => apply::run(&api, out, arguments),
        Command::Explain(arguments) => explain::run(&api, out, arguments),
        Command::Audit(arguments) => audit::run(&api, out, arguments),
        Command::Status => status::run(&api, out),
        Command::Fleet => fleet::run(&api, out),
        Command::Reload => status::reload(&api, out),
        Command::Upgrade => status::upgrade(&api, out),
        _ => Ok(ExitCode::from(USAGE)),
    }
}

/// The exit code of wrong usage (sysexits).
const USAGE: u8 = 64;
/// The exit code for a faulty conf or policy (sysexits).
const FAULTY: u8 = 78;
