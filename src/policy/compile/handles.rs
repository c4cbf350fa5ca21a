//! What lives on from snapshot to snapshot: budgets, servers, and what was compiled already.

use std::{collections::HashMap, sync::Arc};

use super::tools::Compiled;
use crate::{
    budget,
    model::pin::Pin,
    policy::{issuers::Issuer, users::UserAccess},
    upstream::{engine::Engine, server::Registry},
};

/// What lives on from snapshot to snapshot.
#[derive(Debug)]
pub struct Handles {
    /// Token buckets.
    pub buckets: budget::Registry,
    /// Servers.
    pub upstreams: Registry,
    /// Compiled definitions by pin and exposed name.
    pub(super) definitions: HashMap<(Pin, String), Arc<Compiled>>,
    /// How many definitions were compiled so far.
    pub(super) compiled: u64,
    /// External engines by organization and rule.
    pub(super) engines: HashMap<(String, String), Arc<Engine>>,
    /// Users by organization, slug and name.
    pub(super) users: HashMap<(String, String, Arc<str>), Arc<UserAccess>>,
    /// Token issuers.
    pub(super) issuers: Vec<Arc<Issuer>>,
}

impl Handles {
    /// Handles of which nothing is kept yet.
    #[must_use]
    pub fn new(upstreams: Registry) -> Self {
        Self {
            buckets: budget::Registry::default(),
            upstreams,
            definitions: HashMap::new(),
            compiled: 0,
            engines: HashMap::new(),
            users: HashMap::new(),
            issuers: Vec::new(),
        }
    }

    /// How many definitions were compiled so far: what a change costs beyond looking everything through.
    #[must_use]
    pub const fn compiled(&self) -> u64 {
        self.compiled
    }
}
