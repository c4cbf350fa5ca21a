//! What holds for SQLite files: modes, odd paths, what is not a store, backups.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use super::{dir::TempDir, samples};
use crate::store::{Store, StoreError, Write, engine::Purpose};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn every_file_is_for_its_owner_only() {
    let dir = TempDir::new();
    let store = Store::open(&dir.url()).await.unwrap();
    store.commit(None, &[Write::PutObject(samples::object("key", "ann", "{}"))], &[]).await.unwrap();
    let names = ["toolgate.db", "toolgate.db-wal", "toolgate.db-shm"].map(|name| dir.path().join(name));
    for name in &names {
        assert_eq!(mode(name), 0o600, "{}", name.display());
        fs::set_permissions(name, Permissions::from_mode(0o644)).unwrap();
    }
    // One that was opened up is closed again.
    let again = Store::open(&dir.url()).await.unwrap();
    for name in &names {
        assert_eq!(mode(name), 0o600, "{}", name.display());
    }
    again.close().await;
    store.close().await;
}

#[tokio::test]
async fn the_engine_is_set_up_for_durability() {
    let dir = TempDir::new();
    let store = Store::open(&dir.url()).await.unwrap();
    let mut tx = store.db().await.unwrap().begin(Purpose::Read).await.unwrap();
    assert_eq!(tx.row("PRAGMA journal_mode", &[]).await.unwrap().text(0).unwrap(), "wal");
    for (pragma, expected) in [("PRAGMA synchronous", 2), ("PRAGMA foreign_keys", 1), ("PRAGMA busy_timeout", 5000)] {
        assert_eq!(tx.row(pragma, &[]).await.unwrap().int(0).unwrap(), expected, "{pragma}");
    }
    tx.rollback().await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_path_is_taken_as_written() {
    let dir = TempDir::new();
    for name in ["a b.db", "100%41.db", "what?mode=memory", "#1.db", "é'\".db"] {
        let path = dir.path().join(name);
        let store = Store::open(&format!("sqlite:{}", path.display())).await.unwrap();
        store.commit(None, &[], &[]).await.unwrap();
        store.close().await;
        assert!(path.is_file(), "{name}");
        let again = Store::open(&format!("sqlite://{}", path.display())).await.unwrap();
        assert_eq!(again.revision().await.unwrap(), 1, "{name}");
        again.close().await;
    }
}

#[tokio::test]
async fn urls_that_name_no_store_are_refused() {
    let cases = [
        ("", "begins with neither"),
        ("toolgate.db", "begins with neither"),
        ("mysql://root:hunter2@db/x", "begins with neither"),
        ("sqlite:", "names no file"),
        ("sqlite://", "names no file"),
        ("sqlite::memory:", "must name a file"),
        ("postgres://ann:hunter2@db:99999/x", "is not a PostgreSQL address"),
    ];
    for (url, words) in cases {
        let error = Store::open(url).await.unwrap_err();
        assert!(matches!(error, StoreError::Url(_)), "{url}: {error:?}");
        assert!(error.to_string().contains(words), "{url}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{url}: {error}");
    }
}

#[tokio::test]
async fn what_is_not_a_store_is_refused_and_left_alone() {
    let dir = TempDir::new();
    let foreign = dir.path().join("foreign.db");
    let made = sqlx::sqlite::SqliteConnectOptions::new().filename(&foreign).create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(made).await.unwrap();
    sqlx::query("CREATE TABLE songs (title TEXT)").execute(&pool).await.unwrap();
    pool.close().await;
    let impostor = dir.path().join("impostor.db");
    fs::copy(&foreign, &impostor).unwrap();
    let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", impostor.display())).await.unwrap();
    sqlx::query("CREATE TABLE meta (title TEXT)").execute(&pool).await.unwrap();
    pool.close().await;
    let garbage = dir.path().join("garbage.db");
    fs::write(&garbage, "not a database ".repeat(1000)).unwrap();
    let short = dir.path().join("short.db");
    fs::write(&short, "SQLite").unwrap();
    let cases = [
        (&foreign, "tables of another program"),
        (&impostor, "no format"),
        (&garbage, "not an SQLite file"),
        (&short, "not an SQLite file"),
    ];
    for (path, words) in cases {
        let before = fs::read(path).unwrap();
        let error = Store::open(&format!("sqlite:{}", path.display())).await.unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains(path.to_str().unwrap()), "{text}");
        assert_eq!(content(&before), content(&fs::read(path).unwrap()), "{}", path.display());
    }
}

/// A file without what switching to WAL changes in an SQLite header: versions, change counter, version-valid-for.
fn content(file: &[u8]) -> Vec<u8> {
    let changed = |at: usize| file.starts_with(b"SQLite format 3\0") && matches!(at, 18 | 19 | 24..=27 | 92..=99);
    file.iter().enumerate().filter(|(at, _)| !changed(*at)).map(|(_, byte)| *byte).collect()
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let dir = TempDir::new();
    let cases = [(dir.path().to_owned(), "not a file"), (dir.path().join("missing/toolgate.db"), "there is no folder")];
    for (path, words) in cases {
        let error = Store::open(&format!("sqlite:{}", path.display())).await.unwrap_err();
        assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_file_is_an_error() {
    let dir = TempDir::new();
    let store = Store::open(&dir.url()).await.unwrap();
    let tools: Vec<_> = (0..200).map(|n| samples::put_tool(&samples::tool("github", &format!("{n}")))).collect();
    store.commit(None, &tools, &[]).await.unwrap();
    store.close().await;
    let path = dir.path().join("toolgate.db");
    let mut bytes = fs::read(&path).unwrap();
    let whole = bytes.len();
    assert!(whole > 10 * 4096);
    bytes[4096 * 2..].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let error = match Store::open(&dir.url()).await {
        Err(error) => error,
        Ok(store) => {
            let error = store.load().await.unwrap_err();
            store.close().await;
            error
        }
    };
    assert!(error.to_string().contains("malformed"), "{error}");
}

#[tokio::test]
async fn one_changed_tool_writes_one_row() {
    let dir = TempDir::new();
    let store = Store::open(&dir.url()).await.unwrap();
    let mut tools: Vec<_> = (0..50).map(|n| samples::tool("github", &n.to_string())).collect();
    store.commit(None, &tools.iter().map(samples::put_tool).collect::<Vec<_>>(), &[]).await.unwrap();
    store.execute("CREATE TABLE written (name TEXT)").await;
    for trigger in [
        "CREATE TRIGGER i AFTER INSERT ON tools BEGIN INSERT INTO written VALUES (new.name); END",
        "CREATE TRIGGER u AFTER UPDATE ON tools BEGIN INSERT INTO written VALUES (new.name); END",
        "CREATE TRIGGER d AFTER DELETE ON tools BEGIN INSERT INTO written VALUES (old.name); END",
    ] {
        store.execute(trigger).await;
    }
    tools[7].changed = false;
    store.commit(Some(1), &[samples::put_tool(&tools[7])], &[samples::audit("7")]).await.unwrap();
    let mut tx = store.db().await.unwrap().begin(Purpose::Read).await.unwrap();
    let written: Vec<_> =
        tx.rows("SELECT name FROM written", &[]).await.unwrap().iter().map(|r| r.text(0).unwrap()).collect();
    assert_eq!(written, ["7"]);
    tx.rollback().await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_store_that_stays_locked_is_busy() {
    let dir = TempDir::new();
    let store = Store::open(&dir.url()).await.unwrap();
    let mut other = store.db().await.unwrap().begin(Purpose::Write).await.unwrap();
    other.run("UPDATE meta SET revision = 7", &[]).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), 0);
    let error = store.commit(None, &[], &[]).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy), "{error:?}");
    assert!(error.to_string().contains("more than 5 s"), "{error}");
    other.rollback().await.unwrap();
    assert_eq!(store.commit(None, &[], &[]).await.unwrap(), 1);
    store.close().await;
}

#[tokio::test]
async fn a_backup_is_complete_while_the_store_is_in_use() {
    let dir = TempDir::new();
    let store = Store::open(&dir.url()).await.unwrap();
    let tool = samples::put_tool(&samples::tool("github", "echo"));
    store.commit(None, &[tool], &[samples::audit("echo")]).await.unwrap();
    let copy = dir.path().join("copy of 'it'.db");
    store.backup_to(&copy).await.unwrap();
    assert_eq!(mode(&copy), 0o600);
    let expected = store.load().await.unwrap();
    store.commit(None, &[], &[]).await.unwrap();

    let restored = Store::open(&format!("sqlite:{}", copy.display())).await.unwrap();
    assert_eq!(restored.load().await.unwrap(), expected);
    assert_eq!(restored.audit(0, 10).await.unwrap(), store.audit(0, 10).await.unwrap());
    assert_eq!(restored.state_key(), store.state_key());
    restored.close().await;

    let before = fs::read(&copy).unwrap();
    for (path, words) in [(copy.clone(), "exists already"), (dir.path().join("no/copy.db"), "No such file")] {
        let error = store.backup_to(&path).await.unwrap_err();
        assert!(matches!(error, StoreError::Backup { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(fs::read(&copy).unwrap(), before);
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.contains("partial")));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_new_file_opened_by_many_at_once_is_one_store() {
    for _ in 0..8 {
        let dir = TempDir::new();
        let opened = (0..6).map(|_| {
            let url = dir.url();
            tokio::spawn(async move { Store::open(&url).await })
        });
        let stores = futures::future::join_all(opened).await;
        let stores: Vec<Store> = stores.into_iter().map(|store| store.unwrap().unwrap()).collect();
        for store in &stores {
            assert_eq!(store.state_key(), stores[0].state_key());
            store.close().await;
        }
    }
}
