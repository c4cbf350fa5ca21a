//! The one place where the writing wing and the reading wing meet: a pointer that is swapped whole.
//!
//! Names `arc_swap`, and does nothing else but say that it was swapped. A call loads once and keeps what it got to its end (invariant 3).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::{Notify, futures::Notified};

use super::snapshot::Snapshot;

/// The published policy. Reading takes no lock and allocates nothing.
#[derive(Debug, Default)]
pub struct Live {
    slot: ArcSwapOption<Snapshot>,
    published: AtomicU64,
    told: Notify,
}

impl Live {
    /// The policy as it is now; none before the first publication.
    #[must_use]
    pub fn load(&self) -> Option<Arc<Snapshot>> {
        self.slot.load_full()
    }

    /// Puts `snapshot` in the place of the current one. Only `control.rs` calls this.
    pub fn publish(&self, snapshot: Arc<Snapshot>) {
        self.slot.store(Some(snapshot));
        self.published.fetch_add(1, Ordering::Relaxed);
        self.told.notify_waiters();
    }

    /// Takes the policy away: every call is refused until one is published again. Only `control.rs` calls this.
    pub fn withdraw(&self) {
        self.slot.store(None);
    }

    /// How many policies were published so far, by whatever changed them.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// Waits for the next publication; one that is enabled before a load misses none.
    pub fn next(&self) -> Notified<'_> {
        self.told.notified()
    }
}

/// A value that one writer replaces whole while many read it without a lock.
#[derive(Debug)]
pub struct Slot<T> {
    slot: ArcSwap<T>,
}

impl<T> Slot<T> {
    /// A slot that holds `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { slot: ArcSwap::from_pointee(value) }
    }

    /// What the slot holds now.
    #[must_use]
    pub fn load(&self) -> Arc<T> {
        self.slot.load_full()
    }

    /// Replaces what the slot holds.
    pub fn store(&self, value: T) {
        self.slot.store(Arc::new(value));
    }
}
