//! Stage `throttle`: is there a token left, and room at the server? (contract §2 rows 11 and 14, §5, §8)
//!
//! **Invariant.** The server's breaker, its room and the age of its listing are judged before its rate spends a token, so
//! that a refused call never spends another team's quota.

use super::Now;
use crate::{
    policy::snapshot::{KeyPolicy, ServerPolicy, Settings},
    refusal::{Refusal, Unavailable},
    upstream::breaker::{HealthLimits, NotAttempted, Permit},
};

/// Spends one token of the key.
///
/// # Refuses
/// - [`Refusal::KeyRateLimited`]
pub fn key(key: &KeyPolicy, now: Now) -> Result<(), Refusal> {
    key.used.note(now.unix);
    match &key.rate {
        None => Ok(()),
        Some((rate, bucket)) => {
            bucket.charge(*rate, now.nanos).map_err(|retry_after| Refusal::KeyRateLimited { retry_after })
        }
    }
}

/// Takes a place at the server and spends one of its tokens; the last check before forwarding.
///
/// # Refuses
/// - [`Refusal::UpstreamUnavailable`] without having tried, then [`Refusal::ServerRateLimited`].
pub fn server(server: &ServerPolicy, settings: &Settings, now: Now) -> Result<Permit, Refusal> {
    let permit = server.upstream.health.enter(limits(server, settings), now.millis()).map_err(not_attempted)?;
    if let Some((rate, bucket)) = &server.rate
        && let Err(retry_after) = bucket.charge(*rate, now.nanos)
    {
        permit.unused();
        return Err(Refusal::ServerRateLimited { retry_after });
    }
    Ok(permit)
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
