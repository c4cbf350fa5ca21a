//! What systemd is told of a `Type=notify` unit: ready, stopping. Without systemd (no `NOTIFY_SOCKET`) nothing is said.

use std::{sync::Arc, time::Duration};

use sd_notify::NotifyState;

use crate::ops::Ready;

/// How often readiness is looked at until it is there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Says `READY=1` as soon as `/readyz` would be 200, once.
pub(super) async fn ready(facts: Arc<Ready>) {
    while !facts.lacks().is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    say(NotifyState::Ready);
}

/// Says `STOPPING=1`.
pub(super) fn stopping() {
    say(NotifyState::Stopping);
}

fn say(state: NotifyState<'_>) {
    if let Err(why) = sd_notify::notify(&[state]) {
        tracing::warn!(%why, "systemd could not be told");
    }
}
