//! What commands print: tables that fit the terminal, or JSON. Nothing that a server wrote reaches the terminal unescaped.

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use serde_json::Value as Json;

use super::client::Failure;
use crate::admin::visible;

/// How to print.
#[derive(Clone, Copy, Debug)]
pub(super) struct Out {
    /// As JSON.
    pub(super) json: bool,
}

impl Out {
    /// Prints a list: as `{"NAME":[…]}`, or a table of these columns: a title and the JSON Pointer of what it shows.
    pub(super) fn list(self, name: &str, entries: &[Json], columns: &[(&str, &str)]) -> Result<ExitCode, Failure> {
        if self.json {
            return self.value(&serde_json::json!({ name: entries }), |_| String::new());
        }
        let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        let row = |entry: &Json| columns.iter().map(|(_, pointer)| cell(entry.pointer(pointer))).collect();
        let rows: Vec<Vec<String>> = entries.iter().map(row).collect();
        text(&table(&titles, &rows, width()))
    }

    /// Prints one thing: as JSON, or as `show` writes it.
    pub(super) fn value(self, value: &Json, show: impl FnOnce(&Json) -> String) -> Result<ExitCode, Failure> {
        match self.json {
            true => text(&format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())),
            false => text(&show(value)),
        }
    }

    /// Prints an object, a member a line.
    pub(super) fn object(self, value: &Json) -> Result<ExitCode, Failure> {
        self.value(value, members)
    }
}

/// Writes to standard output. A reader that has seen enough is no failure.
pub(super) fn text(text: &str) -> Result<ExitCode, Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(why) => Err(Failure::Broken(why.to_string())),
    }
}

/// An object as lines of name and value; what is empty is left out.
pub(super) fn members(value: &Json) -> String {
    let Some(object) = value.as_object() else { return format!("{value}\n") };
    let shown: Vec<(&String, String)> = object
        .iter()
        .map(|(name, value)| (name, cell(Some(value))))
        .filter(|(_, value)| !value.is_empty() && value != "-")
        .collect();
    let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    shown.iter().map(|(name, value)| format!("{name:<width$}  {value}\n")).collect()
}

/// A value as a table shows it: one line, hidden characters written out.
pub(super) fn cell(value: Option<&Json>) -> String {
    let shown = match value {
        None | Some(Json::Null) => "-".to_owned(),
        Some(Json::String(text)) => text.clone(),
        Some(Json::Array(items)) => items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(","),
        Some(Json::Object(members)) => {
            let pair = |(name, value): (&String, &Json)| format!("{name}={}", cell(Some(value)));
            members.iter().map(pair).collect::<Vec<_>>().join(" ")
        }
        Some(other) => other.to_string(),
    };
    visible(&shown).replace('\n', "⏎").replace('\t', " ")
}

/// The width of the terminal; none where the output goes elsewhere, which gets everything.
pub(super) fn width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.or_else(|| terminal_size::terminal_size().map(|(terminal_size::Width(width), _)| usize::from(width)))
}

/// Columns of text; the widest give way until the whole fits, but none below its title.
pub(super) fn table(titles: &[String], rows: &[Vec<String>], width: Option<usize>) -> String {
    let length = |text: &String| text.chars().count();
    let mut widths: Vec<usize> = titles.iter().map(length).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(cell));
        }
    }
    let gaps = 2 * titles.len().saturating_sub(1);
    while width.is_some_and(|most| widths.iter().sum::<usize>() + gaps > most) {
        let can_give = widths.iter_mut().zip(titles).filter(|(width, title)| **width > length(title).max(8));
        let Some((widest, _)) = can_give.max_by_key(|(width, _)| **width) else { break };
        *widest -= 1;
    }
    let mut out = String::new();
    for row in std::iter::once(titles).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let cut = length(cell) > *width;
            let kept = cell.chars().take(if cut { width.saturating_sub(1) } else { *width });
            let shown: String = kept.chain(cut.then_some('…')).collect();
            line.push_str(&format!("{shown:<width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use serde_json::json;

    use super::{cell, members, table};

    #[test]
    fn a_table_fits_the_terminal_or_is_whole() {
        let titles = ["NAME".to_owned(), "SHA256".to_owned()];
        let rows = [vec!["a".to_owned(), "0".repeat(64)], vec!["long name".to_owned(), "1".to_owned()]];
        let whole = table(&titles, &rows, None);
        assert!(whole.contains(&"0".repeat(64)), "{whole}");
        for width in [30, 40, 80, 200] {
            let fit = table(&titles, &rows, Some(width));
            assert!(fit.lines().all(|line| line.chars().count() <= width), "{width}\n{fit}");
            assert_eq!(fit.lines().count(), 3);
        }
        assert!(table(&titles, &rows, Some(30)).contains('…'));
        assert_eq!(table(&titles, &[], Some(80)), "NAME  SHA256\n");
    }

    #[test]
    fn what_a_server_wrote_cannot_move_the_cursor() {
        assert_eq!(cell(Some(&json!("a\u{1b}[2Jb\r\nc"))), "a⟨U+001B⟩[2Jb⟨U+000D⟩⏎c");
        assert_eq!(cell(Some(&json!(["a", "b"]))), "a,b");
        assert_eq!(cell(None), "-");
        assert_eq!(members(&json!({ "id": "k", "none": null, "list": [] })), "id  k\n");
    }
}
