//! Stage `throttle`: is there a token left, and room at the server? (contract §2 rows 11 and 14, §5, §8)
//!
//! **Invariant.** The server's breaker, its room and the age of its listing are judged before its rate spends a token, so
//! that a refused call never spends another team's quota.

use super::Now;
use crate::{
    budget::{Limit, Short},
    policy::snapshot::{KeyPolicy, ServerPolicy, Settings},
    refusal::{Refusal, Unavailable},
    upstream::breaker::{HealthLimits, NotAttempted, Permit},
};

/// Spends one token of the key. `Ok(Some(limit))`: the node has none, and the fleet's store must be asked ([`Limit::ask`])
/// before the call goes on; [`key_answer`] judges what it says.
///
/// # Refuses
/// - [`Refusal::KeyRateLimited`]
pub fn key(key: &KeyPolicy, now: Now) -> Result<Option<&Limit>, Refusal> {
    key.used.note(now.unix);
    let Some(limit) = &key.rate else { return Ok(None) };
    match limit.charge(now.nanos) {
        Ok(()) => Ok(None),
        Err(Short::Ask) => Ok(Some(limit)),
        Err(Short::Wait(retry_after)) => Err(Refusal::KeyRateLimited { retry_after }),
    }
}

/// What the store said of a key's token.
///
/// # Refuses
/// - [`Refusal::KeyRateLimited`]
pub fn key_answer(answer: Result<(), u64>) -> Result<(), Refusal> {
    answer.map_err(|retry_after| Refusal::KeyRateLimited { retry_after })
}

/// Takes a place at the server and spends one of its tokens; the last check before forwarding. `true`: the node has no token,
/// and the fleet's store must be asked first; [`server_answer`] judges what it says.
///
/// # Refuses
/// - [`Refusal::UpstreamUnavailable`] without having tried, then [`Refusal::ServerRateLimited`].
pub fn server(server: &ServerPolicy, settings: &Settings, now: Now) -> Result<(Permit, bool), Refusal> {
    let permit = server.upstream.health.enter(limits(server, settings), now.millis()).map_err(not_attempted)?;
    match server.rate.as_ref().map(|limit| limit.charge(now.nanos)) {
        None | Some(Ok(())) => Ok((permit, false)),
        Some(Err(Short::Ask)) => Ok((permit, true)),
        Some(Err(Short::Wait(retry_after))) => Err(server_refused(permit, retry_after)),
    }
}

/// What the store said of a server's token.
///
/// # Refuses
/// - [`Refusal::ServerRateLimited`]
pub fn server_answer(permit: Permit, answer: Result<(), u64>) -> Result<Permit, Refusal> {
    match answer {
        Ok(()) => Ok(permit),
        Err(retry_after) => Err(server_refused(permit, retry_after)),
    }
}

/// The place is given back, and a test of the breaker with it.
fn server_refused(permit: Permit, retry_after: u64) -> Refusal {
    permit.unused();
    Refusal::ServerRateLimited { retry_after }
}

/// As [`server`], without taking a place or spending a token: what `explain` needs to know.
///
/// # Refuses
/// - [`Refusal::UpstreamUnavailable`]
pub fn look(server: &ServerPolicy, settings: &Settings, now: Now) -> Result<(), Refusal> {
    server.upstream.health.look(limits(server, settings), now.millis()).map_err(not_attempted)
}

fn limits(server: &ServerPolicy, settings: &Settings) -> HealthLimits {
    HealthLimits {
        in_flight_max: server.max_in_flight,
        listing_age_max_ms: u64::try_from(settings.discovery_max_age.as_millis()).unwrap_or(u64::MAX),
    }
}

const fn not_attempted(cause: NotAttempted) -> Refusal {
    Refusal::UpstreamUnavailable(match cause {
        NotAttempted::ListingTooOld => Unavailable::NotListed,
        NotAttempted::MaxInFlight => Unavailable::Busy,
        NotAttempted::BreakerOpen => Unavailable::BreakerOpen,
    })
}
