//! Opening a store: from `store.url` to a pool whose tables have this version's format.
//!
//! Knows files, their modes and the migrations; no record.
//!
//! **Invariant.** A store of a newer format, and whatever is not a store, is left as it was found.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::Read as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    str::FromStr as _,
    time::{Duration, Instant},
};

use sqlx::{
    SqlSafeStr as _, SqlitePool,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    BUSY_TIMEOUT, CONNECT_TIMEOUT, CONNECTIONS_MAX, REACH_TIMEOUT,
    engine::{Db, Purpose},
    error::StoreError,
};

/// The newest format that this version reads and writes: the number of the last migration.
pub(super) const FORMAT: i64 = 2;

/// Every migration, oldest first; each sets `meta.format` to its own number. One that shipped is never edited.
const MIGRATIONS: [(i64, &str, &str); 2] =
    [(1, "store", include_str!("migrations/0001_store.sql")), (2, "nodes", include_str!("migrations/0002_nodes.sql"))];

/// How soon a file that was busy is opened again.
const BUSY_RETRY: Duration = Duration::from_millis(10);

/// Where a store is.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// `sqlite:PATH`, the path as written.
    File(PathBuf),
    /// `postgres://…`
    Server(Box<PgConnectOptions>),
}

impl Location {
    /// Reads `store.url`.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return parse_path(path.strip_prefix("//").unwrap_or(path)).map(Self::File);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            // Its error never repeats the URL, which may hold a password.
            let options = PgConnectOptions::from_str(url)
                .map_err(|error| StoreError::Url(format!("is not a PostgreSQL address: {error}")))?;
            return Ok(Self::Server(Box::new(options.application_name("toolgate"))));
        }
        Err(StoreError::Url("begins with neither `sqlite:` nor `postgres://`".to_owned()))
    }

    /// How messages name it: without user and password.
    pub(super) fn place(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Server(options) => {
                let database = options.get_database().unwrap_or("");
                match options.get_socket() {
                    Some(socket) => format!("postgres:{}/{database}", socket.display()),
                    None => format!("postgres://{}:{}/{database}", options.get_host(), options.get_port()),
                }
            }
        }
    }

    /// Connects, and brings the tables to [`FORMAT`].
    pub(super) async fn open(&self) -> Result<Db, StoreError> {
        let db = match self {
            Self::File(path) => {
                claim_file(path)?;
                self.wait_for_sqlite(path).await?
            }
            Self::Server(options) => postgres(options),
        };
        self.migrate(&db).await?;
        Ok(db)
    }

    /// A pool that connects when it is first used; none for a file.
    pub(super) fn lazy(&self) -> Option<Db> {
        match self {
            Self::File(_) => None,
            Self::Server(options) => Some(postgres(options)),
        }
    }

    /// Connects, also at the moment at which another process makes the same new file write-ahead logged: SQLite has nobody wait for that
    /// change, so whoever comes in between is told that the file is busy, and comes again.
    async fn wait_for_sqlite(&self, path: &Path) -> Result<Db, StoreError> {
        let end = Instant::now() + BUSY_TIMEOUT;
        loop {
            match self.connect_sqlite(path).await {
                Err(StoreError::Busy) if Instant::now() < end => tokio::time::sleep(BUSY_RETRY).await,
                connected => return connected,
            }
        }
    }

    async fn connect_sqlite(&self, path: &Path) -> Result<Db, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(CONNECT_TIMEOUT)
            .connect_with(options);
        Ok(Db::Sqlite(pool.await.map_err(|error| self.cannot(error))?))
    }

    /// Runs the migrations that are missing, if this may be done.
    pub(super) async fn migrate(&self, db: &Db) -> Result<(), StoreError> {
        if self.format(db).await? == Some(FORMAT) {
            return Ok(());
        }
        let migrator = Migrator::with_migrations(
            MIGRATIONS
                .into_iter()
                .map(|(version, name, sql)| {
                    Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
                })
                .collect(),
        );
        let done = match db {
            Db::Sqlite(pool) => migrate_sqlite(&migrator, pool).await,
            Db::Postgres(pool) => migrator.run(pool).await,
        };
        match done {
            Ok(()) => Ok(()),
            Err(MigrateError::VersionMissing(found)) => Err(self.newer(found)),
            Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => Err(self.cannot(error)),
            Err(error) => Err(StoreError::Open { place: self.place(), reason: error.to_string() }),
        }
    }

    /// The store's format; none while it has no tables.
    async fn format(&self, db: &Db) -> Result<Option<i64>, StoreError> {
        let mut tx = db.begin(Purpose::Read).await.map_err(|error| self.cannot(error))?;
        let (ours, others) = match db {
            Db::Sqlite(_) => (SQLITE_META, SQLITE_OTHERS),
            Db::Postgres(_) => (POSTGRES_META, POSTGRES_OTHERS),
        };
        let mut count = async |sql| tx.row(sql, &[]).await?.int(0);
        let (ours, others) = match (count(ours).await, count(others).await) {
            (Ok(ours), Ok(others)) => (ours, others),
            (Err(error), _) | (_, Err(error)) => return Err(self.cannot(error)),
        };
        match (ours, others) {
            (0, 0) => Ok(None),
            (0, _) => Err(self.stranger("it holds the tables of another program")),
            _ => match tx.row("SELECT format FROM meta WHERE id = 1", &[]).await.and_then(|row| row.int(0)) {
                Ok(found) if found > FORMAT => Err(self.newer(found)),
                Ok(found) => Ok(Some(found)),
                Err(error) => match self.cannot(error) {
                    StoreError::Open { .. } => Err(self.stranger("its table `meta` has no format")),
                    busy_or_damaged => Err(busy_or_damaged),
                },
            },
        }
    }

    fn cannot(&self, error: sqlx::Error) -> StoreError {
        match StoreError::reading(error) {
            StoreError::Engine { source, .. } => StoreError::Open { place: self.place(), reason: source.to_string() },
            busy_or_damaged => busy_or_damaged,
        }
    }

    fn stranger(&self, reason: &str) -> StoreError {
        StoreError::NotAStore { place: self.place(), reason: reason.to_owned() }
    }

    fn newer(&self, found: i64) -> StoreError {
        StoreError::NewerFormat { place: self.place(), found, known: FORMAT }
    }
}

/// Migrates as the file's only writer, in one transaction: whoever opens the same file at the same moment waits, and then
/// finds nothing left to do. (PostgreSQL's migrations take an advisory lock.)
async fn migrate_sqlite(migrator: &Migrator, pool: &SqlitePool) -> Result<(), MigrateError> {
    // `run_direct` is `run` without the trait that makes this future one that cannot be sent.
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    migrator.run_direct(None, &mut *tx, false).await?;
    tx.commit().await?;
    Ok(())
}

fn postgres(options: &PgConnectOptions) -> Db {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX).acquire_timeout(REACH_TIMEOUT);
    Db::Postgres(pool.connect_lazy_with(options.clone()))
}

fn parse_path(path: &str) -> Result<PathBuf, StoreError> {
    if path.is_empty() {
        return Err(StoreError::Url("names no file: write `sqlite:/var/lib/toolgate/toolgate.db`".to_owned()));
    }
    if path.starts_with(":memory:") {
        return Err(StoreError::Url("must name a file: what is only in memory would not outlive a restart".to_owned()));
    }
    Ok(PathBuf::from(path))
}

/// Makes sure that `path` is ours to use: an SQLite file or a new one, mode 0600.
fn claim_file(path: &Path) -> Result<(), StoreError> {
    let place = || path.display().to_string();
    let cannot = |error: std::io::Error| StoreError::Open { place: place(), reason: error.to_string() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() {
        return Err(StoreError::Open { place: place(), reason: format!("there is no folder {}", folder.display()) });
    }
    if path.exists() && !path.is_file() {
        return Err(StoreError::Open { place: place(), reason: "it is not a file".to_owned() });
    }
    let new = !path.exists();
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(cannot)?;
    if new {
        // The name itself must survive a power cut too.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)?;
    }
    let mut head = Vec::with_capacity(SQLITE_HEAD.len());
    let head_bytes = u64::try_from(SQLITE_HEAD.len()).unwrap_or(u64::MAX);
    (&file).take(head_bytes).read_to_end(&mut head).map_err(cannot)?;
    if !head.is_empty() && head != SQLITE_HEAD {
        return Err(StoreError::NotAStore { place: place(), reason: "it is not an SQLite file".to_owned() });
    }
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        restrict(Path::new(&name)).map_err(cannot)?;
    }
    Ok(())
}

/// Takes away what others may do with the file, if it is there: it holds the key that seals `requestState`.
fn restrict(path: &Path) -> std::io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            fs::set_permissions(path, Permissions::from_mode(0o600))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// How every SQLite file begins.
const SQLITE_HEAD: &[u8] = b"SQLite format 3\0";

const SQLITE_META: &str = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta'";
const SQLITE_OTHERS: &str = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' \
     AND name NOT IN ('meta', '_sqlx_migrations') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
const POSTGRES_META: &str =
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'meta'";
const POSTGRES_OTHERS: &str = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = current_schema() \
     AND table_name IN ('objects', 'overrides', 'tools', 'discoveries', 'audit')";
