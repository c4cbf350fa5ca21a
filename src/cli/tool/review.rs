//! What a reviewer reads of a tool: as it is, and what changed since somebody approved it; with what to look at twice, and the command
//! that approves just what was shown.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::{
    admin,
    cli::print::{self, cell},
};

/// A tool as its server lists it.
pub(super) fn show(tool: &Json) -> String {
    let mut summary = tool.clone();
    let mut definition = Json::Null;
    if let Some(members) = summary.as_object_mut() {
        definition = members.remove("definition").unwrap_or_default();
        for name in ["approved_definition", "diff", "effects", "warnings", "suggested"] {
            members.remove(name);
        }
    }
    let pretty = serde_json::to_string_pretty(&definition).unwrap_or_default();
    format!("{}\n{}\n{}", print::members(&summary), admin::visible(&pretty), remarks(tool))
}

/// What changed, member by member: `[-taken out-]` and `{+put in+}`.
pub(super) fn diff(tool: &Json) -> String {
    let text = |name: &str| cell(tool.get(name));
    let mut out = format!(
        "{}/{}: {}\n  approved  {}\n  current   {}\n",
        text("server"),
        text("name"),
        text("status"),
        text("approved_sha256"),
        text("sha256")
    );
    let differences = tool.get("diff").and_then(Json::as_array).cloned().unwrap_or_default();
    for difference in &differences {
        let of = |name: &str| cell(difference.get(name));
        let effect = difference.get("effect").and_then(Json::as_str).map_or(String::new(), |e| format!(", {e}"));
        let _ = write!(out, "\n{} {} ({}{effect})\n    ", of("change"), of("path"), of("meaning"));
        for piece in difference.get("text").and_then(Json::as_array).into_iter().flatten() {
            let shown = admin::visible(piece.get("text").and_then(Json::as_str).unwrap_or_default());
            let shown = shown.replace('\n', "⏎\n    ");
            match piece.get("op").and_then(Json::as_str) {
                Some("removed") => _ = write!(out, "[-{shown}-]"),
                Some("added") => _ = write!(out, "{{+{shown}+}}"),
                _ => out.push_str(&shown),
            }
        }
        out.push('\n');
    }
    for (name, effect) in tool.get("effects").and_then(Json::as_object).into_iter().flatten() {
        let _ = writeln!(out, "\n{name} as a whole: {}", meant(effect.as_str().unwrap_or_default()));
    }
    let known = tool.get("definition").is_some_and(|d| !d.is_null());
    if tool.get("approved_definition").is_none_or(Json::is_null) {
        out.push_str("\nNo definition was approved yet");
        out.push_str(if known { "; `toolgate tool show` prints the current one.\n" } else { ".\n" });
    } else if differences.is_empty() {
        out.push_str("\nThe current definition is the approved one.\n");
    }
    out + &remarks(tool)
}

/// What a change of a schema does, in words.
fn meant(effect: &str) -> &str {
    match effect {
        "same" => "takes what it took",
        "wider" => "wider, takes something that it did not take before",
        "narrower" => "narrower, takes nothing new",
        _ => "whether it takes more or less cannot be told",
    }
}

/// What to look at twice, and the command that approves what was shown.
fn remarks(tool: &Json) -> String {
    let mut out = String::new();
    for warning in tool.get("warnings").and_then(Json::as_array).into_iter().flatten() {
        let of = |name: &str| cell(warning.get(name));
        let _ = write!(out, "\nlook twice: {} at {}\n    {}\n", of("kind"), of("path"), of("message"));
    }
    let hash = tool.get("sha256").and_then(Json::as_str);
    let status = tool.get("status").and_then(Json::as_str);
    if let Some(hash) = hash.filter(|_| status != Some("approved")) {
        let (class, labels) = (cell(tool.pointer("/suggested/class")), cell(tool.pointer("/suggested/labels")));
        let labels = if labels.is_empty() { "none".to_owned() } else { labels };
        let _ = write!(
            out,
            "\nIts annotations and name suggest --class {class} --labels {labels}. To approve what is shown here:\n  \
             toolgate tool approve {} {} --sha256 {hash} --class CLASS --labels LABELS\n",
            quoted(&cell(tool.get("server"))),
            quoted(&cell(tool.get("name")))
        );
    }
    out
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    let plain = !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-./:".contains(&c));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{quoted, show};

    #[test]
    fn a_tool_is_shown_without_what_the_diff_tells() {
        let told = ["approved_definition", "diff", "effects", "warnings", "suggested"];
        let mut tool = json!({ "server": "gh", "name": "t", "status": "approved", "definition": { "name": "t" } });
        if let Some(members) = tool.as_object_mut() {
            members.extend(told.map(|name| (name.to_owned(), json!({}))));
        }
        let shown = show(&tool);
        assert!(shown.contains("approved") && told.iter().all(|name| !shown.contains(name)), "{shown}");
    }

    #[test]
    fn names_are_quoted_for_the_shell() {
        assert_eq!(quoted("create_issue"), "create_issue");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
