//! Whole documents: where text hides, what is done about it, and what stays as it was.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{
    model::{
        jsonrpc::Document,
        records::{Detector, GuardAction, GuardStage, OnEngineError},
        units::Span,
    },
    policy::guard::{
        EngineError, EngineFault, GuardPlan, GuardRule, Place, Screening, Verdict, apply_edits, clean_credentials,
        credential_edits, screen,
    },
};

use super::{cases::expand, personal, plan, rule, secrets};

fn screened(plan: &GuardPlan, raw: &[u8]) -> Screening {
    let mut scratch = Vec::new();
    let document = Document::parse(raw, &mut scratch).unwrap();
    screen(plan, &document, &document.spanned_root(), GuardStage::Output)
}

/// The document after redaction.
fn redacted(plan: &GuardPlan, raw: &str) -> String {
    match screened(plan, raw.as_bytes()).verdict {
        Verdict::Redact(edits) => String::from_utf8(apply_edits(raw.as_bytes(), 0..raw.len(), &edits)).unwrap(),
        other => panic!("{other:?} for {raw}"),
    }
}

fn is_blocked(plan: &GuardPlan, raw: &str) -> bool {
    matches!(screened(plan, raw.as_bytes()).verdict, Verdict::Block { .. })
}

/// A document from a template of [`expand`]'s; braces of JSON are no macros.
fn document(template: &str) -> String {
    expand(template, 5).0
}

#[test]
fn text_is_found_wherever_it_hides() {
    let block = plan(&[rule(secrets(), GuardAction::Block), rule(personal(), GuardAction::Block)]);
    for (template, place) in [
        (r#"{"text":"AKIAQWERTYUIOPASDFGH"}"#, Place::Value),
        (r#"{"AKIAQWERTYUIOPASDFGH":1}"#, Place::Name),
        (r#"{"pan":4111111111111111}"#, Place::Number),
        (r#"{"_meta":{"k":["AKIAQWERTYUIOPASDFGH"]}}"#, Place::Value),
        (r#"{"text":"\\u0041KIAQWERTYUIOPASDFGH"}"#, Place::Value),
        (r#"{"text":"AKIAQWERT\\u200bYUIOPASDFGH"}"#, Place::Value),
        (r#"{"text":"AKIAQWERT\u{200b}YUIOPASDFGH"}"#, Place::Value),
        (r#"{"text":"\u{ff21}\u{ff2b}\u{ff29}\u{ff21}QWERTYUIOPASDFGH"}"#, Place::Value),
        (r#"{"text":"AKIAQWERT\u{e0041}YUIOPASDFGH"}"#, Place::Value),
        (r#"{"text":"{\\\"a\\\":\\\"\\\\u0041KIAQWERTYUIOPASDFGH\\\"}"}"#, Place::Value),
        (r#"{"text":"broken {\\\"a\\\":\\\"\\\\u0041KIAQWERTYUIOPASDFGH\\\""}"#, Place::Value),
        (r#"{"text":"{\\\"a\\\":\\\"\\\\uff21KIAQWERTYUIOPASDFGH\\\"}"}"#, Place::Value),
        (r#"{"content":[{"type":"text","text":"AKIAQWERTY"},{"type":"text","text":"UIOPASDFGH"}]}"#, Place::Joined),
        (
            r#"{"content":[{"text":"AKIAQ","type":"text"},{"text":"WERTYUIOP","type":"text"},{"text":"ASDFGH","type":"text"}]}"#,
            Place::Joined,
        ),
        (
            r#"{"content":[{"type":"resource","resource":{"uri":"x","mimeType":"text/plain","blob":"{b64of:key AKIAQWERTYUIOPASDFGH}"}}]}"#,
            Place::Blob,
        ),
        (r#"{"blob":"{b64of:é AKIAQWERTYUIOPASDFGH}","mimeType":"image/png"}"#, Place::Blob),
        (r#"{"structuredContent":{"a":[[{"b":"{luhn:411111111111111}"}]]}}"#, Place::Value),
        (r#"["x","AKIAQWERTYUIOPASDFGH"]"#, Place::Value),
    ] {
        let raw = document(template);
        let screening = screened(&block, raw.as_bytes());
        assert!(matches!(screening.verdict, Verdict::Block { .. }), "{template}: {:?}", screening.verdict);
        assert_eq!(screening.matches.iter().map(|found| found.place).collect::<Vec<_>>(), [place], "{template}");
    }
}

/// What the module's documentation says is not seen; when one of these is seen one day, change both.
#[test]
fn a_split_is_found_between_long_blocks_and_only_there() {
    let block = plan(&[rule(secrets(), GuardAction::Block)]);
    let filler = "lorem ipsum ".repeat(500);
    let of = |first: &str, second: &str| {
        format!(
            r#"{{"content":[{{"type":"text","text":"{filler}{first}"}},{{"type":"text","text":"{second}{filler}"}}]}}"#
        )
    };
    assert!(is_blocked(&block, &of("AKIAQWERTY", "UIOPASDFGH ")));
    assert!(!is_blocked(&block, &of("AKIAQWERTY ", "UIOPASDFGH ")));
    let screening = screened(&block, of("", "AKIAQWERTYUIOPASDFGH ").as_bytes());
    assert_eq!(screening.matches.iter().map(|found| found.place).collect::<Vec<_>>(), [Place::Value]);
}

#[test]
fn redaction_changes_the_match_and_nothing_else() {
    let redact = plan(&[rule(secrets(), GuardAction::Redact), rule(personal(), GuardAction::Redact)]);
    for (before, after) in [
        (r#"{"a":"x AKIAQWERTYUIOPASDFGH y"}"#, r#"{"a":"x [redacted:secrets] y"}"#),
        (
            r#" { "a" :"\u00e9\/\ud83d\ude00 AKIAQWERTYUIOPASDFGH \"é\" \n" , "n":1.0e2 } "#,
            r#" { "a" :"\u00e9\/\ud83d\ude00 [redacted:secrets] \"é\" \n" , "n":1.0e2 } "#,
        ),
        (r#"["\u0041KIAQWERTYUIOPASDFG\u0048"]"#, r#"["[redacted:secrets]"]"#),
        (r#"["bob@example.com, AKIAQWERTYUIOPASDFGH"]"#, r#"["[redacted:personal_data], [redacted:secrets]"]"#),
        ("[\"a AKIAQWERT\u{200b}YUIOPASDFGH\u{200b} b\"]", "[\"a [redacted:secrets]\u{200b} b\"]"),
        ("[\"é Ａ\u{301} ＡKIAQWERTYUIOPASDFGH b\"]", "[\"é Ａ\u{301} [redacted:secrets] b\"]"),
        (r#"["{\"k\":\"\\u0041KIAQWERTYUIOPASDFGH\"}"]"#, r#"["{\"k\":\"[redacted:secrets]\"}"]"#),
        (r#"["postgres://app:hunter2hunter2@db/x"]"#, r#"["postgres://app:[redacted:secrets]@db/x"]"#),
    ] {
        assert_eq!(redacted(&redact, before), after);
    }
}

#[test]
fn what_cannot_be_redacted_is_blocked() {
    let redact = plan(&[rule(secrets(), GuardAction::Redact), rule(personal(), GuardAction::Redact)]);
    for template in [
        r#"{"AKIAQWERTYUIOPASDFGH":1}"#,
        r#"{"pan":4111111111111111}"#,
        r#"{"blob":"{b64of:AKIAQWERTYUIOPASDFGH}"}"#,
        r#"{"content":[{"type":"text","text":"AKIAQWERTY"},{"type":"text","text":"UIOPASDFGH"}]}"#,
    ] {
        assert!(is_blocked(&redact, &document(template)), "{template}");
    }
}

#[test]
fn overlapping_matches_become_one() {
    let words = Detector::Keywords { words: vec!["key AKIAQ".to_owned(), "fgh, bye".to_owned()] };
    let redact = plan(&[rule(secrets(), GuardAction::Redact), rule(words, GuardAction::Redact)]);
    assert_eq!(redacted(&redact, r#"["my key AKIAQWERTYUIOPASDFGH, bye"]"#), r#"["my [redacted:keywords]"]"#);
}

#[test]
fn the_strongest_action_wins_and_observe_is_complete() {
    let rules = [
        rule(personal(), GuardAction::Observe),
        rule(personal(), GuardAction::Redact),
        rule(secrets(), GuardAction::Block),
        rule(Detector::InvisibleText, GuardAction::Observe),
    ];
    let screening = screened(&plan(&rules), "[\"bob@example.com AKIAQWERTYUIOPASDFGH a\u{200b}b\"]".as_bytes());
    assert_eq!(screening.verdict, Verdict::Block { rule: 2, detector: "secrets" });
    let seen: Vec<_> = screening.matches.iter().map(|found| (found.rule, found.kind, found.action)).collect();
    assert_eq!(
        seen,
        [
            (0, "email", GuardAction::Observe),
            (1, "email", GuardAction::Redact),
            (2, "aws-access-key-id", GuardAction::Block),
            (3, "invisible_text", GuardAction::Observe),
        ]
    );
    let observed = screened(&plan(&rules[..1]), br#"["bob@example.com"]"#);
    assert_eq!((observed.verdict, observed.matches.len()), (Verdict::Pass, 1));
}

#[test]
fn a_rule_looks_at_its_stage_only() {
    let mut input = rule(secrets(), GuardAction::Block);
    input.stage = GuardStage::Input;
    assert_eq!(screened(&plan(&[input]), br#"["AKIAQWERTYUIOPASDFGH"]"#), Screening::default());
}

#[test]
fn engines_are_named_with_the_texts_to_send() {
    let engine = Detector::Engine {
        url: "http://127.0.0.1:1/".to_owned(),
        timeout: Span(std::time::Duration::from_millis(300)),
    };
    let plan = plan(&[rule(secrets(), GuardAction::Block), rule(engine, GuardAction::Block)]);
    let screening = screened(&plan, br#"{"a":"x","n":[1.50,"\u0041KIA"]}"#);
    assert_eq!(screening.engines, [1]);
    assert_eq!(screening.texts, ["a", "x", "n", "1.50", "AKIA"]);
    assert!(plan.needs_engine(GuardStage::Input) && plan.rules[1].engine().is_some());
}

#[test]
fn a_detector_that_panics_is_an_engine_error() {
    let panicking = |allow| GuardRule::panicking(GuardAction::Block, allow);
    let raw = br#"["bob@example.com"]"#;
    let closed = GuardPlan { rules: vec![panicking(OnEngineError::Block)] };
    let error = EngineError { rule: 0, fault: EngineFault::Panic };
    let screening = screened(&closed, raw);
    assert_eq!((screening.verdict, screening.engine_errors), (Verdict::Unavailable { rule: 0 }, vec![error]));
    let rules = vec![panicking(OnEngineError::Allow), plan(&[rule(personal(), GuardAction::Redact)]).rules[0].clone()];
    let screening = screened(&GuardPlan { rules }, raw);
    assert!(matches!(screening.verdict, Verdict::Redact(_)), "{:?}", screening.verdict);
    assert_eq!(screening.engine_errors, [error]);
}

#[test]
fn an_overrun_is_an_engine_error() {
    // Each of these tokens may be the start of a JSON Web Token that reaches over all that follow.
    let raw = format!("[\"{}\"]", "-eyJhbGciOiJI".repeat(5_000));
    let mut guardrail = rule(secrets(), GuardAction::Redact);
    let screening = screened(&plan(std::slice::from_ref(&guardrail)), raw.as_bytes());
    assert_eq!(screening.verdict, Verdict::Unavailable { rule: 0 });
    assert_eq!(screening.engine_errors, [EngineError { rule: 0, fault: EngineFault::Budget }]);
    guardrail.on_engine_error = OnEngineError::Allow;
    let screening = screened(&plan(&[guardrail]), raw.as_bytes());
    assert_eq!((screening.verdict, screening.engine_errors.len()), (Verdict::Pass, 1));
}

#[test]
fn text_that_grows_when_normalised_is_an_engine_error() {
    let raw = format!("[\"{}\"]", "\u{fdfa}".repeat(10_000));
    let screening = screened(&plan(&[rule(secrets(), GuardAction::Block)]), raw.as_bytes());
    assert_eq!(screening.verdict, Verdict::Unavailable { rule: 0 });
}

#[test]
fn error_texts_lose_what_looks_like_a_credential() {
    assert_eq!(clean_credentials("limit is 200"), None);
    for (before, after) in [
        ("bad key sk-live-{alnum:12}", "bad key [redacted:secrets]"),
        ("token=tk_live_0000111122223333", "token=tk_live_[redacted:secrets]"),
        ("h: Bearer abcdefghijklmnop", "h: Bearer [redacted:secrets]"),
        ("\u{ff33}K {checksum:ghp_}, AKIA{base32:16}", "\u{ff33}K [redacted:secrets], [redacted:secrets]"),
        (r"x \\u0041KIAQWERTYUIOPASDFGH y", "x [redacted:secrets] y"),
    ] {
        let (before, _) = expand(before, 3);
        let after = expand(after, 3).0;
        assert_eq!(clean_credentials(&before).unwrap_or_else(|| before.clone()), after);
    }
    let flood = "-eyJhbGciOiJI".repeat(5_000);
    assert_eq!(clean_credentials(&flood).as_deref(), Some("[redacted:secrets]"));
}

#[test]
fn error_results_lose_what_looks_like_a_credential() {
    for (template, after) in [
        (r#"{"a":"AKIAQWERTYUIOPASDFGH","b":[1]}"#, r#"{"a":"[redacted:secrets]","b":[1]}"#),
        (r#"{"AKIAQWERTYUIOPASDFGH":"x"}"#, r#"{"[redacted:secrets]":"x"}"#),
        (r#"{"blob":"{b64of:AKIAQWERTYUIOPASDFGH}"}"#, r#"{"blob":"[redacted:secrets]"}"#),
        (
            r#"{"content":[{"type":"text","text":"a AKIAQWERTY"},{"type":"text","text":"UIOPASDFGH b"}]}"#,
            r#"{"content":[{"type":"text","text":"a [redacted:secrets]"},{"type":"text","text":"[redacted:secrets] b"}]}"#,
        ),
        (r#"{"n":4111111111111111,"e":"bob@example.com"}"#, r#"{"n":4111111111111111,"e":"bob@example.com"}"#),
    ] {
        let raw = document(template);
        let mut scratch = Vec::new();
        let parsed = Document::parse(raw.as_bytes(), &mut scratch).unwrap();
        let edits = credential_edits(&parsed, &parsed.spanned_root());
        let got = apply_edits(raw.as_bytes(), 0..raw.len(), &edits);
        assert_eq!(String::from_utf8(got).unwrap(), after);
    }
}

#[test]
fn edits_are_made_within_the_range_that_is_asked_for() {
    let raw = br#"{"keep":"AKIAQWERTYUIOPASDFGH","part":["AKIAQWERTYUIOPASDFGH"]}"#;
    let mut scratch = Vec::new();
    let parsed = Document::parse(raw, &mut scratch).unwrap();
    let part = parsed.spanned_root().get("part").unwrap();
    let edits = credential_edits(&parsed, &part);
    assert_eq!(apply_edits(raw, part.span.clone(), &edits), br#"["[redacted:secrets]"]"#);
}

#[test]
fn a_part_may_be_a_single_string() {
    let raw = br#"{"error":{"message":"bad AKIAQWERTYUIOPASDFGH","code":-32602}}"#;
    let mut scratch = Vec::new();
    let parsed = Document::parse(raw, &mut scratch).unwrap();
    let message = parsed.spanned_root().get("error").unwrap().get("message").unwrap();
    let redact = plan(&[rule(secrets(), GuardAction::Redact)]);
    match screen(&redact, &parsed, &message, GuardStage::Output).verdict {
        Verdict::Redact(edits) => assert_eq!(apply_edits(raw, message.span, &edits), br#""bad [redacted:secrets]""#),
        other => panic!("{other:?}"),
    }
}

/// What stands before and after a redaction, by leaf.
fn leaves(raw: &[u8]) -> Vec<String> {
    let mut scratch = Vec::new();
    let document = Document::parse(raw, &mut scratch).unwrap();
    document.spanned_root().leaves().map(|leaf| leaf.text.to_owned()).collect()
}

proptest! {
    #[test]
    fn redaction_keeps_every_other_byte(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just(("é \\u00e9\\n\\\"".to_owned(), "é é\n\"".to_owned())),
                Just(("\\ud83d\\ude00/\\/".to_owned(), "😀//".to_owned())),
                Just((" AKIAQWERTYUIOPASDFGH ".to_owned(), " [redacted:secrets] ".to_owned())),
                Just((" \\u0041KIAQWERTYUIOPASDFG\\u0048 ".to_owned(), " [redacted:secrets] ".to_owned())),
                Just((" AKIA\u{200b}QWERTYUIOPASDFGH ".to_owned(), " [redacted:secrets] ".to_owned())),
                Just((" bob@example.com ".to_owned(), " [redacted:personal_data] ".to_owned())),
                "[a-z天 ]{0,6}".prop_map(|text| (text.clone(), text)),
            ],
            0..12
        ),
        splits in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let redact = plan(&[rule(secrets(), GuardAction::Redact), rule(personal(), GuardAction::Redact)]);
        // Pieces in one string or the next; the same with what must be there afterwards.
        let mut strings = vec![(String::new(), String::new())];
        for (piece, is_next) in pieces.iter().zip(&splits) {
            if *is_next { strings.push((String::new(), String::new())); }
            let last = strings.last_mut().unwrap();
            last.0.push_str(&piece.0);
            last.1.push_str(&piece.1);
        }
        let body: Vec<String> = strings.iter().map(|(raw, _)| format!("{{\"k\" :  [\"{raw}\", 1.50]}}")).collect();
        let raw = format!(" [{}]\n", body.join(" , "));
        let out = match screened(&redact, raw.as_bytes()).verdict {
            Verdict::Pass => raw.clone().into_bytes(),
            Verdict::Redact(edits) => apply_edits(raw.as_bytes(), 0..raw.len(), &edits),
            other => panic!("{other:?}"),
        };
        let expected: Vec<String> = strings.iter().flat_map(|(_, after)| ["k".to_owned(), after.clone(), "1.50".to_owned()]).collect();
        prop_assert_eq!(leaves(&out), expected);
        // Byte for byte: what stands between the strings, and every piece that was not redacted.
        let kept: String = strings.iter().map(|(raw, _)| raw.as_str()).collect::<Vec<_>>().join("\u{1}");
        let mut at = 0;
        for piece in pieces.iter().filter(|piece| !piece.1.contains("redacted")) {
            prop_assert!(kept.contains(&piece.0));
            let found = String::from_utf8_lossy(&out[at..]).find(&piece.0);
            prop_assert!(found.is_some(), "{:?} is gone", piece.0);
            at += found.unwrap() + piece.0.len();
        }
        prop_assert!(screened(&redact, &out).matches.is_empty(), "clean after redaction");
    }

    #[test]
    fn screening_never_panics_and_edits_always_apply(
        text in prop_oneof!["\\PC{0,40}", "[0-9+() .@a-zA-Z:/\\[\\]\\\\\"\n-]{0,80}", "(https?:/?/?|[a-z@.:)é/\n])*"],
        name in "[a-z]{0,3}",
    ) {
        let rules = [
            rule(secrets(), GuardAction::Redact),
            rule(personal(), GuardAction::Redact),
            rule(Detector::PromptInjection, GuardAction::Redact),
            rule(Detector::InvisibleText, GuardAction::Redact),
            rule(Detector::Keywords { words: vec!["é".to_owned(), "a".to_owned()] }, GuardAction::Redact),
            rule(Detector::Pattern { patterns: vec![r"\w\d".to_owned(), r"(?i)\bé".to_owned()] }, GuardAction::Redact),
            rule(Detector::Urls { allow: vec!["a.b".to_owned()], deny: Vec::new() }, GuardAction::Redact),
        ];
        let raw = serde_json::to_string(&BTreeMap::from([(name, vec![text])])).unwrap();
        let screening = screened(&plan(&rules), raw.as_bytes());
        prop_assert!(screening.engine_errors.is_empty());
        if let Verdict::Redact(edits) = screening.verdict {
            let out = apply_edits(raw.as_bytes(), 0..raw.len(), &edits);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&out).is_ok());
        }
    }
}
