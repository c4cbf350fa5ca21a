//! The connection to the engine: made when it is first needed, and made anew when nothing comes through it any more.
//!
//! **Invariant.** A PostgreSQL that could not be reached at the start is used only after it turned out to be the store that the last
//! good policy came from.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use sqlx::postgres::PgListener;
use tokio::sync::Mutex;

use super::{
    Store,
    engine::{Db, Purpose, Tx},
    error::StoreError,
    open::Location,
    rows::CHANNEL,
    settle_state_key,
};

/// The way to one store.
pub(super) struct Link {
    db: Mutex<Db>,
    location: Location,
    /// Its format and its key are known.
    settled: AtomicBool,
}

impl Link {
    pub(super) fn new(db: Db, location: Location, settled: bool) -> Self {
        Self { db: Mutex::new(db), location, settled: AtomicBool::new(settled) }
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self.location, Location::Server(_))
    }

    /// The pool, once it is known to lead to the store with that key.
    pub(super) async fn db(&self, state_key: [u8; 32]) -> Result<Db, StoreError> {
        let db = self.db.lock().await.clone();
        if !self.settled.load(Ordering::Acquire) {
            self.location.migrate(&db).await?;
            if settle_state_key(&db).await? != state_key {
                let reason =
                    "it is another one than the last good policy of this node came from; restart the node to use it";
                return Err(StoreError::NotAStore { place: self.location.place(), reason: reason.to_owned() });
            }
            self.settled.store(true, Ordering::Release);
        }
        Ok(db)
    }

    /// Begins a transaction. A pool all of whose connections hang is left to itself, and the next caller gets a new one.
    pub(super) async fn begin(&self, db: &Db, purpose: Purpose) -> Result<Tx, StoreError> {
        let begun = db.begin(purpose).await;
        if matches!(begun, Err(sqlx::Error::PoolTimedOut))
            && let Some(lazy) = self.location.lazy()
        {
            *self.db.lock().await = lazy;
        }
        begun.map_err(|error| match purpose {
            Purpose::Read => StoreError::reading(error),
            Purpose::Write => StoreError::writing(error),
        })
    }

    pub(super) async fn close(&self) {
        self.db.lock().await.clone().close().await;
    }
}

/// Hears of commits of other nodes.
pub struct Listener(PgListener);

impl Store {
    /// Starts to hear of commits; none: nobody announces them. What is heard is a hint: a pooler in between may keep it back.
    ///
    /// # Errors
    /// [`StoreError::Engine`]
    pub async fn listen(&self) -> Result<Option<Listener>, StoreError> {
        let Db::Postgres(pool) = self.db().await? else { return Ok(None) };
        let mut listener = PgListener::connect_with(&pool).await.map_err(StoreError::reading)?;
        listener.listen(CHANNEL).await.map_err(StoreError::reading)?;
        Ok(Some(Listener(listener)))
    }
}

impl Listener {
    /// Waits for the next commit; false: the connection is lost.
    pub async fn heard(&mut self) -> bool {
        matches!(self.0.try_recv().await, Ok(Some(_)))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
