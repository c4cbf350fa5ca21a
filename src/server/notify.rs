//! What the service manager is told: sd_notify(3), through the socket that it names in the environment; without one, nothing.
//!
//! The watchdog is fed by a round trip through the data plane: a thread of it that is stuck stops the feeding.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

use super::{Rooms, Vitals};

/// How often readiness is looked at while the gateway starts.
const TICK: Duration = Duration::from_millis(20);

/// Says that the gateway is ready once it is.
pub(super) async fn when_ready(rooms: Arc<Rooms>) {
    while !rooms.ready.lacks().is_empty() {
        tokio::time::sleep(TICK).await;
    }
    tracing::info!("ready");
    ready(&format!("serving revision {}", rooms.live.load().map_or(0, |snapshot| snapshot.revision)));
}

/// A reload begins. One of [`ready`] must follow, whatever comes of it.
pub(super) fn reloading() {
    let mut state = vec![NotifyState::Reloading];
    state.extend(NotifyState::monotonic_usec_now());
    send(&state);
}

/// The gateway serves; `status` is what `systemctl status` shows.
pub(super) fn ready(status: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Another process is the service from now on.
pub(super) fn succeeded_by(pid: u32) {
    send(&[NotifyState::MainPid(pid)]);
}

/// The gateway ends.
pub(super) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(why) = sd_notify::notify(state) {
        tracing::warn!("the service manager could not be told: {why}");
    }
}

/// When the data plane last did what it was asked to.
#[derive(Debug)]
pub(super) struct Pulse {
    born: Instant,
    /// Milliseconds after `born`.
    beat_ms: AtomicU64,
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self { born: Instant::now(), beat_ms: AtomicU64::new(0) }
    }

    /// A thread of the data plane ran a task.
    pub(super) fn beat(&self) {
        self.beat_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Since the last beat.
    fn age(&self) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(self.beat_ms.load(Ordering::Relaxed)))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The service manager's patience; none: it does not watch.
pub(super) fn patience() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Feeds the watchdog as long as the data plane's pulse is younger than half of the patience.
pub(super) async fn feed(vitals: Arc<Vitals>, patience: Duration) {
    let mut faint = false;
    loop {
        tokio::time::sleep(patience / 4).await;
        if vitals.pulse.age() <= patience / 2 {
            faint = false;
            send(&[NotifyState::Watchdog]);
        } else if !std::mem::replace(&mut faint, true) {
            tracing::error!("the data plane does not answer; the service manager will restart it");
        }
    }
}
