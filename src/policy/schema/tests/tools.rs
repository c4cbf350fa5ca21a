//! Tools as real servers define them: their faults, and how they are advertised.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use super::{super::*, check, output};
use crate::model::{jsonrpc::Document, mcp::Revision};

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
            _ => {
                assert_eq!(file, "sylphx-pdf-reader-live.json", "{fault}");
                let words = fault.to_string();
                assert!(
                    words.starts_with("its `inputSchema` is not a valid schema: at `/properties/sources/items/"),
                    "{words}"
                );
                assert!(words.ends_with("/exclusiveMinimum` it must be of type number"), "{words}");
            }
        }
    }
    assert!(
        faults.iter().any(|(file, _)| file == "sylphx-pdf-reader-live.json"),
        "the known invalid one was not there"
    );
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
