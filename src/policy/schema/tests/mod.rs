//! What a check says, and what it never says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

mod bounds;
mod tools;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::model::jsonrpc::Document;

fn input(definition: &Value) -> Result<Arc<Schema>, SchemaFault> {
    Schema::compile(definition, Role::Input)
}

fn output(definition: &Value) -> Arc<Schema> {
    Schema::compile(definition, Role::Output).unwrap_or_else(|fault| panic!("{fault}: {definition}"))
}

fn check(schema: &Schema, raw: &str) -> Result<(), Vec<Violation>> {
    let mut scratch = Vec::new();
    let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
    schema.check(document.root())
}

/// The violations as `pointer rule`.
fn violations(schema: &Value, raw: &str) -> Vec<String> {
    let found = check(&output(schema), raw).err().unwrap_or_default();
    found.iter().map(|violation| format!("{} {}", violation.pointer, violation.rule)).collect()
}

fn on_a_usual_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap()
}

/// The tape answers every question as `serde_json::Value` does, over keywords and values of all kinds.
#[test]
fn the_tape_validates_as_serde_json_does() {
    let schemas = [
        json!({"type": ["string", "null"]}),
        json!({"type": "integer", "minimum": 2, "multipleOf": 2}),
        json!({"const": {"a": [1, 2.0, null, true], "b": "x"}}),
        json!({"enum": [1, "a", null, [1], {"k": 1.0}, true]}),
        json!({"minLength": 2, "maxLength": 3, "pattern": "^[a-zé\u{1f600}]+$"}),
        json!({"uniqueItems": true, "minItems": 1, "contains": {"type": "number"}}),
        json!({"items": {"type": "integer"}, "prefixItems": [{"type": "string"}]}),
        json!({"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}),
        json!({"propertyNames": {"pattern": "^[a-z]$", "maxLength": 1}}),
        json!({"patternProperties": {"^x": {"type": "string"}}, "unevaluatedProperties": false, "minProperties": 1}),
        json!({"if": {"type": "object"}, "then": {"required": ["a"]}, "else": {"not": {"type": "null"}}}),
        json!({"oneOf": [{"type": "number"}, {"type": "integer"}, {"type": "object"}]}),
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"properties": {"a": {"type": "string"}}}}}),
        json!({"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"a": {"$ref": "#/$defs/t"}, "b": {"type": "string"}}}}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 0, "exclusiveMinimum": true}),
    ];
    let instances = [
        "null",
        "true",
        "0",
        "-0",
        "1",
        "2",
        "2.0",
        "4",
        "1.5",
        "1e2",
        "18446744073709551616",
        "-1",
        "\"\"",
        "\"a\"",
        "\"ab\"",
        "\"éé😀\"",
        "\"abcd\"",
        "[]",
        "[1]",
        "[1,1.0]",
        "[\"a\",1]",
        "[\"a\",\"b\"]",
        "{}",
        "{\"a\":1}",
        "{\"a\":1,\"b\":\"x\"}",
        "{\"a\":\"1\",\"b\":2}",
        "{\"a\":[1,2,null,true],\"b\":\"x\"}",
        "{\"b\":\"x\",\"a\":[1,2.0,null,true]}",
        "{\"xa\":\"s\"}",
        "{\"xa\":1}",
        "{\"k\":1}",
        "{\"a\":{\"a\":{\"b\":1}}}",
        "{\"A\":1}",
        "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]",
    ];
    let mut accepted = 0;
    for schema in &schemas {
        let ours = output(schema);
        let theirs = jsonschema::options().should_validate_formats(false).build(schema).unwrap();
        for raw in instances {
            let value: Value = serde_json::from_str(raw).unwrap();
            assert_eq!(check(&ours, raw).is_ok(), theirs.is_valid(&value), "{schema} {raw}");
            accepted += usize::from(check(&ours, raw).is_ok());
        }
    }
    assert!(accepted > 100 && accepted < schemas.len() * instances.len() - 100, "{accepted}");
}

#[test]
fn violations_name_the_place_and_the_rule() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer", "maximum": 3},
            "list": {"type": "array", "items": {"type": "object", "required": ["id"]}},
            "mode": {"enum": ["fast", "slow"]},
            "a/b~c": {"type": "null"}
        },
        "required": ["n"],
        "additionalProperties": false
    });
    let cases = [
        ("{}", " must have the member `\"n\"`"),
        (r#"{"n":"x"}"#, "/n must be of type integer"),
        (r#"{"n":7}"#, "/n must be at most `3`"),
        (r#"{"n":1,"list":[{"id":1},{}]}"#, "/list/1 must have the member `\"id\"`"),
        (r#"{"n":1,"mode":"SECRET"}"#, "/mode must be one of `[\"fast\",\"slow\"]`"),
        (r#"{"n":1,"a/b~c":"SECRET"}"#, "/a~1b~0c must be of type null"),
        (r#"{"n":1,"SECRET":"SECRET"}"#, " has members that are not allowed"),
        ("7", " must be of type object"),
    ];
    for (raw, wanted) in cases {
        assert_eq!(violations(&schema, raw), [wanted], "{raw}");
    }
}

#[test]
fn no_violation_repeats_a_value_or_a_name_of_the_caller() {
    let schemas = [
        json!({"additionalProperties": {"type": "integer"}}),
        json!({"additionalProperties": {"additionalProperties": {"type": "integer"}}}),
        json!({"patternProperties": {"^S": {"items": false}}}),
        json!({"propertyNames": {"maxLength": 1}}),
        json!({"unevaluatedProperties": false, "unevaluatedItems": false, "anyOf": [{"type": "object"}]}),
        json!({"not": {}}),
        json!({"const": 1}),
        json!({"enum": [1, 2]}),
        json!({"anyOf": [{"type": "integer"}, {"maxProperties": 0}]}),
        json!({"oneOf": [{"type": "integer"}, {"type": "null"}]}),
        json!({"type": "integer"}),
        json!({"pattern": "^x$", "type": "string"}),
        json!({"maxItems": 0, "maxProperties": 0, "maxLength": 0}),
        json!({"uniqueItems": true, "properties": {"SECRET": false}, "required": ["r"]}),
        json!({"items": {"type": "null"}, "contains": {"type": "null"}}),
        json!(false),
    ];
    let instances = [
        r#"{"SECRET0":"SECRET1"}"#,
        r#"{"SECRET0":{"SECRET1":["SECRET2","SECRET2"]}}"#,
        r#""SECRET""#,
        r#"["SECRET","SECRET"]"#,
        r#"{"4111111111111111":{"4222222222222":"SECRET"}}"#,
        "4111111111111111",
    ];
    let mut seen = 0;
    for schema in &schemas {
        for raw in instances {
            for violation in check(&output(schema), raw).err().unwrap_or_default() {
                let text = format!("{violation:?}");
                seen += 1;
                for part in ["SECRET0", "SECRET1", "SECRET2", "\"SECRET", "4111111111111111", "4222222222222"] {
                    assert!(!text.contains(part), "{schema} {raw}: {text}");
                }
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn at_most_eight_violations_are_told_and_none_twice() {
    let schema = json!({"items": {"type": "integer"}});
    assert_eq!(violations(&schema, &format!("[{}]", vec!["\"x\""; 20].join(","))).len(), VIOLATIONS_MAX);
    let schema = json!({"additionalProperties": {"type": "integer"}});
    assert_eq!(violations(&schema, r#"{"a":"x","b":"x","c":"x"}"#), [" must be of type integer"]);
}

#[test]
fn patterns_run_in_linear_time_or_are_cut_off_as_failed() {
    let pattern = |pattern: &str| output(&json!({"pattern": pattern}));
    let long = format!("\"{}!\"", "a".repeat(50_000));
    assert!(check(&pattern("^(a+)+$"), &long).is_err());
    assert!(!check(&pattern("^(a+)+$"), &long).unwrap_err()[0].overrun);
    // Look-around needs the backtracking engine.
    let mail = pattern(r"^(?!\.)(?!.*\.\.)[a-z0-9.+_-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)+$");
    assert!(check(&mail, "\"a.b@x.example\"").is_ok());
    for bad in ["\".a@x.example\"", "\"a..b@x.example\""] {
        assert!(check(&mail, bad).is_err());
    }
    let twice = pattern(r"^(a+)\1$");
    assert!(check(&twice, "\"aaaa\"").is_ok());
    let slow = pattern(r"^(?=(a|aa)+\1b)(a|aa)+$");
    let found = check(&slow, &format!("\"{}!\"", "a".repeat(5000))).unwrap_err();
    assert!(found.iter().any(|violation| violation.overrun), "{found:?}");
    // Nor is it otherwise for a value below the root.
    let below = output(&json!({"properties": {"a": {"pattern": r"^(?=(a|aa)+\1b)(a|aa)+$"}}}));
    let found = check(&below, &format!("{{\"a\":\"{}!\"}}", "a".repeat(5000))).unwrap_err();
    assert!(found.iter().all(|violation| violation.overrun), "{found:?}");
    // Nor does an overrun below `not` pass.
    let negated = output(&json!({"not": {"pattern": r"^(?=(a|aa)+\1b)(a|aa)+$"}}));
    assert!(check(&negated, &format!("\"{}!\"", "a".repeat(5000))).is_err());
    for broken in ["(", "[z-a]", "a{2,1}", "(?<n>a)\\k<m>"] {
        let fault = input(&json!({"type": "object", "properties": {"a": {"pattern": broken}}})).unwrap_err();
        assert!(matches!(&fault, SchemaFault::Invalid { .. }), "{broken}: {fault:?}");
    }
    let huge = input(&json!({"type": "object", "properties": {"a": {"pattern": "(([a-z]{1000}x){1000}y){1000}"}}}));
    assert!(matches!(huge, Err(SchemaFault::Invalid { .. })));
}

#[test]
fn formats_and_content_are_never_asserted() {
    for dialect in ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"] {
        for annotation in [
            json!({"format": "date-time"}),
            json!({"format": "email"}),
            json!({"contentEncoding": "base64"}),
            json!({"contentMediaType": "application/json"}),
            json!({"contentEncoding": "base64", "contentMediaType": "application/json"}),
        ] {
            let mut schema = annotation.clone();
            schema["$schema"] = json!(dialect);
            assert!(check(&output(&schema), "\"2025-10-22T15:50 {\"").is_ok(), "{schema}");
        }
    }
}

#[test]
fn large_integers_are_never_taken_for_the_wrong_side() {
    let schema = json!({"properties": {
        "m": {"type": "integer", "minimum": 18_014_398_509_481_984_u64}, "x": {"multipleOf": 10},
        "e": {"const": 9_007_199_254_740_993_u64}, "s": {"maximum": 9_223_372_036_854_775_807_u64}
    }});
    for bad in [
        r#"{"m":18014398509481983}"#,
        r#"{"x":18446744073709551617}"#,
        r#"{"e":9007199254740992}"#,
        r#"{"s":9223372036854775808}"#,
    ] {
        assert_eq!(violations(&schema, bad).len(), 1, "{bad}");
    }
    assert!(
        violations(&schema, r#"{"m":18014398509481984,"x":20,"e":9007199254740993,"s":9223372036854775807}"#)
            .is_empty()
    );
}
