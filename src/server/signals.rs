//! How the process ends: readiness off, listeners closed, running calls finished, then out (contract §1 `/readyz`, §10 `drain`).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::{
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};

use super::Rooms;

/// After the listeners closed, calls that were accepted last may still be on their way in.
const SETTLE: Duration = Duration::from_millis(100);

/// Waits for a signal to stop, and ends the process as soon as it is idle.
pub(super) struct Signals {
    rooms: Arc<Rooms>,
    control: Handle,
}

impl Signals {
    pub(super) fn new(rooms: Arc<Rooms>, control: Handle) -> Self {
        Self { rooms, control }
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: no new connections, running calls go on");
        self.rooms.ready.stopping();
        super::notify::stopping();
        self.control.spawn(leave_when_idle(Arc::clone(&self.rooms)));
        ShutdownSignal::GracefulTerminate
    }
}

/// Ends the process once no request is being served, or when the drain time is over.
async fn leave_when_idle(rooms: Arc<Rooms>) {
    let idle = async {
        loop {
            tokio::time::sleep(SETTLE).await;
            if rooms.state.in_flight.load(Ordering::Relaxed) == 0 {
                return;
            }
        }
    };
    let drained = tokio::time::timeout(rooms.conf.timeouts.drain.0, idle).await.is_ok();
    if !drained {
        tracing::warn!("the drain time is over; the calls that still run are cut off");
    }
    rooms.sessions.close().await;
    let _ = rooms.log.flush(Duration::from_secs(1));
    std::process::exit(0);
}
