//! One tool: what changed, side by side; what to look at twice; approve or block, with a note.

use maud::{Markup, html};
use serde_json::{Map, Value as Json, json};

use super::{
    Page, Shown,
    form::Fields,
    layout::{marked, page, told},
    lists::{badge, place},
};
use crate::{
    admin::{
        diff::{self, Difference},
        reply::Refused,
        review, tools,
        words::{Op, Piece},
    },
    conf::Role,
    control::{
        Catalog,
        change::{Asker, ToolName},
    },
    model::records::{Approval, Definition, ToolRecord},
    policy::approval::{self, ToolState},
};

/// The labels, and what each means for who decides.
const LABELS: [(&str, &str); 3] = [
    ("private_data", "reads private data"),
    ("untrusted_content", "takes in what others wrote"),
    ("sends_out", "can send data out"),
];

/// Shows a tool.
pub(super) fn show(asked: &Page<'_>) -> Result<Shown, Refused> {
    Ok(Shown::Page(review(asked, None, &Fields::default())?))
}

/// Approves or blocks it.
pub(super) async fn decide(asked: &Page<'_>, sent: &Fields) -> Result<Shown, Refused> {
    if asked.caller.role < Role::Approver {
        return Err(Refused::role("approver"));
    }
    let name = named(asked);
    let asker = Asker { who: asked.caller.name.clone(), ..Asker::default() };
    // A browser sends line ends of its own.
    let note = sent.one("note").trim().replace("\r\n", "\n");
    let note = Some(note).filter(|note| !note.is_empty()).map(|note| ("note".to_owned(), json!(note)));
    let mut members: Map<String, Json> = note.into_iter().collect();
    let done = match sent.one("do") {
        "block" => tools::block_by(asked.rooms, &name, members, asker).await,
        "approve" => match labels(sent) {
            Ok(labels) => {
                members.insert("expected_sha256".to_owned(), json!(sent.one("sha256")));
                members.insert("class".to_owned(), json!(sent.one("class")));
                members.insert("labels".to_owned(), json!(labels));
                members.insert("confirm_trifecta".to_owned(), json!(sent.one("confirm_trifecta") == "true"));
                tools::approve_by(asked.rooms, &name, members, asker).await
            }
            Err(refused) => Err(refused),
        },
        _ => Err(Refused::invalid("there is nothing to do")),
    };
    match done {
        Ok(_) => Ok(Shown::Go(place(asked.query.one("organization"), &name.server, &name.tool))),
        Err(refused) => {
            let (status, _, _) = refused.parts();
            Ok(Shown::Refused(status, review(asked, Some(&refused), sent)?))
        }
    }
}

/// What was ticked. That a tool brings no leg is a statement of its own.
fn labels(sent: &Fields) -> Result<Vec<&str>, Refused> {
    let labels: Vec<&str> = sent.all("label").collect();
    match (labels.contains(&"none"), labels.as_slice()) {
        (_, []) => Err(Refused::invalid("say what the tool brings: tick what is true, or that nothing is")),
        (true, [_]) => Ok(Vec::new()),
        (true, _) => Err(Refused::invalid("a tool cannot bring something and nothing")),
        (false, _) => Ok(labels),
    }
}

fn named(asked: &Page<'_>) -> ToolName {
    let text = |name: &str| asked.query.one(name).to_owned();
    let organization = Some(text("organization")).filter(|named| !named.is_empty());
    ToolName { organization, server: text("server"), tool: text("tool") }
}

fn review(asked: &Page<'_>, refused: Option<&Refused>, sent: &Fields) -> Result<Markup, Refused> {
    let catalog = asked.rooms.control.catalog();
    let (_, tool) = catalog.tool(&named(asked))?;
    let pin = catalog.pin(tool).map(|owned| &owned.value);
    let state = approval::state(tool, pin);
    let (current, approved) = (tool.current.as_ref().map(read), tool.approved.as_ref().map(read));
    let differences = match (&approved, &current) {
        (Some(approved), Some(current)) => diff::between(approved, current),
        _ => Vec::new(),
    };
    let body = html! {
        h1 { (tool.server) " / " (marked(&tool.name)) " " (badge(state)) }
        @if let Some(refused) = refused { (told(refused.parts().2)) }
        (facts(asked, tool, pin))
        @if let Some(current) = &current { (remarks(&catalog, tool, current)) }
        h2 { "What changed" }
        @if approved.is_none() { p { "No definition was approved yet; all of it is new." } }
        @else if current.is_none() { p { "The server no longer lists it." } }
        @else if differences.is_empty() { p { "Nothing: the current definition is the approved one." } }
        @else { (side_by_side(&differences)) }
        (definitions(approved.as_ref(), current.as_ref()))
        @if asked.caller.role >= Role::Approver { (decision(asked, tool, (state, pin), (refused, sent))) }
        @else { p { "To decide, log in with a token of the role approver." } }
    };
    Ok(page(asked, &format!("Toolgate: {}/{}", tool.server, tool.name), &body))
}

fn read(definition: &Definition) -> Json {
    serde_json::from_str(&definition.json).unwrap_or(Json::Null)
}

fn facts(asked: &Page<'_>, tool: &ToolRecord, pin: Option<&Approval>) -> Markup {
    let summary = tools::summary(asked.rooms, tool, pin);
    let rows = [
        ("Organization", "organization"),
        ("Exposed as", "exposed_name"),
        ("Current hash", "sha256"),
        ("Approved hash", "approved_sha256"),
        ("Class", "class"),
        ("Labels", "labels"),
        ("Fault", "fault"),
        ("Decided by", "managed_by"),
    ];
    let shown = |member: &str| match summary.get(member) {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) => Some(text.clone()),
        Some(Json::Array(items)) if items.is_empty() => Some("none".to_owned()),
        Some(Json::Array(items)) => Some(items.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(", ")),
        Some(other) => Some(other.to_string()),
    };
    html! {
        dl { @for (title, member) in rows { @if let Some(text) = shown(member) { dt { (title) } dd { (marked(&text)) } } } }
    }
}

/// What to look at twice, and what the annotations suggest.
fn remarks(catalog: &Catalog, tool: &ToolRecord, current: &Json) -> Markup {
    let warnings = review::warnings(current, &review::others(catalog, tool));
    let suggested = review::suggested(current);
    let list = suggested.get("labels").and_then(Json::as_array).cloned().unwrap_or_default();
    let list: Vec<&str> = list.iter().filter_map(Json::as_str).collect();
    html! {
        @if !warnings.is_empty() {
            h2 { "Look twice" }
            ul.warnings {
                @for warning in &warnings {
                    li { b { (warning.kind.replace('_', " ")) } " at " code { (marked(&warning.path)) } ": " (marked(&warning.message)) }
                }
            }
        }
        p {
            "Its name and annotations suggest class " b { (suggested.get("class").and_then(Json::as_str).unwrap_or_default()) }
            " and labels " b { @if list.is_empty() { "none" } @else { (list.join(", ")) } }
            ". They are claims of the server."
        }
    }
}

fn side_by_side(differences: &[Difference]) -> Markup {
    html! {
        table.diff {
            thead { tr { th { "Approved" } th { "Current" } } }
            @for difference in differences {
                tbody {
                    tr.what { td colspan="2" {
                        b { (difference.change) } " " code { (marked(&difference.path)) } " (" (marked(&difference.meaning))
                        @if let Some(effect) = difference.effect { ", " b { (effect) } } ")"
                    } }
                    tr { td { (side(&difference.text, Op::Removed)) } td { (side(&difference.text, Op::Added)) } }
                }
            }
        }
    }
}

/// The pieces of one side: what both have, and what only it has.
fn side(pieces: &[Piece], own: Op) -> Markup {
    html! {
        pre {
            @for piece in pieces.iter().filter(|piece| piece.op == Op::Same || piece.op == own) {
                @match piece.op {
                    Op::Same => (marked(&piece.text)),
                    Op::Removed => del { (marked(&piece.text)) },
                    Op::Added => ins { (marked(&piece.text)) },
                }
            }
        }
    }
}

fn definitions(approved: Option<&Json>, current: Option<&Json>) -> Markup {
    let pretty = |json: &Json| serde_json::to_string_pretty(json).unwrap_or_default();
    html! {
        details open[approved.is_none()] {
            summary { "Whole definitions" }
            div.sides {
                @for (title, json) in [("Approved", approved), ("Current", current)] {
                    @if let Some(json) = json { section { h3 { (title) } pre { (marked(&pretty(json))) } } }
                }
            }
        }
    }
}

fn decision(
    asked: &Page<'_>,
    tool: &ToolRecord,
    (state, pin): (ToolState, Option<&Approval>),
    (refused, sent): (Option<&Refused>, &Fields),
) -> Markup {
    let trifecta = refused.and_then(|refused| refused.parts().1) == Some("mcp_trifecta_unconfirmed");
    let is = |name: &str, value: &str| sent.all(name).any(|given| given == value);
    let action = place(&tool.organization, &tool.server, &tool.name);
    let hash = tool.current.as_ref().map(|definition| definition.sha256.to_string());
    html! {
        h2 { "Decide" }
        form.decide method="post" action=(action) {
            input type="hidden" name="form" value=(asked.session.form());
            @if pin.is_some() { p { "A policy file pins this tool: an approval re-affirms the file's pin and takes class and labels from it." } }
            @if let Some(hash) = &hash {
                input type="hidden" name="sha256" value=(hash);
                fieldset {
                    legend { "Class" }
                    @for (class, what) in [("read", "read: only reads"), ("write", "write: may change something")] {
                        label { input type="radio" name="class" value=(class) checked[is("class", class)]; (what) }
                    }
                }
                fieldset {
                    legend { "Labels" }
                    @for (label, what) in LABELS.into_iter().chain([("none", "none of these")]) {
                        label { input type="checkbox" name="label" value=(label) checked[is("label", label)]; (what) }
                    }
                }
            }
            label.note { "Note, for the audit record" textarea name="note" rows="2" maxlength=(tools::NOTE_CHARS_MAX) { (sent.one("note")) } }
            @if trifecta {
                label.told { input type="checkbox" name="confirm_trifecta" value="true"; "I confirm that these keys get all three" }
            }
            p {
                @if let Some(hash) = &hash {
                    button name="do" value="approve" { "Approve " code { (hash.get(..12).unwrap_or_default()) } "…" } " "
                }
                @if state != ToolState::Blocked { button.block name="do" value="block" { "Block" } }
            }
        }
    }
}
