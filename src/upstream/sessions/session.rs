//! One open session, and its use by a call: its [`Hold`] says whether it is still good and whether it is in use.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::{Opened, SessionKey, hold::Hold};
use crate::{
    model::mcp::Revision,
    upstream::{legacy::SessionRef, target::Target},
};

/// An open session. Used through a [`Lease`].
#[derive(Debug)]
pub struct Session {
    pub(super) pool: u64,
    pub(super) key: SessionKey,
    pub(super) target: Arc<Target>,
    pub(super) id: Option<String>,
    revision: Revision,
    pub(super) hold: Hold,
    used_ms: AtomicU64,
    born: Instant,
}

impl Session {
    /// A session that was opened just now.
    pub(super) fn new(pool: u64, key: SessionKey, target: Arc<Target>, opened: Opened) -> Self {
        Self {
            pool,
            key,
            target,
            id: opened.id,
            revision: opened.revision,
            hold: Hold::default(),
            used_ms: AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn idle_ms(&self) -> u64 {
        self.age_ms().saturating_sub(self.used_ms.load(Ordering::Relaxed))
    }

    pub(super) fn named(&self) -> SessionRef<'_> {
        SessionRef { revision: self.revision, id: self.id.as_deref() }
    }
}

/// A session in use by one call; free again when dropped.
#[derive(Debug)]
pub struct Lease(pub(super) Arc<Session>);

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

    pub(super) fn take(session: &Arc<Session>) -> Option<Self> {
        session.hold.take().then(|| Self(Arc::clone(session)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.used_ms.store(self.0.age_ms(), Ordering::Relaxed);
        self.0.hold.give_back();
    }
}
