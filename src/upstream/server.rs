//! One server as the data path holds it: where it is, whose session, how healthy. Lives on across snapshots.
//!
//! The control plane obtains it from the [`Registry`] as it compiles a policy; a server whose description did not change is the
//! same one as before, so a reload resets neither its breaker nor its sessions (contract §5).

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
    time::Duration,
};

use pingora::{
    protocols::ALPN,
    upstreams::peer::HttpPeer,
    utils::tls::{CertKey, WrappedX509},
};

use super::{
    breaker::Health,
    dns::{Addresses, Unresolved},
    egress::judge_ip,
    exchange::AskError,
    sessions::{Lease, SessionKey, Sessions},
    target::{Target, read_certificates},
};
use crate::model::{
    mcp::{Era, Revision},
    records::SessionMode,
};

/// Idle connections are kept for less than the 5 s after which common servers close theirs.
const IDLE: Duration = Duration::from_secs(4);
/// Streams of one HTTP/2 connection.
const H2_STREAMS_MAX: usize = 100;

/// A server.
pub struct Upstream {
    /// How the gateway's own client speaks to it.
    pub target: Arc<Target>,
    /// Its judged addresses.
    pub addresses: Arc<Addresses>,
    /// Breaker, room, age of its listing.
    pub health: Arc<Health>,
    sessions: Arc<Sessions>,
    name: Arc<str>,
    group_key: u64,
    ca: Option<Arc<[WrappedX509]>>,
    identity: Option<Arc<CertKey>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a server is spoken to in one call.
#[derive(Debug)]
pub struct Spoken {
    /// The revision.
    pub revision: Revision,
    /// The legacy session.
    pub lease: Option<Lease>,
}

/// On whose behalf a server is spoken to.
#[derive(Clone, Copy, Debug)]
pub struct Behalf<'b> {
    /// The calling key.
    pub key_id: Option<&'b Arc<str>>,
    /// The user whose credential goes along; none: the server's own does.
    pub user: Option<&'b Arc<str>>,
    /// The server with that credential.
    pub target: &'b Arc<Target>,
}

impl Spoken {
    /// `Mcp-Session-Id` of the call, if the server gave one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.lease.as_ref().and_then(Lease::id)
    }
}

impl Upstream {
    /// Settles how to speak: a modern server needs nothing, a legacy one a session. `lost` is one that the server no longer knows.
    ///
    /// # Errors
    /// [`AskError`] of `initialize`.
    pub async fn speak(
        &self,
        revision: Revision,
        (mode, behalf): (SessionMode, Behalf<'_>),
        lost: Option<Spoken>,
    ) -> Result<Spoken, AskError> {
        if revision.era() == Era::Modern {
            return Ok(Spoken { revision, lease: None });
        }
        let lease = match lost.and_then(|spoken| spoken.lease) {
            Some(lost) => self.sessions.renew(lost, revision).await?,
            None => {
                let owner = behalf.key_id.filter(|_| mode == SessionMode::PerKey).map(Arc::clone);
                let user = behalf.user.map(Arc::clone);
                let credential = behalf.target.credential.fingerprint();
                let key = SessionKey { server: Arc::clone(&self.name), credential, owner, user };
                self.sessions.open(behalf.target, &key, revision).await?
            }
        };
        Ok(Spoken { revision: lease.revision(), lease: Some(lease) })
    }

    /// The peer to connect to, at an address that was judged and is judged again here. Users share no connection: a server may
    /// tie what it knows of a caller to one.
    ///
    /// # Errors
    /// [`Unresolved`]: no address that may be connected to.
    pub fn peer(&self, left: Duration, user: Option<&Arc<str>>) -> Result<HttpPeer, Unresolved> {
        let address = self.addresses.pick()?;
        if !judge_ip(address.ip(), &self.target.rules) {
            return Err(Unresolved);
        }
        let endpoint = &self.target.endpoint;
        let mut peer = HttpPeer::new(address, endpoint.https, endpoint.sni.clone());
        peer.group_key = user.map_or(self.group_key, |user| of_user(self.group_key, user));
        peer.client_cert_key = self.identity.clone();
        let options = &mut peer.options;
        options.connection_timeout = Some(self.target.connect_timeout.min(left));
        options.total_connection_timeout = Some(self.target.connect_timeout.min(left));
        // A safety net behind the call's wall clock, which `held.rs` keeps.
        options.read_timeout = Some(left + Duration::from_secs(1));
        options.write_timeout = Some(left + Duration::from_secs(1));
        options.idle_timeout = Some(IDLE);
        options.ca = self.ca.clone();
        options.max_h2_streams = H2_STREAMS_MAX;
        options.alpn = match (self.target.http2, endpoint.https) {
            (false, _) => ALPN::H1,
            (true, true) => ALPN::H2H1,
            (true, false) => ALPN::H2,
        };
        Ok(peer)
    }
}

/// Hands out the server of a description; control plane only.
#[derive(Debug)]
pub struct Registry {
    sessions: Arc<Sessions>,
    known: HashMap<Arc<str>, Weak<Upstream>>,
}

impl Registry {
    /// An empty registry whose legacy sessions live in `sessions`.
    #[must_use]
    pub fn new(sessions: Arc<Sessions>) -> Self {
        Self { sessions, known: HashMap::new() }
    }

    /// The server of that unique name: the same one as long as its description is the same. `now_ms` is when a new one begins.
    pub fn obtain(&mut self, name: Arc<str>, target: Target, now_ms: u64) -> Arc<Upstream> {
        let before = self.known.get(&name).and_then(Weak::upgrade);
        if let Some(before) = &before
            && same(&before.target, &target)
        {
            return Arc::clone(before);
        }
        let moved = before.as_ref().is_none_or(|before| before.target.endpoint != target.endpoint);
        let health = match before.filter(|_| !moved) {
            Some(before) => Arc::clone(&before.health),
            None => Arc::new(Health::new(now_ms)),
        };
        let upstream = Arc::new(Upstream {
            addresses: Arc::new(Addresses::new(target.endpoint.clone(), Arc::clone(&target.rules))),
            health,
            sessions: Arc::clone(&self.sessions),
            name: Arc::clone(&name),
            group_key: group_key(&name, &target),
            ca: target.tls.ca_pem.as_deref().and_then(certificates).map(Into::into),
            identity: identity(&target),
            target: Arc::new(target),
        });
        self.known.insert(name, Arc::downgrade(&upstream));
        upstream
    }

    /// Gives a server that runs its place back, after a draft that was dropped had put another there.
    pub fn restore(&mut self, upstream: &Arc<Upstream>) {
        self.known.insert(Arc::clone(&upstream.name), Arc::downgrade(upstream));
    }

    /// Forgets the servers that no snapshot holds any more.
    pub fn sweep(&mut self) {
        self.known.retain(|_, server| server.strong_count() > 0);
    }
}

fn same(a: &Target, b: &Target) -> bool {
    a.endpoint == b.endpoint
        && a.rules == b.rules
        && a.credential == b.credential
        && a.tls == b.tls
        && a.connect_timeout == b.connect_timeout
        && a.timeout == b.timeout
        && a.http2 == b.http2
}

/// Pingora's pool does not tell CA bundles and ALPN apart, so connections of different settings get different groups.
fn group_key(name: &str, target: &Target) -> u64 {
    let mut hash = DefaultHasher::new();
    name.hash(&mut hash);
    target.endpoint.hash(&mut hash);
    target.tls.hash(&mut hash);
    target.http2.hash(&mut hash);
    hash.finish()
}

fn of_user(group_key: u64, user: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    (group_key, user).hash(&mut hash);
    hash.finish()
}

/// Reads a bundle into Pingora's form; none if any part of it cannot be read.
fn certificates(pem: &[u8]) -> Option<Vec<WrappedX509>> {
    let list = read_certificates(pem).ok()?;
    std::panic::catch_unwind(|| {
        list.into_iter().map(|der| WrappedX509::new(der.as_ref().to_vec(), pingora::utils::tls::parse_x509)).collect()
    })
    .ok()
}

fn identity(target: &Target) -> Option<Arc<CertKey>> {
    let (certificate, key) = target.tls.identity_pem.as_ref()?;
    let chain = read_certificates(certificate).ok()?;
    let key =
        <rustls::pki_types::PrivateKeyDer<'static> as rustls::pki_types::pem::PemObject>::from_pem_slice(key).ok()?;
    let chain = chain.into_iter().map(|der| der.as_ref().to_vec()).collect();
    let key = key.secret_der().to_vec();
    std::panic::catch_unwind(|| Arc::new(CertKey::new(chain, key))).ok()
}
