//! What a call costs inside the gate: the whole line, the ladder of checks, and each stage alone; no sockets.
//!
//! `make bench` prints nanoseconds and instructions. `target/release/toolgate-bench-line` prints nanoseconds only; with `list` it names the
//! cases, with `count NAME TIMES` it runs one case so often inside [`measured`], for callgrind (`benches/count.py`).
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic)]

mod world;

use std::{
    hint::black_box,
    io::{BufRead as _, Write as _},
    time::{Duration, Instant},
};

use toolgate::{
    call::{Asked, Caller, admit, answer, authenticate, headers, parse, resolve},
    model::{jsonrpc::Document, records::GuardStage},
    policy::{guard, snapshot::Snapshot},
};
use world::{Checks, World};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Run = Box<dyn FnMut()>;

/// A case: its name, and how its run is made.
struct Case {
    name: String,
    make: Box<dyn Fn() -> Run>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let cases = cases();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => cases.iter().for_each(|case| println!("{}", case.name)),
        ["count", name, times] => {
            let case = cases.iter().find(|case| case.name == *name).unwrap_or_else(|| panic!("no case `{name}`"));
            count(case, times.parse().unwrap());
        }
        filter => time(&cases, filter.first().copied().unwrap_or("")),
    }
}

/// Sizes of the policy: tools, keys and servers, so many of each.
const SIZES: [usize; 4] = [10, 1_000, 10_000, 100_000];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in SIZES {
        cases.push(whole(&format!("whole {size}"), move || World::new(size, Checks::ALL)));
    }
    cases.push(whole("whole 1000, spread over 256 tools", || World::spread(1_000, Checks::ALL)));
    cases.push(whole("whole 10, limits of a fleet", || World::in_fleet(10, Checks::ALL)));
    for (name, checks) in Checks::LADDER {
        cases.push(whole(&format!("ladder {name}"), move || World::new(10, checks)));
    }
    cases.extend(stages());
    cases
}

fn whole(name: &str, world: impl Fn() -> World + 'static) -> Case {
    let make = move || -> Run {
        let mut world = world();
        Box::new(move || {
            black_box(world.run());
        })
    };
    Case { name: name.to_owned(), make: Box::new(make) }
}

/// A stage alone, on the full chain of ten tools.
fn stage(name: &str, run: impl Fn(&mut World) + Clone + 'static) -> Case {
    let make = move || -> Run {
        let mut world = World::new(10, Checks::ALL);
        let run = run.clone();
        Box::new(move || run(&mut world))
    };
    Case { name: format!("stage {name}"), make: Box::new(make) }
}

fn stages() -> Vec<Case> {
    let mut stages = request_stages();
    stages.extend(answer_stages());
    stages
}

/// From the key to the call that goes on.
fn request_stages() -> Vec<Case> {
    vec![
        stage("identify", |world| {
            let now = world.now();
            black_box(world::identify(&world.snapshot, world.next(), now));
        }),
        stage("parse", |world| {
            world.now();
            let mut scratch = Vec::new();
            black_box(Document::parse(&world.next().body, &mut scratch).unwrap());
        }),
        stage("parse, envelope, headers", |world| {
            world.now();
            let call = world.next();
            let mut scratch = Vec::new();
            let document = Document::parse(&call.body, &mut scratch).unwrap();
            let parse::Message::Request(request) = parse::message(&document, &call.head, &mut None).unwrap() else {
                panic!("a request");
            };
            headers::agree(&call.head, &request).unwrap();
            black_box(request.id.len());
        }),
        stage("admit", |world| {
            let now = world.now();
            let call = world.next();
            let mut asked = Asked::default();
            let key = &authenticate_only(&world.snapshot, call).key;
            black_box(
                admit(
                    &Caller { snapshot: &world.snapshot, key, granted: None, user: None },
                    &call.head,
                    &call.body,
                    &mut asked,
                )
                .unwrap(),
            );
            black_box(now);
        }),
        with_call("resolve", |world, _| {
            let key = &authenticate_only(&world.snapshot, world.next()).key;
            let name = world.next().head.get("mcp-name").and_then(|name| name.to_str().ok()).unwrap();
            black_box(resolve::aggregated(key, name).unwrap());
        }),
        with_call("parse, schema in", |world, admitted| {
            let mut scratch = Vec::new();
            let document = Document::parse(&admitted.checked.arguments, &mut scratch).unwrap();
            let schemas = world::called_tool(admitted).schemas.as_ref().unwrap();
            schemas.input.check(document.root()).unwrap();
            black_box(world.calls.len());
        }),
        with_call("parse, guardrails in", |world, admitted| {
            let mut scratch = Vec::new();
            let document = Document::parse(&admitted.checked.arguments, &mut scratch).unwrap();
            let plan = world::called_tool(admitted).input.plan("support");
            black_box(guard::screen(plan, &document, &document.spanned_root(), GuardStage::Input));
            black_box(world.calls.len());
        }),
        stage("charge", |world| {
            // The room that is taken is given back by the drop.
            let now = world.now();
            let key = &authenticate_only(&world.snapshot, world.next()).key;
            let server = key.view.servers.values().next().unwrap();
            let settings = &world.snapshot.settings;
            black_box(toolgate::call::throttle::server(&server.server, settings, now).unwrap());
        }),
        with_call("upstream body", |_, admitted| {
            black_box(world::upstream_body(admitted));
        }),
    ]
}

/// From what the upstream said to what the agent reads.
fn answer_stages() -> Vec<Case> {
    vec![
        with_call("answer, parsed and heard", |world, _| {
            let mut scratch = Vec::new();
            let document = Document::parse(&world.next().answer, &mut scratch).unwrap();
            black_box(answer::hear(&document, "g7", answer::IdRule::Ours).unwrap());
        }),
        with_call("answer, parsed and masked", |world, admitted| {
            let mut scratch = Vec::new();
            let document = Document::parse(&world.next().answer, &mut scratch).unwrap();
            black_box(admitted.checked.server.mask.edits(&document, &document.spanned_root()));
        }),
        with_call("answer, parsed and screened", |world, admitted| {
            let mut scratch = Vec::new();
            let document = Document::parse(&world.next().answer, &mut scratch).unwrap();
            let plan = world::called_tool(admitted).output.plan("support");
            black_box(guard::screen(plan, &document, &document.spanned_root(), GuardStage::Output));
        }),
        with_call("release", |world, admitted| {
            let call = world.next();
            let key = &authenticate_only(&world.snapshot, call).key;
            let asked = Asked { era: Some(toolgate::model::mcp::Era::Modern), ..Asked::default() };
            black_box(world::release(&world.snapshot, key, admitted, &asked, &call.answer));
        }),
    ]
}

/// A stage that looks at a call which was admitted before.
fn with_call(name: &str, run: impl Fn(&World, &toolgate::call::Admitted) + Clone + 'static) -> Case {
    let make = move || -> Run {
        let mut world = World::new(10, Checks::ALL);
        let now = world.now();
        let mut asked = Asked::default();
        let key = world::identify(&world.snapshot, world.next(), now);
        let admitted = world::admitted(&world.snapshot, key, world.next(), &mut asked, now);
        let run = run.clone();
        Box::new(move || run(&world, &admitted))
    };
    Case { name: format!("stage {name}"), make: Box::new(make) }
}

fn authenticate_only<'s>(snapshot: &'s Snapshot, call: &world::Call) -> &'s toolgate::policy::snapshot::Token {
    let digest = authenticate::bearer(&call.head).unwrap();
    snapshot.keys.get(&digest).unwrap()
}

/// Prints the nanoseconds of each case: the least and the median of many short rounds, so that a busy machine disturbs little.
fn time(cases: &[Case], filter: &str) {
    println!("{:<40} {:>10} {:>10}", "case", "least ns", "median ns");
    for case in cases.iter().filter(|case| case.name.contains(filter)) {
        let mut run = (case.make)();
        let mut rounds = Vec::new();
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            let start = Instant::now();
            measured(&mut run, 64);
            rounds.push(start.elapsed().as_nanos() / 64);
        }
        rounds.sort_unstable();
        let at = |index: usize| rounds.get(index).copied().unwrap_or(0);
        println!("{:<40} {:>10} {:>10}", case.name, at(0), at(rounds.len() / 2));
    }
}

/// Runs a case for callgrind: made and warmed up before it says `ready`, measured once a line is read.
fn count(case: &Case, times: u64) {
    let mut run = (case.make)();
    measured_not(&mut run, 512);
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    measured(&mut run, times);
}

/// What callgrind counts: nothing but so many runs.
#[inline(never)]
fn measured(run: &mut Run, times: u64) {
    for _ in 0..times {
        run();
    }
    black_box(times);
}

#[inline(never)]
fn measured_not(run: &mut Run, times: u64) {
    for _ in 0..times {
        run();
    }
    black_box(times + 1);
}
