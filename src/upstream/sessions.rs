//! Legacy sessions, kept outside the snapshot: one for each server, credential and key, or one that all keys share.
//!
//! A call that has a session finds it without a lock: each worker thread remembers the sessions it met, and two atomics of the
//! session say whether it is still good. Only a miss goes to the shared table, and there many callers wait for one `initialize`.
//!
//! **Invariants.** A session serves only the key of its [`SessionKey`]. A session in use is neither swept nor evicted. However
//! many calls lose a session at once, it is renewed once.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream,
};
use tokio::sync::Mutex;

use super::{
    client::Client,
    exchange::AskError,
    legacy::{self, SessionRef, initialize},
    target::Target,
};
use crate::model::mcp::Revision;

/// The most sessions at one time, over all servers.
pub const SESSIONS_MAX: usize = 10_000;
/// A session that was not used for so long is ended.
pub const IDLE_MAX: Duration = Duration::from_secs(600);
/// How long ending all sessions at shutdown may take.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
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

/// An open session. Used through a [`Lease`].
#[derive(Debug)]
pub struct Session {
    pool: u64,
    key: SessionKey,
    target: Arc<Target>,
    id: Option<String>,
    revision: Revision,
    alive: AtomicBool,
    in_use: AtomicU32,
    used_ms: AtomicU64,
    born: Instant,
}

impl Session {
    fn age_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn idle_ms(&self) -> u64 {
        self.age_ms().saturating_sub(self.used_ms.load(Ordering::Relaxed))
    }

    /// Takes the session out of service, unless it is in use. Whoever takes it up at the same moment sees that it is gone.
    fn retire(&self) -> bool {
        self.alive.store(false, Ordering::SeqCst);
        let free = self.in_use.load(Ordering::SeqCst) == 0;
        if !free {
            self.alive.store(true, Ordering::SeqCst);
        }
        free
    }

    fn named(&self) -> SessionRef<'_> {
        SessionRef { revision: self.revision, id: self.id.as_deref() }
    }
}

/// A session in use by one call; free again when dropped.
#[derive(Debug)]
pub struct Lease(Arc<Session>);

impl Lease {
    /// `Mcp-Session-Id`; none: the server is stateless, and there is nothing to renew.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.0.id.as_deref()
    }

    /// The revision that `initialize` settled.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.0.revision
    }

    /// The session as a message names it.
    #[must_use]
    pub fn named(&self) -> SessionRef<'_> {
        self.0.named()
    }

    fn take(session: &Arc<Session>) -> Option<Self> {
        session.in_use.fetch_add(1, Ordering::SeqCst);
        let lease = Self(Arc::clone(session));
        lease.0.alive.load(Ordering::SeqCst).then_some(lease)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.used_ms.store(self.0.age_ms(), Ordering::Relaxed);
        self.0.in_use.fetch_sub(1, Ordering::SeqCst);
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
        static POOLS: AtomicU64 = AtomicU64::new(0);
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, limits, client, closed: AtomicBool::new(false), table: Mutex::default() })
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
        lost.0.alive.store(false, Ordering::SeqCst);
        let (target, key) = (Arc::clone(&lost.0.target), lost.0.key.clone());
        drop(lost);
        self.open(&target, &key, offer).await
    }

    /// Ends the sessions that were not used for `idle_max`.
    pub async fn sweep(&self) {
        let idle_ms = u64::try_from(self.limits.idle_max.as_millis()).unwrap_or(u64::MAX);
        self.end_where(|session| session.idle_ms() >= idle_ms).await;
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
            session.alive.store(false, Ordering::SeqCst);
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, end_all(Arc::clone(&self.client), ending)).await;
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
            Some(Place::Open(session)) if session.alive.load(Ordering::SeqCst) => {
                return Ok(Place::Open(Arc::clone(session)));
            }
            _ => table.remove(key),
        };
        if self.closed.load(Ordering::SeqCst) {
            return Err(AskError::SessionEnded);
        }
        if table.len() >= self.limits.sessions_max {
            self.evict(&mut table)?;
        }
        let opening = self.start(Arc::clone(target), key.clone(), offer);
        table.insert(key.clone(), Place::Opening(opening.clone()));
        Ok(Place::Opening(opening))
    }

    /// Opens a session in a task of its own, so that it goes on when the caller gives up.
    fn start(self: &Arc<Self>, target: Arc<Target>, key: SessionKey, offer: Revision) -> Opening {
        let pool = Arc::clone(self);
        let task = tokio::spawn(async move {
            let opened = initialize(&pool.client, &target, offer).await;
            let outcome = opened.map(|opened| {
                Arc::new(Session {
                    pool: pool.number,
                    key: key.clone(),
                    target,
                    id: opened.id,
                    revision: opened.revision,
                    alive: AtomicBool::new(true),
                    in_use: AtomicU32::new(0),
                    used_ms: AtomicU64::new(0),
                    born: Instant::now(),
                })
            });
            pool.settle(key, outcome).await
        });
        async move { task.await.unwrap_or(Err(AskError::SessionEnded)) }.boxed().shared()
    }

    /// Writes down what an opening came to.
    async fn settle(&self, key: SessionKey, outcome: Result<Arc<Session>, AskError>) -> Result<Arc<Session>, AskError> {
        let mut table = self.table.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            drop(table);
            end_all(Arc::clone(&self.client), outcome.into_iter().collect()).await;
            return Err(AskError::SessionEnded);
        }
        match &outcome {
            Ok(session) => table.insert(key, Place::Open(Arc::clone(session))),
            Err(_) => table.remove(&key),
        };
        outcome
    }

    /// Makes room by ending the session that was idle for longest.
    fn evict(&self, table: &mut HashMap<SessionKey, Place>) -> Result<(), AskError> {
        let mut candidates: Vec<_> = table.values().filter_map(Place::open).cloned().collect();
        candidates.sort_by_key(|session| std::cmp::Reverse(session.idle_ms()));
        let victim = candidates.into_iter().find(|session| session.retire()).ok_or(AskError::SessionsFull)?;
        table.remove(&victim.key);
        tokio::spawn(end_all(Arc::clone(&self.client), vec![victim]));
        Ok(())
    }

    async fn end_where(&self, ends: impl Fn(&Session) -> bool) {
        let mut ending = Vec::new();
        self.table.lock().await.retain(|_, place| match place.open() {
            Some(session) if ends(session) && session.retire() => {
                ending.push(Arc::clone(session));
                false
            }
            _ => true,
        });
        end_all(Arc::clone(&self.client), ending).await;
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
            remembered.retain(|_, session| session.alive.load(Ordering::Relaxed));
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(session.key.clone(), Arc::clone(session));
    });
}

async fn end_all(client: Arc<Client>, ending: Vec<Arc<Session>>) {
    let client = &client;
    stream::iter(ending)
        .for_each_concurrent(ENDING_AT_ONCE, |session| async move {
            legacy::end(client, &session.target, session.named()).await;
        })
        .await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;

    use super::{
        super::{
            client::ClientError,
            dns::Resolver,
            mock::{Act, Mock, Seen},
        },
        *,
    };

    const OFFER: Revision = Revision::LATEST_LEGACY;

    /// Answers `initialize` with sessions s1, s2 …, and everything else as a legacy server does.
    fn legacy_server(stateless: bool) -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
        let opened = AtomicUsize::new(0);
        move |seen| match seen.call().as_str() {
            "initialize" => {
                let number = opened.fetch_add(1, Ordering::SeqCst) + 1;
                let act = seen.result(json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}));
                if stateless { act } else { act.header(&format!("Mcp-Session-Id: s{number}")) }
            }
            "DELETE" => Act::empty(405),
            _ => Act::empty(202).header("Mcp-Session-Id: of-a-notification"),
        }
    }

    fn key(server: &str, owner: Option<&str>) -> SessionKey {
        SessionKey { server: server.into(), credential: [0; 32], owner: owner.map(Into::into) }
    }

    fn pool(limits: SessionLimits) -> Arc<Sessions> {
        Sessions::new(Arc::new(Client::new(Resolver::table([]))), limits)
    }

    #[tokio::test]
    async fn a_session_is_opened_once_and_then_found() {
        let mock = Mock::start(legacy_server(false)).await;
        let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", Some("ann")));
        assert!(pool.find(&key).is_none());
        let lease = pool.open(&target, &key, OFFER).await.unwrap();
        assert_eq!((lease.id(), lease.revision()), (Some("s1"), Revision::V2025_06_18));
        drop(lease);
        assert_eq!(pool.find(&key).unwrap().id(), Some("s1"));
        assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), Some("s1"));
        assert_eq!(mock.calls(), ["initialize", "notifications/initialized"]);
        let seen = mock.seen();
        let headers = ["mcp-session-id", "mcp-protocol-version", "authorization", "mcp-method"];
        let of = |at: usize| headers.map(|name| seen[at].header(name).map(str::to_owned));
        let secret = || Some("Bearer canary-secret".to_owned());
        assert_eq!(of(0), [None, None, secret(), None]);
        assert_eq!(of(1), [Some("s1".to_owned()), Some("2025-06-18".to_owned()), secret(), None]);
        assert_eq!(seen[0].json()["params"]["protocolVersion"], "2025-11-25");
        assert_eq!(seen[0].json()["params"]["capabilities"], json!({}));
    }

    #[tokio::test]
    async fn sessions_are_kept_apart_by_server_key_and_credential() {
        let mock = Mock::start(legacy_server(false)).await;
        let (pool, target) = (pool(SessionLimits::default()), mock.target());
        let rotated = SessionKey { credential: [1; 32], ..key("a", Some("ann")) };
        let keys = [key("a", Some("ann")), key("a", Some("bob")), key("b", Some("ann")), key("a", None), rotated];
        for (index, key) in keys.iter().enumerate() {
            let lease = pool.open(&target, key, OFFER).await.unwrap();
            assert_eq!(lease.id(), Some(format!("s{}", index + 1).as_str()));
        }
        assert_eq!(pool.counts().await, HashMap::from([("a".into(), 4), ("b".into(), 1)]));
        let other = super::tests::pool(SessionLimits::default());
        assert!(other.find(&keys[0]).is_none(), "pools do not mix on one thread");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_callers_share_one_initialize_and_one_renewal() {
        let mock = Mock::start(legacy_server(false)).await;
        let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
        let open = || async {
            let callers = (0..50).map(|_| {
                let (pool, target, key) = (Arc::clone(&pool), Arc::clone(&target), key.clone());
                tokio::spawn(async move { pool.open(&target, &key, OFFER).await.unwrap() })
            });
            let leases = futures::future::join_all(callers).await;
            leases.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        let leases = open().await;
        assert!(leases.iter().all(|lease| lease.id() == Some("s1")));
        let renewals = leases.into_iter().map(|lost| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.renew(lost, OFFER).await.unwrap().id().map(str::to_owned) })
        });
        for renewed in futures::future::join_all(renewals).await {
            assert_eq!(renewed.unwrap().as_deref(), Some("s2"));
        }
        assert_eq!(open().await[0].id(), Some("s2"));
        let opened = mock.calls().iter().filter(|call| *call == "initialize").count();
        assert_eq!(opened, 2);
        assert!(!mock.calls().contains(&"DELETE".to_owned()), "a lost session is not ended");
    }

    #[tokio::test]
    async fn a_failed_opening_fails_all_who_wait_and_is_tried_again_by_the_next() {
        let asked = AtomicUsize::new(0);
        let good = legacy_server(false);
        let mock = Mock::start(move |seen| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Act::empty(401).header("Mcp-Session-Id: of-a-refusal"),
            _ => good(seen),
        });
        let mock = mock.await;
        let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
        let (first, second) = tokio::join!(pool.open(&target, &key, OFFER), pool.open(&target, &key, OFFER));
        assert_eq!(first.unwrap_err(), AskError::Credential { status: 401 });
        assert_eq!(second.unwrap_err(), AskError::Credential { status: 401 });
        assert_eq!(pool.counts().await, HashMap::new());
        assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), Some("s1"));
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_does_not_stop_the_others() {
        let mock = Mock::start(legacy_server(false)).await;
        let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
        {
            let mut impatient = Box::pin(pool.open(&target, &key, OFFER));
            assert!(futures::poll!(impatient.as_mut()).is_pending());
        }
        assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), Some("s1"));
        assert_eq!(mock.calls().iter().filter(|call| *call == "initialize").count(), 1);
    }

    #[tokio::test]
    async fn stateless_servers_have_a_session_without_an_id() {
        let mock = Mock::start(legacy_server(true)).await;
        let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
        assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), None);
        pool.close().await;
        assert_eq!(mock.calls(), ["initialize", "notifications/initialized"], "there is nothing to end");
    }

    #[tokio::test]
    async fn idle_sessions_are_ended_and_those_in_use_are_not() {
        let mock = Mock::start(legacy_server(false)).await;
        let pool = pool(SessionLimits { idle_max: Duration::ZERO, ..SessionLimits::default() });
        let target = mock.target();
        let used = pool.open(&target, &key("a", Some("ann")), OFFER).await.unwrap();
        drop(pool.open(&target, &key("a", Some("bob")), OFFER).await.unwrap());
        pool.sweep().await;
        let ended: Vec<_> = mock.seen().into_iter().filter(|seen| seen.method == "DELETE").collect();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].header("mcp-session-id"), Some("s2"));
        assert_eq!(ended[0].header("authorization"), Some("Bearer canary-secret"));
        assert!(pool.find(&key("a", Some("bob"))).is_none(), "what a thread remembers is not served once it is gone");
        assert!(pool.find(&key("a", Some("ann"))).is_some());
        drop(used);
        let fresh = super::tests::pool(SessionLimits::default());
        drop(fresh.open(&target, &key("a", None), OFFER).await.unwrap());
        fresh.sweep().await;
        assert_eq!(fresh.counts().await.len(), 1, "a fresh session is not idle");
    }

    #[tokio::test]
    async fn one_past_the_cap_evicts_an_idle_session_or_is_refused() {
        let mock = Mock::start(legacy_server(false)).await;
        let pool = pool(SessionLimits { sessions_max: 2, ..SessionLimits::default() });
        let target = mock.target();
        let [ann, bob, cid] = ["ann", "bob", "cid"].map(|name| key("a", Some(name)));
        let first = pool.open(&target, &ann, OFFER).await.unwrap();
        let second = pool.open(&target, &bob, OFFER).await.unwrap();
        assert_eq!(pool.open(&target, &cid, OFFER).await.unwrap_err(), AskError::SessionsFull);
        drop(second);
        assert_eq!(pool.open(&target, &cid, OFFER).await.unwrap().id(), Some("s3"));
        assert!(pool.find(&bob).is_none());
        assert!(pool.find(&ann).is_some());
        assert_eq!(pool.counts().await, HashMap::from([("a".into(), 2)]));
        drop(first);
    }

    #[tokio::test]
    async fn closing_ends_every_session_and_opens_none() {
        let mock = Mock::start(legacy_server(false)).await;
        let (pool, target) = (pool(SessionLimits::default()), mock.target());
        let kept = pool.open(&target, &key("a", Some("ann")), OFFER).await.unwrap();
        drop(pool.open(&target, &key("a", Some("bob")), OFFER).await.unwrap());
        pool.keep(|key| key.owner.as_deref() == Some("ann")).await;
        assert_eq!(mock.calls().iter().filter(|call| *call == "DELETE").count(), 1);
        pool.close().await;
        assert_eq!(mock.calls().iter().filter(|call| *call == "DELETE").count(), 2);
        assert_eq!(pool.open(&target, &key("a", None), OFFER).await.unwrap_err(), AskError::SessionEnded);
        drop(kept);
    }

    #[tokio::test]
    async fn initialize_is_judged() {
        let answer = |version: &'static str| move |seen: &Seen| seen.result(json!({"protocolVersion": version}));
        let check = async |script: Box<dyn Fn(&Seen) -> Act + Send + Sync>, expected: AskError| {
            let mock = Mock::start(script).await;
            let got = initialize(&Client::new(Resolver::table([])), &mock.target(), OFFER).await;
            assert_eq!(got, Err(expected));
            assert_eq!(mock.calls(), ["initialize"]);
        };
        check(Box::new(answer("2024-11-05")), AskError::Revision).await;
        check(Box::new(answer("2026-07-28")), AskError::Revision).await;
        check(Box::new(|seen| seen.result(json!({}))), AskError::NotMcp).await;
        check(Box::new(|_| Act::text(200, "hello")), AskError::NotMcp).await;
        check(Box::new(|_| Act::empty(202)), AskError::NotMcp).await;
        for status in [400, 404, 405] {
            check(Box::new(move |_| Act::text(status, "no")), AskError::OldTransport).await;
        }
        check(Box::new(|_| Act::text(418, "no")), AskError::Status { status: 418 }).await;
        check(Box::new(|seen| seen.error(400, -32602)), AskError::Rejected { code: -32602 }).await;
        check(Box::new(|_| Act::empty(500)), AskError::ServerFault { status: 500 }).await;
        check(Box::new(|_| Act::Close(Vec::new())), AskError::Client(ClientError::Interrupted)).await;
        for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
            let mock = Mock::start(move |seen| match seen.call().as_str() {
                "initialize" => seen.stream("id: 1\ndata: \n\n", json!({"protocolVersion": version})),
                _ => Act::empty(200),
            });
            let mock = mock.await;
            let opened = initialize(&Client::new(Resolver::table([])), &mock.target(), OFFER).await.unwrap();
            assert_eq!(opened.revision.as_str(), version);
            let sent = mock.seen()[1].header("mcp-protocol-version").map(str::to_owned);
            assert_eq!(sent.as_deref(), (version != "2025-03-26").then_some(version));
        }
    }

    #[tokio::test]
    async fn a_servers_own_requests_are_declined_on_its_session() {
        let mock = Mock::start(|_| Act::empty(202)).await;
        let (client, target) = (Client::new(Resolver::table([])), mock.target());
        let session = SessionRef { revision: Revision::V2025_11_25, id: Some("s9") };
        legacy::answer_server_request(&client, &target, session, (b"0", "ping")).await;
        legacy::answer_server_request(&client, &target, session, (b"\"g1\"", "sampling/createMessage")).await;
        legacy::cancel(&client, &target, session, (super::super::envelope::OurId(7), "client disconnected")).await;
        let seen = mock.seen();
        assert!(seen.iter().all(|seen| seen.header("mcp-session-id") == Some("s9")));
        assert_eq!(seen[0].json(), json!({"jsonrpc": "2.0", "id": 0, "result": {}}));
        assert_eq!(seen[1].json()["error"]["code"], -32601);
        assert_eq!(seen[1].json()["id"], "g1");
        assert_eq!(seen[2].json()["params"], json!({"requestId": "g7", "reason": "client disconnected"}));
    }
}
