//! An external guardrail engine, as the gateway asks it: one POST with the texts, one JSON answer, within the rule's time limit.
//!
//! ```json
//! POST  {"version":1,"stage":"input","organization":"acme","server":"github","tool":"create_issue","rule":"dlp","texts":["…"]}
//! 200   {"matches":[{"text":0,"type":"PERSON"}]}
//! ```
//! `matches` empty or absent: nothing was found. `text` is an index into `texts`; both members of a match are optional. Anything else
//! than a 200 with such an object is a failure of the engine, and the rule's `on_engine_error` decides. The same address rules hold as
//! for servers; a breaker and a cap on questions at one time keep a dead engine from holding calls.

use std::{sync::Arc, time::Duration};

use super::{
    breaker::{Health, HealthLimits},
    client::{Client, Limits},
    envelope::Headers,
    target::Target,
};
use crate::model::jsonrpc::{Document, Kind, write_string};

/// Questions to one engine at one time.
pub const QUESTIONS_MAX: u32 = 256;
/// The largest answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An engine; lives on across snapshots.
#[derive(Debug)]
pub struct Engine {
    target: Arc<Target>,
    health: Arc<Health>,
    timeout: Duration,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct EngineQuestion<'q> {
    /// `input` or `output`.
    pub stage: &'static str,
    /// The organization's id.
    pub organization: &'q str,
    /// The server's slug.
    pub server: &'q str,
    /// The server's own name of the tool.
    pub tool: &'q str,
    /// The rule's name.
    pub rule: &'q str,
    /// The texts that were looked at.
    pub texts: &'q [String],
}

/// The engine failed: an error, its time limit, its breaker, or an answer that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFailed;

impl Engine {
    /// An engine at a judged address.
    #[must_use]
    pub fn new(target: Target, timeout: Duration, now_ms: u64) -> Self {
        Self { target: Arc::new(target), health: Arc::new(Health::new(now_ms)), timeout }
    }

    /// Whether this is the engine of that target and limit.
    #[must_use]
    pub fn is_at(&self, target: &Target, timeout: Duration) -> bool {
        self.timeout == timeout && self.target.endpoint == target.endpoint && self.target.rules == target.rules
    }

    /// Asks; whether anything was found. `left` is what is left of the call's own time.
    ///
    /// # Errors
    /// [`EngineFailed`]
    pub async fn ask(
        &self,
        client: &Client,
        question: &EngineQuestion<'_>,
        (left, now_ms): (Duration, u64),
    ) -> Result<bool, EngineFailed> {
        let limits = HealthLimits { in_flight_max: QUESTIONS_MAX, listing_age_max_ms: u64::MAX };
        let permit = self.health.enter(limits, now_ms).map_err(|_| EngineFailed)?;
        let headers = Headers { revision: None, method: "", name: None, params: &[], session: None, credential: &[] };
        let timeout = self.timeout.min(left);
        let limits = Limits { body_bytes_max: ANSWER_BYTES_MAX, timeout };
        let asked = async {
            let reply = client.post(&self.target, &headers, body(question), limits).await.ok()?;
            if reply.status != 200 {
                return None;
            }
            reply.body.whole().await.ok()
        };
        let answer = tokio::time::timeout(timeout, asked).await.ok().flatten();
        match answer.as_deref().and_then(found) {
            Some(found) => {
                permit.answered();
                Ok(found)
            }
            None => {
                permit.failed(now_ms);
                Err(EngineFailed)
            }
        }
    }
}

fn body(question: &EngineQuestion<'_>) -> Vec<u8> {
    let mut out = b"{\"version\":1".to_vec();
    let members = [
        ("stage", question.stage),
        ("organization", question.organization),
        ("server", question.server),
        ("tool", question.tool),
        ("rule", question.rule),
    ];
    for (name, text) in members {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write_string(&mut out, text);
    }
    out.extend_from_slice(b",\"texts\":[");
    for (index, text) in question.texts.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(&mut out, text);
    }
    out.extend_from_slice(b"]}");
    out
}

/// Whether an answer found anything; none if it is no answer.
fn found(answer: &[u8]) -> Option<bool> {
    let mut scratch = Vec::new();
    let document = Document::parse(answer, &mut scratch).ok()?;
    let root = document.root();
    if root.kind() != Kind::Object {
        return None;
    }
    match root.get("matches") {
        None => Some(false),
        Some(matches) if matches.kind() == Kind::Array => Some(!matches.is_empty()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn only_an_object_with_a_list_is_an_answer() {
        for (answer, expected) in [
            ("{}", Some(false)),
            (r#"{"matches":[]}"#, Some(false)),
            (r#"{"matches":[{"text":0,"type":"PERSON"}]}"#, Some(true)),
            (r#"{"matches":null}"#, None),
            (r#"{"matches":[],"matches":[{}]}"#, None),
            ("[]", None),
            ("", None),
            ("ok", None),
        ] {
            assert_eq!(found(answer.as_bytes()), expected, "{answer}");
        }
    }
}
