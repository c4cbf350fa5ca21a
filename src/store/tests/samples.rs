//! Records that use every field.

use std::sync::Arc;

use super::super::{AuditRecord, StoredObject, Write};
use crate::model::{
    mcp::Revision,
    pin::Pin,
    records::{ApprovalStatus, Class, Decision, Definition, DiscoveryRecord, Label, ToolRecord},
};

pub(super) fn object(kind: &str, id: &str, json: &str) -> StoredObject {
    StoredObject { kind: kind.into(), organization: "acme".into(), id: id.into(), json: json.into() }
}

/// A tool of `server` that was approved, and whose server now lists another definition.
pub(super) fn tool(server: &str, name: &str) -> ToolRecord {
    ToolRecord {
        organization: "acme".into(),
        server: server.into(),
        name: name.into(),
        recorded: 7,
        current: Some(Definition { sha256: Pin([0xcd; 32]), json: Arc::from(r#"{"name":"\u0000 é"}"#) }),
        fault: Some("it is \"odd\"\nand says 'why'".into()),
        pin: Some(Pin([0xab; 32])),
        pin_seen: true,
        changed: true,
        approved: Some(Definition { sha256: Pin([0xab; 32]), json: Arc::from(r#"{"name":"x"}"#) }),
        decision: Some(Decision {
            status: ApprovalStatus::Approved,
            class: Class::Read,
            labels: vec![Label::SendsOut, Label::PrivateData, Label::UntrustedContent],
        }),
    }
}

/// A tool of which nothing but its name is known.
pub(super) fn bare_tool(server: &str, name: &str) -> ToolRecord {
    ToolRecord {
        recorded: 0,
        current: None,
        fault: None,
        pin: None,
        pin_seen: false,
        changed: false,
        approved: None,
        decision: None,
        ..tool(server, name)
    }
}

/// A tool that was blocked by hand.
pub(super) fn blocked_tool(server: &str, name: &str) -> ToolRecord {
    let decision = Decision { status: ApprovalStatus::Blocked, class: Class::Write, labels: vec![] };
    ToolRecord { decision: Some(decision), ..bare_tool(server, name) }
}

pub(super) fn discovery(server: &str, revision: Option<Revision>) -> DiscoveryRecord {
    DiscoveryRecord { organization: "acme".into(), server: server.into(), revision }
}

pub(super) fn audit(target: &str) -> AuditRecord {
    AuditRecord {
        at: "2026-07-28T09:10:11.123456789Z".parse().unwrap(),
        who: "ann".into(),
        what: "tool.approve".into(),
        organization: "acme".into(),
        target: target.into(),
        before: None,
        after: Some(r#"{"class":"read"}"#.into()),
    }
}

pub(super) fn put_tool(tool: &ToolRecord) -> Write {
    Write::PutTool(tool.clone())
}
