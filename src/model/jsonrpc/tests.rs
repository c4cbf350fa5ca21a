//! What is accepted, what is not, and where each value stands.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn verdict(raw: &[u8]) -> Result<Value, JsonFault> {
    Document::parse(raw, &mut Vec::new()).map(|document| document.root().to_value())
}

fn not_json(raw: &[u8]) -> bool {
    matches!(verdict(raw), Err(JsonFault::NotJson { .. }))
}

fn nested(levels: usize) -> Vec<u8> {
    [vec![b'['; levels], vec![b']'; levels]].concat()
}

/// Equal as JSON: numbers by value, everything else exactly.
fn same(ours: &Value, theirs: &Value, number: &mut impl FnMut(f64, f64) -> bool) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64(), a.as_u64(), b.as_u64()) {
            (Some(a), Some(b), ..) => a == b,
            (_, _, Some(a), Some(b)) => a == b,
            _ => number(a.as_f64().unwrap(), b.as_f64().unwrap()),
        },
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, number)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b, number)))
        }
        _ => ours == theirs,
    }
}

/// `serde_json` reads decimals to within one unit in the last place.
fn close(a: f64, b: f64) -> bool {
    a == b || a.to_bits().abs_diff(b.to_bits()) <= 1
}

#[test]
fn only_strict_json_is_json() {
    let bad: [&[u8]; 52] = [
        b"",
        b" ",
        b"\n\t",
        b"{",
        b"}",
        b"[",
        b"]",
        b"nul",
        b"nulll",
        b"tru",
        b"True",
        b"NaN",
        b"[NaN]",
        b"Infinity",
        b"-Infinity",
        b"[-Infinity]",
        b"\xef\xbb\xbf{}",
        b"{} x",
        b"{}{}",
        b"[] []",
        b"1 2",
        b"\"a\" \"b\"",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"{\"a\":1,}",
        b"{\"a\"}",
        b"{\"a\" 1}",
        b"{1:2}",
        b"{a:1}",
        b"{'a':1}",
        b"['a']",
        b"[1]//c",
        b"/*c*/[1]",
        b"[01]",
        b"[1.]",
        b"[.5]",
        b"[+1]",
        b"[1e]",
        b"[-]",
        b"[0x1]",
        b"\"a",
        b"\"\\x41\"",
        b"\"\\u12\"",
        b"\"\\ud800\"",
        b"\"\\udc00\"",
        b"\"\\ud800\\u0041\"",
        b"\"a\0b\"",
        b"\"a\nb\"",
        b"\"\xff\"",
        b"\"\xc0\xaf\"",
        b"\"\xed\xa0\x80\"",
    ];
    for raw in bad {
        assert!(not_json(raw), "{:?}", String::from_utf8_lossy(raw));
        assert!(serde_json::from_slice::<Value>(raw).is_err(), "{:?}", String::from_utf8_lossy(raw));
    }
    for raw in
        [&b"\x0c[]"[..], b"[]\x0b", b"\xc2\xa0[]", b"[]\0", b"\x00", b"[\x0c1]", b"[1\x0c]", b"[\"a\"\x0c]", b"[1\x1e]"]
    {
        assert!(not_json(raw), "{raw:?}");
    }
}

#[test]
fn good_documents_pass() {
    for raw in [
        "null",
        "true",
        " false ",
        "0",
        "-0",
        "-0.0",
        "1e5",
        "\"\"",
        "[]",
        "{}",
        "\r\n[1 , {\"a\" : \"\\u00e9\\/\\ud83d\\ude00\"}]\t",
    ] {
        let ours = verdict(raw.as_bytes()).unwrap();
        let theirs: Value = serde_json::from_str(raw).unwrap();
        assert!(same(&ours, &theirs, &mut close), "{raw}");
    }
}

#[test]
fn numbers_beyond_a_double_are_not_json_and_all_others_keep_their_digits() {
    let long = format!("[{}]", "9".repeat(400));
    for raw in ["1e400", "-1e400", "[1e309]", "1.8e308", "1e99999999999999999999", &long] {
        assert!(not_json(raw.as_bytes()), "{raw}");
    }
    let big = "9".repeat(300);
    for number in [
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "123456789012345678901234567890",
        "1e-400",
        &big,
    ] {
        let raw = format!("{{\"n\": {number} }}");
        let mut scratch = Vec::new();
        let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
        let value = document.spanned_root().get("n").unwrap();
        assert_eq!(value.text(), number);
        assert_eq!(value.node.as_f64().unwrap(), number.parse::<f64>().unwrap());
        assert_eq!(value.node.kind(), Kind::Number);
    }
}

#[test]
fn depth_is_bounded_at_128_levels() {
    assert!(verdict(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(
        verdict(&nested(DEPTH_MAX + 1)),
        Err(JsonFault::NotJson { position: DEPTH_MAX, what: "deeper than 128 levels" })
    );
    assert!(not_json(&[b'['; 100_000]));
    assert!(not_json(&"{\"a\":".repeat(100_000).into_bytes()));
    let objects = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)).into_bytes();
    assert!(verdict(&objects(DEPTH_MAX)).is_ok());
    assert!(not_json(&objects(DEPTH_MAX + 1)));
}

#[test]
fn duplicates_are_found_at_any_depth_after_unescaping() {
    let many: Vec<String> = (0..100).map(|n| format!("\"m{n}\":{n}")).collect();
    let (few, many) = ("\"a\":1,\"b\":2".to_owned(), many.join(","));
    for (first, second, members) in [("\"a\"", "\"a\"", &few), ("\"m7\"", "\"m7\"", &many), ("\"\"", "\"\"", &many)] {
        for (open, close) in [("", ""), ("[1,[{}, ", "]]"), ("{\"x\":{\"y\":", "}}")] {
            let fine = format!("{open}{{{members}}}{close}");
            assert!(verdict(fine.as_bytes()).is_ok(), "{fine}");
            let extra = if members.contains(first) { String::new() } else { format!(",{first}:0") };
            let head = format!("{open}{{{members}{extra}, ");
            let raw = format!("{head}{second} : 0}}{close}");
            assert_eq!(verdict(raw.as_bytes()), Err(JsonFault::Duplicate { position: head.len() }), "{raw}");
        }
    }
    for raw in [r#"{"name":1,"n\u0061me":2}"#, r#"{"\n":1,"\u000a":2}"#, r#"{"é":1,"\u00e9":2}"#, r#"{"/":1,"\/":2}"#]
    {
        assert!(matches!(verdict(raw.as_bytes()), Err(JsonFault::Duplicate { .. })), "{raw}");
    }
    for raw in [
        r#"{"name":1,"Name":2,"name\u0000":3}"#,
        r#"{"é":1,"e\u0301":2}"#,
        r#"[{"a":1},{"a":1}]"#,
        r#"{"a":{"a":"a"}}"#,
    ] {
        assert!(verdict(raw.as_bytes()).is_ok(), "{raw}");
    }
}

#[test]
fn not_json_wins_over_duplicate_and_words_never_echo() {
    for raw in [r#"{"secret":1,"secret":2"#, r#"{"secret":1,"secret":2} secret"#, r#"{"secret":1,"secret":secret}"#] {
        let fault = verdict(raw.as_bytes()).unwrap_err();
        assert!(matches!(fault, JsonFault::NotJson { .. }), "{raw}");
        assert!(!fault.to_string().contains("secret"));
    }
    assert!(!verdict(br#"{"secret":1,"secret":2}"#).unwrap_err().to_string().contains("secret"));
}

#[test]
fn an_object_of_100_000_members_is_judged() {
    let body: Vec<String> = (0..100_000).map(|n| format!("\"{n}\":0")).collect();
    let raw = format!("{{{}}}", body.join(","));
    assert!(raw.len() < 2 << 20);
    assert!(verdict(raw.as_bytes()).is_ok());
    let raw = format!("{{{},\"5\":1}}", body.join(","));
    assert!(matches!(verdict(raw.as_bytes()), Err(JsonFault::Duplicate { .. })));
}

#[test]
fn scratch_and_buffers_are_used_again() {
    let mut scratch = Vec::new();
    for raw in ["[1,2,3]", "{\"a\":\"\\u0041\"}", "[", "{\"a\":1,\"a\":2}", "\"x\""] {
        let again = verdict(raw.as_bytes());
        assert_eq!(Document::parse(raw.as_bytes(), &mut scratch).map(|d| d.root().to_value()), again);
    }
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let first = Document::parse(b"[1]", &mut one).unwrap();
    let second = Document::parse(b"[2]", &mut two).unwrap();
    assert_eq!(first.root().items().next().unwrap().as_u64(), Some(1));
    drop(first);
    assert_eq!(second.root().items().next().unwrap().as_u64(), Some(2));
}

#[test]
fn leaves_are_names_strings_and_numbers_in_document_order() {
    let raw = r#" { "a\n" : [ "x\"]" , -1.50e2, null,true , {} ], "b":{"c":"\u0041"} , "d" : "e"} "#;
    let mut scratch = Vec::new();
    let document = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
    let leaves: Vec<(LeafKind, &str, &str)> =
        document.spanned_root().leaves().map(|leaf| (leaf.kind, leaf.text, &raw[leaf.span])).collect();
    use LeafKind::{Name, Number, String};
    assert_eq!(
        leaves,
        [
            (Name, "a\n", r#""a\n""#),
            (String, "x\"]", r#""x\"]""#),
            (Number, "-1.50e2", "-1.50e2"),
            (Name, "b", "\"b\""),
            (Name, "c", "\"c\""),
            (String, "A", r#""\u0041""#),
            (Name, "d", "\"d\""),
            (String, "e", "\"e\""),
        ]
    );
    let inner: Vec<&str> = document.spanned_root().get("b").unwrap().leaves().map(|leaf| leaf.text).collect();
    assert_eq!(inner, ["c", "A"]);
}

#[test]
fn every_byte_is_written_so_that_it_reads_back() {
    let text: String = (0..0x300).filter_map(char::from_u32).chain(['\u{2028}', '\u{feff}', '\u{1f600}']).collect();
    let mut out = Vec::new();
    write_string(&mut out, &text);
    assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    assert_eq!(out, serde_json::to_vec(&text).unwrap());
    assert_eq!(verdict(&out).unwrap(), Value::String(text));
}

/// Every value's span holds exactly the text that parses to the value.
fn spans_hold(value: &Spanned<'_>) {
    let again = verdict(value.raw()).unwrap();
    assert_eq!(again, value.node.to_value());
    assert_eq!(value.members().count(), value.node.members().count());
    for (member, (name, node)) in value.members().zip(value.node.members()) {
        assert_eq!(member.name, name);
        assert_eq!(member.value.node.to_value(), node.to_value());
        spans_hold(&member.value);
    }
    for item in value.items() {
        spans_hold(&item);
    }
}

/// JSON text with odd spaces, escapes and numbers.
fn json_text() -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", " ", "\n", "\t \r", ""]);
    let string = prop::collection::vec(
        prop::sample::select(vec![
            "a",
            "b",
            "é",
            "\u{1f600}",
            "\\\"",
            "\\\\",
            "\\/",
            "\\n",
            "\\u0041",
            "\\ud83d\\ude00",
            "\\u0000",
            "]",
            "}",
            ":",
            ",",
            "{",
            "[",
            " ",
        ]),
        0..40,
    )
    .prop_map(|parts| format!("\"{}\"", parts.concat()));
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
    ];
    let leaf = prop_oneof![
        prop::sample::select(vec!["null".to_owned(), "true".to_owned(), "false".to_owned(), "-0".to_owned()]),
        string.clone(),
        number,
    ];
    let padded =
        (space.clone(), leaf, space.clone()).prop_map(|(before, leaf, after)| format!("{before}{leaf}{after}"));
    padded.prop_recursive(6, 64, 12, move |inner| {
        let name = (space.clone(), string.clone(), space.clone()).prop_map(|(a, s, b)| format!("{a}{s}{b}"));
        let array = prop::collection::vec(inner.clone(), 0..12).prop_map(|items| format!("[{}]", items.join(",")));
        let object = prop::collection::vec((name, inner), 0..12).prop_map(|members| {
            let members: Vec<String> = members.into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
            format!("{{{}}}", members.join(","))
        });
        prop_oneof![
            (space.clone(), array, space.clone()).prop_map(|(a, s, b)| format!("{a}{s}{b}")),
            (space.clone(), object, space.clone()).prop_map(|(a, s, b)| format!("{a}{s}{b}")),
        ]
    })
}

/// Judges `raw` by both parsers and says where they differ beyond the known differences.
fn agree(raw: &[u8]) -> Result<(), TestCaseError> {
    let theirs = serde_json::from_slice::<Value>(raw);
    match (verdict(raw), theirs) {
        (Ok(ours), Ok(theirs)) => prop_assert!(same(&ours, &theirs, &mut close), "{ours} {theirs}"),
        (Ok(ours), Err(error)) => prop_assert!(error.to_string().contains("recursion limit"), "{ours} {error}"),
        (Err(JsonFault::Duplicate { .. }), theirs) => prop_assert!(theirs.is_ok()),
        (Err(JsonFault::NotJson { .. }), theirs) => prop_assert!(theirs.is_err(), "{theirs:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_judged_as_serde_json_judges_them(raw in prop::collection::vec(any::<u8>(), 0..64)) {
        agree(&raw)?;
    }

    #[test]
    fn json_like_bytes_are_judged_as_serde_json_judges_them(
        raw in prop::collection::vec(prop::sample::select(b"{}[]:,\"\\u0019aedtrufalsn.-+eE \n\x00\x1f\xc3\xa9\xff".to_vec()), 0..40)
    ) {
        agree(&raw)?;
    }

    #[test]
    fn json_is_judged_and_read_as_serde_json_reads_it(text in json_text()) {
        agree(text.as_bytes())?;
    }

    #[test]
    fn damaged_json_is_judged_as_serde_json_judges_it(
        text in json_text(), at in any::<prop::sample::Index>(), byte in any::<u8>(), how in 0..3
    ) {
        let mut raw = text.into_bytes();
        let at = at.index(raw.len());
        match how {
            0 => raw[at] = byte,
            1 => drop(raw.remove(at)),
            _ => raw.insert(at, byte),
        }
        agree(&raw)?;
    }

    #[test]
    fn spans_are_exact(text in json_text()) {
        let mut scratch = Vec::new();
        if let Ok(document) = Document::parse(text.as_bytes(), &mut scratch) {
            spans_hold(&document.spanned_root());
            let strings = document.spanned_root().leaves();
            for leaf in strings.filter(|leaf| leaf.kind != LeafKind::Number) {
                prop_assert_eq!(serde_json::from_str::<String>(&text[leaf.span.clone()]).unwrap(), leaf.text);
            }
        }
    }

    #[test]
    fn decimals_are_the_nearest_double(text in "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?") {
        let mut scratch = Vec::new();
        let document = Document::parse(text.as_bytes(), &mut scratch).unwrap();
        prop_assert_eq!(document.root().as_f64().unwrap(), text.parse::<f64>().unwrap());
    }
}
