//! Records to rows and back: the only file that knows the tables.
//!
//! **Invariant.** A row that no version of ours could have written is an error, never a guess.

use sqlx::Error as Sql;

use super::{
    AuditRecord, AuditRow, StoredObject, Write,
    engine::{Row, Tx, Value},
    error::StoreError,
};
use crate::model::{
    id::encode_hex,
    mcp::Revision,
    pin::Pin,
    records::{ApprovalStatus, Class, Decision, Definition, DiscoveryRecord, Label, ToolRecord},
};

use sha2::{Digest as _, Sha256};

/// Does one write: `(revision, place)` is the commit and the write's place in it.
pub(super) async fn apply(tx: &mut Tx, revision: i64, place: i64, write: &Write) -> Result<(), Sql> {
    match write {
        Write::PutObject(object) => put_object(tx, PUT_OBJECT, object, (revision, place)).await,
        Write::PutOverride(object) => put_object(tx, PUT_OVERRIDE, object, (revision, place)).await,
        Write::DeleteObject { kind, organization, id } => {
            delete(tx, DELETE_OBJECT, &[kind, organization, &index_key(id)]).await
        }
        Write::DeleteOverride { kind, organization, id } => {
            delete(tx, DELETE_OVERRIDE, &[kind, organization, &index_key(id)]).await
        }
        Write::PutTool(tool) => put_tool(tx, tool).await,
        Write::DeleteTools { organization, server } => delete(tx, DELETE_TOOLS, &[organization, server]).await,
        Write::PutDiscovery(discovery) => {
            let revision = discovery.revision.map(Revision::as_str);
            let values = [discovery.organization.as_str().into(), discovery.server.as_str().into(), revision.into()];
            tx.run(PUT_DISCOVERY, &values).await.map(drop)
        }
        Write::DeleteDiscovery { organization, server } => delete(tx, DELETE_DISCOVERY, &[organization, server]).await,
    }
}

/// Says that the store has a new revision, to whoever listens; they hear it when the transaction is committed.
pub(super) async fn announce(tx: &mut Tx, revision: i64) -> Result<(), Sql> {
    if tx.is_shared() {
        tx.run(ANNOUNCE, &[CHANNEL.into(), revision.to_string().as_str().into()]).await?;
    }
    Ok(())
}

/// Adds one audit record.
pub(super) async fn add_audit(tx: &mut Tx, seq: i64, revision: i64, record: &AuditRecord) -> Result<(), Sql> {
    let at = record.at.to_string();
    let values = [
        seq.into(),
        revision.into(),
        at.as_str().into(),
        record.who.as_str().into(),
        record.what.as_str().into(),
        record.organization.as_str().into(),
        record.target.as_str().into(),
        record.before.as_deref().into(),
        record.after.as_deref().into(),
    ];
    tx.run(ADD_AUDIT, &values).await.map(drop)
}

/// Every object of `objects`, in the order in which they were first written.
pub(super) async fn objects(tx: &mut Tx) -> Result<Vec<StoredObject>, StoreError> {
    tx.rows(LOAD_OBJECTS, &[]).await.map_err(StoreError::reading)?.iter().map(object).collect()
}

/// Every object of `overrides`, in the order in which they were first written.
pub(super) async fn overrides(tx: &mut Tx) -> Result<Vec<StoredObject>, StoreError> {
    tx.rows(LOAD_OVERRIDES, &[]).await.map_err(StoreError::reading)?.iter().map(object).collect()
}

/// Every tool, by organization, server and name.
pub(super) async fn tools(tx: &mut Tx) -> Result<Vec<ToolRecord>, StoreError> {
    let rows = tx.rows(LOAD_TOOLS, &[]).await.map_err(StoreError::reading)?;
    let mut tools = rows.iter().map(tool).collect::<Result<Vec<_>, _>>()?;
    // Not in SQL: PostgreSQL's order depends on its locale.
    tools.sort_by(|a, b| (&a.organization, &a.server, &a.name).cmp(&(&b.organization, &b.server, &b.name)));
    Ok(tools)
}

/// Every discovery, by organization and server.
pub(super) async fn discoveries(tx: &mut Tx) -> Result<Vec<DiscoveryRecord>, StoreError> {
    let rows = tx.rows(LOAD_DISCOVERIES, &[]).await.map_err(StoreError::reading)?;
    let mut discoveries = rows.iter().map(discovery).collect::<Result<Vec<_>, _>>()?;
    discoveries.sort_by(|a, b| (&a.organization, &a.server).cmp(&(&b.organization, &b.server)));
    Ok(discoveries)
}

/// Up to `limit` audit records after `after_seq`, oldest first.
pub(super) async fn audit(tx: &mut Tx, after_seq: i64, limit: u32) -> Result<Vec<AuditRow>, StoreError> {
    let values = [after_seq.into(), i64::from(limit).into()];
    tx.rows(LOAD_AUDIT, &values).await.map_err(StoreError::reading)?.iter().map(audit_row).collect()
}

async fn put_object(
    tx: &mut Tx,
    sql: &'static str,
    object: &StoredObject,
    (revision, place): (i64, i64),
) -> Result<(), Sql> {
    let key = index_key(&object.id);
    let values = [
        object.kind.as_str().into(),
        object.organization.as_str().into(),
        key.as_str().into(),
        object.id.as_str().into(),
        object.json.as_str().into(),
        revision.into(),
        place.into(),
    ];
    tx.run(sql, &values).await.map(drop)
}

async fn put_tool(tx: &mut Tx, tool: &ToolRecord) -> Result<(), Sql> {
    let name_key = index_key(&tool.name);
    let [current, approved] = [&tool.current, &tool.approved].map(Option::as_ref);
    let [current_sha256, approved_sha256] = [current, approved].map(|d| d.map(|d| d.sha256.to_string()));
    let pin = tool.pin.map(|pin| pin.to_string());
    let decision = tool.decision.as_ref();
    let labels = decision.map(|decision| labels_text(&decision.labels));
    let values = [
        tool.organization.as_str().into(),
        tool.server.as_str().into(),
        name_key.as_str().into(),
        tool.name.as_str().into(),
        tool.recorded.into(),
        current_sha256.as_deref().into(),
        current.map(|d| &*d.json).into(),
        tool.fault.as_deref().into(),
        pin.as_deref().into(),
        tool.pin_seen.into(),
        tool.changed.into(),
        approved_sha256.as_deref().into(),
        approved.map(|d| &*d.json).into(),
        decision.map(|decision| status_text(decision.status)).into(),
        decision.map(|decision| class_text(decision.class)).into(),
        labels.as_deref().into(),
    ];
    tx.run(PUT_TOOL, &values).await.map(drop)
}

async fn delete(tx: &mut Tx, sql: &'static str, key: &[&String]) -> Result<(), Sql> {
    let values: Vec<Value<'_>> = key.iter().map(|part| part.as_str().into()).collect();
    tx.run(sql, &values).await.map(drop)
}

fn object(row: &Row) -> Result<StoredObject, StoreError> {
    let text = |column| row.text(column).map_err(StoreError::reading);
    Ok(StoredObject { kind: text(0)?, organization: text(1)?, id: text(2)?, json: text(3)? })
}

fn tool(row: &Row) -> Result<ToolRecord, StoreError> {
    let text = |column| row.text(column).map_err(StoreError::reading);
    let maybe = |column| row.maybe(column).map_err(StoreError::reading);
    let int = |column| row.int(column).map_err(StoreError::reading);
    Ok(ToolRecord {
        organization: text(0)?,
        server: text(1)?,
        name: text(2)?,
        recorded: int(3)?,
        current: definition(maybe(4)?, maybe(5)?, "current_sha256")?,
        fault: maybe(6)?,
        pin: maybe(7)?.map(|hex| pin(&hex, "pin")).transpose()?,
        pin_seen: flag(int(8)?, "pin_seen")?,
        changed: flag(int(9)?, "changed")?,
        approved: definition(maybe(10)?, maybe(11)?, "approved_sha256")?,
        decision: decision(maybe(12)?, maybe(13)?, maybe(14)?)?,
    })
}

fn discovery(row: &Row) -> Result<DiscoveryRecord, StoreError> {
    let revision = row.maybe(2).map_err(StoreError::reading)?;
    let damaged = || StoreError::damaged("discoveries", "protocol");
    Ok(DiscoveryRecord {
        organization: row.text(0).map_err(StoreError::reading)?,
        server: row.text(1).map_err(StoreError::reading)?,
        revision: revision.map(|text| Revision::parse(&text).ok_or_else(damaged)).transpose()?,
    })
}

fn audit_row(row: &Row) -> Result<AuditRow, StoreError> {
    let text = |column| row.text(column).map_err(StoreError::reading);
    let maybe = |column| row.maybe(column).map_err(StoreError::reading);
    let number = |column, name| {
        let number = row.int(column).map_err(StoreError::reading)?;
        u64::try_from(number).map_err(|_| StoreError::damaged("audit", name))
    };
    Ok(AuditRow {
        seq: number(0, "seq")?,
        revision: number(1, "revision")?,
        record: AuditRecord {
            at: text(2)?.parse().map_err(|_| StoreError::damaged("audit", "at"))?,
            who: text(3)?,
            what: text(4)?,
            organization: text(5)?,
            target: text(6)?,
            before: maybe(7)?,
            after: maybe(8)?,
        },
    })
}

fn definition(
    sha256: Option<String>,
    json: Option<String>,
    column: &'static str,
) -> Result<Option<Definition>, StoreError> {
    match (sha256, json) {
        (None, None) => Ok(None),
        (Some(sha256), Some(json)) => Ok(Some(Definition { sha256: pin(&sha256, column)?, json: json.into() })),
        _ => Err(StoreError::damaged("tools", column)),
    }
}

fn pin(hex: &str, column: &'static str) -> Result<Pin, StoreError> {
    Pin::from_hex(hex).ok_or_else(|| StoreError::damaged("tools", column))
}

fn flag(number: i64, column: &'static str) -> Result<bool, StoreError> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(StoreError::damaged("tools", column)),
    }
}

fn decision(
    status: Option<String>,
    class: Option<String>,
    labels: Option<String>,
) -> Result<Option<Decision>, StoreError> {
    let damaged = |column| StoreError::damaged("tools", column);
    let (status, class, labels) = match (status, class, labels) {
        (None, None, None) => return Ok(None),
        (Some(status), Some(class), Some(labels)) => (status, class, labels),
        _ => return Err(damaged("status")),
    };
    Ok(Some(Decision {
        status: match status.as_str() {
            "approved" => ApprovalStatus::Approved,
            "blocked" => ApprovalStatus::Blocked,
            _ => return Err(damaged("status")),
        },
        class: match class.as_str() {
            "read" => Class::Read,
            "write" => Class::Write,
            _ => return Err(damaged("class")),
        },
        labels: serde_json::from_str(&labels).map_err(|_| damaged("labels"))?,
    }))
}

const fn status_text(status: ApprovalStatus) -> &'static str {
    match status {
        ApprovalStatus::Approved => "approved",
        ApprovalStatus::Blocked => "blocked",
    }
}

const fn class_text(class: Class) -> &'static str {
    match class {
        Class::Read => "read",
        Class::Write => "write",
    }
}

/// A JSON array of the labels' written names.
fn labels_text(labels: &[Label]) -> String {
    let names: Vec<&str> = labels
        .iter()
        .map(|label| match label {
            Label::PrivateData => "\"private_data\"",
            Label::UntrustedContent => "\"untrusted_content\"",
            Label::SendsOut => "\"sends_out\"",
        })
        .collect();
    format!("[{}]", names.join(","))
}

/// What stands for `id` in an index: itself, or where that is too long its beginning and its SHA-256.
///
/// PostgreSQL indexes at most 2,704 bytes, and a server names its tools as it likes. A shortened key is always longer
/// than [`INDEXED_BYTES_MAX`], so that it never equals an id.
fn index_key(id: &str) -> String {
    if id.len() <= INDEXED_BYTES_MAX {
        return id.to_owned();
    }
    let cut = id.floor_char_boundary(INDEXED_BYTES_MAX);
    format!("{}…{}", id.split_at(cut).0, encode_hex(&Sha256::digest(id.as_bytes())))
}

/// The longest id that is its own index key, in bytes.
const INDEXED_BYTES_MAX: usize = 512;

/// What a new revision is announced on.
pub(super) const CHANNEL: &str = "toolgate";
const ANNOUNCE: &str = "SELECT pg_notify($1, $2)";

const PUT_OBJECT: &str = "INSERT INTO objects (kind, organization, id_key, id, json, revision, place) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (kind, organization, id_key) DO UPDATE SET json = excluded.json";
const PUT_OVERRIDE: &str = "INSERT INTO overrides (kind, organization, id_key, id, json, revision, place) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (kind, organization, id_key) DO UPDATE SET json = excluded.json";
const DELETE_OBJECT: &str = "DELETE FROM objects WHERE kind = $1 AND organization = $2 AND id_key = $3";
const DELETE_OVERRIDE: &str = "DELETE FROM overrides WHERE kind = $1 AND organization = $2 AND id_key = $3";
const PUT_TOOL: &str = "INSERT INTO tools (organization, server, name_key, name, recorded, current_sha256, \
     current_json, fault, pin, pin_seen, changed, approved_sha256, approved_json, status, class, labels) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
     ON CONFLICT (organization, server, name_key) DO UPDATE SET recorded = excluded.recorded, \
     current_sha256 = excluded.current_sha256, current_json = excluded.current_json, fault = excluded.fault, \
     pin = excluded.pin, pin_seen = excluded.pin_seen, changed = excluded.changed, \
     approved_sha256 = excluded.approved_sha256, approved_json = excluded.approved_json, \
     status = excluded.status, class = excluded.class, labels = excluded.labels";
const DELETE_TOOLS: &str = "DELETE FROM tools WHERE organization = $1 AND server = $2";
const PUT_DISCOVERY: &str = "INSERT INTO discoveries (organization, server, protocol) VALUES ($1, $2, $3) \
     ON CONFLICT (organization, server) DO UPDATE SET protocol = excluded.protocol";
const DELETE_DISCOVERY: &str = "DELETE FROM discoveries WHERE organization = $1 AND server = $2";
const ADD_AUDIT: &str = "INSERT INTO audit (seq, revision, at, who, what, organization, target, before, after) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const LOAD_OBJECTS: &str = "SELECT kind, organization, id, json FROM objects ORDER BY revision, place";
const LOAD_OVERRIDES: &str = "SELECT kind, organization, id, json FROM overrides ORDER BY revision, place";
const LOAD_TOOLS: &str = "SELECT organization, server, name, recorded, current_sha256, current_json, fault, pin, \
     pin_seen, changed, approved_sha256, approved_json, status, class, labels FROM tools";
const LOAD_DISCOVERIES: &str = "SELECT organization, server, protocol FROM discoveries";
const LOAD_AUDIT: &str = "SELECT seq, revision, at, who, what, organization, target, before, after FROM audit \
     WHERE seq > $1 ORDER BY seq LIMIT $2";
