//! Stage `authenticate`: who calls, from where, and in what standing? (contract §2 rows 5 to 10)
//!
//! **Invariant.** Missing, unknown, expired and revoked keys get one refusal, byte for byte the same. A token exists
//! here only as its digest (invariant 8).

use std::net::IpAddr;

use http::{HeaderMap, header::AUTHORIZATION};
use ipnet::IpNet;

use super::Now;
use crate::{
    model::id::KeyDigest,
    policy::snapshot::{KeyPolicy, Snapshot, Token},
    refusal::Refusal,
};

/// The digest of the one bearer token of the request. No other place is read.
///
/// # Refuses
/// - [`Refusal::Unauthenticated`]: none, more than one `Authorization`, another scheme, or an empty token.
pub fn bearer(headers: &HeaderMap) -> Result<KeyDigest, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refusal::Unauthenticated) };
    let (scheme, token) = value.as_bytes().split_at_checked(7).ok_or(Refusal::Unauthenticated)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(Refusal::Unauthenticated);
    }
    Ok(KeyDigest::of(token))
}

/// The key of a token, while it is valid.
///
/// # Refuses
/// - [`Refusal::Unauthenticated`]: unknown, expired or revoked (a revoked key is not in the snapshot).
pub fn key<'s>(snapshot: &'s Snapshot, digest: &KeyDigest, now: Now) -> Result<&'s Token, Refusal> {
    snapshot
        .keys
        .get(digest)
        .filter(|token| token.expires.is_none_or(|expires| now.unix < expires))
        .ok_or(Refusal::Unauthenticated)
}

/// The address that allowlists and failed attempts are judged by.
///
/// `X-Forwarded-For` counts only from trusted proxies: the right-most address that is not one of them. An entry that is
/// not an address ends the walk at the proxy that added it.
#[must_use]
pub fn client_address(headers: &HeaderMap, peer: IpAddr, trusted_proxies: &[IpNet]) -> IpAddr {
    let trusted = |address: &IpAddr| trusted_proxies.iter().any(|net| net.contains(address));
    let mut address = peer.to_canonical();
    if trusted_proxies.is_empty() || !trusted(&address) {
        return address;
    }
    for line in headers.get_all("x-forwarded-for").iter().rev() {
        for entry in line.to_str().unwrap_or("").rsplit(',') {
            let Ok(next) = entry.trim().parse::<IpAddr>() else { return address };
            address = next.to_canonical();
            if !trusted(&address) {
                return address;
            }
        }
    }
    address
}

/// Address, key, organization, project, plan and subscription, in that order.
///
/// # Refuses
/// - [`Refusal::IpNotAllowed`], then the first of rows 7 to 10 that applies.
pub fn standing(key: &KeyPolicy, client: IpAddr) -> Result<(), Refusal> {
    if !key.allow_ips.is_empty() && !key.allow_ips.iter().any(|net| net.contains(&client)) {
        return Err(Refusal::IpNotAllowed);
    }
    key.standing.clone().map_or(Ok(()), Err)
}
