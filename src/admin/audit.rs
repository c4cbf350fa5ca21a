//! `/v1/audit`: who changed what, oldest first.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value as Json, json};

use super::{
    Rooms,
    call::Call,
    pages,
    reply::{Outcome, Refused, Reply},
    shapes,
};
use crate::{conf::Role, store::AuditRow};

/// Records of one page unless the call says.
const LIMIT: usize = 100;

/// Lists audit records.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", params(shapes::Paging), responses((status = 200, body = shapes::Audit))
)]
pub(super) async fn list(State(rooms): State<Arc<Rooms>>, call: Call) -> Outcome {
    call.allow(Role::Viewer, &pages::PARAMS)?;
    let number = |name: &str, default: usize| match call.param(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| Refused::invalid(format!("`{name}` must be a whole number"))),
    };
    let (limit, after) = (number("limit", LIMIT)?, number("after", 0)?);
    if !(1..=pages::LIMIT_MAX).contains(&limit) {
        return Err(Refused::invalid(format!("`limit` must be from 1 to {}", pages::LIMIT_MAX)));
    }
    let after = u64::try_from(after).unwrap_or(u64::MAX);
    let asked = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let mut rows = rooms.control.audit(after, asked).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| format!("/v1/audit?limit={limit}&after={}", row.seq));
    let mut body = json!({ "audit": rows.iter().map(show).collect::<Vec<_>>() });
    if let (Some(next), Some(members)) = (next, body.as_object_mut()) {
        members.insert("next".to_owned(), Json::from(next));
    }
    Ok(Reply::ok(body))
}

fn show(row: &AuditRow) -> Json {
    let record = &row.record;
    let read = |text: &Option<String>| text.as_ref().and_then(|text| serde_json::from_str::<Json>(text).ok());
    json!({
        "seq": row.seq,
        "revision": row.revision,
        "at": record.at.to_string(),
        "who": record.who,
        "what": record.what,
        "organization": record.organization,
        "target": record.target,
        "before": read(&record.before),
        "after": read(&record.after),
    })
}
