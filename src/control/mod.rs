//! The control room: the ONE writer. Files, discovery and the management API all end here (contract §5).
//!
//! Every change goes the same way: validate and compile a draft, store it in one transaction with its audit record, publish the
//! snapshot, answer with the revision. A policy that does not compile never replaces one that did.
//!
//! **Invariant.** Only this room publishes a snapshot and writes the store; it does one change at a time.

mod secrets;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use thiserror::Error;
use tokio::sync::Mutex;

use crate::{
    conf::{self, Conf, Fault, Policy, Sources},
    model::{
        mcp::Revision,
        records::{Approval, DiscoveryRecord, Owned, Protocol, Records, ToolRecord},
    },
    policy::{
        approval::{self, Applied, ListedTool, Recording, ToolState},
        compile::{Handles, Inputs, ServerSecrets, compile},
        live::Live,
        snapshot::Snapshot,
    },
    store::{AuditRecord, Store, StoreError, Write},
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
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    conf: Conf,
    files: Policy,
    sources: Sources,
    tools: Vec<ToolRecord>,
    discoveries: Vec<DiscoveryRecord>,
    records: Records,
    handles: Handles,
    revision: u64,
}

/// A draft that compiled and is not stored yet.
struct Draft {
    conf: Conf,
    files: Policy,
    sources: Sources,
    tools: Vec<ToolRecord>,
    discoveries: Vec<DiscoveryRecord>,
    records: Records,
    snapshot: Snapshot,
    warnings: Vec<Fault>,
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
        let stored = store.load().await?;
        let conf::Loaded { conf, policy, sources, warnings: first } = loaded;
        let mut state = State {
            conf: conf.clone(),
            files: Policy::default(),
            sources: Sources::default(),
            tools: stored.tools,
            discoveries: stored.discoveries,
            records: Records::default(),
            handles,
            revision: stored.revision,
        };
        let writes = state.adopt_pins(&conf, &policy, &sources)?;
        let control = Self { live, store, path: path.to_owned(), started, state: Mutex::new(state) };
        let mut state = control.state.lock().await;
        let draft = control.draft(&mut state, conf, policy, sources)?;
        let warnings: Vec<Fault> = first.into_iter().chain(draft.warnings.iter().cloned()).collect();
        let warnings = draft.sources.render(&warnings);
        control.commit(&mut state, draft, writes, "policy.load").await?;
        drop(state);
        Ok((control, warnings))
    }

    /// Reads conf and policy files again and publishes them, all or nothing (contract §10).
    ///
    /// # Errors
    /// [`Rejected`]: the running policy stays.
    pub async fn reload(&self) -> Result<Reloaded, Rejected> {
        let outcome = conf::load(&self.path);
        let conf::Loaded { conf, policy, sources, warnings: first } =
            outcome.into_loaded().map_err(|rejected| Rejected::Faults(rejected.sources.render(&rejected.faults)))?;
        let mut state = self.state.lock().await;
        let restart_required = state.conf.restart_required(&conf);
        let writes = state.adopt_pins(&conf, &policy, &sources)?;
        let draft = self.draft(&mut state, conf, policy, sources)?;
        let warnings: Vec<Fault> = first.into_iter().chain(draft.warnings.iter().cloned()).collect();
        let warnings = draft.sources.render(&warnings);
        let revision = self.commit(&mut state, draft, writes, "policy.reload").await?;
        Ok(Reloaded { revision, warnings, restart_required })
    }

    /// Takes in a complete listing of a server. Publishes only if it changed anything.
    ///
    /// # Errors
    /// [`Rejected`]
    pub async fn listed(&self, name: &str, revision: Revision, listed: Vec<ListedTool>) -> Result<(), Rejected> {
        let Some((organization, slug)) = name.split_once('/') else { return Ok(()) };
        let now_ms = self.now_ms();
        if let Some(upstream) = self.live.load().and_then(|snapshot| {
            let server = snapshot.organizations.get(organization)?.servers.get(slug)?;
            Some(Arc::clone(&server.upstream))
        }) {
            upstream.health.listed(now_ms);
        }
        let mut state = self.state.lock().await;
        let pins = pins_of(&state.records, organization, slug);
        let recording =
            Recording { organization, server: slug, recorded: approval::next_recorded(&state.tools, organization) };
        let (known, others): (Vec<ToolRecord>, Vec<ToolRecord>) = std::mem::take(&mut state.tools)
            .into_iter()
            .partition(|tool| tool.organization == organization && tool.server == slug);
        let pins: Vec<&Approval> = pins.iter().collect();
        let applied = approval::apply_listing(known.clone(), recording, listed, &pins);
        let mut writes: Vec<Write> = applied.written.iter().cloned().map(Write::PutTool).collect();
        let record = DiscoveryRecord {
            organization: organization.to_owned(),
            server: slug.to_owned(),
            revision: Some(revision),
        };
        let is_new = !state.discoveries.contains(&record);
        if is_new {
            writes.push(Write::PutDiscovery(record.clone()));
        }
        if writes.is_empty() {
            state.tools = others.into_iter().chain(known).collect();
            return Ok(());
        }
        log_moves(name, &applied);
        let before = (known, state.discoveries.clone());
        state.tools = others.iter().cloned().chain(applied.written).chain(applied.unchanged).collect();
        state.discoveries.retain(|d| (d.organization.as_str(), d.server.as_str()) != (organization, slug));
        state.discoveries.push(record);
        let done = self.republish(&mut state, writes, "tools.listed").await;
        if done.is_err() {
            state.tools = others.into_iter().chain(before.0).collect();
            state.discoveries = before.1;
        }
        done.map(|_| ())
    }

    /// The servers that discovery is to ask: the enabled ones.
    pub async fn to_discover(&self) -> Vec<ToDiscover> {
        let Some(snapshot) = self.live.load() else { return Vec::new() };
        let state = self.state.lock().await;
        let protocol: HashMap<(&str, &str), Protocol> = state
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

    fn now_ms(&self) -> u64 {
        crate::budget::clock_nanos(self.started) / 1_000_000
    }

    /// Compiles a draft; changes nothing that is live.
    fn draft(&self, state: &mut State, conf: Conf, files: Policy, sources: Sources) -> Result<Draft, Rejected> {
        let (mut records, mut warnings) = conf::resolve(files.clone(), &conf, &sources);
        if warnings.iter().any(Fault::is_error) {
            return Err(Rejected::Faults(sources.render(&warnings)));
        }
        records.tools.clone_from(&state.tools);
        records.discoveries.clone_from(&state.discoveries);
        let secrets: HashMap<(String, String), ServerSecrets> = records
            .servers
            .iter()
            .map(|s| ((s.value.organization.clone(), s.value.slug.clone()), secrets::read(&s.value, &conf)))
            .collect();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0));
        let inputs = Inputs {
            conf: &conf,
            records: &records,
            secrets: &secrets,
            state_key: self.store.state_key(),
            revision: state.revision,
            created: unix,
            now_ms: self.now_ms(),
        };
        let (snapshot, faults) = compile(&inputs, &mut state.handles).map_err(|mut faults| {
            faults.splice(0..0, warnings.iter().cloned());
            Rejected::Faults(sources.render(&faults))
        })?;
        warnings.extend(faults);
        let (tools, discoveries) = (state.tools.clone(), state.discoveries.clone());
        Ok(Draft { conf, files, sources, tools, discoveries, records, snapshot, warnings })
    }

    /// Stores and publishes a draft.
    async fn commit(&self, state: &mut State, draft: Draft, writes: Vec<Write>, what: &str) -> Result<u64, Rejected> {
        let audit = AuditRecord {
            at: Timestamp::now(),
            who: self.path.display().to_string(),
            what: what.to_owned(),
            organization: String::new(),
            target: String::new(),
            before: None,
            after: None,
        };
        let revision = self.store.commit(None, &writes, &[audit]).await?;
        let mut snapshot = draft.snapshot;
        snapshot.revision = revision;
        self.live.publish(Arc::new(snapshot));
        state.conf = draft.conf;
        state.files = draft.files;
        state.sources = draft.sources;
        state.tools = draft.tools;
        state.discoveries = draft.discoveries;
        state.records = draft.records;
        state.revision = revision;
        state.handles.upstreams.sweep();
        Ok(revision)
    }

    /// Compiles, stores and publishes what the state now holds.
    async fn republish(&self, state: &mut State, writes: Vec<Write>, what: &str) -> Result<u64, Rejected> {
        let (conf, files, sources) = (state.conf.clone(), state.files.clone(), state.sources.clone());
        let draft = self.draft(state, conf, files, sources)?;
        self.commit(state, draft, writes, what).await
    }
}

impl State {
    /// Makes the files' pins known to the tools' records: an edited pin is a new approval, a pinned name is a known name.
    fn adopt_pins(&mut self, conf: &Conf, files: &Policy, sources: &Sources) -> Result<Vec<Write>, Rejected> {
        let (records, faults) = conf::resolve(files.clone(), conf, sources);
        if faults.iter().any(Fault::is_error) {
            return Err(Rejected::Faults(sources.render(&faults)));
        }
        let mut known: HashMap<(String, String), Vec<ToolRecord>> = HashMap::new();
        for tool in self.tools.drain(..) {
            known.entry((tool.organization.clone(), tool.server.clone())).or_default().push(tool);
        }
        let mut writes = Vec::new();
        for server in &records.servers {
            let server = &server.value;
            let key = (server.organization.clone(), server.slug.clone());
            let pins = pins_of(&records, &server.organization, &server.slug);
            let tools = known.remove(&key).unwrap_or_default();
            if pins.is_empty() {
                self.tools.extend(tools);
                continue;
            }
            let all = self.tools.iter().chain(known.values().flatten()).chain(&tools);
            let recorded = approval::next_recorded(all, &server.organization);
            let recording = Recording { organization: &server.organization, server: &server.slug, recorded };
            let pins: Vec<&Approval> = pins.iter().collect();
            let applied = approval::apply_pins(tools, recording, &pins);
            writes.extend(applied.written.iter().cloned().map(Write::PutTool));
            self.tools.extend(applied.written);
            self.tools.extend(applied.unchanged);
        }
        self.tools.extend(known.into_values().flatten());
        Ok(writes)
    }
}

/// The files' pins on one server's tools.
fn pins_of(records: &Records, organization: &str, slug: &str) -> Vec<Approval> {
    let of_it =
        |approval: &&Owned<Approval>| approval.value.organization == organization && approval.value.server == slug;
    records.approvals.iter().filter(of_it).map(|approval| approval.value.clone()).collect()
}

fn log_moves(server: &str, applied: &Applied) {
    for moved in &applied.moves {
        tracing::info!(
            server,
            tool = %moved.name.escape_debug(),
            from = moved.from.map_or("new", ToolState::as_str),
            to = moved.to.as_str(),
            "tool state"
        );
    }
}

/// Judges a conf and its policy without a store: what `toolgate check` does. Writes nothing.
///
/// # Errors
/// All faults, rendered; on success the warnings.
pub fn check(path: &Path, handles: &mut Handles) -> Result<String, String> {
    let outcome = conf::load(path);
    let mut faults = outcome.check(Records::default());
    let sources = outcome.sources.clone();
    if faults.iter().any(Fault::is_error) {
        return Err(sources.render(&faults));
    }
    let Ok(loaded) = outcome.into_loaded() else { return Err(sources.render(&faults)) };
    let (records, _) = conf::resolve(loaded.policy, &loaded.conf, &sources);
    let secrets = records
        .servers
        .iter()
        .map(|s| ((s.value.organization.clone(), s.value.slug.clone()), secrets::read(&s.value, &loaded.conf)))
        .collect();
    let inputs = Inputs {
        conf: &loaded.conf,
        records: &records,
        secrets: &secrets,
        state_key: [0; 32],
        revision: 0,
        created: 0,
        now_ms: 0,
    };
    match compile(&inputs, handles) {
        Ok((_, more)) => {
            faults.extend(more);
            Ok(sources.render(&faults))
        }
        Err(more) => {
            faults.extend(more);
            Err(sources.render(&faults))
        }
    }
}
