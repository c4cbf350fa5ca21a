//! What changed between the approved and the current definition of a tool, member by member, and what that means (contract §6).
//!
//! For a reviewer's eyes: nothing is approved by it. `_meta` of the tool is left out, as it is in the hash.

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::words::{self, Piece};
use crate::policy::schema;

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

/// What the change does to what each schema takes as a whole; only those that changed. An output schema that is not there takes all.
pub(super) fn effects(approved: &Json, current: &Json) -> Map<String, Json> {
    let all = Json::Bool(true);
    let of = |name: &str| -> Option<(String, Json)> {
        let (before, after) = (approved.get(name).unwrap_or(&all), current.get(name).unwrap_or(&all));
        (before != after).then(|| (name.to_owned(), Json::from(schema::effect(before, after).as_str())))
    };
    ["inputSchema", "outputSchema"].into_iter().filter_map(of).collect()
}

/// Whether a schema takes more or less than before, where one keyword alone tells; none for what no check looks at.
fn effect(path: &[String], before: Option<&Json>, after: Option<&Json>) -> Option<&'static str> {
    let (root, steps) = path.split_first()?;
    if !matches!(root.as_str(), "inputSchema" | "outputSchema") || steps.is_empty() {
        return None;
    }
    let Some(keyword) = keyword(steps) else { return Some("unknown") };
    match keyword {
        "description" | "title" | "examples" | "default" | "$comment" | "deprecated" | "readOnly" | "writeOnly"
        | "format" => None,
        keyword => Some(weighed(keyword, before, after)),
    }
}

/// The keyword that a path leads to, if what it says there is said of the whole: by way of members and items that all values have, not
/// below a `not`, an `if` or a `oneOf`, where less of one is more of the other, nor below a name or a value that only looks like one.
fn keyword(steps: &[String]) -> Option<&str> {
    let mut steps = steps.iter().map(String::as_str);
    loop {
        let step = steps.next()?;
        if steps.len() == 0 {
            return Some(step);
        }
        match step {
            "properties" | "patternProperties" | "allOf" | "anyOf" | "prefixItems" => {
                // A name or an index; where the path ends with it, a whole subschema came or went.
                steps.next()?;
            }
            "items" | "additionalProperties" | "propertyNames" => {}
            _ => return None,
        }
    }
}

/// What a keyword's new value does.
fn weighed(keyword: &str, before: Option<&Json>, after: Option<&Json>) -> &'static str {
    let numbers = (before.map(Json::as_f64), after.map(Json::as_f64));
    let bound = |closer: fn(&f64, &f64) -> bool| match numbers {
        (Some(Some(before)), Some(Some(after))) => order(closer(&after, &before), closer(&before, &after)),
        (None, Some(Some(_))) => "narrower",
        (Some(Some(_)), None) => "wider",
        _ => "unknown",
    };
    let list = |value: Option<&Json>| value.and_then(Json::as_array).cloned();
    let comes_or_goes = || order(before.is_none() && after.is_some(), before.is_some() && after.is_none());
    match keyword {
        "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => bound(f64::lt),
        "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => bound(f64::gt),
        "required" => {
            let (old, new) = (list(before).unwrap_or_default(), list(after).unwrap_or_default());
            subset(&new, &old, |item, all| all.contains(item))
        }
        "enum" => match (list(before), list(after)) {
            (Some(old), Some(new)) => subset(&old, &new, |item, all| all.contains(item)),
            _ => comes_or_goes(),
        },
        "type" => match (before.map(types), after.map(types)) {
            (Some(old), Some(new)) => {
                subset(&old, &new, |item, all| all.contains(item) || (*item == "integer" && all.contains(&"number")))
            }
            _ => comes_or_goes(),
        },
        "uniqueItems" => {
            let is_on = |value: Option<&Json>| value == Some(&Json::Bool(true));
            order(!is_on(before) && is_on(after), is_on(before) && !is_on(after))
        }
        "additionalProperties" => {
            let openness = |value: Option<&Json>| match value {
                None | Some(Json::Bool(true)) => 2,
                Some(Json::Bool(false)) => 0,
                Some(_) => 1,
            };
            order(openness(after) < openness(before), openness(after) > openness(before))
        }
        "pattern" | "const" | "not" | "multipleOf" => comes_or_goes(),
        _ => "unknown",
    }
}

const fn order(less: bool, more: bool) -> &'static str {
    match (less, more) {
        (true, _) => "narrower",
        (_, true) => "wider",
        _ => "unknown",
    }
}

/// By what was allowed and what is: something gone, something new, or both, which cannot be told.
fn subset<T>(old: &[T], new: &[T], is_in: impl Fn(&T, &[T]) -> bool) -> &'static str {
    let lost = old.iter().any(|item| !is_in(item, new));
    let gained = new.iter().any(|item| !is_in(item, old));
    order(lost && !gained, gained && !lost)
}

fn types(value: &Json) -> Vec<&str> {
    match value {
        Json::String(one) => vec![one],
        Json::Array(several) => several.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
