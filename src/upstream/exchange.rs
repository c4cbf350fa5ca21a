//! One question to a server and its answer: JSON or SSE, whatever the era, with what a server may say in between.
//!
//! Judges messages as the data path does: by `method` first, then by our id in value and type; the first response with our
//! id ends the exchange and nothing behind it is read (contract §3).
//!
//! **Invariant.** An [`AskError`] is our own words: a server's message is never part of it.

use std::ops::ControlFlow;

use thiserror::Error;

use super::{
    client::{Client, ClientError, Limits, Media, Reply},
    envelope::{Headers, OurId},
    legacy,
    target::Target,
};
use crate::model::{
    jsonrpc::{Document, Kind},
    mcp::{Era, Revision},
    sse::Reader,
};

/// So many of a server's own requests are answered within one exchange; more are ignored.
pub const SERVER_REQUESTS_MAX: usize = 16;

/// A JSON-RPC response to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rpc {
    /// `result`, raw JSON as sent.
    Result(Vec<u8>),
    /// `error`
    Error {
        /// Its code.
        code: i64,
        /// The server's words: neither cleaned nor cut.
        message: String,
        /// `data`, raw JSON as sent.
        data: Option<Vec<u8>>,
    },
}

/// A message of a server, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The response to our request.
    Answer(Rpc),
    /// A request of the server's own.
    Request {
        /// Its id, raw JSON.
        id: Vec<u8>,
        /// Its method.
        method: String,
    },
    /// A notification.
    Notification {
        /// Its method.
        method: String,
    },
    /// Not MCP: not strict JSON, a batch, another's response, or neither result nor error or both.
    NotMcp,
}

/// Judges one message that came while our request `id` was open.
///
/// `refused` says that the HTTP status was 400 or more: then an error whose id is null, absent or `"server-error"` is ours too,
/// for a server that could not read the request cannot know its id (`mcp.md` A.4).
#[must_use]
pub fn judge(message: &[u8], id: OurId, refused: bool) -> Incoming {
    let mut scratch = Vec::new();
    let Ok(document) = Document::parse(message, &mut scratch) else { return Incoming::NotMcp };
    let root = document.spanned_root();
    if root.node.get("jsonrpc").and_then(|version| version.as_str()) != Some("2.0") {
        return Incoming::NotMcp;
    }
    let their_id = root.get("id");
    if let Some(method) = root.node.get("method") {
        let Some(method) = method.as_str().map(str::to_owned) else { return Incoming::NotMcp };
        return match their_id {
            Some(id) if matches!(id.node.kind(), Kind::String | Kind::Number) => {
                Incoming::Request { id: id.raw().to_vec(), method }
            }
            Some(_) => Incoming::NotMcp,
            None => Incoming::Notification { method },
        };
    }
    let ours = their_id.as_ref().is_some_and(|their_id| id.is(their_id.node));
    let unread = || match &their_id {
        None => true,
        Some(id) => id.node.kind() == Kind::Null || id.node.as_str() == Some("server-error"),
    };
    match (root.get("result"), root.get("error")) {
        (Some(result), None) if ours => Incoming::Answer(Rpc::Result(result.raw().to_vec())),
        (None, Some(error)) if ours || (refused && unread()) => {
            let code = error.node.get("code").and_then(|code| code.as_i64());
            let message = error.node.get("message").and_then(|message| message.as_str());
            match (code, message) {
                (Some(code), Some(message)) => Incoming::Answer(Rpc::Error {
                    code,
                    message: message.to_owned(),
                    data: error.get("data").map(|data| data.raw().to_vec()),
                }),
                _ => Incoming::NotMcp,
            }
        }
        _ => Incoming::NotMcp,
    }
}

/// What one question came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// `Mcp-Session-Id` of the answer. Only that of a good `initialize` counts.
    pub session_id: Option<String>,
    /// The JSON-RPC response; none: what came was not MCP.
    pub rpc: Option<Rpc>,
    /// A `notifications/tools/list_changed` came first.
    pub list_changed: bool,
}

/// Why a question has no result. The text is for a person, in our own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// The network, or a limit.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// 401 or 403 to the credential that we hold.
    #[error("the server refused the credential (HTTP {status}); an administrator must replace it")]
    Credential {
        /// 401 or 403.
        status: u16,
    },
    /// 429.
    #[error("the server limits the rate of the credential (HTTP 429)")]
    RateLimited,
    /// 5xx.
    #[error("the server failed (HTTP {status})")]
    ServerFault {
        /// 500 or more.
        status: u16,
    },
    /// 3xx; never followed.
    #[error("the server answered with a redirect (HTTP {status}), which is not followed")]
    Redirect {
        /// 300 to 399.
        status: u16,
    },
    /// Another status without an MCP answer.
    #[error("the server answered HTTP {status} without an MCP message")]
    Status {
        /// The status.
        status: u16,
    },
    /// A good status, but not MCP.
    #[error("what the server answered is not MCP")]
    NotMcp,
    /// A JSON-RPC error.
    #[error("the server answered with the JSON-RPC error {code}")]
    Rejected {
        /// Its code.
        code: i64,
    },
    /// `initialize` settled on a revision that we do not speak.
    #[error("the server speaks no protocol revision that the gateway speaks")]
    Revision,
    /// Neither revision of streamable HTTP answers (`mcp.md` A.4, era detection 3).
    #[error(
        "the server answers neither `server/discover` nor `initialize`; the HTTP+SSE transport of 2024-11-05 is not supported"
    )]
    OldTransport,
    /// Every session that may be open is in use.
    #[error("no further session can be opened: all are in use")]
    SessionsFull,
    /// The gateway shuts down, or the session ended while it was being opened.
    #[error("the session ended before it could be used")]
    SessionEnded,
}

impl Answer {
    /// The raw `result`, or why there is none. The status is judged first: 401, 403, 429 and 5xx mean what they say.
    ///
    /// # Errors
    /// [`AskError`]
    pub fn into_result(self) -> Result<Vec<u8>, AskError> {
        judge_status(self.status)?;
        match self.rpc {
            Some(Rpc::Result(result)) if self.status < 300 => Ok(result),
            Some(Rpc::Error { code, .. }) => Err(AskError::Rejected { code }),
            _ if self.status < 300 => Err(AskError::NotMcp),
            _ => Err(AskError::Status { status: self.status }),
        }
    }
}

/// The statuses that are a verdict by themselves, whatever the body.
///
/// # Errors
/// [`AskError`] for 401, 403, 429, 3xx and 5xx.
pub fn judge_status(status: u16) -> Result<(), AskError> {
    match status {
        401 | 403 => Err(AskError::Credential { status }),
        429 => Err(AskError::RateLimited),
        300..=399 => Err(AskError::Redirect { status }),
        500.. => Err(AskError::ServerFault { status }),
        _ => Ok(()),
    }
}

/// One question on its way: what is asked, as whom, and how much may come back.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// The id in `body`.
    pub id: OurId,
    /// Its headers.
    pub headers: Headers<'q>,
    /// Its body.
    pub body: Vec<u8>,
    /// Limits of the answer; a stream may bring as many bytes again beside the answer.
    pub limits: Limits,
}

/// Asks and reads up to the response. On the way, a legacy server's own requests are answered and its notifications dropped.
///
/// # Errors
/// [`ClientError`]; what the server says is never an error here.
pub async fn ask(client: &Client, target: &Target, question: Question<'_>) -> Result<Answer, ClientError> {
    let Question { id, headers, body, limits } = question;
    let mut reply = client.post(target, &headers, body, limits).await?;
    let (status, session_id) = (reply.status, reply.session_id.take());
    let mut answer = Answer { status, session_id, rpc: None, list_changed: false };
    let worth_reading = judge_status(status).is_ok() && status != 202;
    match reply.media {
        Media::Json if worth_reading => {
            let message = reply.body.whole().await?;
            if let Incoming::Answer(rpc) = judge(&message, id, status >= 400) {
                answer.rpc = Some(rpc);
            }
        }
        Media::EventStream if worth_reading && status < 300 => {
            let stream = Stream { client, target, headers: &headers, id };
            stream.read(reply, limits, &mut answer).await?;
        }
        _ => {}
    }
    Ok(answer)
}

/// An event stream being read for one answer.
struct Stream<'s> {
    client: &'s Client,
    target: &'s Target,
    headers: &'s Headers<'s>,
    id: OurId,
}

impl Stream<'_> {
    /// Reads up to the answer; a stream that ends before it leaves `answer.rpc` empty.
    async fn read(&self, mut reply: Reply, limits: Limits, answer: &mut Answer) -> Result<(), ClientError> {
        reply.body.allow(limits.body_bytes_max);
        let mut reader = Reader::new(limits.body_bytes_max, limits.body_bytes_max);
        let mut answered = 0;
        while let Some(chunk) = reply.body.chunk().await? {
            let mut requests = Vec::new();
            let flow = reader.push(&chunk, |event| match judge(event, self.id, false) {
                Incoming::Answer(rpc) => ControlFlow::Break(Some(rpc)),
                Incoming::NotMcp => ControlFlow::Break(None),
                Incoming::Request { id, method } => {
                    requests.push((id, method));
                    ControlFlow::Continue(())
                }
                Incoming::Notification { method } => {
                    answer.list_changed |= method == "notifications/tools/list_changed";
                    ControlFlow::Continue(())
                }
            });
            match flow.map_err(|_| ClientError::TooLarge { limit_bytes: limits.body_bytes_max })? {
                ControlFlow::Break(rpc) => {
                    answer.rpc = rpc;
                    return Ok(());
                }
                ControlFlow::Continue(()) => {}
            }
            for (id, method) in requests {
                if answered < SERVER_REQUESTS_MAX {
                    answered += 1;
                    self.decline(&id, &method).await;
                }
            }
        }
        Ok(())
    }

    /// Declines a server's own request, or it would wait for ever. Modern servers may not ask; they get no answer.
    async fn decline(&self, their_id: &[u8], method: &str) {
        if let Some(revision) = self.headers.revision.filter(|revision| revision.era() == Era::Legacy) {
            let session = legacy::SessionRef { revision, id: self.headers.session };
            legacy::answer_server_request(self.client, self.target, session, (their_id, method)).await;
        }
    }
}

/// The revision that `text` names, if it is one that is settled by `initialize`.
#[must_use]
pub fn legacy_revision(text: &str) -> Option<Revision> {
    Revision::parse(text).filter(|revision| revision.era() == Era::Legacy)
}

#[cfg(test)]
mod tests;
