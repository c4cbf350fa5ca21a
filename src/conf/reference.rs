//! `conf/toolgate.toml`, written from the tables of options: every option with its meaning and its default.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::options::Conf;

const HEAD: &str = "\
# Every option of Toolgate, each with its default: delete what you do not change. This file is generated; a test keeps it true.
#
# Durations (\"250ms\", \"30s\", \"1h30m\"), sizes (\"512B\", \"256KiB\", \"1MiB\") and rates (\"600/min\") carry their unit; a bare
# number is an error. Relative paths are relative to this file. \"${VAR}\" and \"${VAR:-default}\" work inside strings.
# `toolgate check` names every fault at once; SIGHUP or `toolgate reload` applies changes, except to what says (restart).
";

/// The commented reference of all options, as TOML that loads to the defaults.
#[must_use]
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    Conf::default().describe(|section, about, members| {
        let _ = write!(out, "\n{}[{section}]\n", comment(about, false));
        for member in members {
            let _ = writeln!(out, "{}{} = {}", comment(member.doc, member.restart), member.name, toml(&member.value));
        }
    });
    out
}

fn comment(lines: &[&str], restart: bool) -> String {
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        let mark = if restart && index + 1 == lines.len() { " (restart)" } else { "" };
        let _ = writeln!(out, "#{line}{mark}");
    }
    out
}

/// A JSON value as TOML. Text is escaped as JSON escapes it, which TOML reads alike.
pub(super) fn toml(value: &Json) -> String {
    match value {
        Json::Array(list) => format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Json::Object(members) => {
            let members: Vec<_> = members.iter().map(|(name, value)| format!("{name} = {}", toml(value))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        other => other.to_string(),
    }
}
