//! Each detector against its case file: what is marked is found, with its type; nothing else is.

use crate::model::records::{Detector, GuardAction};

use super::{
    super::{GuardRule, corpus::Corpus},
    cases::{Case, expand, read},
    personal, rule, secrets,
};

/// How often a case is tried, each time with other random letters.
const SEEDS: u64 = 200;

/// Findings of a rule in a text as `(kind, range)`, without those in other readings of the text.
fn found(rule: &GuardRule, text: &str) -> Vec<(&'static str, std::ops::Range<usize>)> {
    let corpus = Corpus::of_text(text);
    let (mut work, mut found) = (rule.allowance(&corpus), Vec::new());
    rule.find(&corpus, &mut work, &mut found).expect("within the allowance");
    found.retain(|finding| finding.range.end <= text.len());
    let mut found: Vec<_> = found.into_iter().map(|finding| (finding.kind, finding.range)).collect();
    found.sort_by_key(|(_, range)| range.start);
    found
}

fn check(file: &str, detector: Detector, seeds: u64) {
    let rule = GuardRule::compile(&rule(detector, GuardAction::Redact)).unwrap();
    let mut faults = Vec::new();
    for case in read(file) {
        let mut wrong = 0;
        let mut first = String::new();
        for seed in 1..=seeds {
            if let Some(fault) = fault(&rule, &case, seed) {
                wrong += 1;
                if first.is_empty() {
                    first = fault;
                }
            }
        }
        if wrong > 0 {
            faults.push(format!("{file}:{}: {wrong} of {seeds}: {first}", case.line));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

fn fault(rule: &GuardRule, case: &Case, seed: u64) -> Option<String> {
    let (text, marks) = expand(&case.text, seed);
    assert_eq!(marks.is_empty(), case.sign == '-', "line {}: + has marks, - has none", case.line);
    let found = found(rule, &text);
    let missing = marks
        .iter()
        .find(|mark| !found.iter().any(|(kind, range)| range == *mark && (*kind == case.kind || case.kind == "*")));
    if let Some(mark) = missing {
        return Some(format!("`{}` is not found as {} in `{text}`, but {found:?}", &text[mark.clone()], case.kind));
    }
    let extra =
        found.iter().find(|(_, range)| !marks.iter().any(|mark| mark.start <= range.start && range.end <= mark.end));
    extra.map(|(kind, range)| format!("`{}` is found as {kind} in `{text}`", &text[range.clone()]))
}

#[test]
fn secrets_are_told_from_other_text() {
    check("secrets.case", secrets(), SEEDS);
}

#[test]
fn personal_data_is_told_from_other_text() {
    check("personal_data.case", personal(), 20);
}

#[test]
fn prompt_injection_is_told_from_other_text() {
    check("prompt_injection.case", Detector::PromptInjection, 1);
}

#[test]
fn invisible_text_is_told_from_writing_that_needs_it() {
    check("invisible_text.case", Detector::InvisibleText, 1);
}

#[test]
fn hosts_are_read_as_browsers_read_them() {
    let hosts = |list: &[&str]| list.iter().map(|&host| host.to_owned()).collect::<Vec<_>>();
    let allow = hosts(&["example.com", "münchen.example", "*.below.example", "192.0.2.7"]);
    check("urls_allow.case", Detector::Urls { allow, deny: Vec::new() }, 1);
    let deny = hosts(&["evil.example", "198.51.100.1", "2001:db8::1"]);
    check("urls_deny.case", Detector::Urls { allow: Vec::new(), deny }, 1);
}

#[test]
fn keywords_are_found_in_any_case() {
    let words = ["zebra-9", "Projekt Ülm", "天気"].map(str::to_owned).to_vec();
    check("keywords.case", Detector::Keywords { words }, 1);
}

#[test]
fn patterns_are_found() {
    let patterns = [r"ACME-\d{4}", r"(?i)\bstraße\b", "^only$"].map(str::to_owned).to_vec();
    check("pattern.case", Detector::Pattern { patterns }, 1);
}

#[test]
fn every_secret_type_has_a_case() {
    let cases = read("secrets.case");
    let text = include_str!("../../../../conf/guardrails/secrets.toml");
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"')).collect();
    assert!(ids.len() >= 40, "{}", ids.len());
    let missing: Vec<_> =
        ids.iter().filter(|id| !cases.iter().any(|case| case.sign == '+' && case.kind == **id)).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
}

#[test]
fn a_policy_that_asks_for_what_there_is_not_does_not_compile() {
    let refused = |detector: Detector, words: &str| {
        let error = GuardRule::compile(&rule(detector, GuardAction::Block)).expect_err(words);
        assert!(error.contains(words), "{error}");
    };
    let list = |text: &str| vec![text.to_owned()];
    refused(Detector::Secrets { types: list("sesame") }, "no type of `secrets`");
    refused(Detector::PersonalData { types: list("shoe") }, "no type of `personal_data`");
    refused(Detector::Keywords { words: Vec::new() }, "at least one");
    refused(Detector::Keywords { words: list(" ") }, "empty word");
    refused(Detector::Pattern { patterns: Vec::new() }, "1 to 100");
    refused(Detector::Pattern { patterns: list("(") }, "unclosed group");
    refused(Detector::Pattern { patterns: list("(?=a)b") }, "look-around");
    refused(Detector::Pattern { patterns: list(r"(a)\1") }, "backreferences");
    refused(Detector::Pattern { patterns: list("a*") }, "empty text");
    refused(Detector::Pattern { patterns: list(r"\b|foo") }, "empty text");
    refused(Detector::Pattern { patterns: list(r"\w{2000}") }, "larger than");
    refused(Detector::Urls { allow: Vec::new(), deny: Vec::new() }, "needs `allow` or `deny`");
    for entry in ["https://example.com", "example.com/x", "example.com:443", "a b", "*", "u@example.com", "exa*ple.com"]
    {
        refused(Detector::Urls { allow: list(entry), deny: Vec::new() }, "is no host");
    }
}

#[test]
fn types_narrow_a_detector() {
    let text = expand("{checksum:ghp_} AKIA{base32:16} bob@example.com {luhn:411111111111111}", 7).0;
    let kinds = |detector: Detector| {
        let rule = GuardRule::compile(&rule(detector, GuardAction::Block)).unwrap();
        found(&rule, &text).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(kinds(secrets()), ["github-personal-access-token", "aws-access-key-id"]);
    assert_eq!(kinds(Detector::Secrets { types: list(&["aws"]) }), ["aws-access-key-id"]);
    assert_eq!(
        kinds(Detector::Secrets { types: list(&["github_personal_access_token"]) }),
        ["github-personal-access-token"]
    );
    assert_eq!(kinds(personal()), ["email", "card"]);
    assert_eq!(kinds(Detector::PersonalData { types: list(&["email"]) }), ["email"]);
    assert_eq!(kinds(Detector::PersonalData { types: list(&["credit_card", "us_ssn"]) }), ["card"]);
}
