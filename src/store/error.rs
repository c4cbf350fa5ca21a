//! How the store fails, in words that a person can act on.
//!
//! **Invariant.** No message holds a password, a URL with one, or a value from a record.

/// Why the store could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// `store.url` is not one that the store understands.
    #[error("`store.url` {0}")]
    Url(String),
    /// The file or the server cannot be reached or opened.
    #[error("cannot open the store {place}: {reason}")]
    Open {
        /// The file, or the server without user and password.
        place: String,
        /// What stood in the way.
        reason: String,
    },
    /// There is something at that place, but not a store.
    #[error("{place} is not a Toolgate store: {reason}")]
    NotAStore {
        /// The file, or the server without user and password.
        place: String,
        /// How it shows.
        reason: String,
    },
    /// A newer version has written it; it was left untouched.
    #[error(
        "the store {place} has format {found}, but this version of Toolgate knows formats up to {known}: \
         start the newer version again, or restore a backup from before it"
    )]
    NewerFormat {
        /// The file, or the server without user and password.
        place: String,
        /// The store's format.
        found: i64,
        /// The newest format that this version reads.
        known: i64,
    },
    /// Somebody else committed in between; nothing was written.
    #[error(
        "the policy has moved on to revision {found}, but the change was made for revision {expected}: read it again"
    )]
    RevisionConflict {
        /// The revision that the caller had seen.
        expected: u64,
        /// The store's revision.
        found: u64,
    },
    /// Another process holds the write lock for too long; nothing was written.
    #[error("the store is busy: another process was writing to it for more than {} s", super::BUSY_TIMEOUT.as_secs())]
    Busy,
    /// A record that no version of Toolgate writes, or a damaged file.
    #[error("the store is damaged: {reason}; restore a backup")]
    Damaged {
        /// The table and column, never the value.
        reason: String,
    },
    /// The file with the last good policy is there, and is not one.
    #[error("{path} is not a last good policy of this version: {reason}")]
    LastGood {
        /// The file.
        path: String,
        /// How it shows.
        reason: String,
    },
    /// The copy could not be made.
    #[error("cannot back up to {path}: {reason}")]
    Backup {
        /// The target.
        path: String,
        /// What stood in the way.
        reason: String,
    },
    /// The engine failed. After a failed commit the change may or may not be there: load again.
    #[error("cannot {doing} the store: {source}")]
    Engine {
        /// `read` or `write`.
        doing: &'static str,
        /// What the engine says.
        source: sqlx::Error,
    },
}

impl StoreError {
    /// Whether the engine did not do its work, for whatever reason: it is away, slow, full, or refuses.
    #[must_use]
    pub const fn is_of_the_engine(&self) -> bool {
        matches!(self, Self::Engine { .. } | Self::Open { .. })
    }

    /// An engine's error while reading.
    pub(super) fn reading(source: sqlx::Error) -> Self {
        Self::classify("read", source)
    }

    /// An engine's error while writing.
    pub(super) fn writing(source: sqlx::Error) -> Self {
        Self::classify("write", source)
    }

    /// A record that cannot be read back.
    pub(super) fn damaged(table: &str, column: &str) -> Self {
        Self::Damaged { reason: format!("`{table}.{column}` holds what no version writes") }
    }

    fn classify(doing: &'static str, source: sqlx::Error) -> Self {
        match sqlite_code(&source) {
            Some(SQLITE_BUSY) => Self::Busy,
            Some(SQLITE_CORRUPT | SQLITE_NOTADB) => Self::Damaged { reason: source.to_string() },
            _ => Self::Engine { doing, source },
        }
    }
}

/// The primary result code, if SQLite made the error. PostgreSQL's codes have five characters and never fit.
fn sqlite_code(error: &sqlx::Error) -> Option<u32> {
    let database = error.as_database_error()?;
    database.try_downcast_ref::<sqlx::sqlite::SqliteError>()?;
    database.code()?.parse::<u32>().ok().map(|extended| extended & 0xff)
}

const SQLITE_BUSY: u32 = 5;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_NOTADB: u32 = 26;
