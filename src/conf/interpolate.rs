//! `${VAR}` and `${VAR:-default}` inside string values, after parsing (contract §10): a variable can hold a quote or a line
//! end and still be one value. `$${` stands for a plain `${`.

use std::ops::Range;

use super::value::{Node, Table, Value};

/// Looks an environment variable up.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What is wrong with a reference: where, and why.
pub(super) type Wrong = (Range<usize>, String);

/// Expands every string value below `table`. `source` is the text that the ranges speak of.
pub(super) fn expand_all(table: &mut Table, source: &str, env: Env<'_>) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for entry in &mut table.0 {
        walk(&mut entry.value, source, env, &mut wrong);
    }
    wrong
}

fn walk(value: &mut Value, source: &str, env: Env<'_>, wrong: &mut Vec<Wrong>) {
    match &mut value.node {
        Node::Text(text) if text.contains("${") => {
            let mut faults = Vec::new();
            let expanded = expand(text, env, &mut faults);
            if faults.is_empty() {
                *text = expanded;
                return;
            }
            faults.dedup();
            wrong.extend(faults.into_iter().map(|(reference, why)| (locate(&reference, source, &value.span), why)));
            value.node = Node::Faulty;
        }
        Node::List(list) => list.iter_mut().for_each(|value| walk(value, source, env, wrong)),
        Node::Table(table) => table.0.iter_mut().for_each(|entry| walk(&mut entry.value, source, env, wrong)),
        _ => {}
    }
}

/// The text with its references replaced; each bad reference is reported as it was written.
fn expand(text: &str, env: Env<'_>, faults: &mut Vec<(String, String)>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let (inside, tail, closed) = match after.split_once('}') {
            Some((inside, tail)) => (inside, tail, true),
            None => (after, "", false),
        };
        let reference = format!("${{{inside}{}", if closed { "}" } else { "" });
        match resolve(inside, closed, env) {
            Ok(value) => out.push_str(&value),
            Err(why) => faults.push((reference, why)),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn resolve(inside: &str, closed: bool, env: Env<'_>) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_name = begins_well && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    if !closed || !is_name || default.is_some_and(|default| default.contains("${")) {
        return Err(
            "`${` opens no variable here: write `${VAR}` or `${VAR:-default}`, or `$${` for a plain `${`".into()
        );
    }
    match (env(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!("the environment variable `{name}` is not set")),
    }
}

/// The reference's own range in the source, if it stands there as it reads; else the whole value's.
fn locate(reference: &str, source: &str, span: &Range<usize>) -> Range<usize> {
    match source.get(span.clone()).and_then(|written| written.find(reference)) {
        Some(at) => span.start + at..span.start + at + reference.len(),
        None => span.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::expand;

    fn check(text: &str, expected: Result<&str, usize>) {
        let env = |name: &str| match name {
            "HOST" => Some("h\"\n${HOST}".to_owned()),
            "EMPTY" => Some(String::new()),
            "_A1" => Some("a".to_owned()),
            _ => None,
        };
        let mut faults = Vec::new();
        let out = expand(text, &env, &mut faults);
        match expected {
            Ok(expected) => assert_eq!((out.as_str(), faults.len()), (expected, 0), "{text}"),
            Err(count) => assert_eq!(faults.len(), count, "{text}"),
        }
    }

    #[test]
    fn references_are_replaced_once_and_bad_ones_are_faults() {
        check("plain $ { } text", Ok("plain $ { } text"));
        check("${_A1}${_A1}", Ok("aa"));
        check("x${HOST}y", Ok("xh\"\n${HOST}y"));
        check("${EMPTY}", Ok(""));
        check("${EMPTY:-d}", Ok("d"));
        check("${NONE:-}", Ok(""));
        check("${NONE:-a:-b}", Ok("a:-b"));
        check("$${jndi:x}", Ok("${jndi:x}"));
        check("$${A} ${_A1}", Ok("${A} a"));
        check("${NONE} ${NONE}", Err(2));
        check("${", Err(1));
        check("${}", Err(1));
        check("${1A}", Err(1));
        check("${jndi:x}", Err(1));
        check("${A", Err(1));
        check("${A:-${B}}", Err(1));
    }
}
