//! The nodes that share a store: each says what it serves, and sees what the others do.
//!
//! **Invariant.** Only the store's own clock tells how long a node has been silent.

use super::{
    REVISION, Store,
    engine::{Purpose, Row, Tx},
    error::StoreError,
};

/// A node that said nothing for a day is forgotten.
const FORGOTTEN_MS: i64 = 24 * 3600 * 1000;

/// What a node says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Drawn at its start.
    pub node: String,
    /// What a person calls it.
    pub name: String,
    /// Of the program.
    pub version: String,
    /// The revision that it serves.
    pub revision: u64,
    /// A revision that it could not take; 0: none.
    pub rejected: u64,
    /// Why not.
    pub why: String,
    /// SHA-256 of its policy files, in hex.
    pub files: String,
}

/// A node as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// What it said last.
    pub node: Node,
    /// Milliseconds since then.
    pub silent_ms: u64,
}

impl Store {
    /// Says what this node serves; gives the store's revision. `first` also forgets nodes that are long gone.
    ///
    /// # Errors
    /// [`StoreError::Engine`]
    pub async fn beat(&self, node: &Node, first: bool) -> Result<u64, StoreError> {
        let mut tx = self.begin(Purpose::Write).await?;
        let now = now_ms(&mut tx).await.map_err(StoreError::writing)?;
        if first {
            tx.run(FORGET, &[(now - FORGOTTEN_MS).into()]).await.map_err(StoreError::writing)?;
        }
        let number = |revision| i64::try_from(revision).unwrap_or(i64::MAX);
        let values = [
            node.node.as_str().into(),
            node.name.as_str().into(),
            node.version.as_str().into(),
            number(node.revision).into(),
            number(node.rejected).into(),
            node.why.as_str().into(),
            node.files.as_str().into(),
            now.into(),
        ];
        tx.run(BEAT, &values).await.map_err(StoreError::writing)?;
        let revision = tx.row(REVISION, &[]).await.and_then(|row| row.int(0)).map_err(StoreError::writing)?;
        tx.commit().await.map_err(StoreError::writing)?;
        super::counted(revision)
    }

    /// Says that this node has stopped.
    ///
    /// # Errors
    /// [`StoreError::Engine`]
    pub async fn leave(&self, node: &str) -> Result<(), StoreError> {
        let mut tx = self.begin(Purpose::Write).await?;
        tx.run(LEAVE, &[node.into()]).await.map_err(StoreError::writing)?;
        tx.commit().await.map_err(StoreError::writing)
    }

    /// Every node that has not stopped and was not forgotten, by name.
    ///
    /// # Errors
    /// [`StoreError::Engine`], [`StoreError::Damaged`]
    pub async fn nodes(&self) -> Result<Vec<NodeSeen>, StoreError> {
        let mut tx = self.begin(Purpose::Read).await?;
        let now = now_ms(&mut tx).await.map_err(StoreError::reading)?;
        let rows = tx.rows(LOAD_NODES, &[]).await.map_err(StoreError::reading)?;
        tx.rollback().await.map_err(StoreError::reading)?;
        let mut nodes = rows.iter().map(|row| node(row, now)).collect::<Result<Vec<_>, _>>()?;
        nodes.sort_by(|a, b| (&a.node.name, &a.node.node).cmp(&(&b.node.name, &b.node.node)));
        Ok(nodes)
    }
}

async fn now_ms(tx: &mut Tx) -> Result<i64, sqlx::Error> {
    let sql = if tx.is_shared() { POSTGRES_NOW } else { SQLITE_NOW };
    tx.row(sql, &[]).await?.int(0)
}

fn node(row: &Row, now: i64) -> Result<NodeSeen, StoreError> {
    let text = |column| row.text(column).map_err(StoreError::reading);
    let number = |column, name| {
        let number = row.int(column).map_err(StoreError::reading)?;
        u64::try_from(number).map_err(|_| StoreError::damaged("nodes", name))
    };
    let seen = row.int(7).map_err(StoreError::reading)?;
    Ok(NodeSeen {
        node: Node {
            node: text(0)?,
            name: text(1)?,
            version: text(2)?,
            revision: number(3, "revision")?,
            rejected: number(4, "rejected")?,
            why: text(5)?,
            files: text(6)?,
        },
        silent_ms: u64::try_from(now - seen).unwrap_or(0),
    })
}

const POSTGRES_NOW: &str = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::BIGINT";
const SQLITE_NOW: &str = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";
const BEAT: &str = "INSERT INTO nodes (node, name, version, revision, rejected, why, files, seen) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (node) DO UPDATE SET name = excluded.name, \
     version = excluded.version, revision = excluded.revision, rejected = excluded.rejected, why = excluded.why, \
     files = excluded.files, seen = excluded.seen";
const LEAVE: &str = "DELETE FROM nodes WHERE node = $1";
const FORGET: &str = "DELETE FROM nodes WHERE seen < $1";
const LOAD_NODES: &str = "SELECT node, name, version, revision, rejected, why, files, seen FROM nodes";
