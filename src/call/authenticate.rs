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
    policy::{
        issuers::{self, Judged, Subject},
        snapshot::{KeyPolicy, Snapshot, Token},
    },
    refusal::Refusal,
};

/// What a caller showed of who it is, judged once; whom it stands for may change with the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A key's own token.
    Key(KeyDigest),
    /// A token of an issuer.
    Issued {
        /// The id of a key.
        key_id: String,
        /// The organization that the key must be of.
        organization: String,
        /// Seconds since 1970.
        expires: i64,
    },
}

/// Judges the one bearer token of the request.
///
/// # Refuses
/// - [`Refusal::Unauthenticated`]: as [`bearer`], or a token of an issuer that is not valid.
pub fn proof(snapshot: &Snapshot, headers: &HeaderMap, now: Now) -> Result<Proof, Refusal> {
    let token = token(headers)?;
    match issuers::judge(&snapshot.issuers, token, now.unix) {
        Judged::Foreign => Ok(Proof::Key(KeyDigest::of(token))),
        Judged::Invalid => Err(Refusal::Unauthenticated),
        Judged::Valid(issuer, Subject { key_id, expires }) => {
            Ok(Proof::Issued { key_id, organization: issuer.organization().to_owned(), expires })
        }
    }
}

/// The key of a proof, while both are valid.
///
/// # Refuses
/// - [`Refusal::Unauthenticated`]: unknown, expired or revoked, or a key of another organization than the issuer's.
pub fn holder<'s>(snapshot: &'s Snapshot, proof: &Proof, now: Now) -> Result<&'s Token, Refusal> {
    match proof {
        Proof::Key(digest) => key(snapshot, digest, now),
        Proof::Issued { key_id, organization, expires } => snapshot
            .by_id
            .get(key_id.as_str())
            .filter(|token| now.unix < *expires && token.expires.is_none_or(|expires| now.unix < expires))
            .filter(|token| *token.key.organization.id == **organization)
            .ok_or(Refusal::Unauthenticated),
    }
}

/// The digest of the one bearer token of the request. No other place is read.
///
/// # Refuses
/// - [`Refusal::Unauthenticated`]: none, more than one `Authorization`, another scheme, or an empty token.
pub fn bearer(headers: &HeaderMap) -> Result<KeyDigest, Refusal> {
    token(headers).map(KeyDigest::of)
}

fn token(headers: &HeaderMap) -> Result<&[u8], Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refusal::Unauthenticated) };
    let (scheme, token) = value.as_bytes().split_at_checked(7).ok_or(Refusal::Unauthenticated)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(Refusal::Unauthenticated);
    }
    Ok(token)
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
    let mut address = peer.to_canonical();
    if !is_trusted(address, trusted_proxies) {
        return address;
    }
    for line in headers.get_all("x-forwarded-for").iter().rev() {
        for entry in line.to_str().unwrap_or("").rsplit(',') {
            let Ok(next) = entry.trim().parse::<IpAddr>() else { return address };
            address = next.to_canonical();
            if !is_trusted(address, trusted_proxies) {
                return address;
            }
        }
    }
    address
}

/// Whether what a peer says of others is believed.
#[must_use]
pub fn is_trusted(peer: IpAddr, trusted_proxies: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    trusted_proxies.iter().any(|net| net.contains(&peer))
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
