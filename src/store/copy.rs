//! A copy of a whole store in another engine: objects, tools, discoveries, audit, revision and key.
//!
//! **Invariant.** Nothing that a store holds already is overwritten, and a copy that fails leaves the target empty.

use super::{NEXT_REVISION, REVISION, Store, StoreError, Write, engine::Purpose, rows};
use crate::model::id::encode_hex;

/// Audit records that are read at one time.
const PAGE: u32 = 1000;

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The revision, which both stores have now.
    pub revision: u64,
    /// Objects, overrides, tools and discoveries.
    pub records: usize,
    /// Audit records.
    pub audits: u64,
}

impl Store {
    /// Copies everything, as of one moment, to a store that holds nothing yet.
    ///
    /// # Errors
    /// [`StoreError::Backup`]: the target is in use. What reading and writing may give.
    pub async fn copy_to(&self, target: &Self) -> Result<Copied, StoreError> {
        let mut from = self.begin(Purpose::Read).await?;
        let mut to = target.begin(Purpose::Write).await?;
        // Takes the row, so that no node writes meanwhile.
        let held = to.row(NEXT_REVISION, &[0.into()]).await.and_then(|row| row.int(0)).map_err(StoreError::writing)?;
        let empty = rows::objects(&mut to).await?.is_empty() && rows::tools(&mut to).await?.is_empty();
        if held != 1 || !empty {
            let reason = format!("that store is in use: it has revision {}", held - 1);
            return Err(StoreError::Backup { path: target.place.clone(), reason });
        }
        let revision = from.row(REVISION, &[]).await.and_then(|row| row.int(0)).map_err(StoreError::reading)?;
        let writes: Vec<Write> = [
            rows::objects(&mut from).await?.into_iter().map(Write::PutObject).collect::<Vec<_>>(),
            rows::overrides(&mut from).await?.into_iter().map(Write::PutOverride).collect(),
            rows::tools(&mut from).await?.into_iter().map(Write::PutTool).collect(),
            rows::discoveries(&mut from).await?.into_iter().map(Write::PutDiscovery).collect(),
        ]
        .concat();
        for (place, write) in (0..).zip(&writes) {
            rows::apply(&mut to, revision, place, write).await.map_err(StoreError::writing)?;
        }
        let mut last = 0;
        loop {
            let page = rows::audit(&mut from, last, PAGE).await?;
            let Some(end) = page.last() else { break };
            last = i64::try_from(end.seq).unwrap_or(i64::MAX);
            for row in &page {
                let [seq, at] = [row.seq, row.revision].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
                rows::add_audit(&mut to, seq, at, &row.record).await.map_err(StoreError::writing)?;
            }
        }
        let key = encode_hex(&self.state_key);
        let meta = [revision.into(), last.into(), key.as_str().into()];
        to.run(SET_META, &meta).await.map_err(StoreError::writing)?;
        to.commit().await.map_err(StoreError::writing)?;
        from.rollback().await.map_err(StoreError::reading)?;
        let audits = u64::try_from(last).unwrap_or(0);
        Ok(Copied { revision: super::counted(revision)?, records: writes.len(), audits })
    }
}

const SET_META: &str = "UPDATE meta SET revision = $1, audits = $2, state_key = $3 WHERE id = 1";
