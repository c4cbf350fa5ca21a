//! What holds on both engines. Each check gets the URL of a place where no store is yet.

use super::{dir::TempDir, samples};
use crate::{
    model::mcp::Revision,
    store::{Store, StoreError, Stored, Write, engine::Purpose},
};

#[tokio::test]
async fn everything_comes_back_as_it_went_in() {
    check_round_trip(TempDir::new()).await;
}

#[tokio::test]
async fn a_stale_revision_writes_nothing() {
    check_conflict(TempDir::new()).await;
}

#[tokio::test]
async fn concurrent_writers_lose_no_update() {
    check_writers(TempDir::new()).await;
}

#[tokio::test]
async fn what_is_read_is_of_one_moment() {
    check_snapshot(TempDir::new()).await;
}

#[tokio::test]
async fn a_failing_write_takes_its_whole_commit_back() {
    check_atomic(TempDir::new()).await;
}

#[tokio::test]
async fn audit_records_are_numbered_without_gaps_and_paged() {
    check_audit(TempDir::new()).await;
}

#[tokio::test]
async fn reopening_finds_the_same_store() {
    check_reopen(TempDir::new()).await;
}

#[tokio::test]
async fn ten_thousand_tools_come_back() {
    check_many_tools(TempDir::new()).await;
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_alone() {
    check_newer_format(TempDir::new()).await;
}

#[tokio::test]
async fn damaged_records_are_refused() {
    check_damaged(TempDir::new()).await;
}

/// A place for one store, and whatever keeps it alive.
pub(super) trait Place {
    fn url(&self) -> String;
}

impl Place for TempDir {
    fn url(&self) -> String {
        Self::url(self)
    }
}

pub(super) async fn check_round_trip(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    assert_eq!(store.load().await.unwrap(), Stored::default());
    let long = "n".repeat(100_000);
    let tools = [
        samples::tool("github", "a\u{0}b\u{fdd0}0\u{fdd0}"),
        samples::bare_tool("github", &format!("{long}1")),
        samples::bare_tool("github", &format!("{long}2")),
        samples::blocked_tool("gitlab", ""),
    ];
    let mut writes = vec![
        Write::PutObject(samples::object("guardrail", "z-first", "{\"stage\":\"input\"}")),
        Write::PutObject(samples::object("guardrail", "a-second", "é \u{1f512} '; DROP TABLE tools; --")),
        Write::PutObject(samples::object("key", "z-first", "{}")),
        Write::PutOverride(samples::object("key", "ann", "{\"revoked\":true}")),
        Write::PutDiscovery(samples::discovery("github", Some(Revision::V2026_07_28))),
        Write::PutDiscovery(samples::discovery("gitlab", None)),
    ];
    writes.extend(tools.iter().map(samples::put_tool));
    assert_eq!(store.commit(None, &writes, &[]).await.unwrap(), 1);
    let expected = Stored {
        revision: 1,
        objects: writes
            .iter()
            .filter_map(|w| if let Write::PutObject(o) = w { Some(o.clone()) } else { None })
            .collect(),
        overrides: vec![samples::object("key", "ann", "{\"revoked\":true}")],
        tools: tools.to_vec(),
        discoveries: vec![
            samples::discovery("github", Some(Revision::V2026_07_28)),
            samples::discovery("gitlab", None),
        ],
    };
    assert_eq!(store.load().await.unwrap(), expected);

    // Replacing keeps an object's place in the order; removing removes exactly what is named.
    let id = |kind: &str, id: &str| (kind.to_owned(), "acme".to_owned(), id.to_owned());
    let (kind, organization, object) = id("key", "z-first");
    let mut changes = vec![
        Write::PutObject(samples::object("guardrail", "z-first", "{}")),
        Write::DeleteObject { kind, organization, id: object },
        Write::DeleteTools { organization: "acme".into(), server: "github".into() },
        Write::DeleteTools { organization: "other".into(), server: "gitlab".into() },
        Write::DeleteDiscovery { organization: "acme".into(), server: "gitlab".into() },
    ];
    let (kind, organization, object) = id("key", "ann");
    changes.push(Write::DeleteOverride { kind, organization, id: object });
    assert_eq!(store.commit(Some(1), &changes, &[]).await.unwrap(), 2);
    let left = store.load().await.unwrap();
    let expected = Stored {
        revision: 2,
        objects: vec![samples::object("guardrail", "z-first", "{}"), expected.objects[1].clone()],
        overrides: vec![],
        tools: vec![tools[3].clone()],
        discoveries: vec![samples::discovery("github", Some(Revision::V2026_07_28))],
    };
    assert_eq!(left, expected);
    store.close().await;
}

pub(super) async fn check_conflict(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    let put = |json: &str| [Write::PutObject(samples::object("key", "ann", json))];
    assert_eq!(store.commit(Some(0), &put("1"), &[samples::audit("ann")]).await.unwrap(), 1);
    for expected in [0, 2, u64::MAX] {
        let error = store.commit(Some(expected), &put("2"), &[samples::audit("ann")]).await.unwrap_err();
        assert!(matches!(error, StoreError::RevisionConflict { expected: e, found: 1 } if e == expected), "{error}");
    }
    assert_eq!(store.load().await.unwrap().objects, [samples::object("key", "ann", "1")]);
    assert_eq!(store.audit(0, 10).await.unwrap().len(), 1);
    assert_eq!(store.commit(Some(1), &put("3"), &[]).await.unwrap(), 2);
    store.close().await;
}

pub(super) async fn check_writers(place: impl Place) {
    const WRITERS: usize = 3;
    const COMMITS: usize = 10;
    let url = place.url();
    // Opened at once, the migrations race too.
    let stores = futures::future::join_all((0..WRITERS).map(|_| Store::open(&url))).await;
    let stores: Vec<Store> = stores.into_iter().map(Result::unwrap).collect();
    assert!(stores.iter().all(|store| store.state_key() == stores[0].state_key()));
    let tasks = stores.iter().cloned().enumerate().map(|(writer, store)| {
        tokio::spawn(async move {
            let mut made = vec![];
            while made.len() < COMMITS {
                let seen = store.revision().await.unwrap();
                let id = format!("{writer}-{}", made.len());
                let write = [Write::PutObject(samples::object("key", &id, "{}"))];
                match store.commit(Some(seen), &write, &[samples::audit(&id)]).await {
                    Ok(revision) => {
                        assert_eq!(revision, seen + 1);
                        made.push(revision);
                    }
                    Err(StoreError::RevisionConflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            made
        })
    });
    let mut revisions = futures::future::join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect::<Vec<_>>();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=30).collect::<Vec<u64>>());
    assert_eq!(stores[0].load().await.unwrap().objects.len(), WRITERS * COMMITS);
    let seqs: Vec<u64> = stores[0].audit(0, 100).await.unwrap().iter().map(|row| row.seq).collect();
    assert_eq!(seqs, revisions);
    for store in stores {
        store.close().await;
    }
}

pub(super) async fn check_snapshot(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    let mut reading = store.db().await.unwrap().begin(Purpose::Read).await.unwrap();
    let seen = reading.row("SELECT revision FROM meta", &[]).await.unwrap().int(0).unwrap();
    // A writer neither waits for the reader nor shows up in what it still reads.
    let write = [Write::PutObject(samples::object("key", "ann", "{}"))];
    assert_eq!(store.commit(Some(0), &write, &[]).await.unwrap(), 1);
    assert_eq!(reading.row("SELECT COUNT(*) FROM objects", &[]).await.unwrap().int(0).unwrap(), seen);
    reading.rollback().await.unwrap();
    assert_eq!(store.load().await.unwrap().objects.len(), 1);
    store.close().await;
}

pub(super) async fn check_atomic(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    store.execute("CREATE UNIQUE INDEX no_two_ids ON objects (id)").await;
    let writes = [
        Write::PutOverride(samples::object("key", "ann", "{}")),
        samples::put_tool(&samples::tool("github", "echo")),
        Write::PutObject(samples::object("key", "ann", "{}")),
        Write::PutObject(samples::object("project", "ann", "{}")),
    ];
    let error = store.commit(None, &writes, &[samples::audit("ann")]).await.unwrap_err();
    assert!(matches!(error, StoreError::Engine { doing: "write", .. }), "{error}");
    assert_eq!(store.load().await.unwrap(), Stored::default());
    assert_eq!(store.audit(0, 10).await.unwrap(), []);
    assert_eq!(store.commit(None, &writes[..3], &[samples::audit("ann")]).await.unwrap(), 1);
    store.close().await;
}

pub(super) async fn check_audit(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    let records: Vec<_> = (0..5).map(|n| samples::audit(&format!("tool {n}"))).collect();
    store.commit(None, &[], &records[..2]).await.unwrap();
    store.commit(None, &[], &[]).await.unwrap();
    store.commit(None, &[], &records[2..]).await.unwrap();
    let all = store.audit(0, 100).await.unwrap();
    let numbers: Vec<_> = all.iter().map(|row| (row.seq, row.revision)).collect();
    assert_eq!(numbers, [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3)]);
    assert_eq!(all.iter().map(|row| row.record.clone()).collect::<Vec<_>>(), records);
    assert_eq!(store.audit(2, 2).await.unwrap(), all[2..4]);
    assert_eq!(store.audit(0, 0).await.unwrap(), []);
    assert_eq!(store.audit(5, 2).await.unwrap(), []);
    assert_eq!(store.audit(u64::MAX, u32::MAX).await.unwrap(), []);
    store.close().await;
}

pub(super) async fn check_reopen(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    let state_key = store.state_key();
    store.commit(None, &[samples::put_tool(&samples::tool("github", "echo"))], &[]).await.unwrap();
    drop(store); // not closed
    let store = Store::open(&place.url()).await.unwrap();
    assert_eq!(store.state_key(), state_key);
    assert_eq!(store.load().await.unwrap().tools, [samples::tool("github", "echo")]);
    assert_eq!(store.commit(Some(1), &[], &[]).await.unwrap(), 2);
    store.close().await;
}

pub(super) async fn check_many_tools(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    let json = format!(r#"{{"name":"t","description":"{}"}}"#, "d".repeat(2000));
    let mut tools: Vec<_> = (0..10_000)
        .map(|n| {
            let mut tool = samples::tool(&format!("s{:03}", n / 20), &format!("tool {n:05}"));
            tool.recorded = n;
            tool.current.as_mut().unwrap().json = json.as_str().into();
            tool
        })
        .collect();
    let writes: Vec<_> = tools.iter().map(samples::put_tool).collect();
    let start = std::time::Instant::now();
    store.commit(None, &writes, &[]).await.unwrap();
    let wrote = start.elapsed();
    let loaded = store.load().await.unwrap();
    let read = start.elapsed() - wrote;
    assert!(loaded.tools == tools);
    tools[4321].changed = false;
    let start = std::time::Instant::now();
    store.commit(Some(1), &[samples::put_tool(&tools[4321])], &[samples::audit("t")]).await.unwrap();
    eprintln!("10,000 tools: written in {wrote:?}, loaded in {read:?}; one changed in {:?}", start.elapsed());
    assert!(store.load().await.unwrap().tools == tools);
    store.close().await;
}

pub(super) async fn check_newer_format(place: impl Place) {
    let store = Store::open(&place.url()).await.unwrap();
    store.commit(None, &[Write::PutObject(samples::object("key", "ann", "{}"))], &[]).await.unwrap();
    store.execute("UPDATE meta SET format = 3").await;
    store.close().await;
    let error = Store::open(&place.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::NewerFormat { found: 3, known: 2, .. }), "{error}");
    assert!(error.to_string().contains("start the newer version again"), "{error}");
}

pub(super) async fn check_damaged(place: impl Place) {
    let cases = [
        ("UPDATE tools SET pin = 'abc'", "tools.pin"),
        ("UPDATE tools SET current_json = NULL", "tools.current_sha256"),
        ("UPDATE tools SET approved_sha256 = NULL", "tools.approved_sha256"),
        ("UPDATE tools SET status = 'allowed'", "tools.status"),
        ("UPDATE tools SET class = NULL", "tools.status"),
        ("UPDATE tools SET class = 'admin'", "tools.class"),
        ("UPDATE tools SET labels = '[\"sends\"]'", "tools.labels"),
        ("UPDATE discoveries SET protocol = '2024-01-01'", "discoveries.protocol"),
        ("UPDATE meta SET revision = -1", "meta.revision"),
    ];
    let store = Store::open(&place.url()).await.unwrap();
    let (tool, discovery) = (samples::tool("github", "echo"), samples::discovery("github", Some(Revision::MODERN)));
    let good = [samples::put_tool(&tool), Write::PutDiscovery(discovery)];
    for (sql, column) in cases {
        store.commit(None, &good, &[]).await.unwrap();
        store.execute(sql).await;
        let error = store.load().await.unwrap_err().to_string();
        assert!(error.contains(column) && error.contains("restore a backup"), "{sql}: {error}");
        store.execute("UPDATE meta SET revision = 1").await;
    }
    store.commit(None, &good, &[]).await.unwrap();
    assert_eq!(store.load().await.unwrap().tools, [tool]);
    store.close().await;
}

impl Store {
    /// Runs SQL that no version of ours runs.
    pub(super) async fn execute(&self, sql: &'static str) {
        let mut tx = self.db().await.unwrap().begin(Purpose::Write).await.unwrap();
        tx.run(sql, &[]).await.unwrap();
        tx.commit().await.unwrap();
    }
}
