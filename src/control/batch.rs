//! What discovery hands in: listings queue for the writer, and it takes all that wait at one time in together, so that a start with
//! many servers compiles and stores the policy a few times, not once a server.
//!
//! **Invariants.** Each who waits hears what became of its own listing: one that is refused fails no other. At most one listing of a
//! server waits, because it is asked again only when its last answer was taken in.

use tokio::sync::oneshot;

use super::{Control, Rejected, State, change::Heard, listing::Taken, next::Next, rendered, write::TRIES_MAX};
use crate::{model::mcp::Revision, policy::approval::ListedTool, store::StoreError};

/// A listing that waits to be taken in, and who waits for that.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) organization: String,
    pub(super) slug: String,
    pub(super) heard: Heard,
    /// Why it was not taken in, if it was not; none: nobody waits.
    done: Option<oneshot::Sender<Result<(), String>>>,
}

impl Control {
    /// Takes in a complete listing of a server. Publishes only if it changed anything.
    ///
    /// # Errors
    /// [`Rejected`]
    pub async fn listed(&self, name: &str, revision: Revision, tools: Vec<ListedTool>) -> Result<(), Rejected> {
        let Some((organization, slug)) = name.split_once('/') else { return Ok(()) };
        self.note_listed((organization, slug), self.now_ms());
        let (done, wait) = oneshot::channel();
        let heard = Heard { revision, tools, dropped: 0 };
        let listing = Listing { organization: organization.to_owned(), slug: slug.to_owned(), heard, done: Some(done) };
        self.listings.lock().await.push(listing);
        let mut state = self.state.lock().await;
        let batch = std::mem::take(&mut *self.listings.lock().await);
        self.take_batch(&mut state, batch).await;
        drop(state);
        let cut_off = || Err("the writer was cut off before it took the listing in".to_owned());
        wait.await.unwrap_or_else(|_| cut_off()).map_err(Rejected::Faults)
    }

    /// Takes listings in and answers who waits for them. What is refused as a whole is tried in halves, so that only the listing
    /// that is at fault stays out.
    pub(super) async fn take_batch(&self, state: &mut State, batch: Vec<Listing>) {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let taken = self.take_listings(state, &part).await;
            if part.len() > 1 && taken.as_ref().is_err_and(may_be_of_one) {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
                continue;
            }
            let told = taken.map_err(|why| why.to_string());
            for Listing { organization, slug, done, .. } in part {
                match (done, &told) {
                    (Some(done), told) => drop(done.send(told.clone())),
                    (None, Err(why)) => {
                        tracing::error!(server = %format!("{organization}/{slug}"), "a listing was not taken: {why}")
                    }
                    (None, Ok(())) => {}
                }
            }
        }
    }

    async fn take_listings(&self, state: &mut State, batch: &[Listing]) -> Result<(), Rejected> {
        for _ in 0..TRIES_MAX {
            let Some(next) = with_listings(state, batch) else { return Ok(()) };
            if self.standing.is_away() {
                return self.take_unsaved(state, next, batch);
            }
            let draft = self.draft(state, &next).map_err(|faults| rendered(&next, &faults))?;
            match self.commit(state, next, draft).await {
                Ok(_) => return Ok(()),
                Err(StoreError::RevisionConflict { .. }) => self.catch_up(state).await?,
                Err(why) if self.store.is_shared() && why.is_of_the_engine() => self.lost(&why),
                Err(other) => return Err(other.into()),
            }
        }
        Err(Rejected::Store(StoreError::Busy))
    }
}

impl Listing {
    /// Whose it is.
    pub(super) fn name(&self) -> (&str, &str) {
        (&self.organization, &self.slug)
    }

    /// The same listing, for which nobody waits.
    pub(super) fn again(&self) -> Self {
        let (organization, slug) = (self.organization.clone(), self.slug.clone());
        Self { organization, slug, heard: self.heard.clone(), done: None }
    }
}

/// Whether a refusal of several listings may be the fault of one of them: not if the store lets nobody write.
fn may_be_of_one(why: &Rejected) -> bool {
    matches!(why, Rejected::Faults(_) | Rejected::Store(StoreError::Engine { .. }))
}

/// The state with these listings taken in; none: they change nothing. One of a server that is gone was deleted while it was asked.
fn with_listings(state: &State, batch: &[Listing]) -> Option<Next> {
    let (records, servers) = (&state.catalog.records, state.catalog.servers());
    let heard: Vec<_> = batch
        .iter()
        .map(|listing| (listing.name(), &listing.heard))
        .filter(|(name, _)| servers.contains(name))
        .collect();
    let taken = Taken::of((&records.tools, &records.discoveries), &records.approvals, &heard);
    if taken.is_empty() {
        return None;
    }
    let mut next = state.next();
    taken.put_into(&mut next);
    Some(next)
}
