//! Pins: SHA-256 over the RFC 8785 form of a tool definition (contract §6).
//!
//! Knows no tool, only JSON: which definition is pinned, and what drift means, is decided above.
//!
//! **Invariant.** Two definitions that any reader could tell apart have different pins: integers keep all their digits, where
//! RFC 8785 alone would round them to a double.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{
    id::{decode_hex32, encode_hex},
    jsonrpc::{Document, JsonFault, Kind, Spanned, write_string},
};

/// The hash by which an approval names the exact definition that a person reviewed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(pub [u8; 32]);

/// Why a definition has no pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PinFault {
    /// The bytes are not one strict JSON text.
    #[error(transparent)]
    Json(#[from] JsonFault),
    /// The JSON is not an object.
    #[error("a tool definition must be a JSON object")]
    NotAnObject,
}

impl Pin {
    /// The pin of a whole tool object as its server sent it, without its top-level `_meta`.
    ///
    /// # Errors
    /// [`PinFault`]: the bytes are not a strict JSON object.
    pub fn of_definition(tool_json: &[u8]) -> Result<Self, PinFault> {
        let mut scratch = Vec::new();
        Self::of_value(&Document::parse(tool_json, &mut scratch)?.spanned_root())
    }

    /// The pin of a tool object that stands in a parsed document.
    ///
    /// # Errors
    /// [`PinFault::NotAnObject`]
    pub fn of_value(tool: &Spanned<'_>) -> Result<Self, PinFault> {
        if tool.node.kind() != Kind::Object {
            return Err(PinFault::NotAnObject);
        }
        let mut out = Vec::with_capacity(tool.span.len());
        write_object(&mut out, tool, |name| name != "_meta");
        Ok(Self(Sha256::digest(&out).into()))
    }

    /// Parses 64 hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        decode_hex32(text).map(Self)
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode_hex(&self.0))
    }
}

impl Serialize for Pin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| D::Error::custom("a pin is 64 hex digits"))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Appends the RFC 8785 form of `value`; an integer keeps its own digits, however many.
pub fn write_canonical(out: &mut Vec<u8>, value: &Spanned<'_>) {
    match value.node.kind() {
        Kind::Object => write_object(out, value, |_| true),
        Kind::Array => {
            out.push(b'[');
            for (index, item) in value.items().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_canonical(out, &item);
            }
            out.push(b']');
        }
        Kind::String => write_string(out, value.node.as_str().unwrap_or_default()),
        Kind::Number => write_number(out, value),
        Kind::Null | Kind::Bool => out.extend_from_slice(value.raw()),
    }
}

/// RFC 8785 §3.2.3: members in the order of their names' UTF-16 code units.
fn write_object(out: &mut Vec<u8>, object: &Spanned<'_>, keep: impl Fn(&str) -> bool) {
    let mut members: Vec<_> = object.members().filter(|member| keep(member.name)).collect();
    members.sort_by(|a, b| a.name.encode_utf16().cmp(b.name.encode_utf16()));
    out.push(b'{');
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(out, member.name);
        out.push(b':');
        write_canonical(out, &member.value);
    }
    out.push(b'}');
}

/// RFC 8785 §3.2.2.3 for what has a fraction or an exponent; an integer has one form already, save `-0`.
fn write_number(out: &mut Vec<u8>, number: &Spanned<'_>) {
    let written = number.raw();
    let as_double = written.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match number.node.as_f64().filter(|_| as_double).map(|double| serde_json_canonicalizer::to_vec(&double)) {
        Some(Ok(text)) => out.extend_from_slice(&text),
        _ if written == b"-0" => out.push(b'0'),
        _ => out.extend_from_slice(written),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    fn canonical(raw: &str) -> String {
        let mut scratch = Vec::new();
        let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
        let mut out = Vec::new();
        write_canonical(&mut out, &document.spanned_root());
        String::from_utf8(out).unwrap()
    }

    fn pin(raw: &str) -> Pin {
        Pin::of_definition(raw.as_bytes()).unwrap()
    }

    /// RFC 8785 appendix B: IEEE 754 bits and the text of the number.
    #[test]
    fn doubles_are_written_as_rfc_8785_appendix_b_writes_them() {
        let table: [(u64, &str); 25] = [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
            (0x3ff0_0000_0000_0000, "1"),
        ];
        for (bits, text) in table {
            let written = format!("{:e}", f64::from_bits(bits));
            assert_eq!(canonical(&written), text, "{written}");
        }
    }

    #[test]
    fn the_sample_of_rfc_8785_section_3_2_2_is_written_as_there() {
        let sample = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let wanted = concat!(
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canonical(sample), wanted);
    }

    #[test]
    fn members_are_sorted_as_in_rfc_8785_section_3_2_3() {
        let sample = r#"{
            "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
            "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
        }"#;
        let names: Vec<String> = canonical(sample)
            .split_terminator("\",")
            .map(|member| member.split(':').nth(1).unwrap().trim_matches(|c| c == '"' || c == '}').to_owned())
            .collect();
        assert_eq!(
            names,
            [
                "Carriage Return",
                "One",
                "Control",
                "Latin Small Letter O With Diaeresis",
                "Euro Sign",
                "Emoji",
                "Hebrew Letter Dalet With Dagesh"
            ]
        );
    }

    #[test]
    fn integers_keep_their_own_digits() {
        for text in
            ["0", "-7", "9007199254740992", "9007199254740993", "-9007199254740993", "123456789012345678901234567890"]
        {
            assert_eq!(canonical(text), text);
        }
        assert_eq!(canonical("-0"), "0");
        assert_ne!(pin(r#"{"a":9007199254740992}"#), pin(r#"{"a":9007199254740993}"#));
    }

    #[test]
    fn order_space_spelling_and_meta_do_not_change_a_pin() {
        let base =
            pin(r#"{"name":"t","inputSchema":{"type":"object","x":[1,2.50]},"annotations":{"readOnlyHint":true}}"#);
        for same in [
            r#"{"inputSchema":{"x":[1,2.5],"type":"object"},"annotations":{"readOnlyHint":true},"name":"t"}"#,
            r#" { "n\u0061me" : "t", "inputSchema" : {"type":"object","x":[1,25e-1]}, "annotations":{"readOnlyHint":true} } "#,
            r#"{"_meta":{"v":1},"name":"t","inputSchema":{"type":"object","x":[1,2.50]},"annotations":{"readOnlyHint":true}}"#,
        ] {
            assert_eq!(pin(same), base, "{same}");
        }
    }

    #[test]
    fn any_drift_changes_a_pin() {
        let base = r#"{"name":"t","description":"a b","inputSchema":{"type":"object","_meta":1},"annotations":{"readOnlyHint":true}}"#;
        for (from, to) in [
            ("a b", "a  b"),
            ("a b", "a b "),
            ("a b", "a\\u200b b"),
            ("true", "false"),
            ("\"t\"", "\"T\""),
            ("\"_meta\":1", "\"_meta\":2"),
            (",\"annotations\":{\"readOnlyHint\":true}", ""),
        ] {
            assert_ne!(pin(&base.replacen(from, to, 1)), pin(base), "{from} to {to}");
        }
    }

    #[test]
    fn only_a_strict_object_has_a_pin() {
        assert_eq!(Pin::of_definition(b"[]"), Err(PinFault::NotAnObject));
        assert!(matches!(Pin::of_definition(b"{"), Err(PinFault::Json(JsonFault::NotJson { .. }))));
        assert!(matches!(Pin::of_definition(br#"{"a":1,"a":2}"#), Err(PinFault::Json(JsonFault::Duplicate { .. }))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn small_numbers_and_strings_are_written_as_the_library_writes_them(
            members in prop::collection::btree_map(any::<String>(), (any::<String>(), any::<i32>(), any::<f64>()), 0..8)
        ) {
            let members: serde_json::Map<String, serde_json::Value> = members
                .into_iter()
                .map(|(name, (text, whole, real))| (name, serde_json::json!([text, whole, real, {"a": null, "B": true}])))
                .collect();
            let raw = serde_json::to_string(&members).unwrap();
            prop_assert_eq!(canonical(&raw), serde_json_canonicalizer::to_string(&members).unwrap());
        }
    }
}
