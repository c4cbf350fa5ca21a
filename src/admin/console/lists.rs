//! Lists: tools that wait for a person, keys with their grants, the audit record.

use std::collections::HashMap;

use jiff::Timestamp;
use maud::{Markup, html};

use super::{
    HOME, Page, Shown,
    form::link,
    layout::{marked, page},
};
use crate::{
    admin::reply::Refused,
    model::records::{Access, Grant, Key, ToolRecord},
    policy::approval::{self, ToolState},
};

/// Rows of one page.
const ROWS: usize = 100;

/// Which tools, by what the page calls them.
const FILTERS: [(&str, &str, &[ToolState]); 6] = [
    ("", "To review", &[ToolState::Changed, ToolState::Pending]),
    ("approved", "Approved", &[ToolState::Approved]),
    ("changed", "Changed", &[ToolState::Changed]),
    ("blocked", "Blocked", &[ToolState::Blocked]),
    ("removed", "Removed", &[ToolState::Removed]),
    ("all", "All", &ToolState::ALL),
];

/// Tools by state, those that changed first.
pub(super) fn tools(asked: &Page<'_>) -> Result<Shown, Refused> {
    let catalog = asked.rooms.control.catalog();
    let wanted = asked.query.one("show");
    let filter = FILTERS.iter().find(|(name, _, _)| *name == wanted);
    let (_, _, states) = filter.ok_or_else(|| Refused::not_found("there is no such list"))?;
    let pins = catalog.pins();
    let mut rows: Vec<(usize, ToolState, &ToolRecord)> = catalog
        .records
        .tools
        .iter()
        .filter_map(|tool| {
            let pin = pins.get(&(tool.organization.as_str(), tool.server.as_str(), tool.name.as_str()));
            let state = approval::state(tool, pin.copied());
            Some((states.iter().position(|wanted| *wanted == state)?, state, tool))
        })
        .collect();
    rows.sort_by(|(a, _, one), (b, _, other)| {
        (a, &one.organization, &one.server, &one.name).cmp(&(b, &other.organization, &other.server, &other.name))
    });
    let (from, all) = (from(asked), rows.len());
    let body = html! {
        h1 { "Tools" }
        p.filters {
            @for (name, title, _) in FILTERS {
                a href=(link(&format!("{HOME}/tools"), &[("show", name)])) aria-current=[(name == wanted).then_some("page")] { (title) } " "
            }
        }
        @if rows.is_empty() { p { "There is none." } } @else {
            table {
                thead { tr { th { "Organization" } th { "Server" } th { "Tool" } th { "State" } th { "Description" } } }
                tbody {
                    @for (_, state, tool) in rows.iter().skip(from).take(ROWS) {
                        tr {
                            td { (tool.organization) } td { (tool.server) }
                            td { a href=(place(&tool.organization, &tool.server, &tool.name)) { (marked(&tool.name)) } }
                            td { (badge(*state)) @if tool.fault.is_some() { " " span.fault { "fault" } } }
                            td.text { (marked(&described(tool))) }
                        }
                    }
                }
            }
        }
        (pager(&format!("{HOME}/tools"), wanted, (from, all)))
    };
    Ok(Shown::Page(page(asked, "Toolgate: tools", &body)))
}

/// Where a tool is reviewed.
pub(super) fn place(organization: &str, server: &str, tool: &str) -> String {
    link(&format!("{HOME}/tool"), &[("organization", organization), ("server", server), ("tool", tool)])
}

/// A state as every page shows it.
pub(super) fn badge(state: ToolState) -> Markup {
    let word = state.as_str();
    html! { span class={ "badge " (word) } { (word) } }
}

/// The beginning of a tool's description.
fn described(tool: &ToolRecord) -> String {
    let definition = tool.current.as_ref().or(tool.approved.as_ref());
    let json = definition.and_then(|d| serde_json::from_str::<serde_json::Value>(&d.json).ok()).unwrap_or_default();
    let text = json.get("description").and_then(serde_json::Value::as_str).unwrap_or_default();
    let cut: String = text.chars().take(160).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

/// Keys, and what each may use.
pub(super) fn keys(asked: &Page<'_>) -> Result<Shown, Refused> {
    let catalog = asked.rooms.control.catalog();
    let snapshot = asked.rooms.control.live().load();
    let mut grants: HashMap<&str, Vec<&Grant>> = HashMap::new();
    for owned in &catalog.records.grants {
        grants.entry(&owned.value.key).or_default().push(&owned.value);
    }
    let used = |key: &Key| {
        let last = snapshot.as_ref()?.keys.get(&key.sha256)?.key.used.last()?;
        Timestamp::from_second(last).ok().map(moment)
    };
    let mut rows: Vec<&Key> = catalog.records.keys.iter().map(|owned| &owned.value).collect();
    rows.sort_by(|one, other| (&one.organization, &one.id).cmp(&(&other.organization, &other.id)));
    let (from, all) = (from(asked), rows.len());
    let body = html! {
        h1 { "Keys and grants" }
        table {
            thead { tr {
                th { "Organization" } th { "Key" } th { "Project" } th { "Environment" } th { "State" } th { "Last used" } th { "Grants" }
            } }
            tbody {
                @for key in rows.iter().skip(from).take(ROWS) {
                    tr {
                        td { (key.organization) } td { (marked(&key.id)) } td { (key.project) } td { (key.environment) }
                        td {
                            @for (is, word) in standing(key) { @if is { span class={ "badge " (word) } { (word) } " " } }
                            @if catalog.closed.contains(&key.id) {
                                span.fault title="private data, untrusted content, and a way to send data out" { "trifecta" }
                            }
                        }
                        td { (used(key).unwrap_or_else(|| "not since the start".to_owned())) }
                        td { ul { @for grant in grants.get(key.id.as_str()).into_iter().flatten() { li { (granted(grant)) } } } }
                    }
                }
            }
        }
        (pager(&format!("{HOME}/keys"), "", (from, all)))
    };
    Ok(Shown::Page(page(asked, "Toolgate: keys", &body)))
}

fn standing(key: &Key) -> [(bool, &'static str); 4] {
    let expired = key.expires.is_some_and(|moment| moment <= Timestamp::now().as_second());
    let good = !key.revoked && !key.disabled && !expired;
    [(key.revoked, "revoked"), (key.disabled, "disabled"), (expired, "expired"), (good, "good")]
}

fn granted(grant: &Grant) -> Markup {
    html! {
        b { (grant.server) } ": "
        @match &grant.access {
            Access::Read => "read",
            Access::Write => "write",
            Access::Selected(tools) => { @for tool in tools { code { (marked(tool)) } " " } },
        }
    }
}

/// The audit record, newest first.
pub(super) async fn audit(asked: &Page<'_>) -> Result<Shown, Refused> {
    let newest = asked.rooms.control.audit_newest().await?;
    let rows = u64::try_from(ROWS).unwrap_or(u64::MAX);
    let end = asked.query.one("end").parse().unwrap_or(newest).min(newest);
    let after = end.saturating_sub(rows);
    let count = u32::try_from(end - after).unwrap_or(u32::MAX);
    let records = if count == 0 { Vec::new() } else { asked.rooms.control.audit(after, count).await? };
    let body = html! {
        h1 { "Audit" }
        table {
            thead { tr { th { "No." } th { "When" } th { "Who" } th { "What" } th { "Target" } th { "Before and after" } } }
            tbody {
                @for row in records.iter().rev() {
                    @let record = &row.record;
                    tr {
                        td { (row.seq) } td.plain { (moment(record.at)) } td { (marked(&record.who)) } td.plain { (record.what) }
                        td { (record.organization) " " (marked(&record.target)) }
                        td.text {
                            @if let Some(note) = note(record.after.as_deref()) { p.note { (marked(&note)) } }
                            details {
                                summary { "show" }
                                @for (name, json) in [("before", &record.before), ("after", &record.after)] {
                                    @if let Some(json) = json { p { b { (name) ": " } code { (marked(json)) } } }
                                }
                            }
                        }
                    }
                }
            }
        }
        p.pager {
            @if end < newest { a href=(link(&format!("{HOME}/audit"), &[("end", &(end + rows).to_string())])) { "Newer" } " " }
            @if after > 0 { a href=(link(&format!("{HOME}/audit"), &[("end", &after.to_string())])) { "Older" } }
        }
    };
    Ok(Shown::Page(page(asked, "Toolgate: audit", &body)))
}

/// A moment, to the second.
fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn note(after: Option<&str>) -> Option<String> {
    let json: serde_json::Value = serde_json::from_str(after?).ok()?;
    json.get("note")?.as_str().map(str::to_owned)
}

fn from(asked: &Page<'_>) -> usize {
    asked.query.one("from").parse().unwrap_or(0)
}

fn pager(path: &str, show: &str, (from, all): (usize, usize)) -> Markup {
    let to = |from: usize| link(path, &[("show", show), ("from", &from.to_string())]);
    let end = from.saturating_add(ROWS).min(all);
    html! {
        @if all > ROWS {
            p.pager {
                (from.saturating_add(1).min(all)) " to " (end) " of " (all) " "
                @if from > 0 { a href=(to(from.saturating_sub(ROWS))) { "Back" } " " }
                @if end < all { a href=(to(end)) { "Next" } }
            }
        }
    }
}
