//! `toolgate audit`.

use std::process::ExitCode;

use super::{
    client::{Api, Failure},
    print::Out,
};

/// Which records.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only the newest so many; 0: all.
    #[arg(long, default_value_t = 50)]
    last: usize,
    /// Only what was done to targets that contain this text.
    #[arg(long)]
    target: Option<String>,
}

const COLUMNS: [(&str, &str); 6] = [
    ("SEQ", "/seq"),
    ("AT", "/at"),
    ("WHO", "/who"),
    ("WHAT", "/what"),
    ("ORGANIZATION", "/organization"),
    ("TARGET", "/target"),
];

/// Runs the command.
pub(super) fn run(api: &Api, out: Out, asked: &Arguments) -> Result<ExitCode, Failure> {
    let mut records = api.list("/v1/audit", "audit")?;
    if let Some(wanted) = &asked.target {
        let of = |record: &serde_json::Value| record.get("target").and_then(|t| t.as_str()).map(str::to_owned);
        records.retain(|record| of(record).is_some_and(|target| target.contains(wanted)));
    }
    let first = if asked.last == 0 { 0 } else { records.len().saturating_sub(asked.last) };
    out.list("audit", records.get(first..).unwrap_or_default(), &COLUMNS)
}
