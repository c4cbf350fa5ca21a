//! One server's tools: the era, then `tools/list`, page after page, within limits.
//!
//! Knows no clock but its deadline, and nothing of what the tools mean: an entry with a name is kept as its server sent it, save that
//! the credential that the gateway holds is taken out, for what is listed is stored and shown.
//!
//! **Invariants.** A listing is whole or an error. A page that could not be read never makes tools look removed. No listing holds the
//! credential of its server.

use std::{collections::HashSet, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::time::Instant;

use crate::{
    model::{
        jsonrpc::{Document, Kind, Node, Spanned},
        mcp::{Era, Revision},
        pin::Pin,
        records::Protocol,
    },
    policy::guard::{CredentialMask, apply_edits},
    upstream::{
        client::{Client, ClientError, Limits},
        envelope::{Headers, list_body},
        exchange::{Answer, AskError, Question, ask},
        legacy::{self, SessionRef, initialize, next_id},
        modern::{Verdict, probe},
        target::Target,
    },
};

/// The most pages of one listing.
pub const PAGES_MAX: usize = 1_000;
/// The most tools of one server, dropped entries included.
pub const TOOLS_MAX: usize = 10_000;
/// The most bytes of one listing, all pages together.
pub const LISTING_BYTES_MAX: usize = 32 << 20;
/// How long one listing may take, the era probe included.
pub const LISTING_TIMEOUT: Duration = Duration::from_secs(60);

/// A tool as its server listed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTool {
    /// The server's own name for it. May be too long or hold control characters: the policy judges names.
    pub name: String,
    /// The tool object as sent, but for the credential.
    pub json: Arc<str>,
    /// The hash of what was sent (contract §6).
    pub pin: Pin,
}

/// All tools of a server, in its order; two may have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The revision in which it was asked.
    pub revision: Revision,
    /// The tools.
    pub tools: Vec<ListedTool>,
    /// Entries that have no string `name`, or one with the credential in it.
    pub dropped: usize,
}

/// Why a server has no listing: `mcp_discovery_failed`. The text is for a person; it holds no URL and no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DiscoveryError {
    /// A question failed.
    #[error("{0}")]
    Ask(#[from] AskError),
    /// Only revisions that the gateway does not speak.
    #[error("the server speaks no protocol revision that the gateway speaks")]
    Incompatible,
    /// A result of `tools/list` that is none.
    #[error("the server's answer to `tools/list` is not a list of tools")]
    NotAList,
    /// A cursor that it gave before.
    #[error("the server's list of tools never ends: it repeats a cursor")]
    Endless,
    /// One page more than [`PAGES_MAX`].
    #[error("the server's list of tools has more than 1000 pages")]
    TooManyPages,
    /// One tool more than [`TOOLS_MAX`].
    #[error("the server lists more than 10000 tools")]
    TooManyTools,
    /// More than [`LISTING_BYTES_MAX`].
    #[error("the server's list of tools is larger than 32 MiB")]
    TooLarge,
    /// Longer than [`LISTING_TIMEOUT`].
    #[error("the server's list of tools did not end in time")]
    TimedOut,
    /// A fault of the gateway's own.
    #[error("the gateway failed while it read the server's list of tools")]
    Internal,
}

/// Asks a server for its tools.
///
/// `Protocol::Auto` probes the era first: 401, 403, 429, 5xx and silence are no verdict on it but the error itself.
///
/// # Errors
/// [`DiscoveryError`]
pub async fn list_tools(client: &Client, target: &Target, protocol: Protocol) -> Result<Listing, DiscoveryError> {
    let deadline = Instant::now() + LISTING_TIMEOUT;
    tokio::time::timeout_at(deadline, list(client, target, protocol)).await.map_err(|_| DiscoveryError::TimedOut)?
}

async fn list(client: &Client, target: &Target, protocol: Protocol) -> Result<Listing, DiscoveryError> {
    let revision = match protocol {
        Protocol::Fixed(revision) => revision,
        Protocol::Auto => match probe(client, target).await? {
            Verdict::Modern => Revision::MODERN,
            Verdict::Legacy => Revision::LATEST_LEGACY,
            Verdict::Incompatible => return Err(DiscoveryError::Incompatible),
        },
    };
    if revision.era() == Era::Modern {
        return pages(client, target, SessionRef { revision, id: None }).await;
    }
    let opened = initialize(client, target, revision).await?;
    let session = SessionRef { revision: opened.revision, id: opened.id.as_deref() };
    let listing = pages(client, target, session).await;
    legacy::end(client, target, session).await;
    listing
}

/// Reads page after page.
async fn pages(client: &Client, target: &Target, session: SessionRef<'_>) -> Result<Listing, DiscoveryError> {
    let mut listing = Listing { revision: session.revision, tools: Vec::new(), dropped: 0 };
    let mut seen: HashSet<String> = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut left = LISTING_BYTES_MAX;
    let values = target.credential.headers().iter().map(|(_, value)| value.as_bytes());
    let mask = CredentialMask::new(values).map_err(|_| DiscoveryError::Internal)?;
    for _ in 0..PAGES_MAX {
        let result = page(client, target, session, (cursor.as_deref(), left)).await?;
        left = left.saturating_sub(result.len());
        match read_page(&result, &mask, &mut listing)? {
            None => return Ok(listing),
            Some(next) if !seen.insert(next.clone()) => return Err(DiscoveryError::Endless),
            Some(next) => cursor = Some(next),
        }
    }
    Err(DiscoveryError::TooManyPages)
}

async fn page(
    client: &Client,
    target: &Target,
    session: SessionRef<'_>,
    (cursor, bytes_max): (Option<&str>, usize),
) -> Result<Vec<u8>, DiscoveryError> {
    let id = next_id();
    let headers = Headers {
        revision: Some(session.revision),
        method: "tools/list",
        name: None,
        params: &[],
        session: session.id,
        credential: target.credential.headers(),
    };
    let body = list_body(session.revision, id, cursor);
    let limits = Limits { body_bytes_max: bytes_max, timeout: target.timeout };
    let answer: Result<Answer, ClientError> = ask(client, target, Question { id, headers, body, limits }).await;
    match answer {
        Err(ClientError::TooLarge { .. }) => Err(DiscoveryError::TooLarge),
        Err(other) => Err(AskError::from(other).into()),
        Ok(answer) => Ok(answer.into_result()?),
    }
}

/// Adds a page's tools to the listing; gives the next cursor, if there is one.
fn read_page(result: &[u8], mask: &CredentialMask, listing: &mut Listing) -> Result<Option<String>, DiscoveryError> {
    let mut scratch = Vec::new();
    let document = Document::parse(result, &mut scratch).map_err(|_| DiscoveryError::NotAList)?;
    let root = document.spanned_root();
    let complete = root.node.get("resultType").is_none_or(|kind| kind.as_str() == Some("complete"));
    let tools = root.get("tools").filter(|tools| complete && tools.node.kind() == Kind::Array);
    for tool in tools.ok_or(DiscoveryError::NotAList)?.items() {
        if listing.tools.len() + listing.dropped >= TOOLS_MAX {
            return Err(DiscoveryError::TooManyTools);
        }
        match read_tool(&document, &tool, mask) {
            Some(tool) => listing.tools.push(tool),
            None => listing.dropped += 1,
        }
    }
    match root.node.get("nextCursor") {
        None => Ok(None),
        Some(cursor) if cursor.kind() == Kind::Null => Ok(None),
        Some(cursor) => Ok(Some(cursor.as_str().ok_or(DiscoveryError::NotAList)?.to_owned())),
    }
}

fn read_tool(document: &Document<'_>, tool: &Spanned<'_>, mask: &CredentialMask) -> Option<ListedTool> {
    let name = tool.node.get("name").and_then(Node::as_str).filter(|name| mask.mask_text(name).is_none())?.to_owned();
    let pin = Pin::of_value(tool).ok()?;
    let edits = mask.edits(document, tool);
    if edits.is_empty() {
        return Some(ListedTool { name, json: tool.text().into(), pin });
    }
    let bytes = apply_edits(document.raw(), tool.span.clone(), &edits);
    Some(ListedTool { name, json: String::from_utf8(bytes).ok()?.into(), pin })
}

#[cfg(test)]
mod tests;
