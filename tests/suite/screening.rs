//! `toolgate guardrail test`, as a user runs it: the session of `tests/cases/guardrail_test/session.txt`.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::support::{case_file, count, free_port};

const FOLDER: &str = "guardrail_test";

/// One command of the session.
#[derive(Default)]
struct Step {
    words: Vec<String>,
    input: Option<String>,
    expected: String,
}

#[test]
fn a_session_shows_where_and_never_what() {
    let folder = std::env::temp_dir().join(format!("toolgate-screening-{}-{}", std::process::id(), free_port()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["policy.toml", "arguments.json", "result.json", "request.json", "lines.ndjson"] {
        std::fs::write(folder.join(name), filled(&case_file(&format!("{FOLDER}/{name}")))).unwrap();
    }
    std::fs::write(folder.join("toolgate.toml"), "").unwrap();
    std::fs::write(folder.join("text.txt"), filled("{AWS}\n")).unwrap();
    std::fs::write(folder.join("dear.txt"), "abc".repeat(4000)).unwrap();
    std::fs::write(folder.join("good.ndjson"), "{}\n").unwrap();
    let steps = steps(&case_file(&format!("{FOLDER}/session.txt")));
    let faults: Vec<String> = steps.iter().filter_map(|step| play(step, &folder).err()).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    count(steps.len(), faults.len());
    assert!(
        steps.len() >= 20 && faults.is_empty(),
        "{} of {} failed:\n{}",
        faults.len(),
        steps.len(),
        faults.join("\n")
    );
}

/// Runs a command; what is wrong with what it printed.
fn play(step: &Step, folder: &Path) -> Result<(), String> {
    let words: Vec<String> = step.words.iter().map(|word| filled(word)).collect();
    let input = match &step.input {
        Some(name) => Stdio::from(std::fs::File::open(folder.join(name)).unwrap()),
        None => Stdio::null(),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(&words).current_dir(folder).stdin(input);
    if !step.words.iter().any(|word| word == "--conf") {
        command.args(["--conf", "toolgate.toml"]);
    }
    let output = command.output().unwrap();
    let mut printed = String::from_utf8(output.stdout).unwrap();
    printed.push_str(&String::from_utf8(output.stderr).unwrap());
    writeln!(printed, "[exit {}]", output.status.code().unwrap()).unwrap();
    for secret in ["{AWS}", "{CARD}", "{AWS-TAIL}"] {
        if printed.contains(&filled(secret)) {
            return Err(format!("{secret} is shown by {:?}", step.words));
        }
    }
    let (start, end) = step.expected.split_once("[...]").unwrap_or((&step.expected, ""));
    let fits = match step.expected.contains("[...]") {
        true => printed.starts_with(start) && printed.ends_with(end.trim_start_matches('\n')),
        false => printed == step.expected,
    };
    if fits { Ok(()) } else { Err(format!("{:?} printed:\n{printed}\nexpected:\n{}", step.words, step.expected)) }
}

/// The text with secrets for their names; none lies in the repository.
fn filled(text: &str) -> String {
    let (tail, card) = ("QWERTYUIOPASDFGH", format!("4{}", "1".repeat(15)));
    text.replace("{AWS}", &format!("AKIA{tail}")).replace("{AWS-TAIL}", tail).replace("{CARD}", &card)
}

fn steps(session: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in session.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(step(command)),
            (None, Some(step)) => writeln!(step.expected, "{line}").unwrap(),
            (None, None) => panic!("output before a command: {line}"),
        }
    }
    steps
}

/// A command of words, some in single quotes, and perhaps `< FILE`.
fn step(command: &str) -> Step {
    let (command, input) = match command.split_once(" < ") {
        Some((command, file)) => (command, Some(file.to_owned())),
        None => (command, None),
    };
    let words = command.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![part.to_owned()],
    });
    Step { words: words.collect(), input, expected: String::new() }
}
