//! Every way in which the gate says no: one variant, one row, one text (contract §2, §3, §4).
//!
//! The row is the definition: nothing else decides status, code or type; [`Refusal::message`] decides the words.
//! `proxy/respond.rs` is the only translator into bytes. A text never holds a value of the caller's or the server's,
//! but for the tool's name as the caller sent it and the cleaned message of a server's own error.

/// `error.type` of contract §2 and §4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `invalid_request_error`
    InvalidRequest,
    /// `request_timeout`
    Timeout,
    /// `internal_error`
    Internal,
    /// `not_found`
    NotFound,
    /// `permission_denied`
    Permission,
    /// `authentication_error`
    Authentication,
    /// `rate_limit_exceeded`
    RateLimit,
    /// `upstream_error`
    Upstream,
}

impl Kind {
    /// The value of `error.type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::Timeout => "request_timeout",
            Self::Internal => "internal_error",
            Self::NotFound => "not_found",
            Self::Permission => "permission_denied",
            Self::Authentication => "authentication_error",
            Self::RateLimit => "rate_limit_exceeded",
            Self::Upstream => "upstream_error",
        }
    }
}

/// In which form a refusal reaches the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// An HTTP status and the envelope of contract §2.
    Http(u16),
    /// A JSON-RPC error (contract §3) with the HTTP status for modern and for legacy callers.
    Rpc {
        /// `error.code`
        code: i32,
        /// HTTP status to a modern caller.
        modern: u16,
        /// HTTP status to a legacy caller.
        legacy: u16,
    },
    /// A tool result with `isError: true` (contract §4).
    ToolResult,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// `error.code`; none where the contract shows —, or on a JSON-RPC error.
    pub code: Option<&'static str>,
    /// `error.type`
    pub kind: Kind,
    /// Its form.
    pub surface: Surface,
    /// The server may have run the tool.
    pub reached: bool,
    /// The connection ends with the answer.
    pub close: bool,
}

/// Why the server of a tool could not answer (`upstream_unavailable`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// No connection: refused, unresolved, TLS, `timeouts.connect`.
    Connect,
    /// A legacy server gave no session: the call was not sent.
    Session,
    /// The connection broke after the request went out.
    Broken,
    /// 5xx.
    ServerError,
    /// 3xx.
    Redirect,
    /// A 4xx without a JSON-RPC error for us.
    ClientError,
    /// Something that is not an MCP answer.
    NotMcp,
    /// 401 or 403 to the credential that we hold.
    CredentialRefused {
        /// To the call itself; else to the session before it.
        called: bool,
    },
    /// 429 to the credential that we hold.
    RateLimited {
        /// To the call itself; else to the session before it.
        called: bool,
    },
    /// `input_required` for a capability that the caller did not declare.
    CapabilityNotDeclared,
    /// The breaker is open: not attempted.
    BreakerOpen,
    /// `max_in_flight` is reached: not attempted.
    Busy,
    /// Not listed for `discovery.max_age`: not attempted.
    NotListed,
}

/// Why arguments do not pass (`invalid_tool_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentFault {
    /// `null` or not an object.
    NotAnObject,
    /// Larger than `limits.arguments`, in bytes.
    TooLarge(u64),
    /// `pointer: rule` lines, at most 8, without any value.
    Mismatch(Vec<String>),
    /// The tool's schema cannot be used; the reason in words.
    Schema(String),
}

/// A guardrail's side of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Arguments: the server was not reached.
    Input,
    /// The result: the tool may already have run.
    Output,
}

/// Every refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Ambiguous framing (§2 row 0); says which rule.
    Framing(&'static str),
    /// A head over `limits.headers` (§2 row 0).
    HeadTooLarge,
    /// A head or body that does not arrive in time (§2 row 0).
    TooSlow,
    /// Past `limits.in_flight` (§2 row 1).
    Overloaded,
    /// No policy is live: `store.max_age` has passed without the store (§2 row 1).
    NoPolicy,
    /// A path that is no endpoint (§2 row 2).
    NotFound,
    /// A foreign `Origin` (§2 row 3).
    OriginNotAllowed,
    /// Anything but POST (§2 row 4).
    MethodNotAllowed,
    /// No valid key (§2 row 5).
    Unauthenticated,
    /// Too many failed attempts of the address (§2 row 5).
    TooManyFailures {
        /// Whole seconds.
        retry_after: u64,
    },
    /// The peer is outside the key's allowlist (§2 row 6).
    IpNotAllowed,
    /// The key is turned off (§2 row 7).
    KeyDisabled,
    /// An operator hold (§2 row 8).
    OrganizationSuspended,
    /// The key's project is archived (§2 row 9).
    ProjectArchived,
    /// The plan has no gateway (§2 row 10).
    PlanFeature,
    /// No subscription or trial (§2 row 10).
    SubscriptionRequired,
    /// The key's rate (§2 row 11).
    KeyRateLimited {
        /// Whole seconds.
        retry_after: u64,
    },
    /// A malformed attribution (§2 row 12); says which rule.
    InvalidAttribution(&'static str),
    /// The one 404 of the per-server path (§2 row 13).
    ServerNotFound,
    /// Not `application/json`, or compressed (§2).
    UnsupportedMediaType,
    /// Over `limits.request_body` (§2).
    BodyTooLarge {
        /// Bytes.
        limit: u64,
    },
    /// The server's own rate (§2 row 14).
    ServerRateLimited {
        /// Whole seconds.
        retry_after: u64,
    },
    /// Not JSON (§3).
    ParseError {
        /// Byte position.
        position: usize,
    },
    /// Not one request or notification (§3); says which rule.
    InvalidRpc(&'static str),
    /// A header that is missing, doubled, undecodable or disagrees (§3); its name.
    HeaderMismatch(String),
    /// A client capability is missing (§3); `data` as JSON.
    MissingCapability {
        /// `data.requiredCapabilities`, a JSON object.
        required: String,
    },
    /// A protocol version that is not served (§3).
    UnsupportedVersion {
        /// What was asked for, cut to 64 characters.
        requested: String,
    },
    /// A method that the gateway does not serve (§3).
    MethodNotFound,
    /// A tool that does not exist (§3); the name as sent.
    UnknownTool(String),
    /// Bad `params` (§3); says which rule.
    InvalidParams(&'static str),
    /// `_meta` lacks a required key (§3): 400 to a modern caller.
    MissingMeta(&'static str),
    /// A server's own JSON-RPC error on a multi-round-trip retry (§4 `upstream_rejected`), or about the `params` of a request that
    /// is passed through.
    Relayed {
        /// The server's code.
        code: i32,
        /// The server's message, cleaned and cut.
        message: String,
        /// The caller's own `uri`, of which the server says that there is no such resource.
        uri: Option<String>,
    },
    /// The gateway's own fault (§3).
    Internal,
    /// No grant covers the tool (§4).
    ToolNotAllowed,
    /// Pending, blocked or removed (§4).
    ToolNotApproved,
    /// Changed after approval (§4).
    ToolDefinitionChanged,
    /// The server takes each user's own credential, and there is none (§4).
    CredentialRequired {
        /// The call names a user.
        named: bool,
    },
    /// Arguments do not fit (§4).
    InvalidArguments(ArgumentFault),
    /// A `block` rule matched (§4).
    GuardrailBlocked {
        /// Arguments or result.
        side: Side,
        /// The detector's name.
        detector: &'static str,
    },
    /// The engine failed and the rule blocks (§4).
    GuardrailUnavailable(Side),
    /// The server cannot answer (§4).
    UpstreamUnavailable(Unavailable),
    /// The wall clock passed (§4).
    UpstreamTimeout {
        /// The request was sent, so the tool may have run.
        sent: bool,
    },
    /// The gateway is stopping and cannot wait for the call any longer (§4 `upstream_timeout`, §10 `timeouts.drain`).
    Stopping {
        /// The request was sent, so the tool may have run.
        sent: bool,
    },
    /// The server's JSON-RPC error (§4); message cleaned and cut to 1,024 characters.
    UpstreamRejected(String),
    /// Larger than `result_limit` (§4).
    ResultTooLarge {
        /// Bytes.
        limit: u64,
    },
    /// Does not match the outputSchema, or has no content (§4); `pointer: rule` lines or a rule.
    ResultInvalid(Vec<String>),
}

/// By which names a message speaks.
#[derive(Clone, Copy, Debug)]
pub struct Voice<'a> {
    /// The tool's exposed name as the caller sent it.
    pub tool: &'a str,
    /// `gateway.product`
    pub product: &'a str,
    /// `gateway.console`
    pub console: &'a str,
    /// `attribution.prefix`, as written.
    pub prefix: &'a str,
    /// `server.connect_url`, where the server takes each user's own credential.
    pub connect_url: Option<&'a str>,
    /// Not of a tool, but of a request that is passed through: `tool` is its method.
    pub passed: bool,
}

impl Voice<'_> {
    /// After the server was reached; without the full stop.
    const fn ran(&self) -> &'static str {
        if self.passed { "The server may already have acted on it" } else { "The tool may already have run" }
    }

    /// Before the server was reached; without the full stop.
    const fn unsent(&self) -> &'static str {
        if self.passed { "The request was not sent" } else { "The tool was not called" }
    }
}

/// The longest tool name in a message, in characters (contract §4).
pub const NAME_CHARS_MAX: usize = 128;

impl Refusal {
    /// The refusal's row.
    #[must_use]
    pub const fn row(&self) -> Row {
        use Kind::{Authentication, InvalidRequest, Permission, RateLimit, Timeout, Upstream};
        match self {
            Self::Framing(_) => http(400, InvalidRequest, Some("invalid_request")).closing(),
            Self::HeadTooLarge => http(431, InvalidRequest, Some("request_too_large")).closing(),
            Self::TooSlow => http(408, Timeout, Some("request_timeout")).closing(),
            Self::Overloaded => http(503, Kind::Internal, Some("overloaded")),
            Self::NoPolicy => http(503, Kind::Internal, Some("policy_unavailable")),
            Self::NotFound => http(404, Kind::NotFound, Some("not_found")),
            Self::OriginNotAllowed => http(403, Permission, Some("origin_not_allowed")),
            Self::MethodNotAllowed => http(405, InvalidRequest, None),
            Self::Unauthenticated => http(401, Authentication, None),
            Self::TooManyFailures { .. } | Self::KeyRateLimited { .. } => http(429, RateLimit, None),
            Self::IpNotAllowed => http(403, Permission, Some("ip_not_allowed")),
            Self::KeyDisabled => http(403, Permission, Some("key_disabled")),
            Self::OrganizationSuspended => http(403, Permission, Some("organization_suspended")),
            Self::ProjectArchived => http(403, Permission, Some("project_archived")),
            Self::PlanFeature => http(403, Permission, Some("plan_feature")),
            Self::SubscriptionRequired => http(403, Permission, Some("subscription_required")),
            Self::InvalidAttribution(_) => http(400, InvalidRequest, Some("invalid_attribution")),
            Self::ServerNotFound => http(404, Kind::NotFound, Some("mcp_server_not_found")),
            Self::UnsupportedMediaType => http(415, InvalidRequest, Some("unsupported_media_type")),
            Self::BodyTooLarge { .. } => http(413, InvalidRequest, Some("request_too_large")),
            Self::ServerRateLimited { .. } => http(429, RateLimit, Some("mcp_server_rate_limited")),
            Self::ParseError { .. } => rpc(-32700, 400, 400),
            Self::InvalidRpc(_) => rpc(-32600, 400, 400),
            Self::HeaderMismatch(_) => rpc(-32020, 400, 400),
            Self::MissingCapability { .. } => rpc(-32021, 400, 400),
            Self::UnsupportedVersion { .. } => rpc(-32022, 400, 400),
            Self::MethodNotFound => rpc(-32601, 404, 200),
            Self::UnknownTool(_) | Self::InvalidParams(_) => rpc(-32602, 200, 200),
            Self::MissingMeta(_) => rpc(-32602, 400, 400),
            Self::Relayed { code, .. } => rpc(*code, 200, 200).reached(),
            Self::Internal => rpc(-32603, 200, 200),
            Self::ToolNotAllowed => tool("tool_not_allowed", Permission),
            Self::ToolNotApproved => tool("tool_not_approved", Permission),
            Self::ToolDefinitionChanged => tool("tool_definition_changed", Permission),
            Self::CredentialRequired { .. } => tool("credential_required", Permission),
            Self::InvalidArguments(_) => tool("invalid_tool_arguments", InvalidRequest),
            Self::GuardrailBlocked { side: Side::Input, .. } => tool("guardrail_blocked", Permission),
            Self::GuardrailBlocked { side: Side::Output, .. } => tool("guardrail_blocked", Permission).reached(),
            Self::GuardrailUnavailable(Side::Input) => tool("guardrail_unavailable", Permission),
            Self::GuardrailUnavailable(Side::Output) => tool("guardrail_unavailable", Permission).reached(),
            Self::UpstreamUnavailable(cause) => {
                let row = tool("upstream_unavailable", Upstream);
                if cause.reached() { row.reached() } else { row }
            }
            Self::UpstreamTimeout { sent: true } | Self::Stopping { sent: true } => {
                tool("upstream_timeout", Timeout).reached()
            }
            Self::UpstreamTimeout { sent: false } | Self::Stopping { sent: false } => tool("upstream_timeout", Timeout),
            Self::UpstreamRejected(_) => tool("upstream_rejected", Upstream).reached(),
            Self::ResultTooLarge { .. } => tool("tool_result_too_large", Upstream).reached(),
            Self::ResultInvalid(_) => tool("tool_result_invalid", Upstream).reached(),
        }
    }

    /// The `outcome` label of `toolgate_requests_total` (contract §11): a code, `rpc_<code>`, or `http_<status>`.
    #[must_use]
    pub fn outcome(&self) -> String {
        let row = self.row();
        match (row.code, row.surface) {
            (Some(code), _) => code.to_owned(),
            (None, Surface::Rpc { .. }) if matches!(self, Self::Relayed { .. }) => "upstream_rejected".to_owned(),
            (None, Surface::Rpc { code, .. }) => format!("rpc_{code}"),
            (None, Surface::Http(status)) => format!("http_{status}"),
            (None, Surface::ToolResult) => "ok".to_owned(),
        }
    }

    /// Seconds for `Retry-After`, where the row has one.
    #[must_use]
    pub const fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Overloaded | Self::NoPolicy => Some(1),
            Self::TooManyFailures { retry_after }
            | Self::KeyRateLimited { retry_after }
            | Self::ServerRateLimited { retry_after } => Some(*retry_after),
            _ => None,
        }
    }

    /// The words: what happened, then what to do next, in at most three sentences (contract §4).
    #[must_use]
    pub fn message(&self, voice: &Voice<'_>) -> String {
        match self.row().surface {
            Surface::ToolResult => self.tool_message(voice),
            Surface::Http(_) => self.http_message(voice),
            Surface::Rpc { .. } => self.rpc_message(voice),
        }
    }

    fn http_message(&self, voice: &Voice<'_>) -> String {
        let (product, console) = (voice.product, voice.console);
        match self {
            Self::Framing(rule) => format!("The HTTP request is malformed: {rule}."),
            Self::HeadTooLarge => "The request's headers are too large.".to_owned(),
            Self::TooSlow => "The request did not arrive in time.".to_owned(),
            Self::Overloaded => format!("{product} is at its limit of running requests. Retry with backoff."),
            Self::NoPolicy => format!("This node of {product} has no current policy. Retry with backoff."),
            Self::NotFound => "There is no such endpoint.".to_owned(),
            Self::OriginNotAllowed => "This origin is not allowed.".to_owned(),
            Self::MethodNotAllowed => "Only POST is served here.".to_owned(),
            Self::Unauthenticated => format!(
                "A valid {product} key is required, as `Authorization: Bearer <key>`. An admin can create one in {console}."
            ),
            Self::TooManyFailures { retry_after } => format!(
                "Too many failed attempts to authenticate from this address. Retry after {retry_after} seconds with a valid key."
            ),
            Self::IpNotAllowed => "This key may not be used from this address.".to_owned(),
            Self::KeyDisabled => format!("This key is turned off. An admin can turn it on in {console}."),
            Self::OrganizationSuspended => format!("This organization is suspended. See {console}."),
            Self::ProjectArchived => format!("The project of this key is archived. See {console}."),
            Self::PlanFeature => {
                format!("The plan of this organization does not include the MCP gateway. See {console}.")
            }
            Self::SubscriptionRequired => {
                format!("This organization has no active subscription or trial. See {console}.")
            }
            Self::KeyRateLimited { retry_after } => {
                format!("This key is over its rate limit. Retry after {retry_after} seconds, and then with backoff.")
            }
            Self::InvalidAttribution(rule) => {
                format!("The attribution (`{}*` headers and `trace_id`) is malformed: {rule}.", voice.prefix)
            }
            Self::ServerNotFound => "There is no such MCP server for this key.".to_owned(),
            Self::UnsupportedMediaType => "The body must be uncompressed `application/json`.".to_owned(),
            Self::BodyTooLarge { limit } => format!("The body is larger than {limit} bytes."),
            Self::ServerRateLimited { retry_after } => format!(
                "The MCP server is over its rate limit across all keys. Retry after {retry_after} seconds, and then with backoff."
            ),
            _ => String::new(),
        }
    }

    fn rpc_message(&self, voice: &Voice<'_>) -> String {
        match self {
            Self::ParseError { position } => format!("Parse error at byte {position}"),
            Self::InvalidRpc(rule) => format!("Invalid Request: {rule}"),
            Self::HeaderMismatch(header) => format!("Header mismatch: {header}"),
            Self::MissingCapability { .. } => "Missing required client capability".to_owned(),
            Self::UnsupportedVersion { .. } => "Unsupported protocol version".to_owned(),
            Self::MethodNotFound => "Method not found".to_owned(),
            Self::UnknownTool(name) => format!("Unknown tool: {}", cut(name, NAME_CHARS_MAX)),
            Self::InvalidParams(rule) => format!("Invalid params: {rule}"),
            Self::MissingMeta(key) => format!("Invalid params: missing or malformed _meta: {key}"),
            Self::Relayed { message, .. } => message.clone(),
            _ => format!("Internal error of {}", voice.product),
        }
    }

    fn tool_message(&self, voice: &Voice<'_>) -> String {
        let Voice { tool, product, console, .. } = *voice;
        let (ran, unsent) = (voice.ran(), voice.unsent());
        let tool = &cut(tool, NAME_CHARS_MAX);
        match self {
            Self::ToolNotAllowed => format!(
                "This key may not call `{tool}` through {product}. An admin can grant it in {console}. Do not retry until then."
            ),
            Self::ToolNotApproved => format!(
                "`{tool}` is not approved for use through {product}. An admin can review and approve it in {console}. Do not retry until then."
            ),
            Self::ToolDefinitionChanged => format!(
                "The definition of `{tool}` changed after it was approved, so {product} does not call it. An admin can review the change and approve it again in {console}. Do not retry until then."
            ),
            Self::CredentialRequired { named } => {
                let why = match named {
                    true => "has not connected an account yet".to_owned(),
                    false => format!("is not named by this request (`{}User`)", voice.prefix),
                };
                format!(
                    "`{tool}` is called with the account of the person that it is called for, who {why}. Ask the person to connect an account at {}. Do not retry until then.",
                    voice.connect_url.unwrap_or(console)
                )
            }
            Self::InvalidArguments(fault) => argument_message(fault, tool, voice),
            Self::GuardrailBlocked { side: Side::Input, detector } => format!(
                "A guardrail of {product} blocked this call of `{tool}`: the detector `{detector}` matched its arguments. {unsent}; an admin can review the rule in {console}. Do not retry until then."
            ),
            Self::GuardrailBlocked { side: Side::Output, detector } => format!(
                "A guardrail of {product} withheld the result of `{tool}`: the detector `{detector}` matched it. {ran}; an admin can review the rule in {console}. Do not retry until then."
            ),
            Self::GuardrailUnavailable(Side::Input) => format!(
                "{product} could not check the arguments of `{tool}`, because a guardrail engine failed. {unsent}; an admin can see the engine's state in {console}. Do not retry until then."
            ),
            Self::GuardrailUnavailable(Side::Output) => format!(
                "{product} could not check the result of `{tool}`, because a guardrail engine failed. {ran}; an admin can see the engine's state in {console}. Do not retry until then."
            ),
            Self::UpstreamUnavailable(cause) => unavailable_message(*cause, tool, voice),
            Self::UpstreamTimeout { sent: true } => {
                format!("`{tool}` did not answer within its time limit. {ran}. You may retry with backoff.")
            }
            Self::UpstreamTimeout { sent: false } => {
                format!("The time limit of `{tool}` passed before it could be called. You may retry with backoff.")
            }
            Self::Stopping { sent: true } => format!(
                "{product} is being stopped and could not wait any longer for `{tool}`. {ran}. You may retry with backoff."
            ),
            Self::Stopping { sent: false } => format!(
                "{product} is being stopped before `{tool}` could be called. The tool was not called. You may retry with backoff."
            ),
            Self::UpstreamRejected(message) => rejected_message(message, tool, voice.passed),
            Self::ResultTooLarge { limit } => format!(
                "The result of `{tool}` is larger than the limit of {limit} bytes and was withheld. {ran}. Change the arguments to ask for less."
            ),
            Self::ResultInvalid(rules) => format!(
                "{product} withheld the result of `{tool}`, because it is not valid: {}. {ran}. An admin can report this to the server's owner.",
                rules.join("; ")
            ),
            _ => String::new(),
        }
    }
}

impl Unavailable {
    /// Whether the request may have reached the tool.
    #[must_use]
    pub const fn reached(self) -> bool {
        match self {
            Self::Connect | Self::Session | Self::BreakerOpen | Self::Busy | Self::NotListed => false,
            Self::CredentialRefused { called } | Self::RateLimited { called } => called,
            _ => true,
        }
    }
}

fn argument_message(fault: &ArgumentFault, tool: &str, voice: &Voice<'_>) -> String {
    let (product, console) = (voice.product, voice.console);
    match fault {
        ArgumentFault::NotAnObject => {
            format!("The arguments of `{tool}` must be a JSON object. Change the arguments and call it again.")
        }
        ArgumentFault::TooLarge(limit) => format!(
            "The arguments of `{tool}` are larger than the limit of {limit} bytes. Change the arguments to send less."
        ),
        ArgumentFault::Mismatch(rules) => format!(
            "The arguments of `{tool}` do not match its input schema: {}. Change the arguments and call it again.",
            rules.join("; ")
        ),
        ArgumentFault::Schema(reason) => format!(
            "{product} cannot check the arguments of `{tool}`: {reason}. An admin can see this in {console}; use another tool until then."
        ),
    }
}

/// Ours first, the server's words last: nothing that it says can be taken for the gateway's.
fn rejected_message(message: &str, tool: &str, passed: bool) -> String {
    let ours = if passed {
        format!(
            "The server of `{tool}` rejected the request; it may already have acted on it. Change the request before you retry it."
        )
    } else {
        format!(
            "The server of `{tool}` rejected the call; the tool may already have run. Change the call before you retry it."
        )
    };
    if message.is_empty() { ours } else { format!("{ours} The server's message: {message}") }
}

fn unavailable_message(cause: Unavailable, tool: &str, voice: &Voice<'_>) -> String {
    let (product, console) = (voice.product, voice.console);
    let retry = "You may retry with backoff.";
    let unsent = voice.unsent();
    let ran = if cause.reached() { voice.ran() } else { unsent };
    let what = match cause {
        Unavailable::Connect => {
            return format!("{product} could not connect to the server of `{tool}`. {unsent}. {retry}");
        }
        Unavailable::Session => {
            return format!("{product} could not open a session with the server of `{tool}`. {unsent}. {retry}");
        }
        Unavailable::BreakerOpen => {
            return format!(
                "The server of `{tool}` has been failing, so {product} does not call it at the moment. {unsent}. {retry}"
            );
        }
        Unavailable::Busy => {
            return format!("The server of `{tool}` is at its limit of running calls. {unsent}. {retry}");
        }
        Unavailable::NotListed => {
            return format!(
                "The server of `{tool}` has not listed its tools for too long, so {product} does not call it. {unsent}. {retry}"
            );
        }
        Unavailable::CredentialRefused { .. } if voice.connect_url.is_some() => {
            return format!(
                "The server of `{tool}` refused the account of the person that it was called for. {ran}. Ask the person to connect the account again at {}: do not retry until then.",
                voice.connect_url.unwrap_or(console)
            );
        }
        Unavailable::CredentialRefused { .. } => {
            return format!(
                "The server of `{tool}` refused the credential that {product} holds. {ran}. An admin must replace the credential in {console}: do not retry until then."
            );
        }
        Unavailable::RateLimited { .. } => "is limiting the rate of calls",
        Unavailable::Broken => "broke the connection before it answered",
        Unavailable::ServerError => "failed with a server error",
        Unavailable::Redirect => "answered with a redirect, which is not followed",
        Unavailable::ClientError => "refused the request without an MCP answer",
        Unavailable::NotMcp => "sent something that is not a valid MCP answer",
        Unavailable::CapabilityNotDeclared => "asked for a client capability that the caller did not declare",
    };
    format!("The server of `{tool}` {what}. {ran}. {retry}")
}

/// Cuts `text` to `chars` characters.
#[must_use]
pub fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

const fn http(status: u16, kind: Kind, code: Option<&'static str>) -> Row {
    Row { code, kind, surface: Surface::Http(status), reached: false, close: false }
}

const fn rpc(code: i32, modern: u16, legacy: u16) -> Row {
    Row {
        code: None,
        kind: Kind::InvalidRequest,
        surface: Surface::Rpc { code, modern, legacy },
        reached: false,
        close: false,
    }
}

const fn tool(code: &'static str, kind: Kind) -> Row {
    Row { code: Some(code), kind, surface: Surface::ToolResult, reached: false, close: false }
}

impl Row {
    const fn reached(self) -> Self {
        Self { reached: true, ..self }
    }

    const fn closing(self) -> Self {
        Self { close: true, ..self }
    }
}
