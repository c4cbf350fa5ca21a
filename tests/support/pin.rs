//! The hash by which a policy file pins a tool definition, made here from the specification alone (contract §6).

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 over the RFC 8785 form of `definition` without `_meta`, in hex.
///
/// Only for definitions whose integers are exact in a double.
pub fn pin(definition: &Value) -> String {
    let mut definition = definition.clone();
    if let Some(members) = definition.as_object_mut() {
        members.remove("_meta");
    }
    hex(&serde_json_canonicalizer::to_vec(&definition).expect("a JSON value"))
}

/// SHA-256 of `bytes`, in hex.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
