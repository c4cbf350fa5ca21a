//! The walk of docs/management.md and the transcripts beside it, command for command, against `toolgate demo`.
//!
//! In the ```console blocks a line that begins with `$ ` is run by one shell; what follows is what it prints, where `…` stands for
//! anything within a line, and a line of `…` alone for any lines.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::support::{Faults, free_port, run};

/// Written by the shell after each command.
const END: &str = "\u{1}end\u{1}";

/// A command, and what it prints.
struct Step {
    command: String,
    printed: Vec<String>,
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/management.md");
    for line in std::fs::read_to_string(document).unwrap().lines() {
        match (inside, line) {
            (_, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.to_owned(), printed: Vec::new() }),
                None => {
                    let step = steps.last_mut().expect("a command before its output");
                    // a command that goes on in the next line
                    match step.command.ends_with('\\') && step.printed.is_empty() {
                        true => step.command = format!("{}\n{line}", step.command),
                        false => step.printed.push(line.trim_end().to_owned()),
                    }
                }
            },
            _ => {}
        }
    }
    steps
}

/// Whether the lines are those of the pattern.
fn fits(pattern: &[String], lines: &[&str]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, more)| fits_line(first, line) && fits(rest, more))
        }
    }
}

fn fits_line(pattern: &str, line: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return pattern == line.trim_end() };
    let Some(mut rest) = line.trim_end().strip_prefix(first) else { return false };
    for piece in middle {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// `toolgate demo`, and what it says to export.
struct Demo {
    child: Child,
    exports: String,
    folder: PathBuf,
}

impl Demo {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("toolgate-walk-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(&folder).unwrap();
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_toolgate"))
            .args(["demo", "--listen", &listen.to_string()])
            .env("TMPDIR", &folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let exports = lines.into_iter().find(|line| line.starts_with("export ")).expect("what to export");
        Self { child, exports, folder }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// One shell for the whole walk: what a step exports, the next one has.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<Box<dyn Read>>,
}

impl Shell {
    fn start(folder: &Path) -> Self {
        let bin = Path::new(env!("CARGO_BIN_EXE_toolgate")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.current_dir(folder).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output: Box<dyn Read> = Box::new(child.stdout.take().unwrap());
        let mut shell = Self { child, input, output: BufReader::new(output) };
        shell.run("exec 2>&1");
        shell
    }

    fn run(&mut self, command: &str) -> String {
        self.input.write_all(format!("{command}\nprintf '{END}'\n").as_bytes()).unwrap();
        let mut printed = Vec::new();
        while !printed.ends_with(END.as_bytes()) {
            let before = printed.len();
            self.output.read_until(1, &mut printed).unwrap();
            assert!(printed.len() > before, "the shell ended: {}", String::from_utf8_lossy(&printed));
        }
        let text = String::from_utf8(printed).unwrap();
        text.strip_suffix(END).unwrap().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_walk_of_the_document_is_true_word_for_word() {
    run(async {
        let demo = Demo::start();
        let mut shell = Shell::start(&demo.folder);
        shell.run(&demo.exports);
        let mut faults = Faults::default();
        let steps = steps();
        let count = steps.len();
        for step in steps {
            let printed = shell.run(&step.command);
            if std::env::var_os("SHOW").is_some() {
                println!("$ {}\n{printed}", step.command);
            }
            let row = async {
                let lines: Vec<&str> = printed.lines().collect();
                assert!(
                    fits(&step.printed, &lines),
                    "\n-- written\n{}\n-- printed\n{printed}",
                    step.printed.join("\n")
                );
            };
            faults.row(format!("$ {}", step.command), row).await;
        }
        assert!(count > 20, "the walk has {count} steps");
        faults.assert_none(count);
    });
}

#[test]
fn the_pattern_of_a_transcript_is_strict() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (pattern, text, fit) in [
        ("a", "a", true),
        ("a", "b", false),
        ("a", "a\nb", false),
        ("a\n…", "a\nb\nc", true),
        ("…\nc", "a\nb\nc", true),
        ("…\nb", "a\nb\nc", false),
        ("a … c", "a x c", true),
        ("a … c", "a x d", false),
        ("", "", true),
        ("…", "", true),
    ] {
        let text: Vec<&str> = text.lines().collect();
        assert_eq!(fits(&lines(pattern), &text), fit, "{pattern:?} {text:?}");
    }
}
