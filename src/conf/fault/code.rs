//! How bad a fault is, and of what kind: the words that reports and programs have for it.

/// How bad a [`super::Fault`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is loaded.
    Error,
    /// Loaded all the same; a person should know.
    Warning,
}

impl Severity {
    /// As reports write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// What kind of fault it is, for programs. Where the management API has a code for the same (contract §9), it is that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCode {
    /// A file or folder cannot be read.
    UnreadableFile,
    /// The text is no TOML.
    InvalidToml,
    /// A member that no table has.
    UnknownMember,
    /// A member that has to be there.
    MissingMember,
    /// Anything else that is wrong with what was written.
    InvalidValue,
    /// A second object of that name.
    Duplicate,
    /// A name that nothing has.
    UnknownReference,
    /// A server's URL.
    InvalidUrl,
    /// A server's credential.
    InvalidCredential,
    /// A key gets all three legs of the trifecta, and nobody confirmed it.
    TrifectaUnconfirmed,
    /// A grant names a revoked key.
    KeyRevoked,
}

impl FaultCode {
    /// As `toolgate check --json` writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnreadableFile => "unreadable_file",
            Self::InvalidToml => "invalid_toml",
            Self::UnknownMember => "unknown_member",
            Self::MissingMember => "missing_member",
            Self::InvalidValue => "invalid_value",
            Self::Duplicate => "duplicate",
            Self::UnknownReference => "unknown_reference",
            Self::InvalidUrl => "invalid_mcp_server_url",
            Self::InvalidCredential => "invalid_mcp_credential",
            Self::TrifectaUnconfirmed => "mcp_trifecta_unconfirmed",
            Self::KeyRevoked => "key_revoked",
        }
    }
}
