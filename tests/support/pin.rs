//! The hash by which a policy file pins a tool definition, made here from the specification alone (contract §6).

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 over the RFC 8785 form of `definition` without `_meta`, in hex; integers keep their own digits.
pub fn pin(definition: &Value) -> String {
    let mut definition = definition.clone();
    if let Some(members) = definition.as_object_mut() {
        members.remove("_meta");
    }
    let mut text = String::new();
    canonical(&definition, &mut text);
    hex(text.as_bytes())
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) if !number.is_f64() => out.push_str(&number.to_string()),
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_by_key(|name| name.encode_utf16().collect::<Vec<u16>>());
            out.push('{');
            for (n, name) in names.into_iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                canonical(&Value::String(name.clone()), out);
                out.push(':');
                canonical(&members[name], out);
            }
            out.push('}');
        }
        leaf => out.push_str(&serde_json_canonicalizer::to_string(leaf).expect("a JSON value")),
    }
}

/// SHA-256 of `bytes`, in hex.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
