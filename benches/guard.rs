//! What it costs to screen a clean document: `target/release/toolgate-bench-guard`.
//!
//! Prints the best of many runs, in microseconds, for each kind of text, size and set of rules. Wall-clock numbers are for
//! people; the tests count work instead. With `time NAME` it prints that of one case alone, arguments and result with `secrets` and
//! `personal_data`; with `count NAME TIMES` it runs the case so often inside [`measured`], for callgrind (`benches/count.py --guard`).
#![allow(missing_docs, clippy::print_stdout, clippy::expect_used, clippy::unwrap_used)]

use std::{hint::black_box, io::BufRead as _, time::Instant};

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

const KIB: [usize; 5] = [1, 4, 16, 64, 256];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => table(),
        ["list"] => cases().for_each(|(name, _)| println!("{name}")),
        ["time", name] => both_ways(name, |size, run| println!("{:.1}", best(size, run))),
        ["count", name, times] => both_ways(name, |_, run| count(run, times.parse().unwrap())),
        _ => println!("toolgate-bench-guard [list | time NAME | count NAME TIMES]"),
    }
}

/// A kind of text and a size, such as `ascii 4`, with the document.
fn cases() -> impl Iterator<Item = (String, String)> {
    KIB.into_iter().flat_map(|kib| documents(kib << 10).map(|(name, raw)| (format!("{name} {kib}"), raw)))
}

/// Hands `then` the size of a case, and what screens it as arguments and as a result.
fn both_ways(name: &str, then: impl FnOnce(usize, &mut dyn FnMut())) {
    let plan = plan(vec![secrets(), personal()]);
    let (_, raw) = cases().find(|(other, _)| other == name).expect("a case of that name");
    let mut scratch = Vec::new();
    let document = Document::parse(raw.as_bytes(), &mut scratch).expect("JSON");
    let root = document.spanned_root();
    then(raw.len(), &mut || {
        for stage in [GuardStage::Input, GuardStage::Output] {
            assert_eq!(black_box(screen(&plan, &document, &root, stage)).verdict, Verdict::Pass);
        }
    });
}

/// Warms up, says `ready`, and runs once a line is read.
fn count(run: &mut dyn FnMut(), times: u64) {
    run();
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).expect("a line");
    measured(run, times);
}

/// What callgrind counts: nothing but so many runs.
#[inline(never)]
fn measured(run: &mut dyn FnMut(), times: u64) {
    for _ in 0..times {
        run();
    }
    black_box(times);
}

fn secrets() -> Detector {
    Detector::Secrets { types: Vec::new() }
}

fn personal() -> Detector {
    Detector::PersonalData { types: Vec::new() }
}

fn table() {
    let start = Instant::now();
    warm().expect("the shipped rules compile");
    println!("compiling the shipped rules: {:?}", start.elapsed());
    let plans = [
        ("secrets", plan(vec![secrets()])),
        ("personal_data", plan(vec![personal()])),
        ("both", plan(vec![secrets(), personal()])),
        ("prompt_injection", plan(vec![Detector::PromptInjection])),
        ("invisible_text", plan(vec![Detector::InvisibleText])),
    ];
    let mask = CredentialMask::new([&b"Bearer 0123456789abcdefghijklmnop"[..]]).expect("a mask");
    for (case, raw) in cases() {
        let mut scratch = Vec::new();
        let document = Document::parse(raw.as_bytes(), &mut scratch).expect("JSON");
        let root = document.spanned_root();
        print!("{case:<16}");
        for (rules, plan) in &plans {
            let micros = best(raw.len(), &mut || {
                let screening = screen(plan, &document, &root, GuardStage::Output);
                assert_eq!(black_box(screening).verdict, Verdict::Pass);
            });
            print!("  {rules} {micros:.1}");
        }
        let micros = best(raw.len(), &mut || assert!(black_box(mask.edits(&document, &root)).is_empty()));
        println!("  credential mask {micros:.1}");
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
fn best(size: usize, run: &mut dyn FnMut()) -> f64 {
    let runs = (64 << 20) / size.max(1) / 4;
    let timed = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64() * 1e6
    };
    (0..runs.clamp(50, 2000)).map(timed).fold(f64::MAX, f64::min)
}
