//! How long it takes to screen a clean document: `target/release/toolgate-bench-guard`.
//!
//! Prints the best of many runs, in microseconds, for each kind of text, size and set of rules. Wall-clock numbers are for
//! people; the tests count work instead.
#![allow(missing_docs, clippy::print_stdout, clippy::expect_used, clippy::unwrap_used)]

use std::{hint::black_box, time::Instant};

use toolgate::{
    model::{
        jsonrpc::Document,
        records::{Detector, GuardAction, GuardStage, Guardrail, OnEngineError},
    },
    policy::guard::{CredentialMask, GuardPlan, GuardRule, Verdict, screen, warm},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ASCII: &str = "The quarterly review took 12.5 days; see https://example.com/a/b?page=2 for basic notes (3/4). Key ideas, \
                     task lists and keyboards follow, as of 2024-01-15 10:22:33. ";
const ESCAPED: &str =
    "The quarterly review took 12.5 days;\\n see \\\"https://example.com/a/b?page=2\\\" for basic notes.\\n";
const UNICODE: &str =
    "Die Prüfung dauerte 12,5 Tage … siehe https://example.com/a/b – “Notizen” (3/4)\u{a0}and more text.";

fn main() {
    let start = Instant::now();
    warm().expect("the shipped rules compile");
    println!("compiling the shipped rules: {:?}", start.elapsed());
    let secrets = || Detector::Secrets { types: Vec::new() };
    let personal = || Detector::PersonalData { types: Vec::new() };
    let plans = [
        ("secrets", plan(vec![secrets()])),
        ("personal_data", plan(vec![personal()])),
        ("both", plan(vec![secrets(), personal()])),
        ("prompt_injection", plan(vec![Detector::PromptInjection])),
        ("invisible_text", plan(vec![Detector::InvisibleText])),
    ];
    let mask = CredentialMask::new([&b"Bearer 0123456789abcdefghijklmnop"[..]]).expect("a mask");
    for size in [1 << 10, 4 << 10, 64 << 10, 256 << 10] {
        for (name, raw) in documents(size) {
            let mut scratch = Vec::new();
            let document = Document::parse(raw.as_bytes(), &mut scratch).expect("JSON");
            let root = document.spanned_root();
            print!("{:>4} KiB {name:<12}", size >> 10);
            for (rules, plan) in &plans {
                let micros = best(size, || {
                    let screening = screen(plan, &document, &root, GuardStage::Output);
                    assert_eq!(black_box(screening).verdict, Verdict::Pass);
                });
                print!("  {rules} {micros:.1}");
            }
            let micros = best(size, || assert!(black_box(mask.edits(&document, &root)).is_empty()));
            println!("  credential mask {micros:.1}");
        }
    }
}

fn documents(size: usize) -> [(&'static str, String); 4] {
    let text = |piece: &str| {
        format!("{{\"content\":[{{\"type\":\"text\",\"text\":\"{}\"}}]}}", piece.repeat(size / piece.len()))
    };
    let record =
        |at: usize| format!("{{\"id\":{at},\"name\":\"item {at}\",\"at\":\"2024-01-15T10:22:33Z\",\"private\":false}}");
    let records: Vec<String> = (0..size / record(0).len()).map(record).collect();
    [
        ("ascii", text(ASCII)),
        ("escaped", text(ESCAPED)),
        ("unicode", text(UNICODE)),
        ("small leaves", format!("[{}]", records.join(","))),
    ]
}

fn plan(detectors: Vec<Detector>) -> GuardPlan {
    let rule = |detector| Guardrail {
        name: "bench".to_owned(),
        organization: "bench".to_owned(),
        stage: GuardStage::Both,
        detector,
        action: GuardAction::Block,
        servers: Vec::new(),
        tools: Vec::new(),
        projects: Vec::new(),
        on_engine_error: OnEngineError::Block,
    };
    let compile = |detector| GuardRule::compile(&rule(detector)).expect("a rule");
    GuardPlan { rules: detectors.into_iter().map(compile).collect() }
}

/// Microseconds of the best of many runs: what the code costs when nothing disturbs it.
fn best(size: usize, mut run: impl FnMut()) -> f64 {
    let runs = (64 << 20) / size.max(1) / 4;
    let timed = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..runs.clamp(50, 2000)).map(timed).fold(f64::MAX, f64::min)
}
