//! `docs/limits.md` against the code: every fixed limit that it names has the value that it says.

use std::{fs, path::Path};

use crate::support::Faults;

/// The rows of the table of fixed limits: file, name, value.
fn rows(docs: &str) -> Vec<[String; 3]> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    docs.lines()
        .filter(|line| line.starts_with("| `src/"))
        .map(cells)
        .map(|cells| [cells[0].clone(), cells[1].clone(), cells[2].clone()])
        .collect()
}

#[test]
fn the_documented_limits_are_those_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = rows(&fs::read_to_string(root.join("docs/limits.md")).unwrap());
    let count = rows.len();
    crate::support::run(async move {
        let mut faults = Faults::default();
        for [file, name, value] in rows {
            let source = fs::read_to_string(root.join(&file)).unwrap();
            let line = source.lines().find(|line| line.contains("const") && line.contains(&format!(" {name}:")));
            let line = line.unwrap_or_default().to_owned();
            let row = async move { assert!(line.ends_with(&format!(" = {value};")), "{line:?} is not {value}") };
            faults.row(format!("{file}: {name}"), row).await;
        }
        faults.assert_none(20);
    });
    assert!(count >= 20, "the table is read");
}
