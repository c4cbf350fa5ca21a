//! Why a change is not made: the codes of contract §9, one variant each.

use thiserror::Error;

use crate::{conf::Fault, store::StoreError};

/// Why a change is not made. Nothing was changed then: not the policy, not the store, not the snapshot.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// 400 `invalid_request`
    #[error("{0}")]
    Invalid(String),
    /// 404 `not_found`
    #[error("{0}")]
    NotFound(String),
    /// 409 `managed_by_file`
    #[error("{0} is managed by a policy file: change it there")]
    ManagedByFile(String),
    /// 409 `revision_conflict`
    #[error("the policy is at revision {found}, not {expected}: read it again")]
    RevisionConflict {
        /// The revision that the caller had seen.
        expected: u64,
        /// The one that is live.
        found: u64,
    },
    /// 409 `revision_conflict`: the object itself was changed while the change was prepared.
    #[error("{0} was changed by somebody else in the meantime: read it again")]
    Moved(String),
    /// 400 `invalid_mcp_server_url`
    #[error("{0}")]
    Url(String),
    /// 400 `invalid_mcp_credential`
    #[error("{0}")]
    Credential(String),
    /// 400 `mcp_discovery_failed`
    #[error("the server did not answer `tools/list`: {0}")]
    Discovery(String),
    /// 400 `mcp_server_slug_taken`
    #[error("organization `{organization}` already has a server `{slug}`")]
    SlugTaken {
        /// Owner.
        organization: String,
        /// Slug.
        slug: String,
    },
    /// 400 `mcp_tool_name_clash`
    #[error("the exposed names of these tools are taken by tools of other servers: {0}")]
    NameClash(String),
    /// 400 `mcp_tool_definition_stale`
    #[error("`expected_sha256` is not the hash of the current definition: review it again")]
    Stale,
    /// 400 `mcp_tool_removed`
    #[error("the server no longer lists this tool")]
    Removed,
    /// 400 `mcp_tool_not_approved`
    #[error("class and labels can be set only on an approved tool; this one is {0}")]
    NotApproved(&'static str),
    /// 400 `mcp_trifecta_unconfirmed`
    #[error("{0}. Repeat with `\"confirm_trifecta\": true` if that is meant")]
    Trifecta(String),
    /// 400 `key_revoked`
    #[error("key `{0}` is revoked")]
    KeyRevoked(String),
    /// 503: nothing was written.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
}

impl ChangeError {
    /// HTTP status, `error.type` and `error.code`.
    #[must_use]
    pub const fn row(&self) -> (u16, &'static str, Option<&'static str>) {
        const INVALID: &str = "invalid_request_error";
        match self {
            Self::Invalid(_) => (400, INVALID, Some("invalid_request")),
            Self::NotFound(_) => (404, "not_found", Some("not_found")),
            Self::ManagedByFile(_) => (409, INVALID, Some("managed_by_file")),
            Self::RevisionConflict { .. } | Self::Moved(_) => (409, INVALID, Some("revision_conflict")),
            Self::Url(_) => (400, INVALID, Some("invalid_mcp_server_url")),
            Self::Credential(_) => (400, INVALID, Some("invalid_mcp_credential")),
            Self::Discovery(_) => (400, INVALID, Some("mcp_discovery_failed")),
            Self::SlugTaken { .. } => (400, INVALID, Some("mcp_server_slug_taken")),
            Self::NameClash(_) => (400, INVALID, Some("mcp_tool_name_clash")),
            Self::Stale => (400, INVALID, Some("mcp_tool_definition_stale")),
            Self::Removed => (400, INVALID, Some("mcp_tool_removed")),
            Self::NotApproved(_) => (400, INVALID, Some("mcp_tool_not_approved")),
            Self::Trifecta(_) => (400, INVALID, Some("mcp_trifecta_unconfirmed")),
            Self::KeyRevoked(_) => (400, INVALID, Some("key_revoked")),
            Self::Store(_) => (503, "internal_error", None),
        }
    }

    /// The faults of an object as one message.
    #[must_use]
    pub fn of_faults(faults: &[Fault]) -> Self {
        let lines: Vec<String> = faults
            .iter()
            .filter(|fault| fault.is_error())
            .map(|fault| match &fault.hint {
                Some(hint) => format!("{} ({hint})", fault.message),
                None => fault.message.clone(),
            })
            .collect();
        Self::Invalid(lines.join("; "))
    }
}
