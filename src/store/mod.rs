//! Floor 1: what must outlive a restart. API-made objects, overrides, tools, discoveries, audit (contract §5, §6, §9).
//!
//! SQLite by default, PostgreSQL for a fleet; the same tables and the same statements. An object's JSON is opaque text
//! here: what it means, and whether a policy compiles from it, is for the floors above.
//!
//! **Invariants.** A commit is one transaction: all of its writes and audit records, or none, and on disk when it returns.
//! The revision grows by one with each commit. No key material but digests comes in; the one secret that is kept is the
//! key that seals `requestState`, drawn here, and an SQLite file is for its owner only (mode 0600).

mod backup;
mod copy;
mod engine;
mod error;
mod kill;
mod last_good;
mod link;
mod nodes;
mod open;
mod rows;
mod shapes;
#[cfg(test)]
mod tests;
mod vault;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub(crate) use self::kill::point as kill_point;
pub use self::{
    copy::Copied,
    error::StoreError,
    link::Listener,
    nodes::{Node, NodeSeen},
    shapes::{AuditRecord, AuditRow, Stored, StoredObject, Write},
    vault::{Headers, KEY_BYTES_MIN, Place, Vault, VaultFault},
};
use self::{
    engine::{Db, Purpose},
    last_good::LastGood,
    link::Link,
    open::Location,
};
use crate::model::id::{decode_hex32, encode_hex};

/// How long a commit waits for another process that writes to the same SQLite file.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long opening, or waiting for a free connection, may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long PostgreSQL may take to let a connection in.
pub const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// Connections of one process to the store.
pub const CONNECTIONS_MAX: u32 = 4;

/// An open store.
#[derive(Clone)]
pub struct Store {
    link: Arc<Link>,
    place: String,
    state_key: [u8; 32],
    /// Where the last good policy is kept, and the one that was found there when the store could not be reached.
    last_good: Option<PathBuf>,
    first: Option<Arc<LastGood>>,
}

impl Store {
    /// Opens `sqlite:PATH` (made if it is missing; its folder must be there) or `postgres://…`, and brings its format up to
    /// date. A path is taken as it is written, a relative one from the working directory.
    ///
    /// # Errors
    /// [`StoreError::Url`], [`StoreError::Open`], [`StoreError::NotAStore`], [`StoreError::NewerFormat`] and what reading
    /// and writing may give.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let location = Location::parse(url)?;
        let db = location.open().await?;
        let state_key = match settle_state_key(&db).await {
            Ok(key) => key,
            Err(error) => {
                db.close().await;
                return Err(error);
            }
        };
        let place = location.place();
        Ok(Self { link: Arc::new(Link::new(db, location, true)), place, state_key, last_good: None, first: None })
    }

    /// Opens the store as [`Self::open`] does, for a node that keeps its last good policy in the file `last_good`. A PostgreSQL
    /// that cannot be reached is opened when it comes back, if there is such a file; [`Self::first`] gives what is in it.
    ///
    /// # Errors
    /// Those of [`Self::open`]; [`StoreError::LastGood`]: there is a file, and it is not one of this version.
    pub async fn open_or_last_good(url: &str, last_good: Option<&Path>) -> Result<Self, StoreError> {
        let location = Location::parse(url)?;
        let (lazy, path) = match (location.lazy(), last_good) {
            (Some(lazy), Some(path)) => (lazy, path),
            _ => return Self::open(url).await,
        };
        let why = match Self::open(url).await {
            Ok(store) => return Ok(Self { last_good: Some(path.to_owned()), ..store }),
            Err(why) if why.is_of_the_engine() => why,
            Err(why) => return Err(why),
        };
        let Some(first) = last_good::read(path)? else {
            tracing::error!(path = %path.display(), "there is no last good policy to start from either");
            return Err(why);
        };
        tracing::warn!(age_seconds = first.age.as_secs(), "{why}: starting from the last good policy");
        Ok(Self {
            place: location.place(),
            state_key: first.state_key,
            link: Arc::new(Link::new(lazy, location, false)),
            last_good: Some(path.to_owned()),
            first: Some(Arc::new(first)),
        })
    }

    /// What to start from: the store's content, or where it cannot be reached the last good policy, and how long ago the store
    /// was last known to hold that.
    ///
    /// # Errors
    /// Those of [`Self::load`].
    pub async fn first(&self) -> Result<(Stored, Option<Duration>), StoreError> {
        match &self.first {
            Some(first) => Ok((first.stored.clone(), Some(first.age))),
            None => Ok((self.load().await?, None)),
        }
    }

    /// Whether nodes on several machines share it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.link.is_shared()
    }

    /// Keeps what the store holds as this node's last good policy, if it is to have one and `revision` is what the store still
    /// holds; whether it was kept.
    ///
    /// # Errors
    /// Those of [`Self::load`]; [`StoreError::LastGood`]: the file cannot be written.
    pub async fn keep(&self, revision: u64) -> Result<bool, StoreError> {
        let Some(path) = &self.last_good else { return Ok(true) };
        let stored = self.load().await?;
        if stored.revision != revision {
            return Ok(false);
        }
        last_good::write(path, &stored, self.state_key)?;
        Ok(true)
    }

    /// Notes that the store still holds what was kept.
    pub fn still_good(&self) {
        if let Some(path) = &self.last_good {
            last_good::touch(path);
        }
    }

    /// Reads everything, with one query a table and as of one moment.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for a record that cannot be read back, [`StoreError::Engine`].
    pub async fn load(&self) -> Result<Stored, StoreError> {
        let mut tx = self.begin(Purpose::Read).await?;
        let revision = tx.row(REVISION, &[]).await.and_then(|row| row.int(0)).map_err(StoreError::reading)?;
        let stored = Stored {
            revision: counted(revision)?,
            objects: rows::objects(&mut tx).await?,
            overrides: rows::overrides(&mut tx).await?,
            tools: rows::tools(&mut tx).await?,
            discoveries: rows::discoveries(&mut tx).await?,
        };
        tx.rollback().await.map_err(StoreError::reading)?;
        Ok(stored)
    }

    /// The revision alone: what a node polls to see whether another one has written.
    ///
    /// # Errors
    /// [`StoreError::Engine`]
    pub async fn revision(&self) -> Result<u64, StoreError> {
        let mut tx = self.begin(Purpose::Read).await?;
        let revision = tx.row(REVISION, &[]).await.and_then(|row| row.int(0)).map_err(StoreError::reading)?;
        tx.rollback().await.map_err(StoreError::reading)?;
        counted(revision)
    }

    /// Writes everything or nothing, and gives the new revision. `expected_revision` is the one that the change was made
    /// for; none: any.
    ///
    /// Must be awaited to its end to know its outcome; dropped before, it is rolled back unless it was already committed.
    ///
    /// # Errors
    /// [`StoreError::RevisionConflict`] and [`StoreError::Busy`]: nothing was written. [`StoreError::Engine`]: nothing was
    /// written, unless the connection broke in the very moment of committing; load again.
    pub async fn commit(
        &self,
        expected_revision: Option<u64>,
        writes: &[Write],
        audit: &[AuditRecord],
    ) -> Result<u64, StoreError> {
        let mut tx = self.begin(Purpose::Write).await?;
        let added = i64::try_from(audit.len()).unwrap_or(i64::MAX);
        // The first statement takes the row: writers on every node queue here, in the order of their revisions.
        let meta = tx.row(NEXT_REVISION, &[added.into()]).await.map_err(StoreError::writing)?;
        let (revision, audits) = (meta.int(0).map_err(StoreError::writing)?, meta.int(1).map_err(StoreError::writing)?);
        let found = counted(revision - 1)?;
        kill_point("store: begun");
        if let Some(expected) = expected_revision.filter(|expected| *expected != found) {
            tx.rollback().await.map_err(StoreError::writing)?;
            return Err(StoreError::RevisionConflict { expected, found });
        }
        for (place, write) in (0..).zip(writes) {
            rows::apply(&mut tx, revision, place, write).await.map_err(StoreError::writing)?;
        }
        for (seq, record) in (audits - added + 1..).zip(audit) {
            rows::add_audit(&mut tx, seq, revision, record).await.map_err(StoreError::writing)?;
        }
        kill_point("store: written");
        rows::announce(&mut tx, revision).await.map_err(StoreError::writing)?;
        tx.commit().await.map_err(StoreError::writing)?;
        kill_point("store: committed");
        counted(revision)
    }

    /// Up to `limit` audit records whose number is greater than `after_seq`, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Engine`]
    pub async fn audit(&self, after_seq: u64, limit: u32) -> Result<Vec<AuditRow>, StoreError> {
        let mut tx = self.begin(Purpose::Read).await?;
        let rows = rows::audit(&mut tx, i64::try_from(after_seq).unwrap_or(i64::MAX), limit).await?;
        tx.rollback().await.map_err(StoreError::reading)?;
        Ok(rows)
    }

    /// The number of the newest audit record; 0: there is none.
    ///
    /// # Errors
    /// [`StoreError::Engine`]
    pub async fn audit_newest(&self) -> Result<u64, StoreError> {
        let mut tx = self.begin(Purpose::Read).await?;
        let newest = tx.row(AUDITS, &[]).await.and_then(|row| row.int(0)).map_err(StoreError::reading)?;
        tx.rollback().await.map_err(StoreError::reading)?;
        counted(newest)
    }

    /// The key that seals `requestState` (contract §3): 32 random bytes, drawn once in a store's life.
    #[must_use]
    pub const fn state_key(&self) -> [u8; 32] {
        self.state_key
    }

    /// Copies an SQLite store, as of one moment and while it is in use, to a new file of mode 0600. To restore it, stop
    /// the gateway, put the file in the store's place and remove the old `-wal` and `-shm` beside it.
    ///
    /// # Errors
    /// [`StoreError::Backup`]: the target exists or cannot be written, or the store is in PostgreSQL (use `pg_dump`).
    pub async fn backup_to(&self, path: &Path) -> Result<(), StoreError> {
        backup::copy(&self.db().await?, path).await
    }

    /// Where the store is, as messages name it: without user and password.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Closes every connection. Not closing loses nothing that was committed.
    pub async fn close(&self) {
        self.link.close().await;
    }

    async fn begin(&self, purpose: Purpose) -> Result<engine::Tx, StoreError> {
        self.link.begin(&self.db().await?, purpose).await
    }

    async fn db(&self) -> Result<Db, StoreError> {
        self.link.db(self.state_key).await
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Reads the state key; the first to open a store draws it.
async fn settle_state_key(db: &Db) -> Result<[u8; 32], StoreError> {
    let mut tx = db.begin(Purpose::Read).await.map_err(StoreError::reading)?;
    let mut kept = tx.row(STATE_KEY, &[]).await.and_then(|row| row.text(0)).map_err(StoreError::reading)?;
    tx.rollback().await.map_err(StoreError::reading)?;
    if kept.is_empty() {
        let drawn = encode_hex(&rand::random::<[u8; 32]>());
        let mut tx = db.begin(Purpose::Write).await.map_err(StoreError::writing)?;
        // Two may draw at once; the first to write wins, and both read what it wrote.
        tx.run(SET_STATE_KEY, &[drawn.as_str().into()]).await.map_err(StoreError::writing)?;
        kept = tx.row(STATE_KEY, &[]).await.and_then(|row| row.text(0)).map_err(StoreError::reading)?;
        tx.commit().await.map_err(StoreError::writing)?;
    }
    decode_hex32(&kept).ok_or_else(|| StoreError::damaged("meta", "state_key"))
}

/// A revision, which the tables keep as a signed number.
fn counted(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::damaged("meta", "revision"))
}

const REVISION: &str = "SELECT revision FROM meta WHERE id = 1";
const AUDITS: &str = "SELECT audits FROM meta WHERE id = 1";
const NEXT_REVISION: &str =
    "UPDATE meta SET revision = revision + 1, audits = audits + $1 WHERE id = 1 RETURNING revision, audits";
const STATE_KEY: &str = "SELECT state_key FROM meta WHERE id = 1";
const SET_STATE_KEY: &str = "UPDATE meta SET state_key = $1 WHERE id = 1 AND state_key = ''";
