//! What is wrong with what was written, and how a person is shown it: `path:line:col: error: …`, the line and a caret.
//!
//! Knows nothing of conf or policy: whoever judges written text (here, `policy::compile`, `cli`) reports in these terms.

mod code;

use std::{fmt::Write as _, ops::Range, sync::Arc};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value as Json, json};

pub use self::code::{FaultCode, Severity};
use crate::model::records::Origin;

/// A byte range of a file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpan {
    /// The path as it was opened.
    pub path: Arc<str>,
    /// Byte range in the file's text.
    pub span: Range<usize>,
}

impl FileSpan {
    /// Where a policy object was written; none if it came through the API.
    #[must_use]
    pub fn of(origin: &Origin) -> Option<Self> {
        match origin {
            Origin::File { path, span } => Some(Self { path: Arc::clone(path), span: span.clone() }),
            Origin::Api => None,
        }
    }
}

/// One thing that is wrong, in words that stand alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whether it stops the load.
    pub severity: Severity,
    /// What kind it is of.
    pub code: FaultCode,
    /// Where; none for what came through the API or is said of no place.
    pub origin: Option<FileSpan>,
    /// What is wrong, on one line.
    pub message: String,
    /// What to do about it: "did you mean …", or where the other half of a clash stands.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault that stops the load.
    #[must_use]
    pub fn error(origin: Option<FileSpan>, message: impl Into<String>) -> Self {
        let (severity, code) = (Severity::Error, FaultCode::InvalidValue);
        Self { severity, code, origin, message: message.into(), hint: None }
    }

    /// A fault that a person should know of.
    #[must_use]
    pub fn warning(origin: Option<FileSpan>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(origin, message) }
    }

    /// The fault as one of that kind.
    #[must_use]
    pub const fn of(mut self, code: FaultCode) -> Self {
        self.code = code;
        self
    }

    /// The fault with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Whether it stops the load.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// The files that were read, in that order, so that faults can quote them. Secrets that were written inline are masked.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

#[derive(Clone, Debug)]
struct Source {
    path: Arc<str>,
    text: Arc<str>,
    /// Byte offset at which each line begins.
    lines: Vec<usize>,
    /// Sorted by where they begin.
    masked: Vec<Range<usize>>,
}

impl Sources {
    /// Adds a file; its path is what faults call it by.
    pub fn add(&mut self, path: Arc<str>, text: Arc<str>) {
        let lines = std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        self.files.push(Source { path, text, lines, masked: Vec::new() });
    }

    /// The texts of the files after the first, which is the conf, in the order in which they were read.
    pub fn policy_texts(&self) -> impl Iterator<Item = &str> {
        self.files.iter().skip(1).map(|file| &*file.text)
    }

    /// The text of a file that was read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.find(path).map(|file| &*file.text)
    }

    /// `path:line:col` of a place; line and column count from 1, the column in characters.
    #[must_use]
    pub fn place(&self, at: &FileSpan) -> String {
        match self.position(at) {
            Some((line, column)) => format!("{}:{line}:{column}", at.path),
            None => at.path.to_string(),
        }
    }

    /// Line and column of a place, both from 1, the column in characters; none in a file that was not read.
    #[must_use]
    pub fn position(&self, at: &FileSpan) -> Option<(usize, usize)> {
        let line = self.find(&at.path)?.line(at.span.start);
        let before = line.text.get(..line.at).unwrap_or("");
        Some((line.number, before.chars().filter(|c| *c != '\u{feff}').count() + 1))
    }

    /// Never shows this part of a file: a secret was written where only a reference to one belongs.
    pub(super) fn mask(&mut self, path: &str, span: Range<usize>) {
        if let Some(file) = self.files.iter_mut().find(|file| &*file.path == path) {
            let at = file.masked.partition_point(|other| other.start <= span.start);
            file.masked.insert(at, span);
        }
    }

    /// The faults as text for a person, by file and place. The first line of each is `path:line:col: error: message`.
    #[must_use]
    pub fn render(&self, faults: &[Fault]) -> String {
        let mut out = String::new();
        for fault in self.sorted(faults) {
            let _ = writeln!(out, "{}", self.render_one(fault));
        }
        out
    }

    /// The faults for a program, in the same order: `severity`, `code`, `file`, `line`, `column`, `message`, `hint`; null where a fault
    /// is said of no place, or has no hint.
    #[must_use]
    pub fn to_json(&self, faults: &[Fault]) -> Json {
        let one = |fault: &Fault| {
            let at = fault.origin.as_ref();
            let (line, column) = at.and_then(|at| self.position(at)).unzip();
            json!({
                "severity": fault.severity.as_str(), "code": fault.code.as_str(),
                "file": at.map(|at| &*at.path), "line": line, "column": column,
                "message": fault.message, "hint": fault.hint,
            })
        };
        self.sorted(faults).into_iter().map(one).collect()
    }

    /// By file and place.
    fn sorted<'f>(&self, faults: &'f [Fault]) -> Vec<&'f Fault> {
        let mut sorted: Vec<&Fault> = faults.iter().collect();
        sorted.sort_by_key(|fault| {
            let at = fault.origin.as_ref();
            let file = at.and_then(|at| self.files.iter().position(|file| file.path == at.path));
            (file.unwrap_or(self.files.len()), at.map_or(0, |at| at.span.start))
        });
        sorted
    }

    fn render_one(&self, fault: &Fault) -> String {
        let level = match fault.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let word = fault.severity.as_str();
        let message = on_one_line(&fault.message);
        let place = fault.origin.as_ref().map(|at| format!("{}: ", self.place(at))).unwrap_or_default();
        let mut group = Group::with_title(level.with_name(format!("{place}{word}")).primary_title(message));
        let quoted = fault.origin.as_ref().and_then(|at| Some((self.find(&at.path)?, at)));
        if let Some((file, at)) = quoted {
            let line = file.line(at.span.start);
            let end = line.text.ceil_char_boundary((line.at + at.span.len()).min(line.text.len()));
            let snippet = Snippet::source(file.masked_line(&line)).line_start(line.number).fold(false);
            group = group.element(snippet.annotation(AnnotationKind::Primary.span(line.at..end)));
        }
        if let Some(hint) = &fault.hint {
            group = group.element(Level::HELP.message(on_one_line(hint)));
        }
        Renderer::plain().render(&[group])
    }

    fn find(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| &*file.path == path)
    }
}

/// The line that holds a byte: its number from 1, where it begins, its text without the line end, and the byte's place in it.
struct Line<'a> {
    number: usize,
    start: usize,
    text: &'a str,
    at: usize,
}

impl Source {
    fn line(&self, byte: usize) -> Line<'_> {
        let byte = byte.min(self.text.len());
        let number = self.lines.partition_point(|start| *start <= byte).max(1);
        let start = self.lines.get(number - 1).copied().unwrap_or(0);
        let end = self.lines.get(number).copied().unwrap_or(self.text.len());
        let text = self.text.get(start..end).unwrap_or("").trim_end_matches(['\n', '\r']);
        Line { number, start, text, at: text.floor_char_boundary((byte - start).min(text.len())) }
    }

    /// The line with masked bytes as `*`, of the same length so that carets stay true.
    fn masked_line(&self, line: &Line<'_>) -> String {
        let hidden = |at: usize| {
            let at = line.start + at;
            let begun = self.masked.partition_point(|span| span.start <= at);
            self.masked.get(..begun).and_then(<[_]>::last).is_some_and(|span| span.contains(&at))
        };
        let mut out = String::with_capacity(line.text.len());
        for (at, c) in line.text.char_indices() {
            if hidden(at) {
                out.extend(std::iter::repeat_n('*', c.len_utf8()));
            } else {
                out.push(c);
            }
        }
        out
    }
}

/// Control characters escaped, so that written text cannot forge lines of a report.
fn on_one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    out
}

/// The candidate that `word` was most likely meant to be, if one is near: a letter or two, three of a long word, without
/// regard to case.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let far = match lower.chars().count() {
        0..=5 => 1,
        6..=11 => 2,
        _ => 3,
    };
    let near = candidates.into_iter().filter(|candidate| candidate.len().abs_diff(word.len()) <= 4 * far);
    let near = near.map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate));
    near.filter(|(distance, _)| *distance <= far).min().map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::{Fault, FileSpan, Range, Sources, nearest};

    fn render(text: &str, span: Range<usize>, message: &str, mask: Option<Range<usize>>) -> String {
        let mut sources = Sources::default();
        sources.add("f.toml".into(), text.into());
        if let Some(mask) = mask {
            sources.mask("f.toml", mask);
        }
        sources.render(&[Fault::error(Some(FileSpan { path: "f.toml".into(), span }), message)])
    }

    #[test]
    fn every_place_of_a_text_can_be_shown() {
        for text in ["", "\n", "a", "a\r\nb\r\n", "\ta = \"é\"\n\n", "\u{feff}a = 1", "一二三\n"] {
            for from in (0..=text.len() + 2).filter(|at| *at > text.len() || text.is_char_boundary(*at)) {
                for to in from..=text.len() + 2 {
                    let shown = render(text, from..to, "wrong", None);
                    assert!(shown.starts_with("f.toml:"), "{shown}");
                    assert!(shown.contains(": error: wrong\n") && !shown.contains('\r'), "{shown:?}");
                }
            }
        }
    }

    #[test]
    fn lines_and_columns_count_from_one() {
        let first = |text, at| render(text, at..at + 1, "x", None).lines().next().unwrap_or("").to_owned();
        assert_eq!(first("ab", 1), "f.toml:1:2: error: x");
        assert_eq!(first("é b", 3), "f.toml:1:3: error: x");
        assert_eq!(first("a\r\nb", 3), "f.toml:2:1: error: x");
        assert_eq!(first("\u{feff}a", 3), "f.toml:1:1: error: x");
        assert_eq!(first("a\n", 2), "f.toml:2:1: error: x");
    }

    #[test]
    fn what_was_written_cannot_forge_a_line_of_a_report() {
        let shown = render("a = 1", 0..1, "no `x\nf.toml:9:9: error: forged\u{1b}[2J`", None);
        assert_eq!(shown.lines().filter(|line| line.starts_with("f.toml:")).count(), 1, "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert!(!render("a = \"\u{1b}[2J\"", 0..1, "x", None).contains('\u{1b}'));
    }

    #[test]
    fn a_masked_secret_is_not_shown() {
        let shown = render("a = \"hünter2\" # x", 0..1, "wrong", Some(4..14));
        assert!(shown.contains("a = ********** # x"), "{shown}");
    }

    #[test]
    fn suggestions_are_near() {
        let known = ["url", "timeout", "projects", "client_certificate"];
        for (word, meant) in [
            ("ulr", Some("url")),
            ("URL", Some("url")),
            ("tiemout", Some("timeout")),
            ("project", Some("projects")),
            ("client_cert", None),
            ("clientcertificat", Some("client_certificate")),
            ("", None),
            ("zzz", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
