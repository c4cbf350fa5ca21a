//! The control room: the ONE writer. Files, discovery and the management API all end here (contract §5, §9).
//!
//! Every change goes the same way: prepare a copy, resolve and compile it, store it in one transaction with its audit record,
//! publish the snapshot, answer with the revision. A policy that does not compile never replaces one that did.
//!
//! **Invariants.** Only this room publishes a snapshot and writes the store; it does one change at a time. What is refused leaves
//! state, store and snapshot as they were. What is answered is live and on disk.

mod batch;
mod catalog;
pub mod change;
mod changes;
mod check;
mod decide;
mod draft;
mod error;
mod fleet;
mod kept;
mod listing;
mod next;
mod plan;
mod secrets;
mod users;
mod write;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use thiserror::Error;
use tokio::sync::Mutex;

pub use self::{
    catalog::Catalog,
    check::{check, guardrails},
    error::ChangeError,
    fleet::LIVE_MAX,
    kept::Kept,
    plan::{check_slug_is_free, merged},
    users::{USERS_MAX, UserHeaders, show as show_user},
};
use self::{
    next::{Next, Overrides},
    write::TRIES_MAX,
};
use crate::{
    conf::{self, Conf, Fault, Policy, Sources},
    model::records::{Protocol, Records, Server},
    policy::{
        approval::ToolState,
        compile::{Handles, target_of},
        live::{Live, Slot},
        snapshot::Snapshot,
    },
    store::{AuditRow, Store, StoreError, Stored},
    upstream::target::Target,
};

/// Why a policy was not taken.
#[derive(Debug, Error)]
pub enum Rejected {
    /// The conf or the policy has faults; the text shows each with its place.
    #[error("{0}")]
    Faults(String),
    /// The store cannot be read or written.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
}

/// What a reload came to.
#[derive(Clone, Debug)]
pub struct Reloaded {
    /// The revision that is live.
    pub revision: u64,
    /// Warnings, rendered.
    pub warnings: String,
    /// What differs from before, by name.
    pub changed: Vec<String>,
    /// Options that changed and hold only after a restart.
    pub restart_required: Vec<&'static str>,
}

/// A server as discovery is to ask it.
#[derive(Clone, Debug)]
pub struct ToDiscover {
    /// `organization/slug`
    pub name: Arc<str>,
    /// How it is reached.
    pub target: Arc<Target>,
    /// Its era, or that it is to be found out.
    pub protocol: Protocol,
}

/// The control room.
#[derive(Debug)]
pub struct Control {
    live: Arc<Live>,
    store: Store,
    path: PathBuf,
    started: Instant,
    /// The conf of the start: what differs from it needs a restart, however often it is reloaded.
    running: Conf,
    catalog: Slot<Catalog>,
    /// Listings that wait for the writer.
    listings: Mutex<Vec<batch::Listing>>,
    /// How this node stands to a store that others share.
    standing: fleet::Standing,
    state: Mutex<State>,
}

/// What only the writer knows besides the catalog.
#[derive(Debug)]
struct State {
    files: Arc<Policy>,
    sources: Arc<Sources>,
    api: Records,
    left_out: next::LeftOut,
    overrides: Overrides,
    catalog: Arc<Catalog>,
    handles: Handles,
    opened: users::Known,
    /// What discovery found while the store was away, to be stored when it is back.
    unsaved: fleet::Unsaved,
    /// Keeps budgets and breakers while no policy is live.
    withdrawn: Option<Arc<Snapshot>>,
}

impl Control {
    /// Opens the store and publishes the first policy.
    ///
    /// # Errors
    /// [`Rejected`]: nothing is published.
    pub async fn start(
        (path, loaded): (&Path, conf::Loaded),
        live: Arc<Live>,
        (store, handles, started): (Store, Handles, Instant),
    ) -> Result<(Self, String), Rejected> {
        let (stored, away) = store.first().await?;
        let mut state = State {
            files: Arc::default(),
            sources: Arc::default(),
            api: Records::default(),
            left_out: HashMap::new(),
            overrides: Overrides::default(),
            catalog: Arc::default(),
            handles,
            opened: users::Known::default(),
            unsaved: fleet::Unsaved::default(),
            withdrawn: None,
        };
        state.absorb(stored).map_err(Rejected::Faults)?;
        let catalog = Slot::new(Catalog::default());
        let control = Self {
            live,
            standing: fleet::Standing::new(&loaded.conf, started, away),
            store,
            path: path.to_owned(),
            started,
            running: loaded.conf.clone(),
            catalog,
            listings: Mutex::default(),
            state: Mutex::new(state),
        };
        let mut state = control.state.lock().await;
        let catalog = Box::pin(control.take_files(&mut state, loaded, "policy.load")).await?;
        drop(state);
        Ok((control, catalog.warnings.clone()))
    }

    /// Reads conf and policy files again and publishes them, all or nothing (contract §10).
    ///
    /// # Errors
    /// [`Rejected`]: the running policy stays.
    pub async fn reload(&self) -> Result<Reloaded, Rejected> {
        let loaded = conf::load(&self.path)
            .into_loaded()
            .map_err(|rejected| Rejected::Faults(rejected.sources.render(&rejected.faults)))?;
        let mut state = self.state.lock().await;
        let restart_required = self.running.restart_required(&loaded.conf);
        let before = Arc::clone(&state.catalog);
        let catalog = self.take_files(&mut state, loaded, "policy.reload").await?;
        let changed = changes::summary((&before.conf, &catalog.conf), (&before.records, &catalog.records));
        Ok(Reloaded { revision: catalog.revision, warnings: catalog.warnings.clone(), changed, restart_required })
    }

    /// The policy as it is live.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.load()
    }

    /// The snapshot that calls are decided by.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// The zero of the clock of budgets and breakers.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.started
    }

    /// How a server that is not registered yet would be spoken to.
    ///
    /// # Errors
    /// [`ChangeError::Url`], [`ChangeError::Credential`], [`ChangeError::Invalid`]
    pub fn target(&self, server: &Server) -> Result<Target, ChangeError> {
        let conf = &self.catalog.load().conf;
        let secrets = secrets::read(server, conf);
        if let Some(why) = secrets.faults.first() {
            let is_credential = why.starts_with("credential ");
            return Err(if is_credential {
                ChangeError::Credential(why.clone())
            } else {
                ChangeError::Invalid(why.clone())
            });
        }
        target_of(server, &secrets, conf).map_err(|fault| match fault {
            crate::policy::compile::TargetFault::Url(why) => ChangeError::Url(why.to_string()),
            crate::policy::compile::TargetFault::Credential(why) => ChangeError::Credential(why.to_string()),
        })
    }

    /// Up to `limit` audit records after that number.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn audit(&self, after_seq: u64, limit: u32) -> Result<Vec<AuditRow>, StoreError> {
        self.store.audit(after_seq, limit).await
    }

    /// The number of the newest audit record; 0: there is none.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn audit_newest(&self) -> Result<u64, StoreError> {
        self.store.audit_newest().await
    }

    /// Where the store is, without user and password.
    #[must_use]
    pub fn store_place(&self) -> &str {
        self.store.place()
    }

    /// The servers that discovery is to ask: the enabled ones.
    pub async fn to_discover(&self) -> Vec<ToDiscover> {
        let (catalog, Some(snapshot)) = (self.catalog.load(), self.live.load()) else { return Vec::new() };
        let protocol: HashMap<(&str, &str), Protocol> = catalog
            .records
            .servers
            .iter()
            .map(|s| ((s.value.organization.as_str(), s.value.slug.as_str()), s.value.protocol))
            .collect();
        let mut list = Vec::new();
        for organization in snapshot.organizations.values() {
            for server in organization.servers.values().filter(|server| server.enabled) {
                let key = (&*organization.id, &*server.slug);
                list.push(ToDiscover {
                    name: format!("{}/{}", organization.id, server.slug).into(),
                    target: Arc::clone(&server.upstream.target),
                    protocol: protocol.get(&key).copied().unwrap_or(Protocol::Auto),
                });
            }
        }
        list
    }

    /// Tools of each server by state, for the gauges of contract §11.
    #[must_use]
    pub fn tool_counts(&self) -> HashMap<(String, ToolState), u64> {
        let mut counts = HashMap::new();
        if let Some(snapshot) = self.live.load() {
            for organization in snapshot.organizations.values() {
                for server in organization.servers.values() {
                    for state in ToolState::ALL {
                        let n = server.tools.values().filter(|tool| tool.state == state).count();
                        *counts.entry((server.slug.to_string(), state)).or_default() += u64::try_from(n).unwrap_or(0);
                    }
                }
            }
        }
        counts
    }

    /// Takes conf and policy files, all or nothing.
    async fn take_files(&self, state: &mut State, loaded: conf::Loaded, what: &str) -> Result<Arc<Catalog>, Rejected> {
        let conf::Loaded { conf, policy, sources, warnings: first } = loaded;
        let (conf, files, sources) = (Arc::new(conf), Arc::new(policy), Arc::new(sources));
        for _ in 0..TRIES_MAX {
            let mut next = Next { conf: Arc::clone(&conf), ..state.next() };
            (next.files, next.sources) = (Arc::clone(&files), Arc::clone(&sources));
            next.leave_out_dangling();
            let (records, faults) = next.resolve();
            if faults.iter().any(Fault::is_error) {
                return Err(rendered(&next, &faults));
            }
            next.adopt_pins(&records);
            next.note(&self.path.display().to_string(), what, ("", ""), (None, None));
            let mut draft = self.draft(state, &next).map_err(|faults| rendered(&next, &faults))?;
            draft.warnings.splice(0..0, first.iter().cloned());
            if self.standing.starts_away() {
                let revision = state.catalog.revision;
                return Ok(self.publish(state, next, draft, revision));
            }
            match self.commit(state, next, draft).await {
                Ok(catalog) => return Ok(catalog),
                Err(StoreError::RevisionConflict { .. }) => {
                    let stored = self.store.load().await?;
                    state.absorb(stored).map_err(Rejected::Faults)?;
                }
                Err(other) => return Err(other.into()),
            }
        }
        Err(Rejected::Store(StoreError::Busy))
    }
}

impl State {
    /// A copy to change.
    fn next(&self) -> Next {
        Next {
            conf: Arc::clone(&self.catalog.conf),
            files: Arc::clone(&self.files),
            sources: Arc::clone(&self.sources),
            api: self.api.clone(),
            left_out: self.left_out.clone(),
            overrides: self.overrides.clone(),
            tools: self.catalog.records.tools.clone(),
            discoveries: self.catalog.records.discoveries.clone(),
            users: self.catalog.records.users.clone(),
            ..Next::default()
        }
    }

    /// Takes what the store holds for what is known; compiles nothing.
    fn absorb(&mut self, stored: Stored) -> Result<(), String> {
        (self.api, self.overrides) = next::read_stored(&stored.objects, &stored.overrides)?;
        let mut catalog = Catalog::clone(&self.catalog);
        catalog.revision = stored.revision;
        catalog.records.tools = stored.tools;
        catalog.records.discoveries = stored.discoveries;
        catalog.records.users = users::read_stored(&stored.objects)?;
        self.catalog = Arc::new(catalog);
        Ok(())
    }
}

fn rendered(next: &Next, faults: &[Fault]) -> Rejected {
    Rejected::Faults(next.sources.render(faults))
}

impl From<Rejected> for ChangeError {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Faults(text) => Self::Invalid(text),
            Rejected::Store(error) => Self::Store(error),
        }
    }
}

#[cfg(test)]
mod tests;
