//! From a state to be to a snapshot, and from there to the store and to the calls. Nothing is live before [`Control::publish`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{Catalog, Control, State, next::Next, secrets, users};
use crate::{
    conf::Fault,
    model::records::Records,
    policy::{
        compile::{Inputs, ServerSecrets, compile},
        snapshot::Snapshot,
        trifecta::{self, Trifecta},
    },
    store::{StoreError, kill_point},
};

/// A state that compiled and is not stored yet.
pub(super) struct Draft {
    records: Records,
    snapshot: Snapshot,
    /// What a person should know.
    pub(super) warnings: Vec<Fault>,
    /// Keys that close the trifecta.
    pub(super) closed: BTreeSet<String>,
    /// Those of them that did not before, were not confirmed, and are not the files' own business; and what each could do.
    pub(super) fresh: BTreeMap<String, String>,
}

impl Control {
    /// Compiles the state to be; changes nothing that is live.
    ///
    /// # Errors
    /// Every fault, if any is an error.
    pub(super) fn draft(&self, state: &mut State, next: &Next) -> Result<Draft, Vec<Fault>> {
        let drafted = self.try_draft(state, next);
        if drafted.is_err() {
            self.keep_running_servers(state);
        }
        drafted
    }

    fn try_draft(&self, state: &mut State, next: &Next) -> Result<Draft, Vec<Fault>> {
        let (mut records, mut warnings) = next.resolve();
        if warnings.iter().any(Fault::is_error) {
            return Err(warnings);
        }
        records.tools.clone_from(&next.tools);
        records.discoveries.clone_from(&next.discoveries);
        records.users.clone_from(&next.users);
        warnings.extend(trifecta::faults(&records, &next.overrides.confirmed));
        if warnings.iter().any(Fault::is_error) {
            return Err(warnings);
        }
        let secrets: HashMap<(String, String), ServerSecrets> = records
            .servers
            .iter()
            .map(|s| ((s.value.organization.clone(), s.value.slug.clone()), secrets::read(&s.value, &next.conf)))
            .collect();
        warnings.extend(users::key_fault(&records, &next.conf));
        let (users, faults) = state.opened.open(&records.users, &next.conf);
        warnings.extend(faults);
        let inputs = Inputs {
            conf: &next.conf,
            records: &records,
            secrets: &secrets,
            users: &users,
            state_key: self.store.state_key(),
            revision: state.catalog.revision,
            created: unix_now(),
            now_ms: self.now_ms(),
        };
        let (snapshot, faults) = match compile(&inputs, &mut state.handles) {
            Ok(compiled) => compiled,
            Err(faults) => {
                warnings.extend(faults);
                return Err(warnings);
            }
        };
        warnings.extend(faults);
        let all = Trifecta::of(&records);
        let closed: BTreeSet<String> = all.closed().map(|key| key.value.id.clone()).collect();
        let is_fresh = |id: &String| !state.catalog.closed.contains(id) && !next.overrides.confirmed.contains(id);
        let fresh = all
            .closed()
            .map(|key| &key.value)
            .filter(|key| is_fresh(&key.id) && !all.is_confirmed_by_files(key))
            .map(|key| (key.id.clone(), all.describe(key)))
            .collect();
        Ok(Draft { records, snapshot, warnings, closed, fresh })
    }

    /// Stores a draft, then publishes it.
    ///
    /// # Errors
    /// [`StoreError`]: neither was done.
    pub(super) async fn commit(&self, state: &mut State, next: Next, draft: Draft) -> Result<Arc<Catalog>, StoreError> {
        kill_point("control: compiled");
        let stored = self.store.commit(Some(state.catalog.revision), &next.writes, &next.audit).await;
        if stored.is_err() {
            self.keep_running_servers(state);
        }
        Ok(self.publish(state, next, draft, stored?))
    }

    /// Makes a draft the policy.
    pub(super) fn publish(&self, state: &mut State, next: Next, draft: Draft, revision: u64) -> Arc<Catalog> {
        let mut snapshot = draft.snapshot;
        snapshot.revision = revision;
        let catalog = Catalog {
            revision,
            conf: next.conf,
            records: draft.records,
            closed: draft.closed,
            warnings: next.sources.render(&draft.warnings),
            sources: Arc::clone(&next.sources),
        };
        for (server, moved) in &next.moves {
            let from = moved.from.map_or("new", crate::policy::approval::ToolState::as_str);
            tracing::info!(%server, tool = %moved.name.escape_debug(), from, to = moved.to.as_str(), "tool state");
        }
        self.live.publish(Arc::new(snapshot));
        state.withdrawn = None;
        self.catalog.store(catalog);
        state.files = next.files;
        state.sources = next.sources;
        state.api = next.api;
        state.left_out = next.left_out;
        state.overrides = next.overrides;
        state.catalog = self.catalog.load();
        state.handles.upstreams.sweep();
        kill_point("control: published");
        Arc::clone(&state.catalog)
    }

    /// Gives the running servers back their place, after a draft that is dropped had put others there: a change that was refused
    /// resets no breaker and no session.
    pub(super) fn keep_running_servers(&self, state: &mut State) {
        let Some(snapshot) = self.live.load() else { return };
        for server in snapshot.organizations.values().flat_map(|organization| organization.servers.values()) {
            state.handles.upstreams.restore(&server.upstream);
        }
    }

    /// A server of the live policy was listed just now.
    pub(super) fn note_listed(&self, (organization, slug): (&str, &str), now_ms: u64) {
        let Some(snapshot) = self.live.load() else { return };
        let organization = snapshot.organizations.get(organization);
        if let Some(server) = organization.and_then(|organization| organization.servers.get(slug)) {
            server.upstream.health.listed(now_ms);
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        crate::budget::clock_nanos(self.started) / 1_000_000
    }
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0))
}
