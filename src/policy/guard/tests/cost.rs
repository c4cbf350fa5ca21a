//! What a detector may cost, in counted work: linear in the text, and bounded for the worst of texts.

use crate::model::records::{Detector, GuardAction};

use super::{
    super::{GuardRule, corpus::Corpus, work::Overrun},
    personal, rule, secrets,
};

const SIZE: usize = 256 * 1024;

/// Work of a rule on a text, in units a byte, and whether it was within the allowance.
fn cost(detector: Detector, text: &str) -> (f64, Result<(), Overrun>) {
    let rule = GuardRule::compile(&rule(detector, GuardAction::Redact)).unwrap();
    let corpus = Corpus::of_text(text);
    let mut work = rule.allowance(&corpus);
    let outcome = rule.find(&corpus, &mut work, &mut Vec::new());
    #[allow(clippy::cast_precision_loss)]
    (work.spent() as f64 / corpus.text.len() as f64, outcome)
}

fn filled(with: &str) -> String {
    with.repeat(SIZE.div_ceil(with.len()))
}

fn keywords_of(file: &str) -> Vec<String> {
    let values = file.lines().filter_map(|line| line.strip_prefix("keywords = ["));
    values.flat_map(|list| list.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn clean_text_costs_little_for_each_byte_at_any_size() {
    let page =
        "The build took 12.5 s on 2024-01-15; see https://example.com/a/b?page=2 for (3/4) of it. Key ideas follow.\n";
    for detector in [secrets(), personal(), Detector::PromptInjection, Detector::InvisibleText] {
        let name = detector.name();
        let (small, _) = cost(detector.clone(), &page.repeat(10));
        let (large, outcome) = cost(detector, &page.repeat(2500));
        assert_eq!(outcome, Ok(()), "{name}");
        assert!(large < 4.0 && (large - small).abs() < 0.2, "{name}: {small} and {large} units a byte");
    }
}

#[test]
fn a_text_stuffed_with_all_keywords_is_looked_at_within_the_allowance() {
    let secret_words = keywords_of(include_str!("../../../../conf/guardrails/secrets.toml"));
    let phrases = keywords_of(include_str!("../../../../conf/guardrails/prompt_injection.toml"));
    assert!(secret_words.len() > 80 && phrases.len() > 40);
    for (detector, words) in [(secrets(), &secret_words), (Detector::PromptInjection, &phrases)] {
        for separator in ["", " ", "\n", "-", "x"] {
            let (units, outcome) = cost(detector.clone(), &filled(&format!("{}{separator}", words.join(separator))));
            assert_eq!(outcome, Ok(()), "{}, {separator:?}: {units} units a byte", detector.name());
        }
        for word in words {
            let (units, outcome) = cost(detector.clone(), &format!("{word} ").repeat(1000));
            assert_eq!(outcome, Ok(()), "{word}: {units} units a byte");
        }
    }
}

#[test]
fn only_known_texts_cost_more_than_the_allowance() {
    let worst = [
        "@",
        "a@",
        "a@b.",
        "+1",
        "+1 ",
        "4111 ",
        "DE89",
        "1-",
        "123-45-",
        "://a:",
        "://:a@",
        "-----BEGIN PRIVATE KEY-----",
        "sk-",
        "sk-a",
        "ignore previous ",
        "before ",
        "\u{200b}",
        "a\u{200d}",
        "https://",
        "www.",
        "](//",
        "https://a(",
        "\\u0041",
        "0",
        "<important>",
        "-eyJhbGciOiJI",
    ];
    let detectors = [
        secrets(),
        personal(),
        Detector::PromptInjection,
        Detector::InvisibleText,
        Detector::Urls { allow: vec!["example.com".to_owned()], deny: Vec::new() },
        Detector::Keywords { words: vec!["a".to_owned(), "@".to_owned()] },
    ];
    let mut dear = Vec::new();
    for detector in detectors {
        for text in worst {
            let (_, outcome) = cost(detector.clone(), &text.repeat(16 * 1024 / text.len()));
            if outcome.is_err() {
                dear.push((detector.name(), text));
            }
        }
    }
    assert_eq!(dear, [("secrets", "-eyJhbGciOiJI"), ("urls", "://:a@")]);
}

#[test]
fn an_expression_that_looks_far_ahead_is_counted() {
    let (_, outcome) = cost(Detector::Pattern { patterns: vec!["(?s).*x|.".to_owned()] }, &"abc".repeat(4000));
    assert_eq!(outcome, Err(Overrun));
    let (_, outcome) = cost(Detector::Pattern { patterns: vec![r"ID-\d+".to_owned()] }, &"ID-1234567, ".repeat(1000));
    assert_eq!(outcome, Ok(()));
}
