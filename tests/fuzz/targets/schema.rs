//! Schemas: any JSON compiles or is refused, any instance is judged, and what is advertised of a tool is JSON.
//! The input is a schema, a NUL, and an instance.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolgate::{
    model::{jsonrpc::Document, mcp::Revision},
    policy::schema::{Role, Schema, ToolSchemas, advertise},
};

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (Some(schema), instance) = (parts.next(), parts.next().unwrap_or(b"{}")) else { return };
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(schema) else { return };
    for role in [Role::Input, Role::Output] {
        if let Ok(compiled) = Schema::compile(&value, role) {
            let mut scratch = Vec::new();
            if let Ok(document) = Document::parse(instance, &mut scratch)
                && let Err(violations) = compiled.check(document.root())
            {
                assert!(!violations.is_empty() && violations.len() <= 8);
            }
        }
    }
    let tool = serde_json::json!({ "name": "t", "inputSchema": { "type": "object" }, "outputSchema": value });
    let _ = ToolSchemas::compile(&tool);
    let text = tool.to_string();
    let mut scratch = Vec::new();
    let Ok(document) = Document::parse(text.as_bytes(), &mut scratch) else { return };
    for revision in Revision::ALL {
        let shown = advertise(&document.spanned_root(), "s_t", revision);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("what is advertised is JSON");
        assert_eq!(shown["name"], "s_t");
    }
});
