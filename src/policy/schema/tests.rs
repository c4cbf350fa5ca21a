//! Schemas of real servers and of hostile ones.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use std::{fs, path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};

use super::*;
use crate::model::{jsonrpc::Document, mcp::Revision};

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
fn only_the_known_dialects_are_known() {
    let known = [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ];
    for uri in known {
        assert!(input(&json!({"$schema": uri, "type": "object"})).is_ok(), "{uri}");
    }
    for uri in
        [json!("http://json-schema.org/draft-03/schema#"), json!("https://example.com/mine"), json!(7), json!("")]
    {
        let fault = input(&json!({"$schema": uri, "type": "object"})).unwrap_err();
        assert!(matches!(fault, SchemaFault::UnknownDialect(_)), "{uri}: {fault:?}");
    }
    let embedded = json!({"type": "object", "$defs": {"a": {"$id": "urn:a", "$schema": "https://example.com/mine"}}});
    assert!(matches!(input(&embedded), Err(SchemaFault::UnknownDialect(_))));
    // Draft 2020-12 is the default, and each dialect has its own meaning.
    let tuple = |schema: Value| check(&output(&schema), r#"["x"]"#).is_ok();
    assert!(!tuple(json!({"prefixItems": [{"type": "integer"}]})));
    assert!(tuple(json!({"$schema": known[2], "prefixItems": [{"type": "integer"}]})));
    assert!(!tuple(json!({"$schema": known[2], "items": [{"type": "integer"}]})));
}

#[test]
fn nothing_is_fetched_and_embedded_resources_are_found() {
    for reference in
        ["https://example.com/s.json", "s.json", "https://example.com/s.json#/$defs/a", "file:///etc/passwd", "urn:x:y"]
    {
        for place in ["properties", "$defs"] {
            let fault = input(&json!({"type": "object", place: {"a": {"$ref": reference}}})).unwrap_err();
            assert!(matches!(fault, SchemaFault::NetworkRef(_)), "{reference}: {fault:?}");
            let head = reference.split('#').next().unwrap();
            assert!(fault.to_string().contains(head), "{fault}");
        }
    }
    let embedded = json!({
        "type": "object",
        "properties": {"a": {"$ref": "https://example.com/s"}, "b": {"$ref": "#named"}, "c": {"$ref": "https://example.com/s#/$defs/t"}},
        "$defs": {
            "s": {"$id": "https://example.com/s", "type": "integer", "$defs": {"t": {"type": "null"}}},
            "n": {"$anchor": "named", "type": "string"}
        }
    });
    let schema = input(&embedded).unwrap();
    assert!(check(&schema, r#"{"a":1,"b":"x","c":null}"#).is_ok());
    assert_eq!(check(&schema, r#"{"a":"x","b":1,"c":1}"#).unwrap_err().len(), 3);
    assert!(matches!(
        input(&json!({"type": "object", "allOf": [{"$ref": "#/$defs/none"}]})),
        Err(SchemaFault::DanglingRef)
    ));
}

/// `levels` definitions, each of which reaches the next one through every schema of `step`.
fn doubling(levels: usize, step: impl Fn(Value) -> Value) -> Value {
    let mut defs = Map::new();
    for level in 0..levels {
        defs.insert(format!("d{level}"), step(json!({"$ref": format!("#/$defs/d{}", level + 1)})));
    }
    defs.insert(format!("d{levels}"), json!(true));
    json!({"type": "object", "$defs": defs, "allOf": [{"$ref": "#/$defs/d0"}]})
}

#[test]
fn references_that_multiply_are_refused_before_they_are_compiled() {
    let twice: [fn(Value) -> Value; 5] = [
        |next| json!({"allOf": [next.clone(), next]}),
        |next| json!({"anyOf": [next.clone(), next]}),
        |next| json!({"not": {"allOf": [next.clone(), next]}}),
        |next| json!({"if": next.clone(), "then": next.clone(), "else": next}),
        |next| json!({"dependentSchemas": {"a": next.clone(), "b": next}}),
    ];
    for step in twice {
        assert_eq!(input(&doubling(30, step)).unwrap_err(), SchemaFault::TooMuchWork);
        assert!(input(&doubling(5, step)).is_ok());
    }
    // By a name instead of a pointer, and by an embedded URI.
    let mut named = Map::new();
    for level in 0..30 {
        let next = json!({"$dynamicRef": format!("#n{}", level + 1)});
        named.insert(format!("d{level}"), json!({"$dynamicAnchor": format!("n{level}"), "allOf": [next, next]}));
    }
    named.insert("d30".to_owned(), json!({"$dynamicAnchor": "n30"}));
    assert_eq!(
        input(&json!({"type": "object", "$defs": named, "allOf": [{"$ref": "#n0"}]})).unwrap_err(),
        SchemaFault::TooMuchWork
    );
    let chain = |levels| doubling(levels, |next| next);
    assert!(input(&chain(bounds::SCHEMA_CHAIN_MAX - 2)).is_ok());
    assert_eq!(input(&chain(bounds::SCHEMA_CHAIN_MAX - 1)).unwrap_err(), SchemaFault::TooMuchWork);
}

#[test]
fn references_in_a_circle_end() {
    for schema in [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "$ref": ""}),
        json!({"type": "object", "allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}},
               "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}}}),
        json!({"type": "object", "propertyNames": {"$ref": "#/$defs/x"}, "$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}),
    ] {
        if let Ok(schema) = input(&schema) {
            let _ = check(&schema, r#"{"a":1}"#);
        }
    }
}

#[test]
fn work_that_grows_with_the_instance_is_cut_off_and_fails() {
    on_a_usual_stack(|| {
        let next = json!({"properties": {"a": {"$ref": "#/$defs/x"}}, "items": {"$ref": "#/$defs/x"}});
        let schema = json!({"type": "object", "$ref": "#/$defs/x", "$defs": {
            "x": {"oneOf": [{"allOf": [next, next]}, {"allOf": [next, {"type": "null"}]}]}}});
        let schema = input(&schema).unwrap();
        let deep = format!("{}1{}", "{\"a\":".repeat(120), "}".repeat(120));
        let found = check(&schema, &deep).unwrap_err();
        assert_eq!(found, [Violation::unfinished()]);
        assert!(check(&schema, r#"{"a":{"a":1}}"#).is_ok());
    });
}

#[test]
fn the_deepest_instance_fits_the_stack_of_a_thread() {
    on_a_usual_stack(|| {
        let tree = json!({"type": "object", "$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "properties": {"a": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "integer"}]}}, "additionalProperties": false}}});
        let schema = input(&tree).unwrap();
        let deep = |leaf: &str| format!("{}{leaf}{}", "{\"a\":".repeat(128), "}".repeat(128));
        assert_eq!(check(&schema, &deep("1")), Ok(()));
        assert!(!check(&schema, &deep("\"x\"")).unwrap_err().is_empty());
        // Long chains of references at every level: cut off, not overflown.
        let mut chained = doubling(50, |next| json!({"allOf": [next]}));
        chained["$defs"]["d50"] = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}});
        let schema = input(&chained).unwrap();
        let _ = check(&schema, &deep("1"));
        let refuses = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "maxProperties": 0});
        chained["$defs"]["d50"] = refuses;
        assert!(check(&input(&chained).unwrap(), &deep("1")).is_err());
    });
}

#[test]
fn every_bound_has_a_value_one_past_it() {
    let object = |member: Value| json!({"type": "object", "x": member});
    let overhead = serde_json::to_vec(&object(json!(""))).unwrap().len();
    let text = |bytes: usize| object(Value::String("x".repeat(bytes - overhead)));
    assert!(input(&text(bounds::SCHEMA_BYTES_MAX)).is_ok());
    assert_eq!(input(&text(bounds::SCHEMA_BYTES_MAX + 1)).unwrap_err(), SchemaFault::TooLarge);
    let deep =
        |levels: usize| (1..levels).fold(json!({"type": "object"}), |inner, _| json!({"type": "object", "not": inner}));
    assert_eq!(input(&deep(bounds::SCHEMA_DEPTH_MAX + 1)).unwrap_err(), SchemaFault::TooDeep);
    assert!(input(&deep(bounds::SCHEMA_DEPTH_MAX - 1)).is_ok());
    let wide = |values: usize| json!({"type": "object", "enum": (0..values - 3).collect::<Vec<_>>()});
    assert!(input(&wide(bounds::SCHEMA_VALUES_MAX)).is_ok());
    assert_eq!(input(&wide(bounds::SCHEMA_VALUES_MAX + 1)).unwrap_err(), SchemaFault::TooManyValues);
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

fn tool(schema: Value) -> Value {
    json!({"name": "t", "inputSchema": schema})
}

#[test]
fn every_fault_of_a_tool_has_its_words() {
    let object = || json!({"type": "object"});
    let param = |properties: Value| tool(json!({"type": "object", "properties": properties}));
    let cases = [
        (json!({"inputSchema": object()}), "`name` is missing"),
        (json!({"name": "", "inputSchema": object()}), "`name` is missing"),
        (json!({"name": "x".repeat(129), "inputSchema": object()}), "longer than 128"),
        (json!({"name": "a\u{0}b", "inputSchema": object()}), "control characters"),
        (json!({"name": "a\u{85}b", "inputSchema": object()}), "control characters"),
        (json!({"name": "t"}), "`inputSchema` is missing"),
        (json!({"name": "t", "input_schema": object()}), "`inputSchema` is missing"),
        (tool(Value::Null), "not a JSON object"),
        (tool(json!(true)), "not a JSON object"),
        (tool(json!({})), "must have `\"type\": \"object\"`"),
        (tool(json!({"type": "string"})), "must have `\"type\": \"object\"`"),
        (tool(json!({"type": ["object"]})), "must have `\"type\": \"object\"`"),
        (
            tool(json!({"type": "object", "properties": {"a": {"type": "strnig"}}})),
            "not a valid schema: at `/properties/a/type`",
        ),
        (tool(json!({"type": "object", "required": "a"})), "at `/required` it must be of type array"),
        (
            tool(json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}})),
            "nothing is ever fetched",
        ),
        (json!({"name": "t", "inputSchema": object(), "outputSchema": 7}), "`outputSchema` is not a JSON object"),
        (json!({"name": "t", "inputSchema": object(), "execution": {"taskSupport": "required"}}), "requires tasks"),
        (param(json!({"p": {"type": "string", "x-mcp-header": ""}})), "no header name"),
        (param(json!({"p": {"type": "string", "x-mcp-header": "Bad Header"}})), "no header name"),
        (param(json!({"p": {"type": "string", "x-mcp-header": "A\r\nX-Evil: 1"}})), "no header name"),
        (param(json!({"p": {"type": "string", "x-mcp-header": 7}})), "no header name"),
        (param(json!({"p": {"type": "number", "x-mcp-header": "N"}})), "no string, integer or boolean"),
        (param(json!({"p": {"x-mcp-header": "N"}})), "no string, integer or boolean"),
        (
            param(
                json!({"a": {"type": "string", "x-mcp-header": "Dup"}, "b": {"type": "string", "x-mcp-header": "dUP"}}),
            ),
            "`dup` twice",
        ),
        (
            param(json!({"l": {"type": "array", "items": {"type": "string", "x-mcp-header": "I"}}})),
            "chain of `properties`",
        ),
        (
            param(
                json!({"o": {"anyOf": [{"type": "object", "properties": {"z": {"type": "string", "x-mcp-header": "Z"}}}]}}),
            ),
            "chain of `properties`",
        ),
        (tool(json!({"type": "object", "x-mcp-header": "A"})), "chain of `properties`"),
    ];
    for (tool, words) in cases {
        let fault = ToolSchemas::compile(&tool).expect_err(&tool.to_string()).to_string();
        assert!(fault.contains(words), "{tool}: {fault}");
        assert!(!fault.contains(['\r', '\n']), "{fault:?}");
    }
    assert!(ToolSchemas::compile(&json!({"name": "é".repeat(128), "inputSchema": object()})).is_ok());
    assert!(
        ToolSchemas::compile(&json!({"name": "t", "inputSchema": object(), "execution": {"taskSupport": "optional"}}))
            .is_ok()
    );
}

#[test]
fn params_are_found_along_properties() {
    let schema = json!({"type": "object", "properties": {
        "q": {"type": "string", "x-mcp-header": "Region"},
        "o": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "Q"}, "b": {"type": "boolean", "x-mcp-header": "B"}}},
        "x-mcp-header": {"type": "string", "default": {"x-mcp-header": "no annotation"}}
    }});
    let mut params = ToolSchemas::compile(&tool(schema)).unwrap().params;
    params.sort_by(|a, b| a.header.cmp(&b.header));
    let wanted = |header: &str, path: &[&str], kind| ParamHeader {
        header: header.to_owned(),
        path: path.iter().map(|&name| name.to_owned()).collect(),
        kind,
    };
    assert_eq!(
        params,
        [
            wanted("mcp-param-b", &["o", "b"], ParamKind::Boolean),
            wanted("mcp-param-q", &["o", "n"], ParamKind::Integer),
            wanted("mcp-param-region", &["q"], ParamKind::String),
        ]
    );
}

fn advertised(tool: &Value, revision: Revision) -> Value {
    serde_json::from_str(&advertised_text(&tool.to_string(), revision)).unwrap()
}

fn advertised_text(tool: &str, revision: Revision) -> String {
    let mut scratch = Vec::new();
    let document = Document::parse(tool.as_bytes(), &mut scratch).unwrap();
    advertise(&document.spanned_root(), "srv_t", revision)
}

const REFUSAL: &str = r#"{"error":{"type":"permission_denied","code":"tool_not_allowed","message":"No."}}"#;

#[test]
fn what_is_advertised_is_the_approved_definition_fitted_to_the_revision() {
    let text = r#"{ "title":"T", "name":"t","_meta":{"a":1},"description":"d é \u00e9","inputSchema":{"type":"object","z":1,"a":12345678901234567890123},
        "execution":{"taskSupport":"optional"},"annotations":{"readOnlyHint":true,"title":"A"},"icons":[],"outputSchema":{"type":"object"}}"#;
    let modern = advertised_text(text, Revision::V2026_07_28);
    assert!(
        modern.contains(
            r#""description":"d é \u00e9","inputSchema":{"type":"object","z":1,"a":12345678901234567890123}"#
        ),
        "{modern}"
    );
    let names = |revision| -> Vec<String> {
        let value: Value = serde_json::from_str(&advertised_text(text, revision)).unwrap();
        assert_eq!(value["name"], "srv_t");
        value.as_object().unwrap().keys().cloned().collect()
    };
    let all = ["annotations", "description", "icons", "inputSchema", "name", "outputSchema", "title"];
    for revision in [Revision::V2025_06_18, Revision::V2025_11_25, Revision::V2026_07_28] {
        assert_eq!(names(revision), all);
    }
    assert_eq!(names(Revision::V2025_03_26), ["annotations", "description", "icons", "inputSchema", "name"]);
}

#[test]
fn an_output_schema_that_cannot_be_opened_faithfully_is_left_out() {
    for schema in [
        json!({"type": "array"}),
        json!({}),
        json!(true),
        json!({"type": ["object", "null"]}),
        json!({"type": "object", "$id": "https://example.com/a"}),
        json!({"type": "object", "properties": {"a": {"$anchor": "x"}}}),
        json!({"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}}),
        json!({"type": "object", "$recursiveAnchor": true}),
        json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}),
        json!({"type": "object", "properties": {"a": {"$ref": "#anchor"}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "$ref": "#/definitions/a", "definitions": {"a": {}}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "id": "https://example.com/a"}),
    ] {
        let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema});
        for revision in Revision::ALL {
            assert!(advertised(&tool, revision).get("outputSchema").is_none(), "{schema}");
        }
    }
    // Names and data that only look like keywords do no harm.
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object",
        "properties": {"$id": {"type": "string"}, "$ref": {"type": "string"}, "id": {"const": {"$anchor": "a", "$ref": "#/x"}}}}});
    let output = &advertised(&tool, Revision::MODERN)["outputSchema"];
    assert_eq!(output["anyOf"][0]["properties"]["id"]["const"]["$ref"], "#/x");
}

#[test]
fn references_lead_where_they_led_before() {
    let approved = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "T", "type": "object", "x-wrap": true, "description": "D",
        "properties": {
            "self": {"$ref": "#"}, "def": {"$ref": "#/$defs/a~1b"}, "old": {"$ref": "#/definitions/o"}, "body": {"$ref": "#/properties/n"},
            "n": {"type": "integer"}, "esc": {"$ref": "#/%24defs/a~1b"}
        },
        "$defs": {"a/b": {"type": "string"}}, "definitions": {"o": {"$ref": "#/properties/n"}},
        "required": ["n"], "additionalProperties": false
    });
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": approved});
    let opened = &advertised(&tool, Revision::V2025_11_25)["outputSchema"];
    for hoisted in ["$schema", "title", "$defs", "definitions", "x-wrap"] {
        assert!(opened.get(hoisted).is_some() && opened["anyOf"][0].get(hoisted).is_none(), "{hoisted}");
    }
    assert_eq!((&opened["type"], &opened["anyOf"][0]["description"]), (&json!("object"), &json!("D")));
    let (before, after) = (output(&approved), output(opened));
    for (raw, valid) in [
        (r#"{"n":1}"#, true),
        (r#"{"n":"x"}"#, false),
        (r#"{"n":1,"self":{"n":2,"self":{"n":3}}}"#, true),
        (r#"{"n":1,"self":{"n":2,"self":{"m":3}}}"#, false),
        (r#"{"n":1,"self":1}"#, false),
        (r#"{"n":1,"def":"x","esc":"x","old":1,"body":2}"#, true),
        (r#"{"n":1,"def":1}"#, false),
        (r#"{"n":1,"esc":1}"#, false),
        (r#"{"n":1,"old":"x"}"#, false),
        (r#"{"n":1,"body":"x"}"#, false),
        ("[]", false),
    ] {
        assert_eq!(check(&before, raw).is_ok(), valid, "{raw}");
        assert_eq!(check(&after, raw).is_ok(), valid, "{raw}");
    }
    assert!(check(&before, REFUSAL).is_err() && check(&after, REFUSAL).is_ok());
}

/// The tool lists of real servers: the larger collection if it is at hand, and the ones that are kept here.
fn real_tools() -> Vec<(String, Value)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("TOOLGATE_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let mut tools = Vec::new();
    for folder in [shared.join("schemas"), root.join("tests/cases/schemas")] {
        for file in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if file.extension().is_some_and(|extension| extension == "json") {
                let list: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                tools.extend(list["tools"].as_array().unwrap().iter().map(|tool| (name.clone(), tool.clone())));
            }
        }
    }
    tools
}

/// A value that the schema plausibly means: every member that it names.
fn example(schema: &Value, root: &Value, depth: usize) -> Value {
    if let Some(pointer) = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        return if depth > 12 { Value::Null } else { example(root.pointer(pointer).unwrap(), root, depth + 1) };
    }
    for (keyword, index) in [("const", None), ("default", None), ("enum", Some(0)), ("examples", Some(0))] {
        if let Some(value) = schema.get(keyword) {
            return index.map_or_else(|| value.clone(), |index: usize| value[index].clone());
        }
    }
    if let Some(first) = ["anyOf", "oneOf", "allOf"].iter().find_map(|keyword| schema[keyword].get(0)) {
        return example(first, root, depth + 1);
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind.unwrap_or(if schema.get("properties").is_some() { "object" } else { "string" }) {
        "object" => {
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let members = schema["properties"].as_object().into_iter().flatten();
            let wanted = members.filter(|(name, _)| depth < 6 || required.contains(&name.as_str()));
            Value::Object(wanted.map(|(name, member)| (name.clone(), example(member, root, depth + 1))).collect())
        }
        "array" => {
            let count = schema["minItems"].as_u64().unwrap_or(1);
            Value::Array((0..count).map(|_| example(&schema["items"], root, depth + 1)).collect())
        }
        "integer" | "number" => json!(schema["minimum"].as_i64().unwrap_or(1).max(1)),
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => json!("x".repeat(usize::try_from(schema["minLength"].as_u64().unwrap_or(1)).unwrap().max(1))),
    }
}

#[test]
fn schemas_of_real_servers_compile_but_for_the_known_ones() {
    let (mut total, mut faults) = (0, Vec::new());
    for (file, tool) in real_tools() {
        total += 1;
        if let Err(fault) = ToolSchemas::compile(&tool) {
            faults.push((file, fault));
        }
    }
    for (file, fault) in &faults {
        match fault {
            // Entries of a registry in its own short form, which is not what a server sends.
            ToolFault::NoInputSchema => assert!(file.starts_with("docker-registry-"), "{file}"),
            ToolFault::Input(SchemaFault::Invalid { .. }) => assert_eq!(file, "sylphx-pdf-reader-live.json", "{fault}"),
            _ => panic!("{file}: {fault}"),
        }
    }
    assert!(total >= 6, "{total}");
    assert!(faults.len() < total / 2, "{faults:?}");
}

#[test]
fn what_is_advertised_admits_results_and_refusals() {
    let (mut opened, mut plausible) = (0, 0);
    for (file, tool) in real_tools() {
        let Ok(schemas) = ToolSchemas::compile(&tool) else { continue };
        let approved = &tool["inputSchema"];
        let with_output = json!({"name": tool["name"], "inputSchema": approved, "outputSchema": approved});
        let advertised = advertised(&with_output, Revision::V2025_06_18);
        let schema =
            Schema::compile(&advertised["outputSchema"], Role::Input).unwrap_or_else(|fault| panic!("{file}: {fault}"));
        assert_eq!(check(&schema, REFUSAL), Ok(()), "{file} {}", tool["name"]);
        opened += 1;
        let result = example(approved, approved, 0).to_string();
        let before = check(&schemas.input, &result);
        assert_eq!(check(&schema, &result).is_ok(), before.is_ok(), "{file} {} {result}", tool["name"]);
        plausible += usize::from(before.is_ok());
    }
    assert!(opened >= 6 && plausible * 10 >= opened * 9, "{plausible} of {opened}");
}
