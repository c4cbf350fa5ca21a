//! Tests of `schedule.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::{
    model::mcp::Revision,
    upstream::{
        dns::Resolver,
        exchange::AskError,
        mock::{Act, Mock, Seen},
    },
};

const HOURLY: Settings =
    Settings { interval: Duration::from_secs(3600), at_once_max: 4, first_round_max: Duration::from_secs(3600) };

fn lister() -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    let asked = AtomicUsize::new(0);
    move |seen| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        seen.result(json!({"tools": [{"name": format!("t{number}")}]}))
    }
}

fn asked(server: &str, mock: &Mock) -> Asked {
    Asked { server: server.into(), target: mock.target(), protocol: Protocol::Fixed(Revision::MODERN) }
}

/// Hands outcomes to the test, as `server: names` or `server: error`.
fn collector() -> (Apply, mpsc::UnboundedReceiver<String>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let apply: Apply = Arc::new(move |found: Found| {
        let said = format!("{}: {}", found.server, words(&found.outcome));
        let _ = sender.send(said);
        async {}.boxed()
    });
    (apply, receiver)
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Ok(listing) => listing.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(","),
        Err(fault) => fault.to_string(),
    }
}

fn start(settings: Settings, servers: Vec<Asked>) -> (Schedule, mpsc::UnboundedReceiver<String>) {
    let (apply, outcomes) = collector();
    (Schedule::start(Arc::new(Client::new(Resolver::table([]))), settings, servers, apply), outcomes)
}

#[tokio::test]
async fn each_server_is_asked_at_start_and_then_ready() {
    let (good, bad) = (Mock::start(lister()).await, Mock::start(|_| Act::empty(401)).await);
    let (schedule, mut outcomes) = start(HOURLY, vec![asked("good", &good), asked("bad", &bad)]);
    schedule.first_round().await;
    assert!(schedule.first_round_done());
    let mut said = [outcomes.try_recv().unwrap(), outcomes.try_recv().unwrap()];
    said.sort();
    let refused = AskError::Credential { status: 401 };
    assert_eq!(said, [format!("bad: {refused}"), "good: t0".to_owned()]);
}

#[tokio::test]
async fn no_server_at_all_is_ready_at_once() {
    let (schedule, _outcomes) = start(HOURLY, Vec::new());
    assert!(schedule.first_round_done());
    assert!(schedule.ask("nobody").await.is_none());
}

#[tokio::test]
async fn a_silent_server_does_not_hold_readiness_for_longer_than_the_limit() {
    let silent = Mock::start(|_| Act::Hang).await;
    let quick = Settings { first_round_max: Duration::from_millis(50), ..HOURLY };
    let (schedule, mut outcomes) = start(quick, vec![asked("silent", &silent)]);
    schedule.first_round().await;
    assert!(outcomes.try_recv().is_err());
    assert_eq!(FIRST_ROUND_MAX, Duration::from_secs(10));
}

#[tokio::test]
async fn servers_are_asked_again_each_interval() {
    let mock = Mock::start(lister()).await;
    let often = Settings { interval: Duration::from_millis(5), ..HOURLY };
    let (_schedule, mut outcomes) = start(often, vec![asked("a", &mock)]);
    for number in 0..3 {
        assert_eq!(outcomes.recv().await.unwrap(), format!("a: t{number}"));
    }
}

#[tokio::test]
async fn asking_on_demand_waits_until_the_outcome_is_applied() {
    let mock = Mock::start(lister()).await;
    let (schedule, mut outcomes) = start(HOURLY, vec![asked("a", &mock)]);
    schedule.first_round().await;
    assert_eq!(outcomes.try_recv().unwrap(), "a: t0");
    assert_eq!(words(&schedule.ask("a").await.unwrap()), "t1");
    assert_eq!(outcomes.try_recv().unwrap(), "a: t1", "it was applied before the answer");
    assert!(schedule.ask("nobody").await.is_none());
    let (one, two) = tokio::join!(schedule.ask("a"), schedule.ask("a"));
    assert!(one.is_some() && two.is_some());
}

#[tokio::test]
async fn a_hint_brings_the_asking_forward_without_a_storm() {
    let mock = Mock::start(lister()).await;
    let (schedule, mut outcomes) = start(HOURLY, vec![asked("a", &mock)]);
    assert_eq!(outcomes.recv().await.unwrap(), "a: t0");
    for _ in 0..5000 {
        schedule.changed(&"a".into());
        schedule.changed(&"nobody".into());
    }
    assert_eq!(words(&schedule.ask("a").await.unwrap()), "t1", "5000 hints within the rest ask nobody");
}

#[tokio::test]
async fn a_changed_server_is_asked_at_once_and_its_old_answer_dropped() {
    let (old, new) = (Mock::start(|_| Act::Hang).await, Mock::start(lister()).await);
    let (schedule, mut outcomes) = start(HOURLY, vec![asked("a", &old)]);
    schedule.set(vec![asked("a", &old), asked("b", &new)], HOURLY.interval).await;
    assert_eq!(outcomes.recv().await.unwrap(), "b: t0");
    schedule.set(vec![asked("b", &new)], HOURLY.interval).await;
    schedule.first_round().await;
    assert!(schedule.ask("a").await.is_none(), "it is gone");
    let moved = Mock::start(lister()).await;
    schedule.set(vec![asked("b", &moved)], HOURLY.interval).await;
    assert_eq!(outcomes.recv().await.unwrap(), "b: t0");
    schedule.set(vec![asked("b", &moved)], HOURLY.interval).await;
    assert_eq!(words(&schedule.ask("b").await.unwrap()), "t1", "an unchanged server was not asked again");
}

#[tokio::test]
async fn so_many_are_asked_at_once_and_no_more() {
    let (one, two) = (Mock::start(|_| Act::Hang).await, Mock::start(|_| Act::Hang).await);
    let third = Mock::start(lister()).await;
    let at_once = Settings { at_once_max: 2, ..HOURLY };
    let servers = vec![asked("a", &one), asked("b", &two), asked("c", &third)];
    let (_schedule, _outcomes) = start(at_once, servers);
    while one.seen().is_empty() || two.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    // Another schedule comes to its end meanwhile: a third question would have arrived before.
    let other = Mock::start(lister()).await;
    let (schedule, _outcomes) = start(HOURLY, vec![asked("other", &other)]);
    schedule.first_round().await;
    assert_eq!(third.seen().len(), 0);
}

#[tokio::test]
async fn an_outcome_that_waits_for_its_turn_keeps_nobody_from_being_asked() {
    let mock = Mock::start(lister()).await;
    let all = Arc::new(tokio::sync::Barrier::new(3)); // passes only when three outcomes wait
    let apply: Apply = Arc::new(move |_| {
        let all = Arc::clone(&all);
        async move { _ = all.wait().await }.boxed()
    });
    let servers = ["a", "b", "c"].iter().map(|name| asked(name, &mock)).collect();
    let one = Settings { at_once_max: 1, ..HOURLY };
    let schedule = Schedule::start(Arc::new(Client::new(Resolver::table([]))), one, servers, apply);
    schedule.first_round().await;
    assert_eq!(mock.seen().len(), 3);
}

#[tokio::test]
async fn a_panic_while_applying_stops_nothing() {
    let mock = Mock::start(lister()).await;
    let apply: Apply = Arc::new(|_| async { panic!("on purpose") }.boxed());
    let servers = vec![asked("a", &mock)];
    let schedule = Schedule::start(Arc::new(Client::new(Resolver::table([]))), HOURLY, servers, apply);
    schedule.first_round().await;
    assert_eq!(words(&schedule.ask("a").await.unwrap()), "t1");
}
