//! Changes while the gateway runs: of the management API, of another node. Each prepares, compiles, stores, publishes.

use std::sync::Arc;

use serde_json::json;

use super::{
    Catalog, ChangeError, Control, Rejected, State,
    change::{Asker, Change, Confirm},
    draft::Draft,
    next::{CONFIRMED, Next},
    plan, rendered,
};
use crate::store::StoreError;

/// How often a change is prepared anew because another node wrote in between.
pub(super) const TRIES_MAX: usize = 5;
/// The most keys that a message about the trifecta names.
const KEYS_NAMED_MAX: usize = 5;

impl Control {
    /// Makes a change of the management API. What it gives is live and on disk.
    ///
    /// # Errors
    /// [`ChangeError`]: nothing was changed.
    pub async fn apply(&self, change: &Change, asker: &Asker) -> Result<Arc<Catalog>, ChangeError> {
        let mut state = self.state.lock().await;
        for _ in 0..TRIES_MAX {
            let catalog = Arc::clone(&state.catalog);
            if let Some(expected) = asker.expected.filter(|expected| *expected != catalog.revision) {
                return Err(ChangeError::RevisionConflict { expected, found: catalog.revision });
            }
            let mut next = state.next();
            self.check_isolated(change, &catalog)?;
            plan::plan(&mut next, &catalog, change, asker)?;
            if next.writes.is_empty() && asker.confirm != Confirm::Wrong {
                return Ok(catalog);
            }
            next.retain_left_out(&catalog.records);
            let draft = self.draft(&mut state, &next).map_err(|faults| ChangeError::of_faults(&faults))?;
            let judged = confirm_trifecta(&mut next, &draft, asker);
            if let Err(refused) = judged {
                self.keep_running_servers(&mut state);
                return Err(refused);
            }
            match self.commit(&mut state, next, draft).await {
                Ok(catalog) => return Ok(catalog),
                Err(StoreError::RevisionConflict { .. }) => self.catch_up(&mut state).await?,
                Err(other) => return Err(other.into()),
            }
        }
        Err(ChangeError::Store(StoreError::Busy))
    }

    /// A tool that is isolated because its exposed name is taken is not approved (contract §6).
    fn check_isolated(&self, change: &Change, catalog: &Catalog) -> Result<(), ChangeError> {
        let (Change::Approve { tool, .. }, Some(snapshot)) = (change, self.live.load()) else { return Ok(()) };
        let (server, record) = catalog.tool(tool)?;
        let organization = snapshot.organizations.get(server.value.organization.as_str());
        let compiled = organization
            .and_then(|organization| organization.servers.get(server.value.slug.as_str()))
            .and_then(|server| server.tools.get(record.name.as_str()));
        match compiled.and_then(|tool| tool.fault.as_deref()) {
            Some(why) if record.fault.is_none() && record.current.is_some() => {
                Err(ChangeError::Invalid(format!("this tool cannot be approved: {why}")))
            }
            _ => Ok(()),
        }
    }

    /// Publishes what the store holds: another node wrote it.
    pub(super) async fn catch_up(&self, state: &mut State) -> Result<(), Rejected> {
        let stored = self.store.load().await?;
        let revision = stored.revision;
        let before = (state.api.clone(), state.overrides.clone(), Arc::clone(&state.catalog));
        state.absorb(stored).map_err(Rejected::Faults)?;
        let mut next = state.next();
        next.leave_out_dangling();
        match self.draft(state, &next) {
            Ok(draft) => {
                self.publish(state, next, draft, revision);
                Ok(())
            }
            Err(faults) => {
                (state.api, state.overrides, state.catalog) = before;
                Err(rendered(&next, &faults))
            }
        }
    }
}

/// Whether every key that the change gives the trifecta was confirmed; keeps what was with the key (contract §9).
fn confirm_trifecta(next: &mut Next, draft: &Draft, asker: &Asker) -> Result<(), ChangeError> {
    match asker.confirm {
        _ if draft.fresh.is_empty() && asker.confirm != Confirm::Wrong => {}
        Confirm::Wrong if draft.fresh.is_empty() => {
            return Err(ChangeError::Invalid("`confirm_trifecta` must be `true` or `false`".to_owned()));
        }
        Confirm::No | Confirm::Wrong => {
            let mut told: Vec<&str> = draft.fresh.values().map(String::as_str).collect();
            told.truncate(KEYS_NAMED_MAX);
            let more = draft.fresh.len().saturating_sub(KEYS_NAMED_MAX);
            let more = if more > 0 { format!("; and so would {more} more keys") } else { String::new() };
            return Err(ChangeError::Trifecta(format!("{}{more}", told.join("; "))));
        }
        Confirm::Yes => {
            for (key, tools) in &draft.fresh {
                next.overrides.confirmed.insert(key.clone());
                next.put_override(CONFIRMED, key, &json!({ "confirmed_by": asker.who }));
                let after = json!({ "confirmed": tools });
                next.note(&asker.who, "trifecta.confirm", ("", key), (None, Some(after)));
            }
        }
    }
    let open: Vec<String> = next.overrides.confirmed.difference(&draft.closed).cloned().collect();
    for key in open {
        next.overrides.confirmed.remove(&key);
        next.delete_override(CONFIRMED, &key);
    }
    Ok(())
}
