//! Who calls: the peer of the unix socket, who may do everything, or the bearer of a token with a role (contract §9).
//!
//! **Invariant.** A token exists here only as its digest, and is compared in constant time with every one that is known.

use std::net::IpAddr;

use axum::http::{HeaderMap, header::AUTHORIZATION};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use super::{Rooms, reply::Refused};
use crate::{
    budget::clock_nanos,
    conf::{AdminToken, Role},
    model::id::KeyDigest,
};

/// From where a connection came.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// The unix socket: the file's mode has let it in.
    Socket {
        /// The peer's user, as the kernel says.
        uid: Option<u32>,
    },
    /// The TCP listener.
    Tcp(IpAddr),
}

/// Who calls.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// What the audit record calls it.
    pub(super) name: String,
    /// What it may do.
    pub(super) role: Role,
}

/// Tells who calls.
///
/// # Errors
/// 401, or 429 after too many failures of the address.
pub(super) fn authenticate(rooms: &Rooms, peer: &Peer, headers: &HeaderMap) -> Result<Caller, Refused> {
    let address = match peer {
        Peer::Socket { uid } => {
            let name = uid.map_or_else(|| "socket".to_owned(), |uid| format!("socket uid {uid}"));
            return Ok(Caller { name, role: Role::Admin });
        }
        Peer::Tcp(address) => *address,
    };
    let conf = &rooms.control.catalog().conf;
    if let Some(caller) = bearer(headers).and_then(|digest| known(&conf.admin.tokens, &digest)) {
        return Ok(caller);
    }
    Err(failed(rooms, address))
}

/// Counts a failed attempt of an address.
pub(super) fn failed(rooms: &Rooms, address: IpAddr) -> Refused {
    let now = clock_nanos(rooms.control.started());
    let limit = rooms.control.catalog().conf.rate_limits.failed_auth;
    match limit.and_then(|limit| rooms.failures.note(address, limit, now)) {
        Some(seconds) => Refused::too_many_failures(seconds),
        None => Refused::unauthenticated(),
    }
}

/// The digest of the one bearer token. No other place is read.
fn bearer(headers: &HeaderMap) -> Option<KeyDigest> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then(|| KeyDigest::of(token))
}

/// Looks at every token, whichever fits.
pub(super) fn known(tokens: &[AdminToken], digest: &KeyDigest) -> Option<Caller> {
    let mut place = u32::MAX;
    for (index, token) in (0u32..).zip(tokens) {
        let fits: Choice = token.sha256.0.ct_eq(&digest.0);
        place.conditional_assign(&index, fits);
    }
    let token = tokens.get(usize::try_from(place).ok()?)?;
    Some(Caller { name: format!("token {}", token.name), role: token.role })
}

/// The role as conf and messages write it.
pub(super) const fn role_name(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Approver => "approver",
        Role::Admin => "admin",
    }
}
