//! A node of a fleet: takes over what other nodes have written, and goes on when the store that they share is away.
//!
//! While it is away nothing is written: changes are refused. What discovery finds still counts at once, because it can only narrow
//! what agents may call until a person decides; it is held here and stored when the store is back.
//!
//! **Invariant.** The revision in the store is the truth. A policy that this node cannot compile never replaces the one that it has.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use super::{Control, Rejected, State, batch::Listing, next::Next, rendered};
use crate::{
    conf::{Conf, Sources},
    model::id::encode_hex,
    store::{Listener, Node, NodeSeen, StoreError, Write},
};

/// A node that said nothing for so long is not counted as live.
pub const LIVE_MAX: Duration = Duration::from_secs(6);
/// Listings that are held while the store is away; the oldest give way, and are asked for again anyway.
const UNSAVED_MAX: usize = 1000;
/// How often a call that waits for other nodes looks.
const WAIT_TICK: Duration = Duration::from_millis(50);

/// What discovery found while the store was away, oldest first.
pub(super) type Unsaved = Vec<Listing>;

/// How this node stands to a store that others share.
#[derive(Debug)]
pub(super) struct Standing {
    node: String,
    name: String,
    started: Instant,
    max_age: Option<Duration>,
    away: AtomicBool,
    /// The node started without the store, and has not taken its files into it yet.
    starts_away: AtomicBool,
    /// When the store answered last, in milliseconds from `started`; before it, if the node started without.
    answered_ms: AtomicI64,
    /// A revision that this node could not take; 0: none.
    rejected: AtomicU64,
    /// The revision that is kept on disk.
    kept: AtomicU64,
}

impl Standing {
    /// `away`: how long ago the store was last known to hold what this node starts from; none: it answers.
    pub(super) fn new(conf: &Conf, started: Instant, away: Option<Duration>) -> Self {
        let age_ms = away.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        Self {
            node: format!("{:032x}", rand::random::<u128>()),
            name: conf.store.node.clone().unwrap_or_else(|| default_name(conf)),
            started,
            max_age: conf.store.max_age.map(|span| span.0),
            away: AtomicBool::new(away.is_some()),
            starts_away: AtomicBool::new(away.is_some()),
            answered_ms: AtomicI64::new(age_ms.saturating_neg()),
            rejected: AtomicU64::new(0),
            kept: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }

    pub(super) fn starts_away(&self) -> bool {
        self.starts_away.load(Ordering::Acquire)
    }

    /// Since the store answered last.
    fn silence(&self) -> Duration {
        let silent_ms = self.now_ms().saturating_sub(self.answered_ms.load(Ordering::Acquire));
        Duration::from_millis(u64::try_from(silent_ms).unwrap_or(0))
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn is_too_old(&self) -> bool {
        self.is_away() && self.max_age.is_some_and(|max| self.silence() > max)
    }
}

/// The host's name and the first address: nodes of one host differ in the latter.
fn default_name(conf: &Conf) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let address = conf.gateway.listen.first().map(|listen| listen.address.to_string()).unwrap_or_default();
    format!("{} {address}", host.trim()).trim().to_owned()
}

/// SHA-256 of the policy files' texts.
fn digest(sources: &Sources) -> String {
    let mut hasher = Sha256::new();
    for text in sources.policy_texts() {
        hasher.update(text.len().to_be_bytes());
        hasher.update(text.as_bytes());
    }
    encode_hex(&hasher.finalize())
}

impl Control {
    /// Whether nodes on several machines share the store.
    #[must_use]
    pub fn is_in_a_fleet(&self) -> bool {
        self.store.is_shared()
    }

    /// Since when the shared store has not answered; none: it answers, or is not shared.
    #[must_use]
    pub fn store_silence(&self) -> Option<Duration> {
        (self.is_in_a_fleet() && self.standing.is_away()).then(|| self.standing.silence())
    }

    /// Starts to hear of other nodes' commits; none: nobody announces them.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn listen(&self) -> Result<Option<Listener>, StoreError> {
        self.store.listen().await
    }

    /// Takes over what another node has written since, and stores what was found while the store was away. True: a policy was
    /// published.
    ///
    /// # Errors
    /// [`Rejected`]: the running policy stays. With `store.max_age`, it is withdrawn once the store was away for longer.
    pub async fn refresh(&self) -> Result<bool, Rejected> {
        let revision = match self.store.revision().await {
            Ok(revision) => revision,
            Err(why) => {
                self.lost(&why);
                self.withdraw_if_too_old().await;
                return Err(why.into());
            }
        };
        let was_away = self.found();
        let is_new = revision != self.catalog.load().revision;
        if !is_new {
            self.standing.rejected.store(0, Ordering::Release);
        }
        let is_rejected = revision == self.standing.rejected.load(Ordering::Acquire);
        let published =
            if was_away || (is_new && !is_rejected) { self.take_over(revision, was_away).await? } else { false };
        self.keep_last_good().await;
        Ok(published)
    }

    async fn take_over(&self, revision: u64, was_away: bool) -> Result<bool, Rejected> {
        let mut state = self.state.lock().await;
        let before = state.catalog.revision;
        if let Err(why) = self.catch_up(&mut state).await {
            if let Rejected::Faults(_) = why {
                self.standing.rejected.store(revision, Ordering::Release);
            }
            self.put_back(&mut state);
            return Err(why);
        }
        self.standing.rejected.store(0, Ordering::Release);
        let unsaved = std::mem::take(&mut state.unsaved);
        self.take_batch(&mut state, unsaved).await;
        let published = was_away || state.catalog.revision != before;
        drop(state);
        if self.standing.starts_away.swap(false, Ordering::AcqRel)
            && let Err(why) = self.reload().await
        {
            self.standing.starts_away.store(true, Ordering::Release);
            return Err(why);
        }
        Ok(published)
    }

    /// Says what this node serves; `first`: it has just started.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn beat(&self, first: bool) -> Result<(), StoreError> {
        self.store.beat(&self.node(), first).await.map(drop)
    }

    /// Says that this node stops.
    pub async fn leave(&self) {
        if self.is_in_a_fleet() && !self.standing.is_away() {
            let _ = self.store.leave(&self.standing.node).await;
        }
    }

    /// What this node says of itself.
    #[must_use]
    pub fn node(&self) -> Node {
        let catalog = self.catalog.load();
        let rejected = self.standing.rejected.load(Ordering::Acquire);
        let why = if rejected > 0 { "its policy files do not fit that revision: see its log" } else { "" };
        Node {
            node: self.standing.node.clone(),
            name: self.standing.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: catalog.revision,
            rejected,
            why: why.to_owned(),
            files: digest(&catalog.sources),
        }
    }

    /// Every node that has not stopped; this one alone where the store is not shared.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError> {
        if self.is_in_a_fleet() {
            return self.store.nodes().await;
        }
        Ok(vec![NodeSeen { node: self.node(), silent_ms: 0 }])
    }

    /// Waits until every node serves `revision`, but not longer than `limit`; gives those that do not. A node that fell silent
    /// counts: it may serve what it had.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn wait_for(&self, revision: u64, limit: Duration) -> Result<Vec<NodeSeen>, StoreError> {
        let end = Instant::now() + limit;
        loop {
            let mut behind = self.nodes().await?;
            behind.retain(|seen| seen.node.revision < revision && seen.node.node != self.standing.node);
            if behind.is_empty() || Instant::now() >= end {
                return Ok(behind);
            }
            tokio::time::sleep(WAIT_TICK).await;
        }
    }

    /// The store does not do its work: this node goes on with what it has.
    pub(super) fn lost(&self, why: &StoreError) {
        if !self.standing.away.swap(true, Ordering::AcqRel) {
            tracing::warn!("the policy store is away: this node serves on with the policy that it has: {why}");
        }
    }

    /// The store answers; whether it was away.
    fn found(&self) -> bool {
        self.standing.answered_ms.store(self.standing.now_ms(), Ordering::Release);
        let was_away = self.standing.away.swap(false, Ordering::AcqRel);
        if was_away {
            tracing::info!("the policy store answers again");
        }
        was_away
    }

    /// Publishes what was found while the store is away, and holds what of it is new, to be stored later.
    pub(super) fn take_unsaved(&self, state: &mut State, next: Next, batch: &[Listing]) -> Result<(), Rejected> {
        if state.withdrawn.is_some() {
            return Ok(());
        }
        let draft = self.draft(state, &next).map_err(|faults| rendered(&next, &faults))?;
        let revision = state.catalog.revision;
        let news: HashSet<(&str, &str)> = next.writes.iter().filter_map(Write::listed_server).collect();
        let held: Vec<Listing> = batch.iter().filter(|one| news.contains(&one.name())).map(Listing::again).collect();
        self.publish(state, next, draft, revision);
        state.unsaved.extend(held);
        let over = state.unsaved.len().saturating_sub(UNSAVED_MAX);
        state.unsaved.drain(..over);
        Ok(())
    }

    async fn withdraw_if_too_old(&self) {
        if !self.standing.is_too_old() {
            return;
        }
        let mut state = self.state.lock().await;
        if state.withdrawn.is_none() {
            state.withdrawn = self.live.load();
            self.live.withdraw();
            tracing::error!("the policy store has been away for longer than store.max_age: every call is refused");
        }
    }

    /// A policy that was withdrawn is live again: the store answers, but what it holds cannot be taken.
    fn put_back(&self, state: &mut State) {
        if let Some(snapshot) = state.withdrawn.take() {
            self.live.publish(snapshot);
        }
    }

    /// Keeps what the store holds, once this node serves it.
    async fn keep_last_good(&self) {
        let revision = self.catalog.load().revision;
        if self.standing.kept.load(Ordering::Acquire) == revision {
            self.store.still_good();
            return;
        }
        match self.store.keep(revision).await {
            Ok(true) => self.standing.kept.store(revision, Ordering::Release),
            Ok(false) => {}
            Err(why) => tracing::error!("the last good policy is not kept: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_policy_grows_too_old_only_while_the_store_is_away() {
        let conf = Conf::default();
        let mut standing = Standing::new(&conf, Instant::now(), None);
        standing.max_age = Some(Duration::from_secs(60));
        standing.answered_ms.store(-61_000, Ordering::Relaxed);
        assert!(!standing.is_too_old());
        standing.away.store(true, Ordering::Relaxed);
        assert!(standing.is_too_old());
        // A file that was old when the node started.
        standing = Standing::new(&conf, Instant::now(), Some(Duration::from_secs(3600)));
        assert!(standing.silence() >= Duration::from_secs(3600) && !standing.is_too_old());
        standing.max_age = Some(Duration::from_secs(3599));
        assert!(standing.is_too_old());
    }
}
