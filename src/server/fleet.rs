//! In a fleet: takes over what other nodes write, says that this node is there, and minds how long PostgreSQL is away.
//!
//! The revision is polled, as the truth; an announced commit only makes the next look come at once, so that a pooler that keeps
//! announcements back only slows it.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Rooms, background};
use crate::{control::LIVE_MAX, store::Listener};

/// How often the revision is looked at; each node a little earlier, at its own times.
const LOOK_EVERY: Duration = Duration::from_millis(900);
/// How often a node says that it is there, when it has nothing new to say.
const BEAT_EVERY: Duration = Duration::from_secs(2);
/// How often the nodes' policy files are compared.
const COMPARE_EVERY: Duration = Duration::from_secs(10);

/// Runs as long as the process.
pub(super) async fn keep_up(rooms: Arc<Rooms>) {
    let mut watch = Watch { rooms, listener: None, beat: None, compare_at: Instant::now(), differing: BTreeSet::new() };
    loop {
        watch.look().await;
        watch.wait().await;
    }
}

struct Watch {
    rooms: Arc<Rooms>,
    listener: Option<Listener>,
    /// When this node spoke last, and what it served then: the revision, and one that it could not take.
    beat: Option<(Instant, (u64, u64))>,
    compare_at: Instant,
    /// Nodes whose policy files are others than this one's.
    differing: BTreeSet<String>,
}

impl Watch {
    async fn wait(&mut self) {
        if self.listener.is_none() && self.rooms.control.store_silence().is_none() {
            self.listener = self.rooms.control.listen().await.ok().flatten();
        }
        let nap = tokio::time::sleep(LOOK_EVERY.mul_f64(rand::random_range(0.7..1.0)));
        let Some(listener) = &mut self.listener else { return nap.await };
        let lost = tokio::select! {
            () = nap => false,
            heard = listener.heard() => !heard,
        };
        if lost {
            self.listener = None;
        }
    }

    async fn look(&mut self) {
        let rooms = Arc::clone(&self.rooms);
        match rooms.control.refresh().await {
            Ok(false) => {}
            Ok(true) => {
                background::resolve_all(&rooms).await;
                background::set_schedule(&rooms).await;
            }
            Err(why) if rooms.control.store_silence().is_none() => {
                rooms.metrics.rejected();
                tracing::error!("what another node wrote was not taken: {why}");
            }
            // Said once, when it was lost.
            Err(why) => tracing::debug!("the policy store: {why}"),
        }
        let silence = rooms.control.store_silence();
        rooms.ready.store(silence, rooms.live.load().is_none());
        if silence.is_none() {
            self.speak().await;
            self.compare().await;
        }
    }

    async fn speak(&mut self) {
        let node = self.rooms.control.node();
        let says = (node.revision, node.rejected);
        if self.beat.is_some_and(|(at, said)| said == says && at.elapsed() < BEAT_EVERY) {
            return;
        }
        match self.rooms.control.beat(self.beat.is_none()).await {
            Ok(()) => self.beat = Some((Instant::now(), says)),
            Err(why) => tracing::warn!("this node is not seen by others: {why}"),
        }
    }

    /// Says when nodes serve other policy files than this one: the objects of files are each node's own, and their pins everybody's.
    async fn compare(&mut self) {
        if Instant::now() < self.compare_at {
            return;
        }
        self.compare_at = Instant::now() + COMPARE_EVERY;
        let Ok(nodes) = self.rooms.control.nodes().await else { return };
        let own = self.rooms.control.node();
        let live = nodes.into_iter().filter(|seen| u128::from(seen.silent_ms) < LIVE_MAX.as_millis());
        let differing: BTreeSet<String> =
            live.filter(|seen| seen.node.files != own.files).map(|seen| seen.node.name).collect();
        if differing != self.differing && !differing.is_empty() {
            let nodes = differing.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                nodes,
                "the policy files of these nodes are not this node's: what files own differs by node"
            );
        }
        self.differing = differing;
    }
}
