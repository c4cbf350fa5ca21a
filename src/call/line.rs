//! The straight line itself: `admit` on the way in, `release` on the way out.
//!
//! Only [`charge`] makes an [`Admitted`] (by way of [`Unpaid`] where the fleet must be asked), and only `release` a [`Released`]: a check that was skipped does not compile.

use std::sync::Arc;

use http::HeaderMap;

use super::{
    Now, arguments, headers, hello,
    input::{self, Note, Screened},
    list,
    listen::{self, Listen},
    meta::{Meta, meta},
    parse::{self, Message, Request},
    pass, resolve,
    subject::Subject,
    throttle, trace,
};
use crate::{
    model::{
        jsonrpc::{Document, Spanned},
        mcp::{Era, HEADER_PARAM_PREFIX, Revision},
        trace::TraceContext,
    },
    policy::{
        guard::CredentialMask,
        snapshot::{KeyPolicy, ServerPolicy, Settings, Snapshot, ToolPolicy, ViewServer},
        users::UserAccess,
    },
    refusal::Refusal,
    upstream::{breaker::Permit, envelope, target::Target},
};

/// Who calls, and where; the verdict on key and route.
#[derive(Debug)]
pub struct Caller<'s> {
    /// The policy of this call.
    pub snapshot: &'s Snapshot,
    /// The key.
    pub key: &'s KeyPolicy,
    /// The granted server of a per-server path; none on the aggregated endpoint.
    pub granted: Option<&'s ViewServer>,
    /// Whom it calls for, by its attribution.
    pub user: Option<&'s str>,
}

/// What a request asked for, as far as it was read: enough to answer it in its own form and to count it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The id as written; none: not read, or a notification.
    pub id: Option<Vec<u8>>,
    /// Its era; none: not read.
    pub era: Option<Era>,
    /// Its revision.
    pub revision: Option<Revision>,
    /// The method, from the closed set of contract §11.
    pub method: &'static str,
    /// The tool's name as sent.
    pub tool_name: Option<String>,
    /// The server that was resolved.
    pub server: Option<Arc<ServerPolicy>>,
    /// The tool that was resolved.
    pub tool: Option<Arc<ToolPolicy>>,
    /// It is no call of a tool, but passed through: its refusals are JSON-RPC errors.
    pub passed: bool,
    /// What guardrails found in a request that was refused.
    pub notes: Vec<Note>,
    /// The caller's trace: before the message is read, what the head says.
    pub trace: Option<TraceContext>,
}

/// What becomes of a request that nothing refused.
#[derive(Debug)]
pub enum Admission {
    /// A notification: 202.
    Accepted,
    /// Answered from the snapshot: the `result`, as JSON.
    Answered(Vec<u8>),
    /// A subscription: a stream of its own.
    Listen(Listen),
    /// A call that passed every check of its own; [`charge`] is left.
    Call(Box<Checked>),
}

/// A call that passed every check but the server's own limits.
#[derive(Debug)]
pub struct Checked {
    /// The server.
    pub server: Arc<ServerPolicy>,
    /// For whom, where the server takes each user's own credential.
    pub user: Option<Arc<UserAccess>>,
    /// What the server is asked for.
    pub subject: Subject,
    /// The arguments, byte for byte what was checked; of a request that is passed through all that is passed on of its `params`.
    pub arguments: Vec<u8>,
    /// What goes along with them.
    pub meta: Meta,
    /// Names behind `Mcp-Param-` and their texts, of the checked arguments.
    pub params: Vec<(String, String)>,
    /// What the guardrails on the way in found, for metrics and log.
    pub screened: input::Screened,
}

impl Checked {
    /// How the server is reached, with the credential of whom it is called for.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        self.user.as_ref().map_or(&self.server.upstream.target, |user| &user.target)
    }

    /// Finds every credential that could be in the answer.
    #[must_use]
    pub fn mask(&self) -> &CredentialMask {
        self.user.as_ref().map_or(&self.server.mask, |user| user.mask())
    }

    /// The name of whom it is called for, where that decides on the credential.
    #[must_use]
    pub fn user_name(&self) -> Option<&Arc<str>> {
        self.user.as_ref().map(|user| user.user())
    }
}

/// The access of whom `caller` calls for; none where the server is called with its own credential.
///
/// # Refuses
/// - [`Refusal::CredentialRequired`]
pub(super) fn access(caller: &Caller<'_>, server: &ServerPolicy) -> Result<Option<Arc<UserAccess>>, Refusal> {
    server.users.as_ref().map(|users| users.access(caller.user).map(Arc::clone)).transpose()
}

/// A call that may be sent: the only thing that becomes bytes upstream.
#[derive(Debug)]
pub struct Admitted {
    /// What was checked.
    pub checked: Checked,
    /// Its place at the server; given back before the caller has its answer.
    pub permit: Option<Permit>,
}

/// The request side of the line, in the order in which a call meets its checks.
///
/// `asked` is filled as far as the request was read, also when it is refused.
///
/// # Refuses
/// With whatever the first stage that fails refuses with.
pub fn admit(caller: &Caller<'_>, head: &HeaderMap, body: &[u8], asked: &mut Asked) -> Result<Admission, Refusal> {
    let mut scratch = Vec::new();
    let document = Document::parse(body, &mut scratch).map_err(|fault| parse::json_refusal(&fault))?;
    let request = match parse::message(&document, head, &mut asked.id)? {
        Message::Notification { era, .. } => {
            asked.era = Some(era);
            asked.method = "notification";
            return Ok(Admission::Accepted);
        }
        Message::Request(request) => request,
    };
    asked.era = Some(request.era);
    asked.revision = Some(request.revision);
    asked.method = method_label(request.method);
    asked.trace = trace::of_message(&request, asked.trace.take());
    headers::agree(head, &request)?;
    let settings = &caller.snapshot.settings;
    match (request.method, request.era) {
        ("tools/call", _) => call(caller, head, &document, &request, asked),
        ("tools/list", _) => {
            list::result(caller.snapshot, &caller.key.view, caller.granted, &request).map(Admission::Answered)
        }
        ("server/discover", Era::Modern) => Ok(Admission::Answered(hello::discover(settings, caller.granted))),
        ("subscriptions/listen", Era::Modern) => listen::accept(&request).map(Admission::Listen),
        ("initialize", Era::Legacy) => hello::initialize(settings, caller.granted, &request).map(Admission::Answered),
        ("ping", Era::Legacy) => Ok(Admission::Answered(hello::ping())),
        (name, _) => passed(caller, pass::method(name).ok_or(Refusal::MethodNotFound)?, (&document, &request), asked),
    }
}

fn passed(
    caller: &Caller<'_>,
    method: &'static pass::Method,
    message: (&Document<'_>, &Request<'_>),
    asked: &mut Asked,
) -> Result<Admission, Refusal> {
    let server = pass::server(caller, method)?;
    asked.server = Some(Arc::clone(server));
    asked.tool_name = Some(method.name.to_owned());
    asked.passed = true;
    let mut screened = Screened::default();
    let checked = pass::check(caller, (server, method), message, &mut screened);
    asked.notes.append(&mut screened.notes);
    checked.map(|checked| Admission::Call(Box::new(checked)))
}

fn call(
    caller: &Caller<'_>,
    head: &HeaderMap,
    document: &Document<'_>,
    request: &Request<'_>,
    asked: &mut Asked,
) -> Result<Admission, Refusal> {
    let Some(name) = request.param("name") else { return Err(Refusal::InvalidParams("`name` is missing")) };
    let Some(name) = name.node.as_str() else { return Err(Refusal::InvalidParams("`name` must be a string")) };
    asked.tool_name = Some(name.to_owned());
    if let Some((server, tool)) = known(caller, name) {
        asked.server = Some(Arc::clone(server));
        asked.tool = Some(Arc::clone(tool));
    }
    let (server, tool) = match caller.granted {
        None => resolve::aggregated(caller.key, name)?,
        Some(granted) => resolve::on_server(granted, name)?,
    };
    let arguments = request.param("arguments");
    if request.era == Era::Modern
        && let Ok(schemas) = &tool.schemas
    {
        headers::agree_params(head, &schemas.params, arguments.as_ref().map(|arguments| arguments.node))?;
    }
    let user = access(caller, server)?;
    let mut screened = Screened::default();
    let checked = check(caller, (server, tool, user), (document, request), arguments.as_ref(), &mut screened);
    asked.notes.append(&mut screened.notes);
    checked.map(|checked| Admission::Call(Box::new(checked)))
}

/// The tool of that name whatever its state, for counting and for the words of a refusal.
fn known<'s>(caller: &Caller<'s>, name: &str) -> Option<(&'s Arc<ServerPolicy>, &'s Arc<ToolPolicy>)> {
    match caller.granted {
        None => caller.key.organization.exposed.get(name).map(|(server, tool)| (server, tool)),
        Some(granted) => granted.server.tools.get(name).map(|tool| (&granted.server, tool)),
    }
}

fn check(
    caller: &Caller<'_>,
    tool: (&Arc<ServerPolicy>, &Arc<ToolPolicy>, Option<Arc<UserAccess>>),
    message: (&Document<'_>, &Request<'_>),
    arguments: Option<&Spanned<'_>>,
    screened: &mut Screened,
) -> Result<Checked, Refusal> {
    let bytes_max = caller.snapshot.settings.arguments_bytes_max;
    match arguments {
        Some(arguments) => arguments::check(tool.1, arguments, bytes_max)?,
        None => {
            let mut scratch = Vec::new();
            let empty = Document::parse(b"{}", &mut scratch).map_err(|_| Refusal::Internal)?;
            arguments::check(tool.1, &empty.spanned_root(), bytes_max)?;
        }
    }
    input::screen(screened, (caller.key, tool.1), message, arguments)?;
    let bytes = match &screened.redacted {
        None => arguments.map_or_else(|| b"{}".to_vec(), |arguments| arguments.raw().to_vec()),
        Some(redacted) => {
            input::recheck(tool.1, redacted, screened, bytes_max)?;
            redacted.clone()
        }
    };
    finish(caller, tool, message.1, bytes, std::mem::take(screened))
}

fn finish(
    caller: &Caller<'_>,
    (server, tool, user): (&Arc<ServerPolicy>, &Arc<ToolPolicy>, Option<Arc<UserAccess>>),
    request: &Request<'_>,
    arguments: Vec<u8>,
    screened: input::Screened,
) -> Result<Checked, Refusal> {
    let subject = Subject::Tool(Arc::clone(tool));
    let meta = meta(caller, &subject, (server, request), &arguments)?;
    let params = params(tool, &arguments);
    Ok(Checked { server: Arc::clone(server), user, subject, arguments, meta, params, screened })
}

/// The `Mcp-Param-*` texts of the checked arguments, for a modern server.
fn params(tool: &ToolPolicy, arguments: &[u8]) -> Vec<(String, String)> {
    let Ok(schemas) = &tool.schemas else { return Vec::new() };
    if schemas.params.is_empty() {
        return Vec::new();
    }
    let mut scratch = Vec::new();
    let Ok(document) = Document::parse(arguments, &mut scratch) else { return Vec::new() };
    let value = |path: &[String]| path.iter().try_fold(document.root(), |node, step| node.get(step));
    schemas
        .params
        .iter()
        .filter_map(|param| {
            let name = param.header.strip_prefix(HEADER_PARAM_PREFIX)?.to_owned();
            Some((name, envelope::param_text(value(&param.path)?)?.into_owned()))
        })
        .collect()
}

impl Admitted {
    /// The server answered anything at all.
    pub fn answered(&self) {
        if let Some(permit) = &self.permit {
            permit.answered();
        }
    }

    /// The connection failed, or the time limit passed.
    pub fn failed(&self, now_ms: u64) {
        if let Some(permit) = &self.permit {
            permit.failed(now_ms);
        }
    }
}

/// What the server's own limits say of a call.
#[derive(Debug)]
pub enum Charged {
    /// It may be sent.
    Admitted(Admitted),
    /// Its place is taken; the fleet's store must say whether it has a token.
    Unpaid(Unpaid),
}

/// A call that waits for a token of its server.
#[derive(Debug)]
pub struct Unpaid {
    checked: Checked,
    permit: Permit,
}

impl Unpaid {
    /// Asks the fleet's store, and goes on by what it says.
    ///
    /// # Refuses
    /// - [`Refusal::ServerRateLimited`]
    pub async fn pay(self) -> Result<Admitted, Refusal> {
        let Self { checked, permit } = self;
        let permit = match &checked.server.rate {
            None => permit,
            Some(limit) => throttle::server_answer(permit, limit.ask().await)?,
        };
        Ok(Admitted { checked, permit: Some(permit) })
    }
}

/// The last check before forwarding: the server's health, room and rate (contract §2 row 14).
///
/// # Refuses
/// - as [`throttle::server`]
pub fn charge(checked: Checked, settings: &Settings, now: Now) -> Result<Charged, Refusal> {
    let (permit, is_unpaid) = throttle::server(&checked.server, settings, now)?;
    if is_unpaid {
        return Ok(Charged::Unpaid(Unpaid { checked, permit }));
    }
    Ok(Charged::Admitted(Admitted { checked, permit: Some(permit) }))
}

/// The `method` label of contract §11.
fn method_label(method: &str) -> &'static str {
    const KNOWN: [&str; 6] =
        ["tools/call", "tools/list", "server/discover", "subscriptions/listen", "initialize", "ping"];
    let known = KNOWN.into_iter().find(|known| *known == method);
    known.or_else(|| pass::method(method).map(|method| method.name)).unwrap_or("_other")
}
