//! Legacy sessions, kept outside the snapshot: one for each server, credential, key and user, or one that all keys share.
//!
//! A call that has a session finds it without a lock: each worker thread remembers the sessions it met, and one atomic of the
//! session (`hold.rs`) says whether it is still good. Only a miss goes to the shared table, and there many callers wait for one `initialize`.
//!
//! **Invariants.** A session serves only the key and the user of its [`SessionKey`]. A session in use is neither swept nor evicted. However
//! many calls lose a session at once, it is renewed once.

mod hold;
mod session;
mod shared;

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream,
};
use tokio::sync::Mutex;

pub use self::{
    session::{Lease, Session},
    shared::SharedSessions,
};
use super::{
    client::Client,
    exchange::AskError,
    legacy::{self, Opened, initialize},
    target::Target,
};
use crate::model::mcp::Revision;

/// The most sessions at one time, over all servers.
pub const SESSIONS_MAX: usize = 10_000;
/// A session that was not used for so long is ended.
pub const IDLE_MAX: Duration = Duration::from_secs(600);
/// How long ending all sessions at shutdown may take.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// A session that was used within this time is said to be in use, each time when sessions are swept.
const USED_LATELY: Duration = Duration::from_secs(60);
/// So many sessions are ended at one time.
const ENDING_AT_ONCE: usize = 16;
/// A session that was just opened may be lost or swept before its caller takes it up; so often it is tried.
const OPEN_ATTEMPTS_MAX: usize = 3;
/// So many sessions a thread remembers; one more and it starts anew.
const REMEMBERED_MAX: usize = 4096;

/// Whose session it is. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The server, unique in the process.
    pub server: Arc<str>,
    /// [`super::target::Credential::fingerprint`]: a new credential is a new session.
    pub credential: [u8; 32],
    /// The key's id; none: `session = "shared"`.
    pub owner: Option<Arc<str>>,
    /// The user whose credential it is; none: the server's own.
    pub user: Option<Arc<str>>,
}

/// What the pool allows; the defaults are [`SESSIONS_MAX`] and [`IDLE_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// The most sessions at one time.
    pub sessions_max: usize,
    /// A session that was not used for so long is ended.
    pub idle_max: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions_max: SESSIONS_MAX, idle_max: IDLE_MAX }
    }
}

/// The pool of sessions.
#[derive(Debug)]
pub struct Sessions {
    /// Tells the pools of one process apart in what threads remember.
    number: u64,
    limits: SessionLimits,
    client: Arc<Client>,
    closed: AtomicBool,
    table: Mutex<HashMap<SessionKey, Place>>,
    /// Where a fleet keeps them; none: each node has its own.
    shared: Option<SharedSessions>,
}

type Opening = Shared<BoxFuture<'static, Result<Arc<Session>, AskError>>>;

#[derive(Debug)]
enum Place {
    Opening(Opening),
    Open(Arc<Session>),
}

thread_local! {
    static REMEMBERED: RefCell<HashMap<SessionKey, Arc<Session>, ahash::RandomState>> = RefCell::default();
}

impl Sessions {
    /// An empty pool that speaks through `client`.
    #[must_use]
    pub fn new(client: Arc<Client>, limits: SessionLimits) -> Arc<Self> {
        Self::in_a_fleet(client, limits, None)
    }

    /// The same, of a node that shares its sessions with others.
    #[must_use]
    pub fn in_a_fleet(client: Arc<Client>, limits: SessionLimits, shared: Option<SharedSessions>) -> Arc<Self> {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, limits, client, closed: AtomicBool::new(false), table: Mutex::default(), shared })
    }

    /// The session of `key`, if this thread met it and it is still good. No lock, no allocation, no wait.
    #[must_use]
    pub fn find(&self, key: &SessionKey) -> Option<Lease> {
        REMEMBERED.with_borrow(|remembered| {
            let session = remembered.get(key)?;
            if session.pool == self.number { Lease::take(session) } else { None }
        })
    }

    /// The session of `key`, opened if need be; many callers at once wait for one `initialize` and share what it comes to.
    ///
    /// The caller's own time limit holds: giving up here does not stop the `initialize` that others wait for.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn open(
        self: &Arc<Self>,
        target: &Arc<Target>,
        key: &SessionKey,
        offer: Revision,
    ) -> Result<Lease, AskError> {
        if let Some(lease) = self.find(key) {
            return Ok(lease);
        }
        for _ in 0..OPEN_ATTEMPTS_MAX {
            let session = match self.join(target, key, offer).await? {
                Place::Open(session) => session,
                Place::Opening(opening) => opening.await?,
            };
            remember(&session);
            if let Some(lease) = Lease::take(&session) {
                return Ok(lease);
            }
        }
        Err(AskError::SessionEnded)
    }

    /// A session instead of `lost`, which the server no longer knows. Of many callers that lost the same one, the first starts
    /// a new one and all get it.
    ///
    /// # Errors
    /// [`AskError`]
    pub async fn renew(self: &Arc<Self>, lost: Lease, offer: Revision) -> Result<Lease, AskError> {
        lost.0.hold.end();
        let (target, key) = (Arc::clone(&lost.0.target), lost.0.key.clone());
        drop(lost);
        self.open(&target, &key, offer).await
    }

    /// Ends the sessions that were not used for `idle_max`.
    pub async fn sweep(&self) {
        let idle_ms = u64::try_from(self.limits.idle_max.as_millis()).unwrap_or(u64::MAX);
        self.end_where(|session| session.idle_ms() >= idle_ms).await;
        let Some(shared) = &self.shared else { return };
        let used_ms = u64::try_from(USED_LATELY.as_millis()).unwrap_or(u64::MAX);
        let open: Vec<_> = self.table.lock().await.values().filter_map(Place::open).cloned().collect();
        for session in open.iter().filter(|session| session.idle_ms() < used_ms) {
            if let Some(id) = &session.id {
                shared.in_use(&session.key, id).await;
            }
        }
    }

    /// Ends the sessions that `keep` does not keep and that are not in use: for servers and keys that are gone.
    pub async fn keep(&self, keep: impl Fn(&SessionKey) -> bool) {
        self.end_where(|session| !keep(&session.key)).await;
    }

    /// Ends every session, in use or not, and opens none any more. Returns after [`CLOSE_TIMEOUT`] at the latest.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let ending: Vec<_> = self.table.lock().await.drain().filter_map(|(_, place)| place.session()).collect();
        for session in &ending {
            session.hold.end();
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.end(ending)).await;
    }

    /// Sessions of each server, those that are being opened included: `upstream_sessions{server}`.
    pub async fn counts(&self) -> HashMap<Arc<str>, usize> {
        let mut counts = HashMap::new();
        for key in self.table.lock().await.keys() {
            *counts.entry(Arc::clone(&key.server)).or_default() += 1;
        }
        counts
    }

    /// Finds the place of `key`, or starts to open one.
    async fn join(
        self: &Arc<Self>,
        target: &Arc<Target>,
        key: &SessionKey,
        offer: Revision,
    ) -> Result<Place, AskError> {
        let mut table = self.table.lock().await;
        match table.get(key) {
            Some(Place::Opening(opening)) => return Ok(Place::Opening(opening.clone())),
            Some(Place::Open(session)) if session.hold.is_good() => {
                return Ok(Place::Open(Arc::clone(session)));
            }
            _ => {}
        }
        let lost = table.remove(key).and_then(Place::session).and_then(|session| session.id.clone());
        if self.closed.load(Ordering::SeqCst) {
            return Err(AskError::SessionEnded);
        }
        if table.len() >= self.limits.sessions_max {
            self.evict(&mut table)?;
        }
        let opening = self.start(Arc::clone(target), key.clone(), (offer, lost));
        table.insert(key.clone(), Place::Opening(opening.clone()));
        Ok(Place::Opening(opening))
    }

    /// Opens a session in a task of its own, so that it goes on when the caller gives up.
    fn start(
        self: &Arc<Self>,
        target: Arc<Target>,
        key: SessionKey,
        (offer, lost): (Revision, Option<String>),
    ) -> Opening {
        let pool = Arc::clone(self);
        let task = tokio::spawn(async move {
            let making = initialize(&pool.client, &target, offer);
            let opened = match &pool.shared {
                Some(shared) => shared.open(&key, lost.as_deref(), making).await,
                None => making.await,
            };
            let session = |opened| Arc::new(Session::new(pool.number, key.clone(), Arc::clone(&target), opened));
            let outcome = opened.map(session);
            pool.settle(key, outcome).await
        });
        async move { task.await.unwrap_or(Err(AskError::SessionEnded)) }.boxed().shared()
    }

    /// Writes down what an opening came to.
    async fn settle(&self, key: SessionKey, outcome: Result<Arc<Session>, AskError>) -> Result<Arc<Session>, AskError> {
        let mut table = self.table.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            drop(table);
            self.end(outcome.into_iter().collect()).await;
            return Err(AskError::SessionEnded);
        }
        match &outcome {
            Ok(session) => table.insert(key, Place::Open(Arc::clone(session))),
            Err(_) => table.remove(&key),
        };
        outcome
    }

    /// Makes room by ending the session that was idle for longest.
    fn evict(self: &Arc<Self>, table: &mut HashMap<SessionKey, Place>) -> Result<(), AskError> {
        let mut candidates: Vec<_> = table.values().filter_map(Place::open).cloned().collect();
        candidates.sort_by_key(|session| std::cmp::Reverse(session.idle_ms()));
        let victim = candidates.into_iter().find(|session| session.hold.retire()).ok_or(AskError::SessionsFull)?;
        table.remove(&victim.key);
        let pool = Arc::clone(self);
        tokio::spawn(async move { pool.end(vec![victim]).await });
        Ok(())
    }

    async fn end_where(&self, ends: impl Fn(&Session) -> bool) {
        let mut ending = Vec::new();
        self.table.lock().await.retain(|_, place| match place.open() {
            Some(session) if ends(session) && session.hold.retire() => {
                ending.push(Arc::clone(session));
                false
            }
            _ => true,
        });
        self.end(ending).await;
    }

    /// Ends sessions at their servers, save those that another node may use.
    async fn end(&self, ending: Vec<Arc<Session>>) {
        stream::iter(ending)
            .for_each_concurrent(ENDING_AT_ONCE, |session| async move {
                let free = match (&self.shared, &session.id) {
                    (Some(shared), Some(id)) => shared.may_end(&session.key, id).await,
                    _ => true,
                };
                if free {
                    legacy::end(&self.client, &session.target, session.named()).await;
                }
            })
            .await;
    }
}

impl Place {
    fn open(&self) -> Option<&Arc<Session>> {
        match self {
            Self::Open(session) => Some(session),
            Self::Opening(_) => None,
        }
    }

    fn session(self) -> Option<Arc<Session>> {
        match self {
            Self::Open(session) => Some(session),
            Self::Opening(_) => None,
        }
    }
}

/// Sweeps the pool each `every` until it is dropped.
pub async fn keep_swept(pool: Weak<Sessions>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(sessions) = pool.upgrade() else { return };
        sessions.sweep().await;
    }
}

fn remember(session: &Arc<Session>) {
    REMEMBERED.with_borrow_mut(|remembered| {
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, session| session.hold.is_good());
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(session.key.clone(), Arc::clone(session));
    });
}

#[cfg(test)]
mod tests;
