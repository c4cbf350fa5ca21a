//! Policy objects as they are written, in files and in the management API alike (contract §5): one reader for both, over the
//! tables of `objects` and `guardrail`.
//!
//! Judges each object by itself. What objects must be together is judged by `resolve`.

use serde_json::Value as Json;

use super::{
    fault::Fault,
    options::Conf,
    read::{Form, Places, Reader, Written, read_form, unknown, write_form},
    value::{Node, Table, Value},
};
use crate::model::{
    records::{Approval, Grant, Guardrail, Key, Organization, Origin, Owned, Project, Records, Server},
    units::shown,
};

/// The names of the objects, as `[[name]]` in a file.
pub(super) const KINDS: [&str; 7] = ["organization", "project", "server", "key", "grant", "approval", "guardrail"];

/// An object, where it was written, and where each of its members stands.
#[derive(Clone, Debug)]
pub(super) struct Item<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
    pub(super) places: Places,
}

/// Policy objects as they were written: an `organization` that was left out is empty until [`super::resolve`] settles it.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub(super) organizations: Vec<Item<Organization>>,
    pub(super) projects: Vec<Item<Project>>,
    pub(super) servers: Vec<Item<Server>>,
    pub(super) keys: Vec<Item<Key>>,
    pub(super) grants: Vec<Item<Grant>>,
    pub(super) approvals: Vec<Item<Approval>>,
    pub(super) guardrails: Vec<Item<Guardrail>>,
}

impl Policy {
    /// Adds objects of the management API behind what files hold. Tools and discoveries are not written and not looked at.
    pub fn add(&mut self, records: Records) {
        fn items<T>(owned: Vec<Owned<T>>) -> impl Iterator<Item = Item<T>> {
            owned.into_iter().map(|owned| Item { value: owned.value, origin: owned.origin, places: Places::default() })
        }
        self.organizations.extend(items(records.organizations));
        self.projects.extend(items(records.projects));
        self.servers.extend(items(records.servers));
        self.keys.extend(items(records.keys));
        self.grants.extend(items(records.grants));
        self.approvals.extend(items(records.approvals));
        self.guardrails.extend(items(records.guardrails));
    }
}

/// An object as it stands in the policy, read through the flat form that its members are written in.
pub(super) trait Object: Sized {
    /// What a person calls it in a file: `[[server]]`.
    const KIND: &'static str;
    type Form: Form;
    /// Judges the members together.
    fn of_form(form: Self::Form, reader: &mut Reader<'_>, places: &Places) -> Self;
    fn to_form(&self) -> Self::Form;
    /// What a person calls this one: server `github`.
    fn title(&self) -> String;
    /// Its organization; empty for what has none of its own, or not yet.
    fn home(&self) -> &str;
    /// Whether it has no name to tell it by, because that is missing or faulty.
    fn is_nameless(&self) -> bool;
}

/// What a person calls an object: by its name, or by its kind if it has none.
pub(super) fn titled(kind: &str, name: &str) -> String {
    if name.is_empty() { format!("[[{kind}]]") } else { format!("{kind} `{}`", shown(name)) }
}

/// Reads the objects of a policy file into `policy`; a faulty one too, so that what refers to it is not reported as well.
pub(super) fn read_policy(reader: &mut Reader<'_>, table: &Table, policy: &mut Policy) {
    for entry in &table.0 {
        match entry.name.as_str() {
            "organization" => read_list(reader, &entry.value, &mut policy.organizations),
            "project" => read_list(reader, &entry.value, &mut policy.projects),
            "server" => read_list(reader, &entry.value, &mut policy.servers),
            "key" => read_list(reader, &entry.value, &mut policy.keys),
            "grant" => read_list(reader, &entry.value, &mut policy.grants),
            "approval" => read_list(reader, &entry.value, &mut policy.approvals),
            "guardrail" => read_list(reader, &entry.value, &mut policy.guardrails),
            name if Conf::SECTIONS.contains(&name) => {
                reader.fault(&entry.at, format!("`[{name}]` belongs in the conf file, not in a policy file"));
            }
            name => {
                unknown(reader, entry, format!("unknown kind of object `{}`", shown(name)), KINDS.into_iter());
            }
        }
    }
}

fn read_list<T: Object>(reader: &mut Reader<'_>, value: &Value, into: &mut Vec<Item<T>>) {
    let kind = format!("[[{}]]", T::KIND);
    let tables: &[Value] = match &value.node {
        Node::List(list) => list,
        Node::Table(_) => {
            reader.fault(&value.span, format!("each {} is written `{kind}`, with two brackets", T::KIND));
            std::slice::from_ref(value)
        }
        _ => {
            reader.fault(&value.span, format!("`{}` must be written as `{kind}`, not as {}", T::KIND, value.kind()));
            return;
        }
    };
    for value in tables {
        let Node::Table(table) = &value.node else {
            reader.fault(&value.span, format!("{kind} must be a table, not {}", value.kind()));
            continue;
        };
        let (form, places) = read_form(reader, &Written { table, span: value.span.clone(), kind: &kind });
        let object = T::of_form(form, reader, &places);
        let origin = match &reader.file {
            Some(path) => Origin::File { path: std::sync::Arc::clone(path), span: value.span.clone() },
            None => Origin::Api,
        };
        into.push(Item { value: object, origin, places });
    }
}

/// Reads one object as the management API writes it. Credentials must be `{ credential = NAME }` and paths absolute.
fn from_json<T: Object>(json: &Json) -> Result<T, Vec<Fault>> {
    let mut reader = Reader::of_api();
    let value = Value::from_json(json);
    let Node::Table(table) = &value.node else {
        return Err(vec![Fault::error(None, format!("a {} must be an object, not {}", T::KIND, value.kind()))]);
    };
    let kind = format!("the {}", T::KIND);
    let (form, places) = read_form(&mut reader, &Written { table, span: 0..0, kind: &kind });
    let object = T::of_form(form, &mut reader, &places);
    if reader.faults.iter().any(Fault::is_error) { Err(reader.faults) } else { Ok(object) }
}

fn to_json<T: Object>(object: &T) -> Json {
    write_form(&object.to_form())
}

/// The two directions of each object, by name.
macro_rules! json_doors {
    ($($name:ident $from:ident $to:ident;)+) => {$(
        /// Reads the object from the management API's JSON; `null` is as good as left out.
        ///
        /// # Errors
        /// Every fault; none has a place, each names its member.
        pub fn $from(json: &Json) -> Result<$name, Vec<Fault>> {
            from_json(json)
        }

        /// The object in the shape of files, as the management API shows it: defaults filled in, what is none left out.
        #[must_use]
        pub fn $to(object: &$name) -> Json {
            to_json(object)
        }
    )+};
}

json_doors! {
    Organization organization_from_json organization_to_json;
    Project project_from_json project_to_json;
    Server server_from_json server_to_json;
    Key key_from_json key_to_json;
    Grant grant_from_json grant_to_json;
    Approval approval_from_json approval_to_json;
    Guardrail guardrail_from_json guardrail_to_json;
}
