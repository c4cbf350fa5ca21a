//! Stage `pass`: methods beside tools, which a server's own endpoint passes through where its policy opts in (contract §3).
//!
//! Any grant on the server lets them through; there is no approval to ask. What goes upstream is built from a closed list of
//! members, each byte for byte what was checked. Knows no tool.

use super::{
    input::{self, Screened},
    line::{Caller, Checked, access},
    meta::meta,
    parse::Request,
    rewrite::apply,
    subject::Subject,
};
use crate::{
    model::{
        jsonrpc::{Document, Kind, write_string},
        records::Passthrough,
    },
    policy::snapshot::ServerPolicy,
    refusal::{ArgumentFault, Refusal},
};

/// A method that may be passed through.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// As on the wire.
    pub name: &'static str,
    /// What the server must opt in to.
    needs: Passthrough,
    /// The member of `params` that `Mcp-Name` mirrors.
    named_by: Option<&'static str>,
    /// What of `params` is passed on.
    parts: &'static [Part],
    /// The member that a result must have, and its kind.
    pub(super) answer: (&'static str, Kind),
    /// It may be answered `input_required`.
    pub(super) multi_round: bool,
    /// Its modern results bear `ttlMs` and `cacheScope`.
    pub(super) cacheable: bool,
}

/// A member of `params`.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    name: &'static str,
    kind: Kind,
    required: bool,
    /// What a person or model wrote: it may be redacted. A match elsewhere under a redacting rule blocks.
    written: bool,
    /// What is said of a value of another kind, or of none.
    fault: &'static str,
}

const CURSOR: &[Part] =
    &[Part { name: "cursor", kind: Kind::String, required: false, written: false, fault: "`cursor` must be a string" }];

/// Every method that may be passed through.
static METHODS: [Method; 6] = [
    list("resources/list", Passthrough::Resources, "resources"),
    list("resources/templates/list", Passthrough::Resources, "resourceTemplates"),
    Method {
        name: "resources/read",
        needs: Passthrough::Resources,
        named_by: Some("uri"),
        parts: &[Part {
            name: "uri",
            kind: Kind::String,
            required: true,
            written: false,
            fault: "`uri` must be a string",
        }],
        answer: ("contents", Kind::Array),
        multi_round: true,
        cacheable: true,
    },
    list("prompts/list", Passthrough::Prompts, "prompts"),
    Method {
        name: "prompts/get",
        needs: Passthrough::Prompts,
        named_by: Some("name"),
        parts: &[
            Part { name: "name", kind: Kind::String, required: true, written: false, fault: "`name` must be a string" },
            Part {
                name: "arguments",
                kind: Kind::Object,
                required: false,
                written: true,
                fault: "`arguments` must be an object",
            },
        ],
        answer: ("messages", Kind::Array),
        multi_round: true,
        cacheable: false,
    },
    Method {
        name: "completion/complete",
        needs: Passthrough::Completion,
        named_by: None,
        parts: &[
            Part { name: "ref", kind: Kind::Object, required: true, written: false, fault: "`ref` must be an object" },
            Part {
                name: "argument",
                kind: Kind::Object,
                required: true,
                written: true,
                fault: "`argument` must be an object",
            },
            Part {
                name: "context",
                kind: Kind::Object,
                required: false,
                written: true,
                fault: "`context` must be an object",
            },
        ],
        answer: ("completion", Kind::Object),
        multi_round: false,
        cacheable: false,
    },
];

const fn list(name: &'static str, needs: Passthrough, answer: &'static str) -> Method {
    Method {
        name,
        needs,
        named_by: None,
        parts: CURSOR,
        answer: (answer, Kind::Array),
        multi_round: false,
        cacheable: true,
    }
}

/// The method of that name, if it is one that may be passed through.
#[must_use]
pub fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// The capabilities beside tools that a server's own endpoint declares, as members after another: `,"resources":{}`.
#[must_use]
pub fn capabilities(server: &ServerPolicy) -> String {
    let declared = [
        (Passthrough::Resources, ",\"resources\":{}"),
        (Passthrough::Prompts, ",\"prompts\":{}"),
        (Passthrough::Completion, ",\"completions\":{}"),
    ];
    declared.iter().filter(|(what, _)| server.passthrough.contains(what)).map(|(_, member)| *member).collect()
}

/// The server that `method` is passed through to: that of the endpoint, if it opts in.
///
/// # Refuses
/// - [`Refusal::MethodNotFound`]
pub(super) fn server<'s>(caller: &Caller<'s>, method: &Method) -> Result<&'s std::sync::Arc<ServerPolicy>, Refusal> {
    let granted = caller.granted.ok_or(Refusal::MethodNotFound)?;
    let opted_in = granted.server.passthrough.contains(&method.needs);
    opted_in.then_some(&granted.server).ok_or(Refusal::MethodNotFound)
}

/// Checks a request that is passed through.
///
/// # Refuses
/// - [`Refusal::CredentialRequired`]
/// - [`Refusal::InvalidParams`]: a member is missing or of another kind.
/// - [`Refusal::InvalidArguments`]: larger than `limits.arguments`.
/// - [`Refusal::GuardrailBlocked`], [`Refusal::GuardrailUnavailable`]
pub(super) fn check(
    caller: &Caller<'_>,
    (server, method): (&std::sync::Arc<ServerPolicy>, &'static Method),
    (document, request): (&Document<'_>, &Request<'_>),
    screened: &mut Screened,
) -> Result<Checked, Refusal> {
    let user = access(caller, server)?;
    let bytes_max = caller.snapshot.settings.arguments_bytes_max;
    let [input, _] = &server.passing;
    let plan = input.plan(&caller.key.project);
    let mut params = b"{".to_vec();
    let mut received = 0usize;
    let mut named = None;
    for part in method.parts {
        let value = request.param(part.name).filter(|value| part.required || value.node.kind() != Kind::Null);
        let Some(value) = value else {
            if part.required {
                return Err(Refusal::InvalidParams(part.fault));
            }
            continue;
        };
        if value.node.kind() != part.kind {
            return Err(Refusal::InvalidParams(part.fault));
        }
        received = received.saturating_add(value.span.len());
        if u64::try_from(received).unwrap_or(u64::MAX) > bytes_max {
            return Err(Refusal::InvalidArguments(ArgumentFault::TooLarge(bytes_max)));
        }
        if method.named_by == Some(part.name) {
            named = value.node.as_str().map(str::to_owned);
        }
        let redacted = input::part(screened, plan, document, (&value, part.written))?;
        if params.len() > 1 {
            params.push(b',');
        }
        write_string(&mut params, part.name);
        params.push(b':');
        match redacted {
            None => params.extend_from_slice(value.raw()),
            Some(splices) => params.extend(apply(document.raw(), value.span.clone(), splices)),
        }
    }
    params.push(b'}');
    input::beside(screened, plan, document, request)?;
    let subject = Subject::Passed { method, name: named };
    let meta = meta(caller, &subject, (server, request), &params)?;
    let server = std::sync::Arc::clone(server);
    Ok(Checked {
        server,
        user,
        subject,
        arguments: params,
        meta,
        params: Vec::new(),
        screened: std::mem::take(screened),
    })
}
