//! `toolgate guardrail test`: text or JSON against the guardrails of the policy files. Speaks to no gateway and to no engine.
//!
//! The rules are compiled and asked by the code that calls go through. What is printed says where a rule matches, never what:
//! a member name in which something matches is not shown either.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use serde_json::{Value as Json, json};

use super::{
    client::Failure,
    print::{self, Out},
};
use crate::{
    control,
    model::{
        jsonrpc::{Document, Spanned, write_string},
        records::{GuardAction, GuardStage},
    },
    policy::{
        compile::{GuardScope, Whom},
        guard::{EngineFault, GuardPlan, MATCHES_REPORTED_MAX, Match, Place, Screening, Verdict, screen},
    },
};

/// What to try, and against which rules.
///
/// Exit code 0: it passes as it is (rules that only observe may have matched); 1: it is redacted, blocked or unavailable; 64: what is to
/// be tried cannot be read; 78: the conf is at fault. Guardrails that the management API made are not in the files, and not tried.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The text; from standard input if neither this nor a file is given.
    #[arg(conflicts_with = "file")]
    text: Option<String>,
    /// A JSON file instead: the arguments of a call, a result, or the JSON-RPC message around them; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Every line of the file is JSON of its own; prints one line of JSON for each.
    #[arg(long, requires = "file")]
    lines: bool,
    /// As arguments or as a result.
    #[arg(long, value_enum, default_value = "input")]
    stage: Stage,
    /// Whose rules; needed where there are several organizations.
    #[arg(long)]
    organization: Option<String>,
    /// Only rules that apply to this server.
    #[arg(long)]
    server: Option<String>,
    /// Only rules that apply to this tool, by the server's own name of it.
    #[arg(long)]
    tool: Option<String>,
    /// Only rules that apply to keys of this project.
    #[arg(long)]
    project: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Stage {
    Input,
    Output,
}

const COLUMNS: [&str; 6] = ["RULE", "ACTION", "TYPE", "PLACE", "POINTER", "BYTES"];

/// Runs the command.
pub(super) fn run(conf: &Path, out: Out, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let stage = match arguments.stage {
        Stage::Input => GuardStage::Input,
        Stage::Output => GuardStage::Output,
    };
    let scope = GuardScope {
        server: arguments.server.as_deref().map_or(Whom::Any, Whom::Named),
        tool: arguments.tool.as_deref().map_or(Whom::Any, Whom::Named),
        project: arguments.project.as_deref().map_or(Whom::Any, Whom::Named),
    };
    let plan = match control::guardrails(conf, arguments.organization.as_deref(), (&scope, stage)) {
        Ok(plan) => plan,
        Err(faults) => {
            let _ = std::io::stderr().lock().write_all(faults.as_bytes());
            return Ok(ExitCode::from(78));
        }
    };
    if arguments.lines {
        return each_line(&plan, stage, read(arguments.file.as_deref())?);
    }
    let mut given = Vec::new();
    match (&arguments.text, &arguments.file) {
        (Some(text), _) => write_string(&mut given, text),
        (None, Some(_)) => drop(read(arguments.file.as_deref())?.read_to_end(&mut given).map_err(unreadable)?),
        (None, None) => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).map_err(unreadable)?;
            write_string(&mut given, text.strip_suffix('\n').unwrap_or(&text));
        }
    }
    let found = judge(&plan, stage, &given).map_err(Failure::Usage)?;
    out.value(&found, shown)?;
    Ok(exit_code(found.get("verdict") == Some(&Json::from("pass"))))
}

fn unreadable(why: std::io::Error) -> Failure {
    Failure::Usage(why.to_string())
}

fn exit_code(passes: bool) -> ExitCode {
    if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(file: Option<&Path>) -> Result<Box<dyn Read>, Failure> {
    match file {
        Some(path) if path != Path::new("-") => match File::open(path) {
            Ok(file) => Ok(Box::new(file)),
            Err(why) => Err(Failure::Usage(format!("{}: {why}", path.display()))),
        },
        _ => Ok(Box::new(std::io::stdin())),
    }
}

/// Judges each line by itself; prints as many lines as it read.
fn each_line(plan: &GuardPlan, stage: GuardStage, from: Box<dyn Read>) -> Result<ExitCode, Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut passes = true;
    for line in BufReader::new(from).split(b'\n') {
        let found = judge(plan, stage, &line.map_err(unreadable)?).unwrap_or_else(|why| json!({ "error": why }));
        passes &= found.get("verdict") == Some(&Json::from("pass"));
        if let Err(why) = writeln!(out, "{found}") {
            let is_enough = why.kind() == std::io::ErrorKind::BrokenPipe;
            return if is_enough { Ok(exit_code(passes)) } else { Err(Failure::Broken(why.to_string())) };
        }
    }
    out.flush().map_err(|why| Failure::Broken(why.to_string()))?;
    Ok(exit_code(passes))
}

/// What the rules say of a JSON text.
fn judge(plan: &GuardPlan, stage: GuardStage, raw: &[u8]) -> Result<Json, String> {
    let mut scratch = Vec::new();
    let document = Document::parse(raw, &mut scratch).map_err(|fault| fault.to_string())?;
    let root = document.spanned_root();
    let of_message = match stage {
        GuardStage::Output => root.get("result"),
        _ => root.get("params").and_then(|params| params.get("arguments")),
    };
    let part = of_message.filter(|_| root.get("jsonrpc").is_some()).unwrap_or(root);
    let screening = screen(plan, &document, &part, stage);
    let name = |index: usize| plan.rules.get(index).map(|rule| rule.name.as_str());
    let (verdict, rule) = match &screening.verdict {
        Verdict::Pass => ("pass", None),
        Verdict::Redact(_) => ("redact", redacting(&screening)),
        Verdict::Block { rule, .. } => ("block", Some(*rule)),
        Verdict::Unavailable { rule } => ("unavailable", Some(*rule)),
    };
    let hidden = Hidden::of(&screening);
    let matches: Vec<Json> =
        screening.matches.iter().map(|found| as_json(found, (&part, &hidden), name(found.rule))).collect();
    let failures = screening.engine_errors.iter().map(|error| {
        let fault = match error.fault {
            EngineFault::Budget => "budget",
            EngineFault::Panic => "panic",
        };
        json!({ "rule": name(error.rule), "fault": fault })
    });
    Ok(json!({
        "verdict": verdict,
        "rule": rule.and_then(name),
        "matches": matches,
        "failures": failures.collect::<Vec<_>>(),
        "not_asked": screening.engines.iter().map(|index| name(*index)).collect::<Vec<_>>(),
    }))
}

fn redacting(screening: &Screening) -> Option<usize> {
    screening.matches.iter().find(|found| found.action == GuardAction::Redact).map(|found| found.rule)
}

fn as_json(found: &Match, (part, hidden): (&Spanned<'_>, &Hidden), rule: Option<&str>) -> Json {
    let action = match found.action {
        GuardAction::Block => "block",
        GuardAction::Redact => "redact",
        GuardAction::Observe => "observe",
    };
    let place = match found.place {
        Place::Value => "value",
        Place::Name => "name",
        Place::Number => "number",
        Place::Blob => "blob",
        Place::Joined => "joined",
    };
    json!({
        "rule": rule, "action": action, "detector": found.detector, "type": found.kind, "place": place,
        "pointer": pointer(part, found.span.start, hidden), "bytes": [found.at.start, found.at.end],
    })
}

/// Member names that may not be shown, by where they start.
struct Hidden {
    names: Vec<usize>,
    /// Not all matches are known, so no name may be shown.
    all: bool,
}

impl Hidden {
    fn of(screening: &Screening) -> Self {
        let of_rule = |rule: usize| screening.matches.iter().filter(|found| found.rule == rule).count();
        let is_name = |found: &&Match| found.place == Place::Name;
        Self {
            names: screening.matches.iter().filter(is_name).map(|found| found.span.start).collect(),
            all: screening.matches.iter().any(|found| of_rule(found.rule) >= MATCHES_REPORTED_MAX),
        }
    }

    fn segment(&self, name: &str, start: usize) -> String {
        if self.all || self.names.contains(&start) {
            return "[hidden]".to_owned();
        }
        name.replace('~', "~0").replace('/', "~1")
    }
}

/// The JSON Pointer (RFC 6901) of the value, or of the member whose name, starts at `target`.
fn pointer(part: &Spanned<'_>, target: usize, hidden: &Hidden) -> String {
    let mut path = String::new();
    let mut at = part.clone();
    loop {
        let member =
            at.members().find(|member| member.name_span.start == target || member.value.span.contains(&target));
        if let Some(member) = member {
            path.push('/');
            path.push_str(&hidden.segment(member.name, member.name_span.start));
            if member.name_span.start == target {
                return path;
            }
            at = member.value;
            continue;
        }
        let Some((index, item)) = at.items().enumerate().find(|(_, item)| item.span.contains(&target)) else {
            return path;
        };
        path.push_str(&format!("/{index}"));
        at = item;
    }
}

/// As a table, and a line that says what follows.
fn shown(found: &Json) -> String {
    let text = |value: &Json, name: &str| print::cell(value.get(name));
    let list = |name: &str| found.get(name).and_then(Json::as_array).cloned().unwrap_or_default();
    let row = |entry: &Json| {
        let (detector, kind) = (text(entry, "detector"), text(entry, "type"));
        let kind = if kind == detector { detector } else { format!("{detector}/{kind}") };
        let pointer = text(entry, "pointer");
        let pointer = if pointer.is_empty() { "(all)".to_owned() } else { pointer };
        let bytes = text(entry, "bytes").replace(',', "-");
        vec![text(entry, "rule"), text(entry, "action"), kind, text(entry, "place"), pointer, bytes]
    };
    let rows: Vec<Vec<String>> = list("matches").iter().map(row).collect();
    let mut out = String::new();
    if !rows.is_empty() {
        out.push_str(&print::table(&COLUMNS.map(str::to_owned), &rows, print::width()));
    }
    for failure in list("failures") {
        out.push_str(&format!("{}: failed: {}\n", text(&failure, "rule"), text(&failure, "fault")));
    }
    for rule in list("not_asked") {
        out.push_str(&format!("{}: an external engine; not asked here\n", print::cell(Some(&rule))));
    }
    let rule = text(found, "rule");
    out.push_str(&match text(found, "verdict").as_str() {
        "pass" => "passes\n".to_owned(),
        "redact" => format!("passes redacted: {rule}\n"),
        "block" => format!("refused: guardrail_blocked by {rule}\n"),
        _ => format!("refused: guardrail_unavailable by {rule}\n"),
    });
    out
}
