//! Listings that come together: few commits, nothing lost, each who waits hears of its own.

use futures::future::join_all;

use super::{Dir, apply, heard, server};
use crate::{
    control::{Control, Rejected, change::Change},
    model::mcp::Revision,
    store::StoreError,
};

/// A control room with these servers, each with the tool `a`.
async fn with_servers(dir: &Dir, slugs: impl IntoIterator<Item = String>) -> Control {
    let control = Box::pin(dir.control()).await;
    for slug in slugs {
        Box::pin(apply(&control, Change::Register { server: server(&slug, &[]), heard: heard(&["a"]) })).await.unwrap();
    }
    control
}

/// All of these are listed at one time; the first is taken in while the others come.
async fn listed(control: &Control, listings: &[(&str, &[&str])]) -> Vec<Result<(), Rejected>> {
    let each = listings.iter().map(|(slug, tools)| async move {
        control.listed(&format!("acme/{slug}"), Revision::MODERN, heard(tools).tools).await
    });
    join_all(each).await
}

fn slugs(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("s{n}")).collect()
}

async fn noted(control: &Control) -> usize {
    let audit = control.audit(0, 10_000).await.unwrap();
    audit.iter().filter(|row| row.record.what == "tools.listed").count()
}

#[tokio::test]
async fn a_listing_of_a_server_that_is_gone_is_dropped() {
    let dir = Dir::make("gone");
    let control = dir.control().await;
    let revision = control.catalog().revision;
    control.listed("acme/nobody", Revision::MODERN, heard(&["a"]).tools).await.unwrap();
    control.listed("nobody", Revision::MODERN, heard(&["a"]).tools).await.unwrap();
    assert_eq!(control.catalog().revision, revision);
    assert!(control.catalog().records.tools.is_empty());
}

#[tokio::test]
async fn listings_that_come_together_are_taken_in_together() {
    let (dir, slugs) = (Dir::make("together"), slugs(20));
    let control = with_servers(&dir, slugs.clone()).await;
    let (before, noted_before) = (control.catalog().revision, noted(&control).await);
    let listings: Vec<(&str, &[&str])> = slugs.iter().map(|slug| (slug.as_str(), &["a", "b"][..])).collect();
    assert!(listed(&control, &listings).await.iter().all(Result::is_ok));
    assert_eq!(control.catalog().revision - before, 2, "the first, and all that came meanwhile");
    assert_eq!(control.catalog().records.tools.len(), 40, "none was lost");
    assert_eq!(control.store.load().await.unwrap().tools.len(), 40);
    assert_eq!(noted(&control).await - noted_before, 20, "an audit record for each");
    // Again the same: nothing is new, nothing is written.
    assert!(listed(&control, &listings).await.iter().all(Result::is_ok));
    assert_eq!(control.catalog().revision - before, 2);
}

#[tokio::test]
async fn a_listing_that_the_store_refuses_fails_no_other() {
    let (dir, slugs) = (Dir::make("poison"), slugs(20));
    let control = with_servers(&dir, slugs.clone()).await;
    let (before, noted_before) = (control.catalog().revision, noted(&control).await);
    let store = sqlx::SqlitePool::connect(&format!("sqlite:{}/store.db", dir.0.display())).await.unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON tools WHEN NEW.name = 'poison' \
                  BEGIN SELECT RAISE(ABORT, 'on purpose'); END";
    sqlx::query(refuse).execute(&store).await.unwrap();
    let of = |slug: &str| if slug == "s7" { &["a", "b", "poison"][..] } else { &["a", "b"][..] };
    let listings: Vec<(&str, &[&str])> = slugs.iter().map(|slug| (slug.as_str(), of(slug))).collect();
    let done = listed(&control, &listings).await;
    for ((slug, _), done) in listings.iter().zip(&done) {
        let said = done.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert_eq!(said.contains("on purpose"), *slug == "s7", "{slug}: {said}");
    }
    let commits = control.catalog().revision - before;
    assert!(commits < 8, "{commits} commits: the others are not taken in one by one");
    let tools_of = |slug: &str| control.catalog().tools(&server(slug, &[])).count();
    assert_eq!((tools_of("s7"), tools_of("s6"), control.catalog().records.tools.len()), (1, 2, 39));
    assert_eq!(noted(&control).await - noted_before, 19);
    sqlx::query("DROP TRIGGER refuse").execute(&store).await.unwrap();
    assert!(listed(&control, &listings).await.iter().all(Result::is_ok));
    assert_eq!((tools_of("s7"), noted(&control).await - noted_before), (3, 20));
}

#[tokio::test]
async fn of_two_that_were_recorded_together_the_greater_slug_is_isolated() {
    for order in [["x", "x_y"], ["x_y", "x"]] {
        let dir = Dir::make(&format!("clash-{}", order[0]));
        let control = with_servers(&dir, ["first", "x", "x_y"].map(str::to_owned)).await;
        let of = |slug: &str| if slug == "x" { &["a", "y_z"][..] } else { &["a", "z"][..] };
        let done =
            listed(&control, &[("first", &["a", "b"]), (order[0], of(order[0])), (order[1], of(order[1]))]).await;
        assert!(done.iter().all(Result::is_ok));
        let policy = control.live.load().unwrap();
        let fault = |slug: &str, tool: &str| policy.organizations["acme"].servers[slug].tools[tool].fault.is_some();
        assert_eq!((fault("x", "y_z"), fault("x_y", "z")), (false, true), "whichever came first");
    }
}

#[tokio::test]
async fn while_the_store_is_away_only_what_is_new_is_held() {
    let (dir, slugs) = (Dir::make("away"), slugs(20));
    let control = with_servers(&dir, slugs.clone()).await;
    control.lost(&StoreError::Busy);
    let of = |slug: &str| if slug == "s7" { &["a", "b"][..] } else { &["a"][..] };
    let listings: Vec<(&str, &[&str])> = slugs.iter().map(|slug| (slug.as_str(), of(slug))).collect();
    assert!(listed(&control, &listings).await.iter().all(Result::is_ok));
    let held = async || control.state.lock().await.unsaved.iter().map(|one| one.slug.clone()).collect::<Vec<_>>();
    assert_eq!(held().await, ["s7"]);
    let stored = async || control.store.load().await.unwrap().tools.len();
    assert_eq!((control.catalog().records.tools.len(), stored().await), (21, 20), "live, and not stored yet");
    assert!(control.refresh().await.unwrap());
    assert_eq!((control.catalog().records.tools.len(), stored().await, held().await.len()), (21, 21, 0));
}
