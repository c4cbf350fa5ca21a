//! The house rules, as a test: floors, the nevers, `//!`, sizes, and words that must not stay (architecture 1.4, 1.10, 1.11).

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The rooms by floor; a file imports strictly lower floors and its own room.
const FLOORS: &[(&str, usize)] = &[
    ("model", 0),
    ("refusal", 1),
    ("conf", 1),
    ("store", 1),
    ("upstream", 1),
    ("budget", 1),
    ("policy", 2),
    ("metrics", 2),
    ("access_log", 2),
    ("traces", 2),
    ("call", 3),
    ("control", 4),
    ("proxy", 5),
    ("discovery", 5),
    ("admin", 5),
    ("ops", 5),
    ("server", 6),
    ("cli", 7),
    ("main", 8),
    ("lib", 9),
];

/// A crate, and the only places that may name it.
const NEVERS: &[(&str, &[&str])] = &[
    ("pingora", &["proxy", "upstream", "server", "admin"]),
    ("pingora_core", &["proxy", "upstream", "server", "admin"]),
    ("pingora_http", &["proxy", "upstream", "server", "admin"]),
    ("pingora_proxy", &["proxy", "upstream", "server", "admin"]),
    ("pingora_limits", &["budget"]),
    ("jsonwebtoken", &["policy/issuers"]),
    ("arc_swap", &["policy/live.rs"]),
    ("prometheus", &["metrics.rs"]),
    ("jsonschema", &["policy/schema"]),
    ("simd_json", &["model/jsonrpc"]),
];

/// Files that are tables, or one idea that does not fall apart: longer than [`FILE_LINES`], each with its reason.
const LONG_FILES: &[(&str, &str)] = &[
    ("src/admin/shapes.rs", "the table of shapes of the OpenAPI document"),
    ("src/model/records.rs", "the vocabulary of the policy: one type after the other"),
    ("src/metrics.rs", "the table of series"),
    ("src/refusal.rs", "the table of refusals"),
    ("tests/suite/contract_http.rs", "the rows of contract §2"),
    ("tests/suite/contract_rpc.rs", "the rows of contract §3"),
    ("tests/suite/faults.rs", "the tables of what a server can do wrong"),
    ("tests/suite/reports.rs", "one small test a kind of report"),
    ("load/generate.rs", "the generator: one program, read from its command line to its report"),
    ("tests/suite/admin/codes.rs", "the table of the management API's refusals"),
    ("tests/suite/cases.rs", "the lines of the case files that need a word"),
    ("tests/support/upstream.rs", "one builder and one handle, a method a line of the story"),
    ("tests/support/client.rs", "one builder, a method a line of the story"),
    ("tests/support/gateway.rs", "one builder and one handle, a method a line of the story"),
];

/// Functions that are one table or one story from top to bottom: longer than [`FUNCTION_LINES`], each with its reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("stages", "the table of the line's stages"),
    ("every_refusal_has_its_code_and_changes_nothing", "the table of the management API's refusals"),
    ("what_is_explained_is_what_a_call_gets", "the table of what explain says"),
    ("the_shapes_have_the_members_that_are_answered", "the table of the shapes"),
    ("the_walk_of_a_tool", "one story, step by step"),
    ("every_call_over_tcp_needs_a_token_with_its_role", "the table of the calls and their roles"),
];

/// The longest file, tests at its end not counted.
const FILE_LINES: usize = 400;
/// The longest function.
const FUNCTION_LINES: usize = 70;

struct Source {
    name: String,
    text: String,
    /// The text with comments and literals blanked out.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches", "load"] {
        collect(&root.join(folder), &mut paths);
    }
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            Source { name, code: blank(&text), text }
        })
        .collect()
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !["target", "node_modules"].iter().any(|name| path.ends_with(name)) {
                collect(&path, out);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Replaces comments, strings and characters by spaces, line by line the same.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = token_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { c } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn token_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let until = |mut i: usize, done: &dyn Fn(usize) -> Option<usize>| {
        while i < chars.len() {
            if let Some(end) = done(i) {
                return end;
            }
            i += 1;
        }
        chars.len()
    };
    let starts = |i: usize, word: &str| word.chars().enumerate().all(|(n, c)| chars.get(i + n) == Some(&c));
    let ident_before = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if starts(at, "//") {
        return until(at, &|i| (chars[i] == '\n').then_some(i));
    }
    if starts(at, "/*") {
        return until(at + 2, &|i| starts(i, "*/").then_some(i + 2));
    }
    if !ident_before && (starts(at, "r\"") || starts(at, "r#") || starts(at, "br\"") || starts(at, "br#")) {
        let open = rest.iter().position(|&c| c == '"').unwrap_or(0);
        let hashes = rest[..open].iter().filter(|&&c| c == '#').count();
        if rest[..open].iter().all(|&c| "br#".contains(c)) && open > 0 {
            let close = format!("\"{}", "#".repeat(hashes));
            return until(at + open + 1, &|i| starts(i, &close).then_some(i + close.len()));
        }
    }
    if chars[at] == '"' {
        return until(at + 1, &|i| {
            let backslashes = chars[..i].iter().rev().take_while(|&&c| c == '\\').count();
            (chars[i] == '"' && backslashes % 2 == 0).then_some(i + 1)
        });
    }
    if chars[at] == '\'' {
        if chars.get(at + 1) == Some(&'\\') {
            return until(at + 3, &|i| (chars[i] == '\'').then_some(i + 1));
        }
        if chars.get(at + 2) == Some(&'\'') {
            return at + 3;
        }
    }
    at
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `code` names `word` as a whole path segment at the head of a path.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        before.is_none_or(|c| !is_word(c) && c != ':' && c != '.') && after.is_some_and(|c| c == ':' || c == ';')
    })
}

/// The rooms that `code` imports by `crate::`.
fn imports(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 0 && is_word(c) {
                    word.push(c);
                } else if depth == 0 && (c == ':' || c == ',') {
                    rooms.push(std::mem::take(&mut word));
                    // the rest of this member is of no interest: it starts with a colon, which yields empty words
                }
                if depth == 0 && c == ',' {
                    word.clear();
                }
            }
            rooms.push(word);
        } else {
            rooms.push(rest.chars().take_while(|&c| is_word(c)).collect());
        }
    }
    rooms.retain(|room| FLOORS.iter().any(|(name, _)| name == room));
    rooms
}

fn room(name: &str) -> &str {
    let inside = name.strip_prefix("src/").unwrap_or(name);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

fn floor(room: &str) -> usize {
    FLOORS.iter().find(|(name, _)| *name == room).unwrap_or_else(|| panic!("{room} has no floor")).1
}

fn assert_clean(rule: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{rule}:\n{}", faults.join("\n"));
}

#[test]
fn imports_run_strictly_downwards() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.name.starts_with("src/")) {
        let own = room(&source.name);
        for import in imports(&source.code) {
            if import != own && floor(&import) >= floor(own) {
                faults.push(format!(
                    "{} (floor {}) imports {import} (floor {})",
                    source.name,
                    floor(own),
                    floor(&import)
                ));
            }
        }
    }
    assert_clean("imports run strictly downwards", &faults);
}

#[test]
fn some_crates_are_named_in_one_place_only() {
    let mut faults = Vec::new();
    for source in sources().iter().filter(|source| source.name.starts_with("src/")) {
        let inside = source.name.trim_start_matches("src/");
        for (name, places) in NEVERS {
            if names(&source.code, name) && !places.iter().any(|place| inside.starts_with(place)) {
                faults.push(format!("{} names {name}", source.name));
            }
        }
    }
    assert_clean("only its place names a crate", &faults);
}

#[test]
fn every_file_says_what_it_is_for() {
    let faults: Vec<String> =
        sources().iter().filter(|source| !source.text.starts_with("//! ")).map(|source| source.name.clone()).collect();
    assert_clean("a file starts with //!", &faults);
}

#[test]
fn files_and_functions_stay_short() {
    let mut faults = Vec::new();
    for source in sources() {
        let lines = source.code.split("\n#[cfg(test)]\n").next().unwrap_or_default().lines().count();
        let tests = source.name.ends_with("/tests.rs") || source.name.ends_with("_tests.rs");
        if lines > FILE_LINES && !tests && !LONG_FILES.iter().any(|(name, _)| *name == source.name) {
            faults.push(format!("{} has {lines} lines", source.name));
        }
        for (name, lines) in functions(&source.code) {
            if lines > FUNCTION_LINES && !LONG_FUNCTIONS.iter().any(|(long, _)| *long == name) {
                faults.push(format!("{}: fn {name} has {lines} lines", source.name));
            }
        }
    }
    assert_clean("files and functions stay short", &faults);
}

/// Each function with a body, and how many lines it has.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(code[..at].chars().next_back().unwrap_or(' ')) {
            continue;
        }
        let rest = &code[at..];
        let name: String = rest[3..].chars().take_while(|&c| is_word(c)).collect();
        let (mut depth, mut nested) = (0usize, 0usize);
        for (offset, c) in rest.char_indices() {
            match c {
                '(' | '[' => nested += 1,
                ')' | ']' => nested = nested.saturating_sub(1),
                ';' if depth == 0 && nested == 0 => break,
                '{' => depth += 1,
                '}' if depth == 1 => {
                    out.push((name, rest[..=offset].lines().count()));
                    break;
                }
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    out
}

#[test]
fn nothing_is_left_undone() {
    let mut faults = Vec::new();
    // written in two halves, so that this file does not name them
    let macros = [concat!("todo", "!"), concat!("unimpl", "emented!"), concat!("db", "g!")];
    let words =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("/tmp", "/wt"), concat!("/wo", "rk/")];
    for source in sources() {
        let name = &source.name;
        faults.extend(macros.iter().filter(|word| source.code.contains(**word)).map(|word| format!("{name}: {word}")));
        faults.extend(words.iter().filter(|word| source.text.contains(**word)).map(|word| format!("{name}: {word}")));
        if name.starts_with("src/") && source.code.contains("use crate::*") {
            faults.push(format!("{name}: use crate::*"));
        }
        if name.ends_with("utils.rs") || name.ends_with("prelude.rs") {
            faults.push(format!("{name}: a name that says nothing"));
        }
    }
    assert_clean("nothing is left undone", &faults);
}

#[test]
fn every_test_file_is_in_the_suite() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let main = fs::read_to_string(root.join("main.rs")).unwrap();
    let mut faults = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        if module != "main" && !main.contains(&format!("mod {module};")) {
            faults.push(name);
        }
    }
    assert_clean("a file that main.rs does not name never runs", &faults);
}

#[test]
fn long_files_that_became_short_leave_the_list() {
    let sources = sources();
    let faults: Vec<String> = LONG_FILES
        .iter()
        .filter(|(name, reason)| {
            let long = sources.iter().any(|s| s.name == *name && s.text.lines().count() > FILE_LINES);
            !long || reason.is_empty()
        })
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_clean("the list of long files is true", &faults);
}

#[test]
fn the_scanner_sees_what_it_must() {
    let code = blank(
        "use crate::{model::x, policy::{a, b}}; // crate::cli\nlet s = \"crate::cli {\"; let c = '{'; fn f() { }\n",
    );
    assert_eq!(imports(&code), ["model", "policy"]);
    assert_eq!(functions(&code), [("f".to_owned(), 1)]);
    assert!(names("use pingora::x;", "pingora") && !names("use pingora_core::x;", "pingora"));
    assert_eq!(functions("fn a(x: [u8; 2]) -> u8 {\n 1\n}\nfn b();\n"), [("a".to_owned(), 3)]);
    assert_eq!(blank("r#\"{\"#x").trim(), "x");
}
