//! What a change of policy costs: compile it anew, compile it with what is kept from before, and swap it under readers.
//!
//! `target/release/toolgate-bench-compile`. Sizes are tools, keys and servers, so many of each.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod world;

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use toolgate::policy::live::Live;
use world::{Checks, Source, handles};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    println!("{:>8} {:>12} {:>12} {:>12} {:>14}", "size", "first ms", "again ms", "drop ms", "resident KiB");
    for size in [10, 1_000, 10_000, 100_000] {
        compile(size);
    }
    println!("\n{:<34} {:>10} {:>10} {:>10}", "load of the policy, ns", "median", "p99", "p99.9");
    readers("no swap", None);
    readers("a swap each millisecond", Some(Duration::from_millis(1)));
}

fn compile(size: usize) {
    let source = Source::new(size, Checks::ALL);
    let before = resident_kib();
    let mut kept = handles();
    let (first, first_ms) = timed(|| source.compile(&mut kept));
    let grown = resident_kib().saturating_sub(before);
    let (again, again_ms) = timed(|| source.compile(&mut kept));
    let ((), drop_ms) = timed(|| drop(first));
    println!("{size:>8} {first_ms:>12.1} {again_ms:>12.1} {drop_ms:>12.1} {grown:>14}");
    drop(again);
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = run();
    (value, start.elapsed().as_secs_f64() * 1e3)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// One reader loads the policy and looks a key up, while a writer swaps between two.
fn readers(name: &str, every: Option<Duration>) {
    let source = Source::new(1_000, Checks::ALL);
    let mut kept = handles();
    let snapshots: Vec<_> = (0..2).map(|_| Arc::new(source.compile(&mut kept))).collect();
    let live = Arc::new(Live::default());
    live.publish(Arc::clone(&snapshots[0]));
    let stop = Arc::new(AtomicBool::new(false));
    let swaps = Arc::new(AtomicU64::new(0));
    let writer = every.map(|every| {
        let (live, stop, swaps, snapshots) =
            (Arc::clone(&live), Arc::clone(&stop), Arc::clone(&swaps), snapshots.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let turn = swaps.fetch_add(1, Ordering::Relaxed);
                live.publish(Arc::clone(&snapshots[turn as usize % 2]));
                std::thread::sleep(every);
            }
        })
    });
    let mut times = Vec::with_capacity(1 << 16);
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..32 {
            black_box(live.load().unwrap().revision);
        }
        times.push(start.elapsed().as_nanos() / 32);
    }
    stop.store(true, Ordering::Relaxed);
    if let Some(writer) = writer {
        writer.join().unwrap();
    }
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 1000];
    println!("{name:<34} {:>10} {:>10} {:>10}", at(500), at(990), at(999));
}
