//! `/v1/servers/{slug}/tools`: what discovery recorded, what a person decides.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Map, Value as Json, json};

use super::{
    Rooms,
    call::{At, Body, Call, only, take_confirm},
    diff, named, objects, pages,
    reply::{Outcome, Refused, Reply},
    review, shapes,
};
use crate::{
    conf::{Role, policy::approval_from_json},
    control::{
        Catalog, ChangeError,
        change::{Asker, Change, Confirm, ToolName},
    },
    model::{
        name::exposed,
        records::{Approval, Server, ToolRecord},
    },
    policy::approval,
};

/// The query of lists of tools.
const QUERY: [&str; 4] = ["organization", pages::PARAMS[0], pages::PARAMS[1], "status"];
/// The longest note to a decision, in characters.
pub(super) const NOTE_CHARS_MAX: usize = 1000;

/// Lists a server's tools.
#[utoipa::path(
    get, path = "/v1/servers/{slug}/tools", tag = "tools",
    params(("slug" = String, Path, description = "The server's slug."), shapes::Home, shapes::Paging, shapes::ByStatus),
    responses((status = 200, body = shapes::Tools))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call, At(slug): At<String>) -> Outcome {
    call.allow(Role::Viewer, &QUERY)?;
    let catalog = rooms.control.catalog();
    let server = named::server(&call, &catalog, &slug)?;
    list_of(&rooms, &call, &catalog, server)
}

/// Lists the tools of every server, by organization, server and name.
#[utoipa::path(
    get, path = "/v1/tools", tag = "tools", params(shapes::Narrow, shapes::Paging, shapes::ByStatus),
    responses((status = 200, body = shapes::Tools))
)]
pub(super) async fn list_all(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    call.allow(Role::Viewer, &QUERY)?;
    let catalog = rooms.control.catalog();
    let (wanted, servers) = (call.organization(), catalog.servers());
    let tools = catalog.records.tools.iter().filter(|tool| {
        wanted.is_none_or(|home| tool.organization == home)
            && servers.contains(&(tool.organization.as_str(), tool.server.as_str()))
    });
    let key = |tool: &ToolRecord| format!("{}/{}/{}", tool.organization, tool.server, tool.name);
    list_some(&rooms, &call, (&catalog, "/v1/tools"), tools.map(|tool| (key(tool), tool)))
}

/// The tools of a server, as a list.
pub(super) fn list_of(rooms: &Rooms, call: &Call, catalog: &Catalog, server: &Server) -> Outcome {
    let tools = catalog.tools(server).map(|tool| (tool.name.clone(), tool));
    list_some(rooms, call, (catalog, &named::list(server, "tools")), tools)
}

fn list_some<'c>(
    rooms: &Rooms,
    call: &Call,
    (catalog, path): (&'c Catalog, &str),
    tools: impl Iterator<Item = (String, &'c ToolRecord)>,
) -> Outcome {
    let status = call.param("status");
    if let Some(status) = status
        && !approval::ToolState::ALL.iter().any(|state| state.as_str() == status)
    {
        return Err(Refused::invalid("`status` must be pending, approved, changed, removed or blocked"));
    }
    let pins = catalog.pins();
    let entries = tools.filter_map(|(key, tool)| {
        let pin = pins.get(&(tool.organization.as_str(), tool.server.as_str(), tool.name.as_str())).copied();
        let wanted = status.is_none_or(|status| approval::state(tool, pin).as_str() == status);
        let show = move || Json::Object(summary(rooms, tool, pin));
        wanted.then(|| (key, Box::new(show) as Box<dyn FnOnce() -> Json>))
    });
    Ok(pages::page(call, (path, "tools"), entries)?.at(catalog.revision))
}

/// Shows a tool: both definitions, what differs, and what a reviewer should look at twice.
#[utoipa::path(
    get, path = "/v1/servers/{slug}/tools/{tool}", tag = "tools", params(shapes::ToolPath, shapes::Home),
    responses((status = 200, body = shapes::ShownTool))
)]
pub(super) async fn get(State(rooms): State<Arc<Rooms>>, call: Call, At(path): At<(String, String)>) -> Outcome {
    call.allow(Role::Viewer, &["organization"])?;
    let catalog = rooms.control.catalog();
    let (_, tool) = catalog.tool(&named::tool(&call, path))?;
    let pin = catalog.pin(tool).map(|owned| &owned.value);
    let mut shown = summary(&rooms, tool, pin);
    let read =
        |definition: &crate::model::records::Definition| serde_json::from_str(&definition.json).unwrap_or(Json::Null);
    let (current, approved) = (tool.current.as_ref().map(read), tool.approved.as_ref().map(read));
    let (diff, effects) = match (&approved, &current) {
        (Some(approved), Some(current)) => (diff::between(approved, current), diff::effects(approved, current)),
        _ => Default::default(),
    };
    shown.insert("diff".to_owned(), json!(diff));
    shown.insert("effects".to_owned(), Json::Object(effects));
    if let Some(definition) = &current {
        let others = review::others(&catalog, tool);
        shown.insert("warnings".to_owned(), json!(review::warnings(definition, &others)));
        shown.insert("suggested".to_owned(), review::suggested(definition));
    }
    shown.insert("definition".to_owned(), json!(current));
    shown.insert("approved_definition".to_owned(), json!(approved));
    Ok(Reply::ok(Json::Object(shown)).at(catalog.revision))
}

/// Approves the definition that was reviewed, named by its hash. On a tool that a file pins: re-affirms the file's pin.
#[utoipa::path(
    post, path = "/v1/servers/{slug}/tools/{tool}/approve", tag = "tools",
    params(shapes::ToolPath, shapes::Home, shapes::Changing), request_body = shapes::Approve,
    responses((status = 200, body = shapes::Tool))
)]
pub(super) async fn approve(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At(path): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Approver, &["organization"])?;
    approve_by(&rooms, &named::tool(&call, path), body.object()?, call.asker(Confirm::No)?).await
}

/// Approves a tool by the members of a body.
///
/// # Errors
/// 400, 404, 409
pub(super) async fn approve_by(
    rooms: &Rooms,
    name: &ToolName,
    mut members: Map<String, Json>,
    asker: Asker,
) -> Outcome {
    let confirm = take_confirm(&mut members);
    let catalog = rooms.control.catalog();
    let (_, tool) = catalog.tool(name)?;
    if tool.current.is_none() {
        return Err(ChangeError::Removed.into());
    }
    let note = take_note(&mut members)?;
    only(&members, &["expected_sha256", "class", "labels"])?;
    for needed in ["expected_sha256", "class", "labels"] {
        if members.get(needed).is_none_or(Json::is_null) {
            return Err(Refused::invalid(format!("`{needed}` is needed")));
        }
    }
    let terms = read_terms(&members)?;
    let (expected, class, labels) = (terms.sha256, terms.class, terms.labels);
    let change = Change::Approve { tool: name.clone(), expected, class, labels };
    decided(rooms, &change, &Asker { confirm, note, ..asker }, name).await
}

/// Blocks a tool by hand; also one that a file pins.
#[utoipa::path(
    post, path = "/v1/servers/{slug}/tools/{tool}/block", tag = "tools",
    params(shapes::ToolPath, shapes::Home, shapes::Changing), request_body = Option<shapes::Block>,
    responses((status = 200, body = shapes::Tool))
)]
pub(super) async fn block(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At(path): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Approver, &["organization"])?;
    block_by(&rooms, &named::tool(&call, path), body.optional()?, call.asker(Confirm::No)?).await
}

/// Blocks a tool by the members of a body.
///
/// # Errors
/// 400, 404
pub(super) async fn block_by(rooms: &Rooms, name: &ToolName, mut members: Map<String, Json>, asker: Asker) -> Outcome {
    let note = take_note(&mut members)?;
    only(&members, &[])?;
    decided(rooms, &Change::Block(name.clone()), &Asker { note, ..asker }, name).await
}

/// Changes class or labels of an approved tool; a member that is left out stays.
#[utoipa::path(
    patch, path = "/v1/servers/{slug}/tools/{tool}", tag = "tools",
    params(shapes::ToolPath, shapes::Home, shapes::Changing), request_body = shapes::Terms,
    responses((status = 200, body = shapes::Tool))
)]
pub(super) async fn patch(
    State(rooms): State<Arc<Rooms>>,
    call: Call,
    At(path): At<(String, String)>,
    body: Body,
) -> Outcome {
    call.allow(Role::Approver, &["organization"])?;
    let mut members = body.object()?;
    let confirm = take_confirm(&mut members);
    let name = named::tool(&call, path);
    let catalog = rooms.control.catalog();
    let (_, tool) = catalog.tool(&name)?;
    let state = approval::state(tool, catalog.pin(tool).map(|owned| &owned.value));
    if state != approval::ToolState::Approved {
        return Err(ChangeError::NotApproved(state.as_str()).into());
    }
    only(&members, &["class", "labels"])?;
    let given = |member: &str| members.get(member).is_some_and(|value| !value.is_null());
    let terms = read_terms(&members)?;
    let (class, labels) = (given("class").then_some(terms.class), given("labels").then_some(terms.labels));
    let change = Change::SetTerms { tool: name.clone(), class, labels };
    decided(&rooms, &change, &call.asker(confirm)?, &name).await
}

/// Takes `note` out of a body: why a person decided so.
fn take_note(members: &mut Map<String, Json>) -> Result<Option<String>, Refused> {
    match members.remove("note") {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(note)) if note.chars().count() <= NOTE_CHARS_MAX => Ok(Some(note)),
        Some(_) => Err(Refused::invalid(format!("`note` must be a string of at most {NOTE_CHARS_MAX} characters"))),
    }
}

async fn decided(rooms: &Rooms, change: &Change, asker: &Asker, name: &ToolName) -> Outcome {
    let done = rooms.control.apply(change, asker).await?;
    let (_, tool) = done.tool(name)?;
    let pin = done.pin(tool).map(|owned| &owned.value);
    Ok(Reply::ok(Json::Object(summary(rooms, tool, pin))).at(done.revision))
}

/// Hash, class and labels by the reader of `[[approval]]`; what is left out is filled in and must not be used.
fn read_terms(members: &Map<String, Json>) -> Result<Approval, Refused> {
    let mut probe = Map::new();
    for (name, default) in [("sha256", Json::from("0".repeat(64))), ("class", json!("write")), ("labels", json!([]))] {
        let sent = if name == "sha256" { "expected_sha256" } else { name };
        let value = members.get(sent).filter(|value| !value.is_null()).cloned().unwrap_or(default);
        probe.insert(name.to_owned(), value);
    }
    probe.insert("server".to_owned(), json!("probe"));
    probe.insert("tool".to_owned(), json!("probe"));
    approval_from_json(&Json::Object(probe)).map_err(|faults| {
        let renamed = ChangeError::of_faults(&faults).to_string().replace("`sha256`", "`expected_sha256`");
        Refused::invalid(renamed)
    })
}

/// A tool as lists show it (contract §9).
pub(super) fn summary(rooms: &Rooms, tool: &ToolRecord, pin: Option<&Approval>) -> Map<String, Json> {
    let terms = approval::terms(tool, pin);
    let approved = match (pin, &tool.decision) {
        (Some(pin), _) => Some(pin.sha256),
        (None, Some(_)) => tool.pin,
        (None, None) => None,
    };
    let members = [
        ("name", json!(tool.name)),
        ("exposed_name", json!(exposed(&tool.server, &tool.name))),
        ("server", json!(tool.server)),
        ("organization", json!(tool.organization)),
        ("status", json!(approval::state(tool, pin).as_str())),
        ("sha256", json!(tool.current.as_ref().map(|d| d.sha256.to_string()))),
        ("approved_sha256", json!(approved.map(|pin| pin.to_string()))),
        ("class", json!(terms.map(|(class, _)| class))),
        ("labels", json!(terms.map(|(_, labels)| labels))),
        ("fault", json!(fault(rooms, tool))),
        ("managed_by", json!(objects::managed_by_pin(pin))),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Why the tool can never be listed; also that its exposed name is taken, which only the compiled policy knows.
fn fault(rooms: &Rooms, tool: &ToolRecord) -> Option<String> {
    let snapshot = rooms.control.live().load()?;
    let organization = snapshot.organizations.get(tool.organization.as_str())?;
    let compiled = organization.servers.get(tool.server.as_str())?.tools.get(tool.name.as_str());
    compiled.map_or_else(|| tool.fault.clone(), |compiled| compiled.fault.as_deref().map(str::to_owned))
}
