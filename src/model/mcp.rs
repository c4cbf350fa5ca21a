//! Names and values of the Model Context Protocol that more than one room needs (`mcp.md`).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A protocol revision that the gateway speaks, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2025-03-26, legacy.
    V2025_03_26,
    /// 2025-06-18, legacy.
    V2025_06_18,
    /// 2025-11-25, legacy: the newest with `initialize`.
    V2025_11_25,
    /// 2026-07-28, modern: stateless, `_meta` in every request.
    V2026_07_28,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 4] = [Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];
    /// The newest legacy revision: what `initialize` answers when it cannot serve the asked one.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// The modern revision, as listed by `server/discover` and in `-32022` data.
    pub const MODERN: Self = Self::V2026_07_28;

    /// The revision as written on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Parses a wire version that the gateway speaks.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }

    /// The era that this revision belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2026_07_28 => Era::Modern,
            _ => Era::Legacy,
        }
    }

    /// Position in [`Revision::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("an unknown protocol revision"))
    }
}

/// Stateless (2026-07-28) or with `initialize` (2025-xx-xx). Also a metric label (contract §11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Era {
    /// 2026-07-28 and later.
    Modern,
    /// 2025-11-25 and earlier.
    Legacy,
}

impl Era {
    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Modern => "modern",
            Self::Legacy => "legacy",
        }
    }
}

/// `_meta` key of the protocol version of a modern request (`mcp.md` M4).
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// `_meta` key of the caller's capabilities (`mcp.md` M4).
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// `_meta` key of the caller's name and version.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// `_meta` key of the server's name and version on modern results.
pub const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// `_meta` key of the subscription that a message on its stream belongs to.
pub const META_SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// `_meta` key by which only the gateway marks its refusals (contract §4).
pub const META_REFUSAL: &str = "toolgate/refusal";

/// Header `MCP-Protocol-Version`, lower case as http stores names.
pub const HEADER_PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// Header `Mcp-Method`.
pub const HEADER_METHOD: &str = "mcp-method";
/// Header `Mcp-Name`.
pub const HEADER_NAME: &str = "mcp-name";
/// Prefix of `Mcp-Param-*` headers.
pub const HEADER_PARAM_PREFIX: &str = "mcp-param-";
/// Header `Mcp-Session-Id`, legacy upstreams only.
pub const HEADER_SESSION_ID: &str = "mcp-session-id";
