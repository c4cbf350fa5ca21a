//! What goes into the store and comes out of it, as values: the state as of one commit, the writes of a commit, the audit record.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::records::{DiscoveryRecord, ToolRecord};

/// Everything that a snapshot needs of the store, as one consistent view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// The commit that this is the state after; 0: nothing was committed yet.
    pub revision: u64,
    /// Objects that the API made, in the order in which they were first written (guardrails are evaluated in it).
    pub objects: Vec<StoredObject>,
    /// What is kept on top of objects that files own, in the order in which it was first written.
    pub overrides: Vec<StoredObject>,
    /// Every tool, by organization, server and name.
    pub tools: Vec<ToolRecord>,
    /// Every discovery, by organization and server.
    pub discoveries: Vec<DiscoveryRecord>,
}

/// A policy object or an override; unique by kind, organization and id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredObject {
    /// What it is: `server`, `key`, `grant` …
    pub kind: String,
    /// Owner; empty where the object has none.
    pub organization: String,
    /// Its id within kind and organization.
    pub id: String,
    /// The object in its written shape.
    pub json: String,
}

/// One change of a commit. A `Put` makes or replaces; a `Delete` of what is not there does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// An object of the API; one that is replaced keeps its place in the order.
    PutObject(StoredObject),
    /// Removes an object.
    DeleteObject {
        /// [`StoredObject::kind`]
        kind: String,
        /// [`StoredObject::organization`]
        organization: String,
        /// [`StoredObject::id`]
        id: String,
    },
    /// Something kept on top of an object that a file owns.
    PutOverride(StoredObject),
    /// Removes it.
    DeleteOverride {
        /// [`StoredObject::kind`]
        kind: String,
        /// [`StoredObject::organization`]
        organization: String,
        /// [`StoredObject::id`]
        id: String,
    },
    /// What is known of a tool; one row.
    PutTool(ToolRecord),
    /// Forgets every tool of a deleted server.
    DeleteTools {
        /// Owner.
        organization: String,
        /// Slug.
        server: String,
    },
    /// What discovery settled for a server.
    PutDiscovery(DiscoveryRecord),
    /// Forgets it.
    DeleteDiscovery {
        /// Owner.
        organization: String,
        /// Slug.
        server: String,
    },
}

impl Write {
    /// Organization and slug of the server of which this says what it lists.
    #[must_use]
    pub fn listed_server(&self) -> Option<(&str, &str)> {
        match self {
            Self::PutTool(tool) => Some((&tool.organization, &tool.server)),
            Self::PutDiscovery(record) => Some((&record.organization, &record.server)),
            _ => None,
        }
    }
}

/// Who changed what (contract §9). Holds no secret: its writer sees to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// When.
    pub at: Timestamp,
    /// The token's name, the peer of the socket, or the policy file.
    pub who: String,
    /// The action, for example `tool.approve`.
    pub what: String,
    /// Owner of the target; empty where it has none.
    pub organization: String,
    /// The object, for example `github/create_issue`.
    pub target: String,
    /// The object before, as JSON; none: it was made.
    pub before: Option<String>,
    /// The object after, as JSON; none: it was removed.
    pub after: Option<String>,
}

/// An audit record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number: from 1, without gaps, in the order of the commits.
    pub seq: u64,
    /// The commit that it belongs to.
    pub revision: u64,
    /// What was recorded.
    pub record: AuditRecord,
}
