//! Servers of 2026-07-28, and the probe that tells them from older ones (`mcp.md` A.4, era detection).
//!
//! Knows nothing of tools. A server that cannot be asked right now (401, 403, 429, 5xx, silence) gets no verdict.

use super::{
    client::{Client, Limits},
    envelope::{Headers, discover_body},
    exchange::{Answer, AskError, Question, Rpc, ask, judge_status, legacy_revision},
    legacy::next_id,
    target::Target,
};
use crate::model::{jsonrpc::Document, mcp::Revision};

/// The most bytes that are read of an answer to `server/discover`.
pub const DISCOVER_BYTES_MAX: usize = 256 * 1024;

/// What the probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It speaks 2026-07-28.
    Modern,
    /// It does not know the probe: `initialize` decides.
    Legacy,
    /// It speaks only revisions that we do not.
    Incompatible,
}

/// Asks `server/discover` and reads the server's era from whatever comes.
///
/// # Errors
/// [`AskError`] where what came is no verdict on the era.
pub async fn probe(client: &Client, target: &Target) -> Result<Verdict, AskError> {
    let id = next_id();
    let headers = Headers {
        revision: Some(Revision::MODERN),
        method: "server/discover",
        name: None,
        params: &[],
        session: None,
        credential: target.credential.headers(),
    };
    let limits = Limits { body_bytes_max: DISCOVER_BYTES_MAX, timeout: target.timeout };
    let answer = ask(client, target, Question { id, headers, body: discover_body(id), limits }).await?;
    verdict(&answer)
}

fn verdict(answer: &Answer) -> Result<Verdict, AskError> {
    judge_status(answer.status)?;
    Ok(match &answer.rpc {
        Some(Rpc::Result(result)) if answer.status < 300 => {
            versions(Some(result), "supportedVersions").unwrap_or(Verdict::Legacy)
        }
        Some(Rpc::Error { code: -32022, data, .. }) => {
            versions(data.as_deref(), "supported").unwrap_or(Verdict::Incompatible)
        }
        Some(Rpc::Error { code: -32020 | -32021, .. }) if answer.status == 400 => Verdict::Modern,
        _ => Verdict::Legacy,
    })
}

/// What a list of versions says; none where there is no such list.
fn versions(json: Option<&[u8]>, member: &str) -> Option<Verdict> {
    let mut scratch = Vec::new();
    let document = Document::parse(json?, &mut scratch).ok()?;
    let list = document.root().get(member)?;
    let names: Vec<&str> = list.items().filter_map(|item| item.as_str()).collect();
    if names.is_empty() {
        None
    } else if names.contains(&Revision::MODERN.as_str()) {
        Some(Verdict::Modern)
    } else if names.iter().any(|name| legacy_revision(name).is_some()) {
        Some(Verdict::Legacy)
    } else {
        Some(Verdict::Incompatible)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::{
        super::{
            dns::Resolver,
            mock::{Act, Mock},
        },
        *,
    };
    use serde_json::{Value, json};

    #[tokio::test]
    async fn the_era_is_read_from_whatever_comes() {
        use Verdict::{Incompatible, Legacy, Modern};
        let error = |status: u16, id: Value, code: i64, data: Value| {
            Act::json(
                status,
                json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "m", "data": data}}),
            )
        };
        let cases = [
            ("404 with -32601", error(404, Value::Null, -32601, Value::Null), Ok(Legacy)),
            ("400 TS v1", error(400, Value::Null, -32000, Value::Null), Ok(Legacy)),
            ("400 Python", error(400, json!("server-error"), -32600, Value::Null), Ok(Legacy)),
            ("-32602 is no evidence", error(400, Value::Null, -32602, Value::Null), Ok(Legacy)),
            ("plain text 415", Act::text(415, "Unsupported"), Ok(Legacy)),
            ("plain text 422", Act::text(422, "Unexpected"), Ok(Legacy)),
            ("HTML 400", Act::with(400, "Content-Type: text/html\r\n", b"<html>"), Ok(Legacy)),
            ("HTML 200", Act::with(200, "Content-Type: text/html\r\n", b"<html>"), Ok(Legacy)),
            ("202", Act::empty(202), Ok(Legacy)),
            ("405", Act::empty(405), Ok(Legacy)),
            ("-32020 with 400", error(400, Value::Null, -32020, Value::Null), Ok(Modern)),
            ("-32021 with 400", error(400, Value::Null, -32021, json!({"requiredCapabilities": {}})), Ok(Modern)),
            ("-32020 with 200", error(200, Value::Null, -32020, Value::Null), Ok(Legacy)),
            (
                "-32022 ours",
                error(400, Value::Null, -32022, json!({"supported": ["2027-01-01", "2026-07-28"]})),
                Ok(Modern),
            ),
            ("-32022 legacy", error(400, Value::Null, -32022, json!({"supported": ["2025-11-25"]})), Ok(Legacy)),
            ("-32022 unknown", error(400, Value::Null, -32022, json!({"supported": ["2027-01-01"]})), Ok(Incompatible)),
            ("-32022 bare", error(400, Value::Null, -32022, Value::Null), Ok(Incompatible)),
            ("401", Act::empty(401), Err(AskError::Credential { status: 401 })),
            ("403", error(403, Value::Null, -32022, Value::Null), Err(AskError::Credential { status: 403 })),
            ("429", Act::empty(429), Err(AskError::RateLimited)),
            ("500", Act::empty(500), Err(AskError::ServerFault { status: 500 })),
            ("503 with JSON", error(503, Value::Null, -32601, Value::Null), Err(AskError::ServerFault { status: 503 })),
            ("301", Act::empty(301), Err(AskError::Redirect { status: 301 })),
        ];
        let client = Client::new(Resolver::table([]));
        for (what, act, expected) in cases {
            let mock = Mock::start(move |_| act.clone()).await;
            assert_eq!(probe(&client, &mock.target()).await, expected, "{what}");
            let seen = &mock.seen()[0];
            assert_eq!(seen.header("mcp-method"), Some("server/discover"), "{what}");
            assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"), "{what}");
        }
    }

    #[tokio::test]
    async fn a_list_of_versions_decides() {
        let check = async |result: Value, streamed: bool, expected: Verdict| {
            let mock = Mock::start(move |seen| match streamed {
                true => seen.stream(": hello\n\nid: 1\ndata: \n\n", result.clone()),
                false => seen.result(result.clone()),
            });
            let mock = mock.await;
            let client = Client::new(Resolver::table([]));
            assert_eq!(probe(&client, &mock.target()).await, Ok(expected));
        };
        for streamed in [false, true] {
            check(json!({"supportedVersions": ["2026-07-28"]}), streamed, Verdict::Modern).await;
            check(json!({"supportedVersions": ["2025-11-25", "2027-01-01"]}), streamed, Verdict::Legacy).await;
            check(json!({"supportedVersions": ["2027-01-01"]}), streamed, Verdict::Incompatible).await;
            check(json!({"supportedVersions": []}), streamed, Verdict::Legacy).await;
            check(json!({"supportedVersions": "2026-07-28"}), streamed, Verdict::Legacy).await;
            check(json!({}), streamed, Verdict::Legacy).await;
        }
    }
}
