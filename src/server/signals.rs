//! How the process ends, told by a signal or after an upgrade: readiness off, listeners closed, running calls finished or refused, then out (contract §1 `/readyz`, §10 `drain`).
//!
//! A second signal ends the wait: what still runs is refused at once. The signals are heard before the first socket is bound: who finds a
//! door open finds a process that ends as it should.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::Instant,
};

use super::{End, Rooms, doors::Doors, notify, upgrade};

/// The shortest drain: a connection that was just taken may still be in its TLS handshake.
const SETTLE: Duration = Duration::from_millis(100);
/// The shortest drain after an upgrade: nobody waits for it, so a handshake may take longer.
const SETTLE_UPGRADE: Duration = Duration::from_secs(2);
/// How often the end of the drain is looked for.
const TICK: Duration = Duration::from_millis(10);
/// What a refusal may take to be written once the drain is over, beyond the connect that its call may be in.
const OVERTIME: Duration = Duration::from_secs(1);
/// For the listeners to be closed.
const CLOSE: Duration = Duration::from_secs(1);
/// To tell the other nodes of a fleet.
const LEAVE: Duration = Duration::from_secs(1);
/// For the lines of the access log that wait, and as much for the traces.
const FLUSH: Duration = Duration::from_secs(1);

/// Tells Pingora to stop.
pub(super) struct Stop(watch::Receiver<bool>);

#[async_trait]
impl ShutdownSignalWatch for Stop {
    async fn recv(&self) -> ShutdownSignal {
        let mut told = self.0.clone();
        if told.wait_for(|told| *told).await.is_err() {
            // The control runtime is gone, and the process with it.
            return std::future::pending().await;
        }
        ShutdownSignal::GracefulTerminate
    }
}

/// The signals that the process hears. From when this is made none of them kills it; one that nobody waits for yet is kept.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) ends: Ends,
    /// SIGHUP.
    pub(super) hangups: Signal,
    /// SIGUSR1.
    pub(super) rotations: Signal,
}

impl Signals {
    /// Starts to hear them.
    ///
    /// # Errors
    /// The system refuses a signal handler.
    pub(super) fn hear() -> io::Result<Self> {
        Ok(Self {
            ends: Ends { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? },
            hangups: signal(SignalKind::hangup())?,
            rotations: signal(SignalKind::user_defined1())?,
        })
    }
}

/// Lets the signals, or an upgrade, end the process.
pub(super) fn end_by(ends: Ends, rooms: &Arc<Rooms>) -> Stop {
    let (tell, told) = watch::channel(false);
    tokio::spawn(end(Arc::clone(rooms), ends, tell));
    Stop(told)
}

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub(super) struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    /// Returns when either came.
    pub(super) async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn end(rooms: Arc<Rooms>, mut signals: Ends, tell: watch::Sender<bool>) {
    let mut succeeded = rooms.vitals.succeeded.subscribe();
    let settle = tokio::select! {
        () = signals.recv() => SETTLE,
        _ = succeeded.wait_for(|succeeded| *succeeded) => SETTLE_UPGRADE,
    };
    let (drain, connect) = limits(&rooms);
    tracing::info!(seconds = drain.as_secs_f64(), "stopping: no new connections, running calls go on");
    if settle == SETTLE {
        // after an upgrade another process is the service
        notify::stopping();
    }
    rooms.ready.stopping();
    rooms.doors.store(Doors::default());
    let begun = Instant::now();
    tell.send_replace(true);
    // First the listeners, then the connections: a client that is told to go must not come back through a door that is just closing.
    let _ = tokio::time::timeout(CLOSE, rooms.vitals.closed.subscribe().wait_for(|closed| *closed)).await;
    rooms.state.drain.begin(drain.saturating_sub(begun.elapsed()));
    let mut last = begun + drain + connect + OVERTIME;
    loop {
        tokio::select! {
            biased;
            () = signals.recv() => {
                tracing::warn!("stopping now: calls that still run are refused");
                rooms.state.drain.begin(Duration::ZERO);
                last = last.min(Instant::now() + connect + OVERTIME);
            }
            () = tokio::time::sleep(TICK) => {}
        }
        let now = Instant::now();
        if now >= last || (now >= begun + settle && rooms.state.drain.is_idle()) {
            break;
        }
    }
    match rooms.state.drain.requests() {
        0 => tracing::info!(seconds = begun.elapsed().as_secs_f64(), "stopped: every call was answered"),
        cut => tracing::error!(cut, "stopped: these answers could not be written in time"),
    }
    rooms.sessions.close().await;
    let _ = tokio::time::timeout(LEAVE, rooms.control.leave()).await;
    let _ = rooms.log.flush(FLUSH);
    rooms.state.traces.flush(FLUSH);
    upgrade::bequeath(&rooms).await;
    let _ = rooms.vitals.ends.send(End::Drained);
}

/// `timeouts.drain` and `timeouts.connect` as they are now: a reload changes them.
fn limits(rooms: &Rooms) -> (Duration, Duration) {
    match rooms.live.load() {
        Some(snapshot) => (snapshot.settings.drain_timeout, snapshot.settings.connect_timeout),
        None => (Duration::ZERO, Duration::ZERO),
    }
}
