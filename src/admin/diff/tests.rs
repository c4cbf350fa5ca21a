//! Which differences are told, and what they are said to mean.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use serde_json::{Value as Json, json};

use super::{between, effects};

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

/// What a change of one member of the schema of an argument does: the member, its values before and after (`null`: not there), what the
/// member alone tells, and what the schema as a whole does.
const ROWS: &[(&str, &str, &str, Option<&str>, &str)] = &[
    ("maxLength", "5", "9", Some("wider"), "wider"),
    ("maxLength", "9", "5", Some("narrower"), "narrower"),
    ("maxLength", "null", "5", Some("narrower"), "narrower"),
    ("maxLength", "5", "null", Some("wider"), "wider"),
    ("minLength", "1", "3", Some("narrower"), "narrower"),
    ("minLength", "3", "null", Some("wider"), "wider"),
    ("minimum", "0", "-1", Some("wider"), "wider"),
    ("minimum", "0", "0.5", Some("narrower"), "narrower"),
    ("maximum", "10", "10.0", Some("unknown"), "same"),
    ("maximum", "1", "2", Some("wider"), "wider"),
    ("exclusiveMaximum", "2", "1", Some("narrower"), "narrower"),
    ("exclusiveMinimum", "null", "1", Some("narrower"), "narrower"),
    ("maxItems", "2", "null", Some("wider"), "wider"),
    ("minItems", "null", "1", Some("narrower"), "narrower"),
    ("uniqueItems", "null", "true", Some("narrower"), "narrower"),
    ("uniqueItems", "true", "false", Some("wider"), "wider"),
    ("uniqueItems", "null", "false", Some("unknown"), "same"),
    ("maxProperties", "3", "2", Some("narrower"), "narrower"),
    ("enum", r#"["a","b"]"#, r#"["a"]"#, Some("narrower"), "narrower"),
    ("enum", r#"["a"]"#, r#"["a","b"]"#, Some("wider"), "wider"),
    ("enum", r#"["a","b"]"#, r#"["a","c"]"#, Some("unknown"), "wider"),
    ("enum", r#"["a","b"]"#, r#"["b","a"]"#, Some("unknown"), "same"),
    ("enum", "null", r#"["a"]"#, Some("narrower"), "narrower"),
    ("enum", r#"["a"]"#, "null", Some("wider"), "wider"),
    ("const", r#""a""#, "null", Some("wider"), "wider"),
    ("const", r#""a""#, r#""b""#, Some("unknown"), "wider"),
    ("type", r#""string""#, r#"["string","null"]"#, Some("wider"), "wider"),
    ("type", r#"["string","null"]"#, r#""null""#, Some("narrower"), "narrower"),
    ("type", r#""integer""#, r#""number""#, Some("wider"), "unknown"),
    ("type", r#""number""#, r#""integer""#, Some("narrower"), "narrower"),
    ("type", r#""string""#, r#""integer""#, Some("unknown"), "wider"),
    ("type", r#""string""#, "null", Some("wider"), "wider"),
    ("required", r#"["a"]"#, "[]", Some("wider"), "wider"),
    ("required", r#"["a"]"#, r#"["a","b"]"#, Some("narrower"), "narrower"),
    ("required", r#"["a"]"#, r#"["b"]"#, Some("unknown"), "wider"),
    ("required", "null", r#"["a"]"#, Some("narrower"), "narrower"),
    ("additionalProperties", "false", "true", Some("wider"), "wider"),
    ("additionalProperties", "null", "false", Some("narrower"), "narrower"),
    ("additionalProperties", "false", r#"{"type":"string"}"#, Some("wider"), "wider"),
    ("additionalProperties", r#"{"type":"string"}"#, "null", Some("wider"), "unknown"),
    ("additionalProperties", "true", r#"{"type":"string"}"#, Some("narrower"), "narrower"),
    ("pattern", "null", r#""^a""#, Some("narrower"), "narrower"),
    ("pattern", r#""^a""#, "null", Some("wider"), "wider"),
    ("multipleOf", "null", "2", Some("narrower"), "narrower"),
    ("not", r#"{"type":"string"}"#, "null", Some("wider"), "wider"),
    // Less of what is refused is more of what is taken.
    ("not/maxLength", "5", "3", Some("unknown"), "wider"),
    ("if/maxLength", "5", "9", Some("unknown"), "same"),
    ("oneOf/0/maxLength", "5", "9", Some("unknown"), "wider"),
    ("anyOf/0/maxLength", "5", "9", Some("wider"), "wider"),
    ("allOf/0/minLength", "1", "2", Some("narrower"), "narrower"),
    ("items/maximum", "1", "2", Some("wider"), "wider"),
    // A name that looks like a keyword is none.
    ("properties/maximum", "null", r#"{"type":"string"}"#, Some("unknown"), "narrower"),
    ("properties/required", r#"{"type":"string"}"#, "null", Some("unknown"), "wider"),
    ("properties/enum/maxLength", "5", "9", Some("wider"), "wider"),
    ("default/maximum", "1", "2", Some("unknown"), "same"),
    ("$defs/maximum/maxLength", "1", "2", Some("unknown"), "same"),
    // No check looks at these.
    ("description", r#""a""#, r#""b""#, None, "same"),
    ("format", "null", r#""email""#, None, "same"),
    ("default", "1", "2", None, "same"),
    ("x-note", "1", "2", Some("unknown"), "same"),
];

/// A tool whose argument `x` has a value at that place of its schema.
fn with(place: &str, value: &Json) -> Json {
    let mut tool = tool();
    let mut at = &mut tool["inputSchema"]["properties"]["x"];
    *at = json!({});
    let steps: Vec<&str> = place.split('/').collect();
    for (step, next) in steps.iter().zip(steps.iter().skip(1).map(Some).chain([None])) {
        let inner = match next {
            None => value.clone(),
            Some(next) if next.parse::<usize>().is_ok() => json!([{}]),
            Some(_) => json!({}),
        };
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) if next.is_none() && value.is_null() => return tool,
            Err(_) => {
                at[*step] = inner;
                &mut at[*step]
            }
        };
    }
    tool
}

#[test]
fn what_a_member_tells_never_contradicts_the_whole() {
    let read = |text: &str| serde_json::from_str::<Json>(text).unwrap();
    let mut wrong = Vec::new();
    for (place, before, after, effect, whole) in ROWS {
        let (before, after) = (with(place, &read(before)), with(place, &read(after)));
        let found = between(&before, &after);
        let wholes = effects(&before, &after);
        let told = (found.len(), found[0].effect, wholes["inputSchema"].as_str().unwrap());
        if told != (1, *effect, *whole) {
            wrong.push(format!(
                "{place}: {told:?}, not {:?}\n  {}\n  {}",
                (1, effect, whole),
                before["inputSchema"],
                after["inputSchema"]
            ));
        }
        let contradicted = [("narrower", "wider"), ("wider", "narrower")];
        assert!(!contradicted.contains(&(told.1.unwrap_or_default(), told.2)), "{place}: {told:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_whole_of_both_schemas_is_told_where_it_changed() {
    let mut after = tool();
    assert_eq!(Json::Object(effects(&tool(), &after)), json!({}));
    after["outputSchema"] = json!({ "type": "object" });
    assert_eq!(Json::Object(effects(&tool(), &after)), json!({ "outputSchema": "narrower" }));
    assert_eq!(Json::Object(effects(&after, &tool())), json!({ "outputSchema": "wider" }));
    after["inputSchema"]["properties"]["to"]["pattern"] = json!("(?=look-around)");
    assert_eq!(effects(&tool(), &after)["inputSchema"], "unknown", "no engine takes the pattern in linear time");
    after["inputSchema"] = json!({ "type": "object", "$ref": "https://elsewhere.example/schema" });
    assert_eq!(effects(&tool(), &after)["inputSchema"], "unknown", "nothing is fetched");
}
