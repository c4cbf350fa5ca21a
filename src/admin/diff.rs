//! What changed between the approved and the current definition of a tool, member by member, and what that means (contract §6).
//!
//! For a reviewer's eyes: nothing is approved by it. `_meta` of the tool is left out, as it is in the hash.

use serde::Serialize;
use serde_json::Value as Json;

use super::words::{self, Piece};

/// One member that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    /// Where, as a JSON Pointer.
    pub(super) path: String,
    /// `added`, `removed` or `changed`.
    pub(super) change: &'static str,
    /// What it means, in words.
    pub(super) meaning: String,
    /// For a schema: whether it takes more (`wider`), less (`narrower`), or that this cannot be told (`unknown`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effect: Option<&'static str>,
    /// The text piece by piece, hidden characters written out.
    pub(super) text: Vec<Piece>,
    /// The approved value; none where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) before: Option<Json>,
    /// The current value; none where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Json>,
}

/// Compares two definitions.
pub(super) fn between(approved: &Json, current: &Json) -> Vec<Difference> {
    let mut found = Vec::new();
    walk(&mut found, &mut Vec::new(), (Some(approved), Some(current)));
    found
}

fn walk(found: &mut Vec<Difference>, path: &mut Vec<String>, sides: (Option<&Json>, Option<&Json>)) {
    match sides {
        (Some(before), Some(after)) if before == after => {}
        (Some(Json::Object(before)), Some(Json::Object(after))) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                if path.is_empty() && name == "_meta" {
                    continue;
                }
                path.push(name.clone());
                walk(found, path, (before.get(name), after.get(name)));
                path.pop();
            }
        }
        (Some(Json::Array(before)), Some(Json::Array(after)))
            if before.len() == after.len() && before.iter().chain(after).any(|item| item.is_object()) =>
        {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                path.push(index.to_string());
                walk(found, path, (Some(before), Some(after)));
                path.pop();
            }
        }
        (before, after) => found.push(difference(path, before, after)),
    }
}

fn difference(path: &[String], before: Option<&Json>, after: Option<&Json>) -> Difference {
    let text = match (before, after) {
        (Some(Json::Array(before)), Some(Json::Array(after))) => {
            let lines = |list: &[Json]| list.iter().map(|item| format!("{item} ")).collect::<Vec<_>>();
            words::pieces(&lines(before), &lines(after))
        }
        _ => words::between(&plain(before), &plain(after)),
    };
    Difference {
        path: path.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect(),
        change: match (before, after) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        },
        meaning: meaning(path),
        effect: effect(path, before, after),
        text,
        before: before.cloned(),
        after: after.cloned(),
    }
}

/// A string as it is, anything else as JSON.
fn plain(value: Option<&Json>) -> String {
    match value {
        None => String::new(),
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn meaning(path: &[String]) -> String {
    let steps: Vec<&str> = path.iter().map(String::as_str).collect();
    let told = |what: &str| format!("what the model is told about {what}");
    match steps.as_slice() {
        ["description" | "title"] => told("the tool"),
        ["inputSchema", "properties", name, "description" | "title"] => told(&format!("the argument `{name}`")),
        ["inputSchema", .., "description" | "title"] => told("the arguments"),
        ["outputSchema", .., "description" | "title"] => told("the result"),
        ["inputSchema", "properties", name] => format!("the argument `{name}`"),
        ["inputSchema", "properties", name, ..] => format!("what the argument `{name}` may be"),
        ["inputSchema", "required", ..] => "which arguments must be there".to_owned(),
        ["inputSchema", ..] => "what the tool takes".to_owned(),
        ["outputSchema", ..] => "what the tool promises to give back".to_owned(),
        ["annotations", hint, ..] => format!("what the server claims about itself: `{hint}`"),
        ["annotations"] => "what the server claims about itself".to_owned(),
        ["name"] => "the tool's name".to_owned(),
        ["icons", ..] => "the tool's icons".to_owned(),
        [other, ..] => format!("the member `{other}`"),
        [] => "the whole definition".to_owned(),
    }
}

/// Whether the arguments' schema takes more or less than before, where one keyword alone tells.
fn effect(path: &[String], before: Option<&Json>, after: Option<&Json>) -> Option<&'static str> {
    let schema = matches!(path.first().map(String::as_str), Some("inputSchema" | "outputSchema"));
    let keyword = path.last().map(String::as_str).filter(|_| schema && path.len() > 1)?;
    if matches!(keyword, "description" | "title" | "examples" | "default" | "$comment" | "deprecated") {
        return None;
    }
    let number = |value: Option<&Json>| value.and_then(Json::as_f64);
    let items = |value: Option<&Json>| value.and_then(Json::as_array).cloned();
    let order = |less: bool, more: bool| match (less, more) {
        (true, _) => "narrower",
        (_, true) => "wider",
        _ => "unknown",
    };
    let told = match keyword {
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
            match (number(before), number(after)) {
                (Some(before), Some(after)) => order(after < before, after > before),
                (None, Some(_)) => "narrower",
                _ => "wider",
            }
        }
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
            match (number(before), number(after)) {
                (Some(before), Some(after)) => order(after > before, after < before),
                (None, Some(_)) => "narrower",
                _ => "wider",
            }
        }
        "required" | "enum" => {
            let (old, new) = (items(before).unwrap_or_default(), items(after).unwrap_or_default());
            let (lost, gained) = (old.iter().any(|i| !new.contains(i)), new.iter().any(|i| !old.contains(i)));
            let absent = before.is_none() || after.is_none();
            match (keyword, lost, gained, absent) {
                ("required", false, true, _) | ("enum", true, false, false) => "narrower",
                ("required", true, false, _) | ("enum", false, true, false) => "wider",
                ("enum", _, _, true) => order(before.is_none(), after.is_none()),
                _ => "unknown",
            }
        }
        "additionalProperties" => match (before, after) {
            (Some(Json::Bool(false)), None | Some(Json::Bool(true))) => "wider",
            (None | Some(Json::Bool(true)), Some(Json::Bool(false))) => "narrower",
            _ => "unknown",
        },
        "pattern" | "const" | "not" | "multipleOf" => order(before.is_none(), after.is_none()),
        _ => "unknown",
    };
    Some(told)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use serde_json::{Value as Json, json};

    use super::between;

    fn tool() -> Json {
        json!({
            "name": "pay", "description": "Pay a bill.", "_meta": { "v": 1 },
            "inputSchema": {
                "type": "object", "required": ["to"], "additionalProperties": false,
                "properties": { "to": { "type": "string", "maxLength": 10 }, "kind": { "enum": ["a", "b"] } }
            },
            "annotations": { "readOnlyHint": true }
        })
    }

    #[test]
    fn each_member_that_differs_is_told_with_its_meaning() {
        let rows: [(&str, Json, &str, &str, Option<&str>); 12] = [
            ("/description", json!("Pay a debt."), "changed", "told about the tool", None),
            ("/annotations/readOnlyHint", json!(false), "changed", "claims", None),
            ("/inputSchema/properties/to/maxLength", json!(20), "changed", "argument `to`", Some("wider")),
            ("/inputSchema/properties/to/maxLength", json!(5), "changed", "argument `to`", Some("narrower")),
            ("/inputSchema/properties/kind/enum", json!(["a"]), "changed", "argument `kind`", Some("narrower")),
            ("/inputSchema/properties/kind/enum", json!(["a", "b", "c"]), "changed", "argument", Some("wider")),
            ("/inputSchema/required", json!([]), "changed", "must be there", Some("wider")),
            ("/inputSchema/required", json!(["to", "kind"]), "changed", "must be there", Some("narrower")),
            ("/inputSchema/additionalProperties", json!(true), "changed", "takes", Some("wider")),
            ("/inputSchema/properties/x", json!({ "type": "string" }), "added", "argument `x`", Some("unknown")),
            ("/inputSchema/properties/to/pattern", json!("^a"), "added", "argument `to`", Some("narrower")),
            ("/title", json!("Pay"), "added", "told about the tool", None),
        ];
        for (path, value, change, meaning, effect) in rows {
            let mut after = tool();
            let (parent, last) = path.rsplit_once('/').unwrap();
            after.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(last.to_owned(), value);
            let found = between(&tool(), &after);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            let one = &found[0];
            assert_eq!((one.path.as_str(), one.change, one.effect), (path, change, effect));
            assert!(one.meaning.contains(meaning), "{path}: {}", one.meaning);
        }
    }

    #[test]
    fn what_is_not_in_the_hash_is_not_in_the_diff() {
        let mut after = tool();
        after["_meta"] = json!({ "v": 2 });
        assert!(between(&tool(), &after).is_empty());
        after["inputSchema"]["_meta"] = json!(1);
        assert_eq!(between(&tool(), &after).len(), 1);
    }
}
