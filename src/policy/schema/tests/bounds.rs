//! What is refused before it is compiled, and what is cut off while it is checked.

use serde_json::{Map, Value, json};

use super::{super::*, check, input, on_a_usual_stack, output};

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
        // The verdict is quick, but telling every violation would take 2^120 steps.
        let next = json!({"properties": {"a": {"$ref": "#/$defs/x"}}});
        let schema = json!({"type": "object", "$ref": "#/$defs/x", "$defs": {"x": {"type": ["object", "null"], "allOf": [next, next]}}});
        let schema = input(&schema).unwrap();
        let deep = |leaf: &str| format!("{}{leaf}{}", "{\"a\":".repeat(120), "}".repeat(120));
        assert_eq!(check(&schema, &deep("1")).unwrap_err(), [Violation::unfinished()]);
        assert_eq!(check(&schema, &deep("null")), Ok(()));
        // Every item is compared with every item of a constant, many times over.
        let large: Vec<Value> = (0..100).map(|n| json!([n, "x"])).collect();
        let forms: Vec<Value> = (0..200).map(|_| json!({"$ref": "#/$defs/large"})).collect();
        let schema = json!({"type": "object", "additionalProperties": {"items": {"allOf": forms}}, "$defs": {"large": {"not": {"enum": large}}}});
        let schema = input(&schema).unwrap();
        let items = |count: usize| format!(r#"{{"a":[{}]}}"#, vec!["[1,2]"; count].join(","));
        assert_eq!(check(&schema, &items(1)), Ok(()));
        assert_eq!(check(&schema, &items(100)).unwrap_err(), [Violation::unfinished()]);
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
        assert!(check(&schema, &deep("\"x\"")).unwrap_err().iter().all(|violation| !violation.overrun));
        // Long chains of references at every level: cut off, not overflown.
        let mut chained = doubling(28, |next| json!({"allOf": [next]}));
        chained["$defs"]["d28"] = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}});
        let schema = input(&chained).unwrap();
        let _ = check(&schema, &deep("1"));
        let refuses = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "maxProperties": 0});
        chained["$defs"]["d28"] = refuses;
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
