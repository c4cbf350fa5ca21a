//! `/v1/explain`: what would happen to a call, at which check, and why. Runs the stages of the line itself, one after the other, on
//! the live snapshot; asks no server, spends no token.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{extract::State, http::HeaderMap};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    Rooms,
    call::{Body, Call, only},
    reply::{Outcome, Refused, Reply},
    shapes,
};
use crate::{
    budget::clock_nanos,
    call::{
        Now, arguments, authenticate, input,
        parse::{self, Message, Request},
        resolve,
        route::{self, Endpoint},
        throttle,
    },
    conf::Role,
    control::Catalog,
    model::{
        jsonrpc::{Document, write_string},
        records::{GuardStage, Key, Owned},
        units::shown,
    },
    policy::{
        guard::{self, Verdict},
        snapshot::{KeyPolicy, ServerPolicy, Snapshot, ToolPolicy, ViewServer},
    },
    refusal::{Refusal, Surface, Voice},
};

/// Tells what would happen to a call.
#[utoipa::path(
    post, path = "/v1/explain", tag = "gateway", request_body = shapes::Explain,
    responses((status = 200, body = shapes::Explained))
)]
pub(super) async fn explain(State(rooms): State<Arc<Rooms>>, call: Call, body: Body) -> Outcome {
    call.allow(Role::Viewer, &[])?;
    let members = body.object()?;
    only(&members, &["key", "endpoint", "tool", "arguments", "client_ip", "user"])?;
    let text = |name: &str| match members.get(name) {
        Some(Json::String(text)) => Ok(text.as_str()),
        Some(_) => Err(Refused::invalid(format!("`{name}` must be a string"))),
        None => Err(Refused::invalid(format!("`{name}` is needed"))),
    };
    let (key, endpoint, tool) = (text("key")?, text("endpoint")?, text("tool")?);
    let client = match members.get("client_ip") {
        None | Some(Json::Null) => None,
        Some(_) => {
            let parsed = text("client_ip")?.parse::<IpAddr>();
            Some(parsed.map_err(|_| Refused::invalid("`client_ip` must be an address"))?)
        }
    };
    let user = match members.get("user") {
        None | Some(Json::Null) => None,
        Some(_) => Some(text("user")?),
    };
    let catalog = rooms.control.catalog();
    let owned = catalog.find::<Key>(None, key)?;
    let snapshot = rooms.control.live().load().ok_or_else(Refused::internal)?;
    let mut told =
        Told { catalog: &catalog, snapshot: &snapshot, key: owned, tool, user, connect_url: None, checks: Vec::new() };
    let message = message(tool, body.raw());
    let now = now(&rooms);
    let refusal = told.walk((endpoint, client), &message, now).err();
    let body = told.finish(refusal.as_ref());
    Ok(Reply::ok(body).at(snapshot.revision))
}

/// One check and what it came to.
#[derive(Debug, Serialize)]
struct Check {
    /// Which.
    check: &'static str,
    /// `passed`, `refused`, or `not_judged`: it depends on the moment of the call.
    verdict: &'static str,
    /// Why.
    why: String,
    /// The object that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<String>,
}

struct Told<'c> {
    catalog: &'c Catalog,
    snapshot: &'c Snapshot,
    key: &'c Owned<Key>,
    tool: &'c str,
    user: Option<&'c str>,
    /// Of the server that was resolved.
    connect_url: Option<String>,
    checks: Vec<Check>,
}

impl Told<'_> {
    /// The line, in the order of contract §2 and §4.
    fn walk(&mut self, (path, client): (&str, Option<IpAddr>), message: &[u8], now: Now) -> Result<(), Refusal> {
        let snapshot = self.snapshot;
        let endpoint = route::endpoint(path, &snapshot.settings.base_path);
        let endpoint = self.judge("endpoint", endpoint, None, "it is an endpoint of the gateway")?;
        let token = authenticate::key(snapshot, &self.key.value.sha256, now);
        let of_key = Some(self.key_place());
        let token = self.judge("key", token, of_key.clone(), "the key is valid")?;
        let key = &token.key;
        self.standing(key, client)?;
        let rate = key.rate.as_ref().map(|limit| format!("each request spends one of {}", limit.rate()));
        self.skip("key_rate", rate.as_deref().unwrap_or("the key has no rate limit"), of_key);
        let granted = match &endpoint {
            Endpoint::Aggregated => None,
            Endpoint::Server(slug) => {
                let granted = route::server(&key.view, slug);
                let by = self.grant_place(slug);
                Some(self.judge("server", granted, by, "the key sees the server")?)
            }
        };
        let mut scratch = Vec::new();
        let document = Document::parse(message, &mut scratch).map_err(|fault| parse::json_refusal(&fault))?;
        let parsed = parse::message(&document, &HeaderMap::new(), &mut None);
        let Message::Request(request) = self.judge("request", parsed, None, "the request is well-formed")? else {
            return Err(Refusal::Internal);
        };
        let (server, tool) = self.resolve(key, granted)?;
        self.credential(server)?;
        self.content((key, tool), &document, &request)?;
        self.server(server, now)
    }

    fn credential(&mut self, server: &ServerPolicy) -> Result<(), Refusal> {
        let Some(users) = &server.users else { return Ok(()) };
        self.connect_url = Some(users.connect_url.to_string());
        let by = Some(format!("server `{}`", server.slug));
        self.judge("credential", users.access(self.user).map(drop), by, "the user's credential is held")
    }

    fn voice(&self) -> Voice<'_> {
        Voice { connect_url: self.connect_url.as_deref(), ..self.snapshot.settings.voice(self.tool) }
    }

    fn standing(&mut self, key: &KeyPolicy, client: Option<IpAddr>) -> Result<(), Refusal> {
        let of_key = Some(self.key_place());
        // Without an address, one that is allowed stands in, so that the checks after it are told.
        let stand_in = key.allow_ips.first().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), ipnet::IpNet::addr);
        let judged = authenticate::standing(key, client.unwrap_or(stand_in));
        if let Err(Refusal::IpNotAllowed) = judged {
            return self.judge("address", judged, of_key, "");
        }
        match (key.allow_ips.is_empty(), client) {
            (true, _) => self.pass("address", "the key may be used from anywhere", of_key.clone()),
            (false, Some(_)) => self.pass("address", "the address is in the key's `allow_ips`", of_key.clone()),
            (false, None) => self.skip("address", "the key has `allow_ips`; no `client_ip` was given", of_key.clone()),
        }
        let by = match &judged {
            Err(Refusal::KeyDisabled) | Ok(()) => of_key,
            Err(Refusal::ProjectArchived) => Some(format!("project `{}`", shown(&key.project))),
            Err(_) => Some(format!("organization `{}`", shown(&key.organization.id))),
        };
        self.judge("standing", judged, by, "key, project and organization are in good standing")
    }

    fn resolve<'k>(
        &mut self,
        key: &'k KeyPolicy,
        granted: Option<&'k ViewServer>,
    ) -> Result<(&'k Arc<ServerPolicy>, &'k Arc<ToolPolicy>), Refusal> {
        let resolved = match granted {
            None => resolve::aggregated(key, self.tool),
            Some(granted) => resolve::on_server(granted, self.tool),
        };
        if let Err(Refusal::UnknownTool(_)) = resolved {
            return self.judge("tool", resolved, None, "");
        }
        let known = match granted {
            None => key.organization.exposed.get(self.tool).map(|(server, tool)| (server, tool)),
            Some(granted) => granted.server.tools.get(self.tool).map(|tool| (&granted.server, tool)),
        };
        let Some((server, tool)) = known else { return Err(Refusal::Internal) };
        let place = format!("tool `{}/{}`", server.slug, shown(&tool.name));
        self.pass("tool", "the name is known", Some(place));
        let grant = self.grant_place(&server.slug);
        if let Err(Refusal::ToolNotAllowed) = resolved {
            return self.judge("grant", resolved, grant, "");
        }
        self.pass("grant", "a grant of the key covers the tool", grant);
        let by = self.approval_place(server, tool);
        self.judge("approval", resolved, by, "the definition is the approved one")
    }

    fn content(
        &mut self,
        (key, tool): (&KeyPolicy, &ToolPolicy),
        document: &Document<'_>,
        request: &Request<'_>,
    ) -> Result<(), Refusal> {
        let bytes_max = self.snapshot.settings.arguments_bytes_max;
        let mut scratch = Vec::new();
        let empty = Document::parse(b"{}", &mut scratch).map_err(|_| Refusal::Internal)?;
        let sent = request.param("arguments");
        let checked = arguments::check(tool, sent.as_ref().unwrap_or(&empty.spanned_root()), bytes_max);
        self.judge("arguments", checked, None, "the arguments match the approved inputSchema")?;
        let plan = tool.input.plan(&key.project);
        let mut screened = input::Screened::default();
        let judged = input::screen(&mut screened, (key, tool), (document, request), sent.as_ref());
        let by = sent.as_ref().and_then(|sent| {
            let screening = guard::screen(plan, document, sent, GuardStage::Input);
            let index = match screening.verdict {
                Verdict::Block { rule, .. } | Verdict::Unavailable { rule } => Some(rule),
                Verdict::Redact(_) | Verdict::Pass => screening.matches.first().map(|found| found.rule),
            };
            Some(format!("guardrail `{}`", shown(&plan.rules.get(index?)?.name)))
        });
        self.judge("guardrails", judged, by.clone(), "no guardrail on the way in refuses")?;
        if let Some(redacted) = &screened.redacted {
            let rechecked = input::recheck(tool, redacted, &screened, bytes_max);
            self.judge("redacted_arguments", rechecked, by, "the redacted arguments still match the inputSchema")?;
        }
        if !screened.asking.is_empty() {
            self.skip("guardrail_engines", "external engines are not asked here", None);
        }
        Ok(())
    }

    /// Health is looked at as a call would; rates are left alone.
    fn server(&mut self, server: &ServerPolicy, now: Now) -> Result<(), Refusal> {
        let of_server = Some(format!("server `{}`", server.slug));
        let judged = throttle::look(server, &self.snapshot.settings, now);
        self.judge("server_health", judged, of_server.clone(), "the server is listed, has room and answers")?;
        let rate = server.rate.as_ref().map(|limit| format!("the call spends one of {}", limit.rate()));
        self.skip("server_rate", rate.as_deref().unwrap_or("the server has no rate limit"), of_server);
        Ok(())
    }

    fn judge<T>(
        &mut self,
        check: &'static str,
        judged: Result<T, Refusal>,
        decided_by: Option<String>,
        passed: &str,
    ) -> Result<T, Refusal> {
        let (verdict, why) = match &judged {
            Ok(_) => ("passed", passed.to_owned()),
            Err(refusal) => ("refused", self.words(refusal)),
        };
        self.checks.push(Check { check, verdict, why, decided_by });
        judged
    }

    fn pass(&mut self, check: &'static str, why: &str, decided_by: Option<String>) {
        self.checks.push(Check { check, verdict: "passed", why: why.to_owned(), decided_by });
    }

    fn skip(&mut self, check: &'static str, why: &str, decided_by: Option<String>) {
        self.checks.push(Check { check, verdict: "not_judged", why: why.to_owned(), decided_by });
    }

    /// The words that the caller would read; for a key that opens nothing, what an admin needs to know instead.
    fn words(&self, refusal: &Refusal) -> String {
        if *refusal == Refusal::Unauthenticated {
            let key = &self.key.value;
            return if key.revoked { "the key is revoked" } else { "the key has expired" }.to_owned();
        }
        refusal.message(&self.voice())
    }

    fn finish(&self, refusal: Option<&Refusal>) -> Json {
        let Some(refusal) = refusal else {
            return json!({ "verdict": "allowed", "code": null, "message": null, "checks": self.checks });
        };
        let row = refusal.row();
        let voice = self.voice();
        let (surface, number) = match row.surface {
            Surface::Http(status) => ("http", json!(status)),
            Surface::Rpc { code, .. } => ("rpc", json!(code)),
            Surface::ToolResult => ("tool_result", Json::Null),
        };
        json!({
            "verdict": "refused", "code": row.code, "type": row.kind.as_str(), "surface": surface, "number": number,
            "message": refusal.message(&voice), "checks": self.checks,
        })
    }

    fn key_place(&self) -> String {
        format!("key `{}`{}", shown(&self.key.value.id), self.catalog.place(&self.key.origin))
    }

    /// The grant on a server, if there is one.
    fn grant_place(&self, slug: &str) -> Option<String> {
        let found = self.catalog.grants(&self.key.value.id).find(|owned| owned.value.server == slug);
        Some(match found {
            Some(owned) => format!("grant of server `{}`{}", shown(slug), self.catalog.place(&owned.origin)),
            None => format!("no grant of server `{}`", shown(slug)),
        })
    }

    fn approval_place(&self, server: &ServerPolicy, tool: &ToolPolicy) -> Option<String> {
        let of_it = |record: &&crate::model::records::ToolRecord| {
            record.name == *tool.name && record.server == *server.slug && record.organization == *server.organization
        };
        let record = self.catalog.records.tools.iter().find(of_it)?;
        let title = format!("`{}/{}`", server.slug, shown(&tool.name));
        Some(match (self.catalog.pin(record), &record.decision) {
            (Some(pin), _) => format!("approval of {title}{}", self.catalog.place(&pin.origin)),
            (None, Some(_)) => format!("the decision on {title} made through the API"),
            (None, None) => format!("nobody has decided on {title}"),
        })
    }
}

/// The call as a client would send it, the arguments byte for byte as they were given.
fn message(tool: &str, body: &[u8]) -> Vec<u8> {
    let mut out = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"#.to_vec();
    write_string(&mut out, tool);
    let mut scratch = Vec::new();
    if let Ok(document) = Document::parse(body, &mut scratch)
        && let Some(arguments) = document.spanned_root().get("arguments")
    {
        out.extend_from_slice(br#","arguments":"#);
        out.extend_from_slice(arguments.raw());
    }
    out.extend_from_slice(b"}}");
    out
}

fn now(rooms: &Rooms) -> Now {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0));
    Now { unix, nanos: clock_nanos(rooms.control.started()) }
}
