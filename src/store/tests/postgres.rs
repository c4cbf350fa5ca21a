//! The same properties on a private PostgreSQL server: its own data, a socket in its own folder, stopped by its pid.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::{
    dir::TempDir,
    kill,
    properties::{
        Place, check_atomic, check_audit, check_conflict, check_damaged, check_many_tools, check_newer_format,
        check_reopen, check_round_trip, check_snapshot, check_writers,
    },
    samples,
};
use crate::store::{Store, StoreError, Write};

/// Where Debian puts the programs.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

#[tokio::test]
async fn postgres_keeps_the_same_promises() {
    let Some(server) = Server::start() else { return };
    check_round_trip(server.database().await).await;
    check_conflict(server.database().await).await;
    check_writers(server.database().await).await;
    check_snapshot(server.database().await).await;
    check_atomic(server.database().await).await;
    check_audit(server.database().await).await;
    check_reopen(server.database().await).await;
    check_many_tools(server.database().await).await;
    check_newer_format(server.database().await).await;
    check_damaged(server.database().await).await;
    kill::check_kills(&server.database().await.url(), 3).await;
    check_strangers(&server).await;
    check_backup(&server).await;
    check_copy(&server).await;
    check_gone(server).await;
}

async fn check_strangers(server: &Server) {
    let database = server.database().await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    sqlx::query("CREATE TABLE tools (title TEXT)").execute(&mut connection).await.unwrap();
    let error = Store::open(&database.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
    connection.close().await.unwrap();
}

async fn check_backup(server: &Server) {
    let database = server.database().await;
    let store = Store::open(&database.url()).await.unwrap();
    let error = store.backup_to(&server.dir.path().join("copy.db")).await.unwrap_err();
    assert!(error.to_string().contains("pg_dump"), "{error}");
    store.close().await;
}

/// There and back again, everything is as it was; a store in use is left alone.
async fn check_copy(server: &Server) {
    let (first, last, between) = (TempDir::new(), TempDir::new(), server.database().await);
    let from = Store::open(&first.url()).await.unwrap();
    let tools: Vec<_> = (0..1500).map(|n| samples::put_tool(&samples::tool("github", &format!("tool {n}")))).collect();
    from.commit(None, &tools, &[samples::audit("one")]).await.unwrap();
    let audits: Vec<_> = (0..1200).map(|n| samples::audit(&format!("more {n}"))).collect();
    let objects = ["z", "a", "m"].map(|id| Write::PutObject(samples::object("key", id, "{}")));
    from.commit(None, &objects, &audits).await.unwrap();
    let middle = Store::open(&between.url()).await.unwrap();
    let copied = from.copy_to(&middle).await.unwrap();
    assert_eq!((copied.revision, copied.records, copied.audits), (2, 1503, 1201));
    let error = from.copy_to(&middle).await.unwrap_err();
    assert!(error.to_string().contains("is in use: it has revision 2"), "{error}");
    middle.close().await;
    // The copy has the key too, which is read when a store is opened.
    let middle = Store::open(&between.url()).await.unwrap();
    let back = Store::open(&last.url()).await.unwrap();
    middle.copy_to(&back).await.unwrap();
    back.close().await;
    let back = Store::open(&last.url()).await.unwrap();
    assert_eq!(back.state_key(), from.state_key());
    assert!(back.load().await.unwrap() == from.load().await.unwrap());
    assert_eq!(back.audit(0, 5000).await.unwrap(), from.audit(0, 5000).await.unwrap());
    assert_eq!(back.commit(Some(2), &[], &[samples::audit("next")]).await.unwrap(), 3);
}

/// A server that goes away is an error for the one who asks, and not for ever.
async fn check_gone(server: Server) {
    let url = server.database().await.url();
    let store = Store::open(&url).await.unwrap();
    assert!(!store.place().contains("ann"), "{}", store.place());
    drop(server);
    let error = store.commit(None, &[], &[]).await.unwrap_err();
    assert!(matches!(error, StoreError::Engine { doing: "write", .. }), "{error:?}");
    let error = Store::open(&url).await.unwrap_err();
    assert!(matches!(error, StoreError::Open { .. }), "{error:?}");
    store.close().await;
}

/// A database of the server's.
struct Database(String);

impl Place for Database {
    fn url(&self) -> String {
        self.0.clone()
    }
}

/// A running server.
struct Server {
    process: Child,
    dir: TempDir,
    databases: AtomicUsize,
}

impl Server {
    /// None, with a word on standard error, where PostgreSQL is not installed.
    fn start() -> Option<Self> {
        let programs = Path::new(PROGRAMS);
        if !programs.join("postgres").exists() {
            eprintln!("skipped: there is no PostgreSQL in {PROGRAMS}");
            return None;
        }
        let dir = TempDir::new();
        let user = ServerUser::find(dir.path());
        let Some(user) = user else {
            eprintln!("skipped: PostgreSQL does not run as root, and there is no user `postgres`");
            return None;
        };
        let data = dir.path().join("data");
        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["--username=ann", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
        let made = initdb.arg("--pgdata").arg(&data).current_dir(dir.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut process = user
            .command(&programs.join("postgres"))
            .current_dir(dir.path())
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off", "-k"])
            .arg(dir.path())
            .arg("-D")
            .arg(&data)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let ready = log.by_ref().any(|line| line.unwrap().contains("database system is ready to accept connections"));
        assert!(ready, "the server ended at once");
        // Read on, so that it never waits for a reader.
        std::thread::spawn(move || log.for_each(drop));
        Some(Self { process, dir, databases: AtomicUsize::new(0) })
    }

    async fn database(&self) -> Database {
        let name = format!("toolgate{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let url = |database: &str| format!("postgres:///{database}?host={}&user=ann", self.dir.path().display());
        let mut connection = PgConnection::connect(&url("postgres")).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        Database(url(&name))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGINT: ends its connections and stops.
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.process.wait().unwrap();
    }
}

/// Who the server runs as: PostgreSQL refuses to run as root.
struct ServerUser(Option<(u32, u32)>);

impl ServerUser {
    fn find(dir: &Path) -> Option<Self> {
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(dir).unwrap());
        if owner != 0 {
            return Some(Self(None));
        }
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let fields: Vec<&str> = users.lines().find(|line| line.starts_with("postgres:"))?.split(':').collect();
        let (uid, gid) = (fields[2].parse().unwrap(), fields[3].parse().unwrap());
        chown(dir, Some(uid), Some(gid)).unwrap();
        Some(Self(Some((uid, gid))))
    }

    fn command(&self, program: &PathBuf) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((uid, gid)) = self.0 {
            command.uid(uid).gid(gid);
        }
        command
    }
}
