//! The table of refusals, whole: printed to `tests/golden/refusals.md` and into `docs/refusals.md`, and its words held to contract §4.
//!
//! Reads `src/refusal.rs` as a library, without a gateway. `UPDATE=1` rewrites both files.

use std::{collections::HashSet, fmt::Write as _, fs, mem::discriminant};

use toolgate::refusal::{ArgumentFault, Kind, NAME_CHARS_MAX, Refusal, Row, Side, Surface, Unavailable, Voice};

/// The names of the default conf.
const DEFAULT: Voice<'_> = Voice {
    tool: "github_create_issue",
    product: "Toolgate",
    console: "the Toolgate console",
    prefix: "X-Toolgate-",
    connect_url: None,
    passed: false,
};
/// The names of `conf/profiles/infro.toml`.
const INFRO: Voice<'_> = Voice {
    tool: "github_create_issue",
    product: "INFRO",
    console: "INFRO, under MCP & connectors",
    prefix: "X-INFRO-",
    connect_url: None,
    passed: false,
};

/// The same, of a server that takes each user's own credential.
const PER_USER: Voice<'_> = Voice { connect_url: Some("https://app.example.com/connect/github"), ..DEFAULT };

/// What a server said, in the sample of a rejection: two sentences that are not ours.
const SERVERS_WORDS: &str = "No such row. Try another.";

/// Every cause of `upstream_unavailable`, with what the table says of it.
const UNAVAILABLE: &[(Unavailable, &str)] = &[
    (Unavailable::Connect, "no connection: refused, unresolved, TLS, `timeouts.connect`"),
    (Unavailable::Session, "a legacy server opened no session"),
    (Unavailable::Broken, "the connection broke, or the stream ended without an answer"),
    (Unavailable::ServerError, "5xx"),
    (Unavailable::Redirect, "3xx"),
    (Unavailable::ClientError, "a 4xx without a JSON-RPC error of ours"),
    (Unavailable::NotMcp, "something that is not MCP"),
    (Unavailable::CredentialRefused { called: true }, "401 or 403 to the credential that we hold"),
    (Unavailable::CredentialRefused { called: false }, "the same, when a legacy session was opened"),
    (Unavailable::RateLimited { called: true }, "429 to the credential that we hold"),
    (Unavailable::RateLimited { called: false }, "the same, when a legacy session was opened"),
    (Unavailable::CapabilityNotDeclared, "`input_required` for a capability that the caller did not declare"),
    (Unavailable::BreakerOpen, "the server's breaker is open"),
    (Unavailable::Busy, "`max_in_flight` is reached"),
    (Unavailable::NotListed, "not listed for `discovery.max_age`"),
];

/// One sample a row, in the order of the contract, with when it is said.
fn samples() -> Vec<(Refusal, &'static str)> {
    let mut rows = http_samples();
    rows.extend(rpc_samples());
    rows.extend(tool_samples());
    rows
}

fn http_samples() -> Vec<(Refusal, &'static str)> {
    vec![
        (Refusal::Framing("more than one Content-Length"), "§2 row 0: ambiguous framing"),
        (Refusal::HeadTooLarge, "§2 row 0: a head over `limits.headers`"),
        (Refusal::TooSlow, "§2 row 0: a head or body that does not arrive in time"),
        (Refusal::Overloaded, "§2 row 1: past `limits.in_flight`"),
        (Refusal::NoPolicy, "§2 row 1: the policy store was away for longer than `store.max_age`"),
        (Refusal::NotFound, "§2 row 2: any path but the endpoints"),
        (Refusal::OriginNotAllowed, "§2 row 3: an `Origin` that is not allowed"),
        (Refusal::MethodNotAllowed, "§2 row 4: anything but `POST`"),
        (Refusal::Unauthenticated, "§2 row 5: no valid key"),
        (Refusal::TooManyFailures { retry_after: 12 }, "§2 row 5: past `rate_limits.failed_auth`"),
        (Refusal::IpNotAllowed, "§2 row 6: outside the key's `allow_ips`"),
        (Refusal::KeyDisabled, "§2 row 7: the key is turned off"),
        (Refusal::OrganizationSuspended, "§2 row 8: the organization is suspended"),
        (Refusal::ProjectArchived, "§2 row 9: the key's project is archived"),
        (Refusal::PlanFeature, "§2 row 10: the plan has no MCP gateway"),
        (Refusal::SubscriptionRequired, "§2 row 10: no subscription or trial"),
        (Refusal::KeyRateLimited { retry_after: 12 }, "§2 row 11: the key's rate limit"),
        (Refusal::InvalidAttribution("a header is repeated"), "§2 row 12: a malformed attribution"),
        (Refusal::ServerNotFound, "§2 row 13: the one 404 of a server's path"),
        (Refusal::UnsupportedMediaType, "§2: not `application/json`, or compressed"),
        (Refusal::BodyTooLarge { limit: 1_048_576 }, "§2: over `limits.request_body`"),
        (Refusal::ServerRateLimited { retry_after: 12 }, "§2 row 14: the server's rate limit"),
    ]
}

fn rpc_samples() -> Vec<(Refusal, &'static str)> {
    vec![
        (Refusal::ParseError { position: 17 }, "§3: the body is not JSON"),
        (Refusal::InvalidRpc("batches are not served"), "§3: not one request or notification"),
        (Refusal::HeaderMismatch("Mcp-Name".into()), "§3: a header is missing, doubled or disagrees"),
        (Refusal::MissingCapability { required: r#"{"sampling":{}}"#.into() }, "§3: a client capability is missing"),
        (Refusal::UnsupportedVersion { requested: "2099-01-01".into() }, "§3: a version that is not served"),
        (Refusal::MethodNotFound, "§3: a method that is not served"),
        (Refusal::UnknownTool("github_nothing".into()), "§3: a tool that does not exist"),
        (Refusal::InvalidParams("unknown cursor"), "§3: bad `params`"),
        (Refusal::MissingMeta("io.modelcontextprotocol/clientCapabilities"), "§3: `_meta` lacks a key"),
        (
            Refusal::Relayed { code: -32602, message: "The state is too old".into(), uri: None },
            "§4: a server's error on a retry",
        ),
        (Refusal::Internal, "§3: the gateway's own fault"),
    ]
}

fn tool_samples() -> Vec<(Refusal, &'static str)> {
    let mismatch = vec!["/title: is required".to_owned(), "/labels/0: must be a string".to_owned()];
    let unfit = vec!["/structuredContent/n: must be an integer".to_owned()];
    let mut rows = vec![
        (Refusal::ToolNotAllowed, "no grant covers the tool"),
        (Refusal::ToolNotApproved, "pending, blocked or removed"),
        (Refusal::ToolDefinitionChanged, "the definition changed after it was approved"),
        (
            Refusal::CredentialRequired { named: true },
            "`credential_mode` `per_user`, and the user has connected no account",
        ),
        (Refusal::CredentialRequired { named: false }, "the same, and the request names no user"),
        (Refusal::InvalidArguments(ArgumentFault::NotAnObject), "arguments that are no object"),
        (Refusal::InvalidArguments(ArgumentFault::TooLarge(262_144)), "over `limits.arguments`"),
        (Refusal::InvalidArguments(ArgumentFault::Mismatch(mismatch)), "arguments that do not fit the schema"),
        (
            Refusal::InvalidArguments(ArgumentFault::Schema("its `inputSchema` needs a network `$ref`".into())),
            "a schema that cannot be used",
        ),
        (Refusal::GuardrailBlocked { side: Side::Input, detector: "secrets" }, "a rule matched the arguments"),
        (Refusal::GuardrailUnavailable(Side::Input), "an engine failed before the call"),
    ];
    rows.extend(UNAVAILABLE.iter().map(|(cause, when)| (Refusal::UpstreamUnavailable(*cause), *when)));
    rows.extend([
        (Refusal::UpstreamTimeout { sent: false }, "the time limit passed before the call went out"),
        (Refusal::UpstreamTimeout { sent: true }, "the time limit passed"),
        (Refusal::Stopping { sent: false }, "the drain is over before the call went out"),
        (Refusal::Stopping { sent: true }, "the drain is over"),
        (Refusal::UpstreamRejected(SERVERS_WORDS.into()), "the server answered with a JSON-RPC error"),
        (Refusal::UpstreamRejected(String::new()), "the same, with an empty message"),
        (Refusal::ResultTooLarge { limit: 1_048_576 }, "over `result_limit`"),
        (Refusal::ResultInvalid(unfit), "a result that does not fit the outputSchema, or without content"),
        (Refusal::GuardrailBlocked { side: Side::Output, detector: "secrets" }, "a rule matched the result"),
        (Refusal::GuardrailUnavailable(Side::Output), "an engine failed after the call"),
    ]);
    rows
}

fn table() -> String {
    let mut out =
        String::from("| code | type | answer | server reached | when | message |\n|---|---|---|---|---|---|\n");
    for (refusal, when) in samples() {
        let row = refusal.row();
        let (code, kind) = match row.surface {
            Surface::Rpc { code, .. } => (format!("`{code}`"), "—".to_owned()),
            _ => (row.code.map_or("—".to_owned(), |c| format!("`{c}`")), format!("`{}`", row.kind.as_str())),
        };
        let answer = answer(&row, refusal.retry_after().is_some());
        let reached = if row.reached { "yes" } else { "no" };
        let of_users = matches!(refusal, Refusal::CredentialRequired { .. });
        let message = refusal.message(if of_users { &PER_USER } else { &DEFAULT }).replace('|', "\\|");
        let _ = writeln!(out, "| {code} | {kind} | {answer} | {reached} | {when} | {message} |");
        if matches!(refusal, Refusal::UpstreamUnavailable(Unavailable::CredentialRefused { .. })) {
            let (when, message) = (format!("{when}, in the mode `per_user`"), refusal.message(&PER_USER));
            let _ = writeln!(out, "| {code} | {kind} | {answer} | {reached} | {when} | {message} |");
        }
    }
    out
}

fn answer(row: &Row, waits: bool) -> String {
    let mut out = match row.surface {
        Surface::Http(status) => format!("HTTP {status}"),
        Surface::Rpc { modern, legacy, .. } if modern == legacy => format!("JSON-RPC error, HTTP {modern}"),
        Surface::Rpc { modern, legacy, .. } => format!("JSON-RPC error, HTTP {modern} (legacy {legacy})"),
        Surface::ToolResult => "tool result, HTTP 200".to_owned(),
    };
    if waits {
        out += ", `Retry-After`";
    }
    if row.close {
        out += ", closes";
    }
    out
}

/// The sentences of a text that are the gateway's own: a server's words count as none.
fn sentences(message: &str) -> usize {
    let ours = message.replace(SERVERS_WORDS, "…");
    let mut ends = ours.matches(['.', '?', '!']).count();
    ends -= ours.match_indices('.').filter(|(at, _)| ours[at + 1..].starts_with(|c: char| c != ' ')).count();
    ends + usize::from(!ours.ends_with(['.', '?', '!']))
}

#[test]
fn the_reference_is_up_to_date() {
    let root = env!("CARGO_MANIFEST_DIR");
    let (golden, docs) = (format!("{root}/tests/golden/refusals.md"), format!("{root}/docs/refusals.md"));
    let text = fs::read_to_string(&docs).unwrap();
    let (start, end) = ("<!-- table -->\n", "<!-- /table -->");
    let (before, rest) = text.split_once(start).expect("the start of the table");
    let after = rest.split_once(end).expect("the end of the table").1;
    let with_table = format!("{before}{start}{}{end}{after}", table());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&golden, table()).unwrap();
        fs::write(&docs, &with_table).unwrap();
    }
    assert_eq!(fs::read_to_string(&golden).unwrap_or_default(), table(), "run once with UPDATE=1");
    assert_eq!(fs::read_to_string(&docs).unwrap(), with_table, "run once with UPDATE=1");
}

#[test]
fn every_variant_has_a_row() {
    let source = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/refusal.rs")).unwrap();
    let variants = |name: &str| {
        let body = source.split_once(&format!("pub enum {name} {{\n")).unwrap().1.split("\n}\n").next().unwrap();
        body.lines().filter(|line| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase)).count()
    };
    let shown: HashSet<_> = samples().iter().map(|(refusal, _)| discriminant(refusal)).collect();
    assert_eq!(shown.len(), variants("Refusal"), "a refusal has no sample");
    let causes: HashSet<_> = UNAVAILABLE.iter().map(|(cause, _)| discriminant(cause)).collect();
    assert_eq!(causes.len(), variants("Unavailable"), "a cause of `upstream_unavailable` has no sample");
}

#[test]
fn the_words_of_a_tool_refusal_are_those_of_the_contract() {
    let mut faults = Vec::new();
    for (refusal, _) in samples() {
        let row = refusal.row();
        if row.surface != Surface::ToolResult {
            continue;
        }
        let message = refusal.message(&DEFAULT);
        let mut must = |holds: bool, rule: &str| {
            if !holds {
                faults.push(format!("{rule}: {message}"));
            }
        };
        must(message.contains("`github_create_issue`"), "names the tool");
        must(sentences(&message) <= 3, "at most three sentences");
        must(!message.contains('\n'), "one line");
        let denied = row.kind == Kind::Permission;
        must(message.ends_with("Do not retry until then.") == denied, "a permission row ends so, and no other");
        must(!denied || message.contains(DEFAULT.console), "a permission row says where to go");
        must(message.contains("tool may already have run") == row.reached, "says that it may have run, if it may");
        let idle = matches!(
            refusal,
            Refusal::UpstreamUnavailable(_) | Refusal::UpstreamTimeout { .. } | Refusal::GuardrailUnavailable(_)
        ) && !row.reached;
        must(!idle || message.contains("was not called") || message.contains("could be called"), "was not called");
        let backoff = match refusal {
            Refusal::UpstreamUnavailable(cause) => !matches!(cause, Unavailable::CredentialRefused { .. }),
            Refusal::UpstreamTimeout { .. } | Refusal::Stopping { .. } => true,
            _ => false,
        };
        must(message.ends_with("You may retry with backoff.") == backoff, "retry with backoff, where that may help");
        let change = match &refusal {
            Refusal::InvalidArguments(fault) => !matches!(fault, ArgumentFault::Schema(_)),
            Refusal::ResultTooLarge { .. } => true,
            _ => false,
        };
        must(message.contains("Change the arguments") == change, "change the arguments, where that helps");
        let admin = matches!(refusal, Refusal::UpstreamUnavailable(Unavailable::CredentialRefused { .. }));
        must(!admin || message.contains("An admin must replace the credential"), "an admin must replace it");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_person_is_sent_to_where_an_account_is_connected() {
    for (refusal, _) in tool_samples() {
        let sends = matches!(
            refusal,
            Refusal::CredentialRequired { .. } | Refusal::UpstreamUnavailable(Unavailable::CredentialRefused { .. })
        );
        let message = refusal.message(&PER_USER);
        assert_eq!(message.contains(PER_USER.connect_url.unwrap()), sends, "{message}");
        assert!(sentences(&message) <= 3, "{message}");
        assert!(!sends || message.ends_with("o not retry until then."), "{message}");
    }
}

#[test]
fn every_other_message_stands_alone() {
    for (refusal, _) in samples() {
        let (row, message) = (refusal.row(), refusal.message(&DEFAULT));
        assert!(!message.is_empty() && !message.contains('\n'), "{refusal:?}: {message}");
        assert!(sentences(&message) <= 3, "{message}");
        if matches!(row.surface, Surface::Http(_)) {
            assert!(message.ends_with('.'), "{message}");
            assert_eq!(row.kind == Kind::RateLimit, message.contains("etry after 12 seconds"), "{message}");
        }
    }
}

#[test]
fn the_names_of_product_console_and_prefix_come_from_conf() {
    for (refusal, _) in samples() {
        let (default, infro) = (refusal.message(&DEFAULT), refusal.message(&INFRO));
        let renamed = default
            .replace(DEFAULT.prefix, INFRO.prefix)
            .replace(DEFAULT.console, INFRO.console)
            .replace(DEFAULT.product, INFRO.product);
        assert_eq!(infro, renamed);
        assert!(!infro.to_lowercase().contains("toolgate"), "{infro}");
    }
}

#[test]
fn a_name_is_cut_and_shown_as_it_was_sent() {
    let long = "ä".repeat(NAME_CHARS_MAX + 1);
    let voice = Voice { tool: &long, ..DEFAULT };
    for (refusal, _) in tool_samples() {
        let message = refusal.message(&voice);
        assert!(message.contains(&format!("`{}`", "ä".repeat(NAME_CHARS_MAX))), "{message}");
        assert!(!message.contains(&long), "{message}");
    }
}
