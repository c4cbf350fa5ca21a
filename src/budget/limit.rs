//! A limit as the policy holds it: a bucket of this node alone, or this node's part of one that a fleet shares; and who hands
//! them out.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
};

use super::{Bucket, Fleet, Lease, Used};
use crate::model::units::Rate;

/// The rate limit of a key or a server, at the rate of one policy.
#[derive(Clone, Debug)]
pub enum Limit {
    /// Of this node alone, exact.
    Local(Rate, Arc<Bucket>),
    /// Shared by a fleet.
    Shared(Rate, Arc<Lease>, Arc<Fleet>),
}

/// Why a limit gave no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// There is none; the whole seconds to the next one, rounded up, at least 1 (`Retry-After`, contract §8).
    Wait(u64),
    /// This node has none; [`Limit::ask`] tells whether there is one.
    Ask,
}

impl Limit {
    /// The rate that the policy says.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        match self {
            Self::Local(rate, _) | Self::Shared(rate, ..) => *rate,
        }
    }

    /// Takes one token at `now_ns`, by the clock of [`super::clock_nanos`].
    ///
    /// # Errors
    /// [`Short`]; never [`Short::Ask`] for a limit of this node alone.
    pub fn charge(&self, now_ns: u64) -> Result<(), Short> {
        match self {
            Self::Local(rate, bucket) => bucket.charge(*rate, now_ns).map_err(Short::Wait),
            Self::Shared(rate, lease, _) => lease.charge(*rate, now_ns),
        }
    }

    /// Takes one token of the store of the fleet; waits for it at most [`super::ASK_MAX`].
    ///
    /// # Errors
    /// There is none: the whole seconds to the next one, rounded up, at least 1.
    pub async fn ask(&self) -> Result<(), u64> {
        match self {
            // Not reached: a local bucket says at once.
            Self::Local(..) => Err(1),
            Self::Shared(rate, lease, fleet) => fleet.ask(lease, *rate).await,
        }
    }
}

/// Whose budget a bucket is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A key's requests: its id.
    Key(String),
    /// A server's calls across every key: organization and slug.
    Server(String, String),
}

impl fmt::Display for Scope {
    /// The key of the bucket in the store of a fleet, with the hash tag of a cluster.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(id) => write!(f, "toolgate:{{key:{id}}}"),
            Self::Server(organization, slug) => write!(f, "toolgate:{{server:{organization}/{slug}}}"),
        }
    }
}

/// Hands out the limit of a scope; control plane only.
#[derive(Debug, Default)]
pub struct Registry {
    buckets: HashMap<Scope, Weak<Bucket>>,
    leases: HashMap<Scope, Weak<Lease>>,
    used: HashMap<Scope, Weak<Used>>,
    fleet: Option<Arc<Fleet>>,
}

impl Registry {
    /// Limits that a fleet shares; none: limits of this node alone.
    #[must_use]
    pub fn new(fleet: Option<Arc<Fleet>>) -> Self {
        Self { fleet, ..Self::default() }
    }

    /// The scope's limit: what was spent of it stays spent as long as any snapshot holds it.
    pub fn obtain(&mut self, scope: Scope, rate: Rate) -> Limit {
        match &self.fleet {
            None => Limit::Local(rate, kept(&mut self.buckets, scope, |_| Bucket::default())),
            Some(fleet) => {
                let lease = kept(&mut self.leases, scope, |scope| fleet.lease(scope.to_string()));
                Limit::Shared(rate, lease, Arc::clone(fleet))
            }
        }
    }

    /// When the key of that id was used last: the same one as long as any snapshot holds it.
    pub fn used(&mut self, key: &str) -> Arc<Used> {
        kept(&mut self.used, Scope::Key(key.to_owned()), |_| Used::default())
    }

    /// Forgets what no snapshot holds any more.
    pub fn sweep(&mut self) {
        self.used.retain(|_, used| used.strong_count() > 0);
        self.buckets.retain(|_, bucket| bucket.strong_count() > 0);
        self.leases.retain(|_, lease| lease.strong_count() > 0);
    }
}

fn kept<T>(held: &mut HashMap<Scope, Weak<T>>, scope: Scope, make: impl FnOnce(&Scope) -> T) -> Arc<T> {
    if let Some(kept) = held.get(&scope).and_then(Weak::upgrade) {
        return kept;
    }
    let made = Arc::new(make(&scope));
    held.insert(scope, Arc::downgrade(&made));
    made
}
