//! Everything that the management API can change, as values. What each does is in `plan.rs` and `decide.rs`.

use serde_json::{Map, Value as Json};

use super::users::UserHeaders;
use crate::{
    model::{
        id::KeyDigest,
        mcp::Revision,
        pin::Pin,
        records::{Class, Grant, Guardrail, Key, Label, Organization, Project, Server},
    },
    policy::approval::ListedTool,
};

/// One change.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one change at a time, on the control plane")]
pub enum Change {
    /// Makes an organization.
    CreateOrganization(Organization),
    /// Makes a project.
    CreateProject(Project),
    /// Makes a guardrail; it is evaluated after those before it.
    CreateGuardrail(Guardrail),
    /// Makes a key.
    CreateKey(Key),
    /// Registers a server that was asked for its tools.
    Register {
        /// The server.
        server: Server,
        /// What it answered.
        heard: Heard,
    },
    /// Replaces a server by what was prepared from it.
    ReplaceServer {
        /// The server that the change was prepared from.
        before: Server,
        /// The server as it is to be.
        after: Server,
        /// What it answered, if it had to be asked again.
        heard: Option<Heard>,
    },
    /// Changes members of an object that is neither a server nor a grant.
    Patch {
        /// Which.
        target: Target,
        /// The members; `null` takes one back to its default.
        members: Map<String, Json>,
    },
    /// Deletes an object; a server's tools and the API's grants on it go with it.
    Delete(Target),
    /// Replaces a key's token; the old one stays good until then.
    Rotate {
        /// The key's id.
        key: String,
        /// Digest of the new token.
        sha256: KeyDigest,
        /// Seconds since 1970.
        previous_expires: i64,
    },
    /// Revokes a key for good; also one that a file owns.
    Revoke {
        /// The key's id.
        key: String,
    },
    /// Grants a server to a key, or replaces that grant.
    Grant(Grant),
    /// Takes a grant away.
    Ungrant {
        /// The key's id.
        key: String,
        /// The server's slug.
        server: String,
    },
    /// Stores a user's credential for a server.
    PutCredential {
        /// Which server.
        server: ServerName,
        /// The user.
        user: String,
        /// The credential.
        headers: UserHeaders,
    },
    /// Deletes it.
    DeleteCredential {
        /// Which server.
        server: ServerName,
        /// The user.
        user: String,
    },
    /// Approves a tool's current definition, or re-affirms a file's pin.
    Approve {
        /// Which.
        tool: ToolName,
        /// The hash that was reviewed.
        expected: Pin,
        /// Class.
        class: Class,
        /// Labels.
        labels: Vec<Label>,
    },
    /// Blocks a tool by hand; also one that a file pins.
    Block(ToolName),
    /// Changes class or labels of an approved tool.
    SetTerms {
        /// Which.
        tool: ToolName,
        /// The class; none: as it is.
        class: Option<Class>,
        /// The labels; none: as they are.
        labels: Option<Vec<Label>>,
    },
}

/// What a server answered when it was asked for its tools.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The revision that was settled.
    pub revision: Revision,
    /// Its tools.
    pub tools: Vec<ListedTool>,
    /// Entries without a name.
    pub dropped: usize,
}

/// Kinds of objects that are named by one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[[organization]]`
    Organization,
    /// `[[project]]`
    Project,
    /// `[[server]]`
    Server,
    /// `[[key]]`
    Key,
    /// `[[guardrail]]`
    Guardrail,
}

/// An object by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Of which kind.
    pub kind: Kind,
    /// In which organization; none: the only one that has it.
    pub organization: Option<String>,
    /// Its id, slug or name.
    pub id: String,
}

/// A server by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    /// In which organization; none: the only one that has it.
    pub organization: Option<String>,
    /// Its slug.
    pub slug: String,
}

/// A tool by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolName {
    /// In which organization; none: the only one that has the server.
    pub organization: Option<String>,
    /// The server's slug.
    pub server: String,
    /// The server's own name for it.
    pub tool: String,
}

/// Whether a person confirmed that a key gets the trifecta: `confirm_trifecta` as it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// Left out or `false`.
    #[default]
    No,
    /// The boolean `true`.
    Yes,
    /// Something else, which confirms nothing.
    Wrong,
}

/// Who changes something, and on which terms.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// For the audit record: a token's name, the peer of the socket.
    pub who: String,
    /// The revision that the change was made for; none: any.
    pub expected: Option<u64>,
    /// `confirm_trifecta`
    pub confirm: Confirm,
    /// Why, in the words of who decides on a tool; kept in the audit record.
    pub note: Option<String>,
}
