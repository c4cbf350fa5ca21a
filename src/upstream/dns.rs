//! From a host name to addresses that were judged: the resolver, and the slot from which a call takes its address.
//!
//! A name is refused when **any** of its addresses is not allowed, so that a name with two faces never connects. The
//! slot is read by calls without a lock, an allocation or a wait; a background task fills it. Whoever connects judges
//! the address once more ([`super::egress::judge_address`]): what was judged is what is connected to.
//! Knows no HTTP and no policy object.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering, fence},
    },
    time::Duration,
};

use thiserror::Error;

use super::egress::{EgressRules, Endpoint, is_own, judge_address};

/// The most addresses of one name that are used; all of them are judged, the rest are left unused.
pub const ADDRESSES_MAX: usize = 8;
/// How long a look-up may take.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a name is looked up again in the background.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// Why a name gives no address. The text is for a person and does not repeat the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// The name does not exist, or the resolver failed.
    #[error("the host name could not be resolved")]
    NotFound,
    /// No answer within [`LOOKUP_TIMEOUT`].
    #[error("the host name was not resolved in time")]
    TimedOut,
    /// At least one of its addresses is not allowed.
    #[error("the host name leads to an address that is not public (egress.allow_networks opens networks)")]
    Refused,
    /// At least one of its addresses is our own listener.
    #[error("the host name leads to the gateway itself")]
    Own,
}

/// Looks names up: in a fixed table, or with the operating system's resolver.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    table: Option<Arc<HashMap<String, Vec<IpAddr>>>>,
}

impl Resolver {
    /// The operating system's resolver.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// A fixed table; a name that is not in it does not exist.
    #[must_use]
    pub fn table(entries: impl IntoIterator<Item = (String, Vec<IpAddr>)>) -> Self {
        Self { table: Some(Arc::new(entries.into_iter().collect())) }
    }

    /// The addresses of `endpoint`, all judged, at least one and at most [`ADDRESSES_MAX`].
    ///
    /// # Errors
    /// [`ResolveError`]; one forbidden address refuses the whole name.
    pub async fn resolve(&self, endpoint: &Endpoint, rules: &EgressRules) -> Result<Vec<IpAddr>, ResolveError> {
        match endpoint.literal {
            Some(ip) => judge_all(vec![ip], endpoint.port, rules),
            None => self.resolve_name(&endpoint.host, endpoint.port, rules).await,
        }
    }

    /// As [`Self::resolve`], for a bare name.
    ///
    /// # Errors
    /// [`ResolveError`]
    pub async fn resolve_name(&self, host: &str, port: u16, rules: &EgressRules) -> Result<Vec<IpAddr>, ResolveError> {
        if let Some(table) = &self.table {
            return judge_all(table.get(host).cloned().unwrap_or_default(), port, rules);
        }
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port))).await;
        let found: Vec<SocketAddr> =
            lookup.map_err(|_| ResolveError::TimedOut)?.map_err(|_| ResolveError::NotFound)?.collect();
        let mut judged = judge_all(found.iter().map(SocketAddr::ip).collect(), port, rules)?;
        let reachable: Vec<IpAddr> = judged.iter().copied().filter(|ip| has_route(*ip)).collect();
        if !reachable.is_empty() {
            judged = reachable;
        }
        Ok(judged)
    }
}

fn judge_all(found: Vec<IpAddr>, port: u16, rules: &EgressRules) -> Result<Vec<IpAddr>, ResolveError> {
    let mut judged: Vec<IpAddr> = Vec::new();
    for ip in found.into_iter().map(|ip| ip.to_canonical()) {
        let address = SocketAddr::new(ip, port);
        if !judge_address(address, rules) {
            return Err(if is_own(address, rules) { ResolveError::Own } else { ResolveError::Refused });
        }
        if !judged.contains(&ip) {
            judged.push(ip);
        }
    }
    judged.truncate(ADDRESSES_MAX);
    if judged.is_empty() { Err(ResolveError::NotFound) } else { Ok(judged) }
}

/// Whether this machine has any route to `ip`; nothing is sent. Keeps IPv6 answers from failing calls where there is no IPv6.
fn has_route(ip: IpAddr) -> bool {
    let from: SocketAddr = if ip.is_ipv4() { ([0u8; 4], 0).into() } else { ([0u16; 8], 0).into() };
    UdpSocket::bind(from).and_then(|socket| socket.connect((ip, 9))).is_ok()
}

/// No address to connect to: `upstream_unavailable`, could not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the server's host name has no usable address")]
pub struct Unresolved;

/// The judged addresses of one server, outside the snapshot, filled in the background and read by every call.
///
/// Two banks of atomics: the writer fills the one that is not active and then turns to it, so a reader never waits for a
/// writer; it only reads again when the list was replaced twice while it read.
#[derive(Debug)]
pub struct Addresses {
    endpoint: Endpoint,
    rules: Arc<EgressRules>,
    active: AtomicUsize,
    banks: [Bank; 2],
    turn: AtomicUsize,
}

#[derive(Debug, Default)]
struct Bank {
    /// Odd while it is being written.
    version: AtomicU64,
    len: AtomicUsize,
    /// One bit for each address that refused its last connection.
    failed: AtomicU64,
    high: [AtomicU64; ADDRESSES_MAX],
    low: [AtomicU64; ADDRESSES_MAX],
}

impl Addresses {
    /// The slot of one server; an endpoint that is written as an address is usable at once.
    #[must_use]
    pub fn new(endpoint: Endpoint, rules: Arc<EgressRules>) -> Self {
        let literal = endpoint.literal;
        let slot = Self {
            endpoint,
            rules,
            active: AtomicUsize::new(0),
            banks: [Bank::default(), Bank::default()],
            turn: AtomicUsize::new(0),
        };
        if let Some(Ok(judged)) = literal.map(|ip| judge_all(vec![ip], slot.endpoint.port, &slot.rules)) {
            slot.publish(&judged);
        }
        slot
    }

    /// The endpoint that the addresses belong to.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The next address in turn, skipping those whose last connection failed while another is left.
    ///
    /// No lock, no allocation, no wait. The caller judges the address again as it connects.
    ///
    /// # Errors
    /// [`Unresolved`] before the first good look-up, or once the name led to a forbidden address.
    pub fn pick(&self) -> Result<SocketAddr, Unresolved> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        loop {
            let bank = self.bank(self.active.load(Ordering::Acquire));
            if let Some(picked) = bank.read(|bank| bank.choose(turn)) {
                return picked.map(|ip| SocketAddr::new(ip, self.endpoint.port)).ok_or(Unresolved);
            }
        }
    }

    /// Notes whether the last connection to `address` succeeded. No lock.
    pub fn note(&self, address: SocketAddr, connected: bool) {
        let bank = self.bank(self.active.load(Ordering::Acquire));
        let place = bank.read(|bank| (0..bank.len()).find(|&at| bank.get(at) == Some(address.ip().to_canonical())));
        if let Some(Some(at)) = place {
            let bit = 1u64 << at;
            if !connected {
                bank.failed.fetch_or(bit, Ordering::Relaxed);
            } else if bank.failed.load(Ordering::Relaxed) & bit != 0 {
                bank.failed.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// Looks the name up and publishes the answer. A look-up that fails leaves the last good addresses in place; a name
    /// that leads to a forbidden address loses all of them.
    ///
    /// # Errors
    /// What the look-up said.
    pub async fn refresh(&self, resolver: &Resolver) -> Result<(), ResolveError> {
        match resolver.resolve(&self.endpoint, &self.rules).await {
            Ok(judged) => self.publish(&judged),
            Err(fault) => {
                if matches!(fault, ResolveError::Refused | ResolveError::Own) {
                    self.publish(&[]);
                }
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Replaces the list. Does nothing while another writer is at it; its answer is as fresh.
    fn publish(&self, judged: &[IpAddr]) {
        let next = 1 - self.active.load(Ordering::Acquire).min(1);
        let current = self.bank(1 - next);
        if current.same(judged) {
            current.failed.store(0, Ordering::Relaxed);
        } else if self.bank(next).write(judged) {
            self.active.store(next, Ordering::Release);
        }
    }

    fn bank(&self, index: usize) -> &Bank {
        let [first, second] = &self.banks;
        if index == 0 { first } else { second }
    }
}

impl Bank {
    fn write(&self, judged: &[IpAddr]) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        let free = version.is_multiple_of(2)
            && self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !free {
            return false;
        }
        fence(Ordering::Release);
        for ((high, low), ip) in self.high.iter().zip(&self.low).zip(judged) {
            let [h, l] = halves(*ip);
            high.store(h, Ordering::Relaxed);
            low.store(l, Ordering::Relaxed);
        }
        self.len.store(judged.len().min(ADDRESSES_MAX), Ordering::Relaxed);
        self.failed.store(0, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
        true
    }

    /// Runs `look` on a list that nobody changed meanwhile; `None` if somebody did.
    fn read<T>(&self, look: impl FnOnce(&Self) -> T) -> Option<T> {
        let before = self.version.load(Ordering::Acquire);
        let seen = look(self);
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(seen)
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed).min(ADDRESSES_MAX)
    }

    fn get(&self, at: usize) -> Option<IpAddr> {
        let (high, low) = (self.high.get(at)?, self.low.get(at)?);
        Some(joined(high.load(Ordering::Relaxed), low.load(Ordering::Relaxed)))
    }

    fn choose(&self, turn: usize) -> Option<IpAddr> {
        let len = self.len();
        if len == 0 {
            return None;
        }
        let failed = self.failed.load(Ordering::Relaxed);
        let usable = |at: &usize| failed >> at & 1 == 0;
        let places = || (0..len).map(|step| (turn % len + step) % len);
        places().find(usable).or_else(|| places().next()).and_then(|at| self.get(at))
    }

    fn same(&self, judged: &[IpAddr]) -> bool {
        let len = self.len();
        len == judged.len().min(ADDRESSES_MAX) && (0..len).all(|at| self.get(at).as_ref() == judged.get(at))
    }
}

/// Keeps the addresses of a server fresh until the slot is dropped: at once, then each `every`.
pub async fn keep_fresh(slot: Weak<Addresses>, resolver: Resolver, every: Duration) {
    loop {
        let Some(addresses) = slot.upgrade() else { return };
        if addresses.endpoint.literal.is_some() {
            return;
        }
        if let Err(fault) = addresses.refresh(&resolver).await {
            tracing::warn!(%fault, "a server's host name was not refreshed");
        }
        drop(addresses);
        tokio::time::sleep(every).await;
    }
}

fn halves(ip: IpAddr) -> [u64; 2] {
    let six = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = six.octets();
    [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes([i, j, k, l, m, n, o, p])]
}

fn joined(high: u64, low: u64) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))).to_canonical()
}

#[cfg(test)]
mod tests;
