//! The declarative reader: an object is a table of members, each with a codec; every fault is kept and reading goes on.
//!
//! Knows no option and no policy object by name: those are the tables in `options` and `policy`.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value as Json, json};

use super::{
    fault::{Fault, FaultCode, FileSpan, nearest},
    value::{Entry, Node, Table, Value},
};
use crate::model::units::shown;

/// How a value is read and written. Reading reports its faults and gives none, or something that can stand in for it.
pub(super) trait Codec {
    /// What is read.
    type Out;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Self::Out>;
    /// As it would stand in JSON; `null` for what is left out.
    fn write(out: &Self::Out) -> Json;
    /// What may be written, as JSON Schema for editors: never stricter than [`Codec::read`], which alone decides.
    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

/// One member of an object of type `T`.
pub(super) struct Member<T> {
    pub(super) name: &'static str,
    /// What it is for, a line an item; empty where the contract says it.
    pub(super) doc: &'static [&'static str],
    pub(super) required: bool,
    /// Whether only a restart changes it.
    pub(super) restart: bool,
    pub(super) read: fn(&mut T, &mut Reader<'_>, &Value),
    pub(super) write: fn(&T) -> Json,
    pub(super) schema: fn() -> Json,
}

/// An object with named members.
pub(super) trait Form: Sized + 'static {
    const MEMBERS: &'static [Member<Self>];
    /// Members whose faults have a code of their own.
    const CODES: &'static [(&'static str, FaultCode)] = &[];
    /// The object with every default filled in, and something in place of what is required.
    fn blank() -> Self;
}

/// Writes a table of members: `name: Codec` or `name: Codec, required`.
macro_rules! members {
    ($($name:ident: $codec:ty $(, $required:ident)?;)+) => {
        &[$(crate::conf::read::Member {
            name: stringify!($name),
            doc: &[],
            required: members!(@ $($required)?),
            restart: false,
            read: |form, reader, value| {
                if let Some(read) = <$codec as crate::conf::read::Codec>::read(reader, value) {
                    form.$name = read;
                }
            },
            write: |form| <$codec as crate::conf::read::Codec>::write(&form.$name),
            schema: <$codec as crate::conf::read::Codec>::schema,
        }),+]
    };
    (@ required) => { true };
    (@) => { false };
}
pub(super) use members;

/// Where an object's members stand, so that later judges can point at them. Empty for what came as JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Vec<Place>);

#[derive(Clone, Debug)]
struct Place {
    name: &'static str,
    span: Range<usize>,
    /// The entries of a list.
    items: Option<Vec<Range<usize>>>,
}

impl Places {
    /// The range of a member's value.
    pub(super) fn of(&self, name: &str) -> Option<Range<usize>> {
        self.0.iter().find(|place| place.name == name).map(|place| place.span.clone())
    }

    /// The range of an entry of a member that is a list.
    pub(super) fn item(&self, name: &str, index: usize) -> Option<Range<usize>> {
        self.0.iter().find(|place| place.name == name)?.items.as_ref()?.get(index).cloned()
    }

    /// How many entries were written in a member that is a list; none if it is no list or was left out.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        self.0.iter().find(|place| place.name == name)?.items.as_ref().map(Vec::len)
    }

    /// Whether the member was written.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|place| place.name == name)
    }
}

/// One reading of one text: where it came from, what was wrong so far.
pub(super) struct Reader<'a> {
    /// Every fault so far.
    pub(super) faults: Vec<Fault>,
    /// Ranges that hold a secret where only a reference belongs.
    pub(super) masks: Vec<Range<usize>>,
    /// The file; none for the management API, where credentials must be `{ credential = NAME }`.
    pub(super) file: Option<Arc<str>>,
    /// The absolute folder that relative paths start from; none for the management API.
    pub(super) folder: Option<&'a Path>,
    /// Whether syntax errors cut the text: what is missing was perhaps only not read.
    pub(super) cut: bool,
    /// Names of the members around the one that is being read.
    path: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn of_file(file: Arc<str>, folder: &'a Path) -> Self {
        Self { file: Some(file), folder: Some(folder), ..Self::of_api() }
    }

    pub(super) fn of_api() -> Self {
        Self { faults: Vec::new(), masks: Vec::new(), file: None, folder: None, cut: false, path: Vec::new() }
    }

    /// Whether the text came through the management API.
    pub(super) fn is_api(&self) -> bool {
        self.file.is_none()
    }

    /// The member that is being read, as a person would name it: `limits.arguments`.
    pub(super) fn label(&self) -> String {
        self.path.join(".")
    }

    /// Reports an error at a place.
    pub(super) fn fault(&mut self, span: &Range<usize>, message: impl Into<String>) {
        let origin = self.origin(span);
        self.faults.push(Fault::error(origin, message));
    }

    /// Reports that the member being read is wrong: "`label` must be …".
    pub(super) fn wrong(&mut self, span: &Range<usize>, why: impl AsRef<str>) {
        self.fault(span, format!("`{}` {}", self.label(), why.as_ref()));
    }

    /// As [`Self::wrong`], with a hint.
    pub(super) fn wrong_hint(&mut self, span: &Range<usize>, why: impl AsRef<str>, hint: impl Into<String>) {
        let message = format!("`{}` {}", self.label(), why.as_ref());
        let origin = self.origin(span);
        self.faults.push(Fault::error(origin, message).hint(hint));
    }

    pub(super) fn origin(&self, span: &Range<usize>) -> Option<FileSpan> {
        self.file.as_ref().map(|path| FileSpan { path: Arc::clone(path), span: span.clone() })
    }

    /// Joins a relative path to the folder of the conf file; the API has no folder, so there it is a fault.
    pub(super) fn absolute(&mut self, text: &str, span: &Range<usize>) -> Option<PathBuf> {
        let path = Path::new(text);
        match self.folder {
            Some(folder) => Some(folder.join(path).components().collect()),
            None if path.is_absolute() => Some(path.to_owned()),
            None => {
                self.wrong(span, "must be an absolute path");
                None
            }
        }
    }

    /// Reads `value` as the member `name` of what is being read.
    pub(super) fn within<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(name.to_owned());
        let out = read(self);
        self.path.pop();
        out
    }

    /// Reads an entry of the list that is being read.
    pub(super) fn at_index<T>(&mut self, index: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        let list = self.path.pop().unwrap_or_default();
        self.path.push(format!("{list}[{index}]"));
        let out = read(self);
        self.path.pop();
        self.path.push(list);
        out
    }

    /// Hides a range that holds a secret, should a fault quote its line.
    pub(super) fn hide(&mut self, span: &Range<usize>) {
        self.masks.push(span.clone());
    }

    /// The table that `value` must be.
    pub(super) fn table<'v>(&mut self, value: &'v Value) -> Option<&'v Table> {
        match &value.node {
            Node::Table(table) => Some(table),
            _ => {
                self.wrong(&value.span, format!("must be a table, not {}", value.kind()));
                None
            }
        }
    }
}

/// An object as it is read: its table, the place that stands for the whole, and what a person calls it.
pub(super) struct Written<'v> {
    pub(super) table: &'v Table,
    pub(super) span: Range<usize>,
    pub(super) kind: &'v str,
}

/// Reads an object by its table of members: wrong, unknown and missing members are all reported.
pub(super) fn read_form<F: Form>(reader: &mut Reader<'_>, written: &Written<'_>) -> (F, Places) {
    let mut form = F::blank();
    let mut places = Places::default();
    for entry in &written.table.0 {
        let Some(member) = F::MEMBERS.iter().find(|member| member.name == entry.name) else {
            let message = format!("unknown member `{}` in {}", shown(&entry.name), written.kind);
            unknown(reader, entry, message, F::MEMBERS.iter().map(|member| member.name));
            continue;
        };
        if matches!(entry.value.node, Node::Null) {
            continue;
        }
        let items = match &entry.value.node {
            Node::List(list) => Some(list.iter().map(|item| item.span.clone()).collect()),
            _ => None,
        };
        places.0.push(Place { name: member.name, span: entry.value.span.clone(), items });
        if !matches!(entry.value.node, Node::Faulty) {
            let before = reader.faults.len();
            reader.within(member.name, |reader| (member.read)(&mut form, reader, &entry.value));
            if let Some((_, code)) = F::CODES.iter().find(|(name, _)| *name == member.name) {
                reader.faults.iter_mut().skip(before).for_each(|fault| fault.code = *code);
            }
        }
    }
    for member in F::MEMBERS {
        if member.required && !reader.cut && !places.has(member.name) {
            let origin = reader.origin(&written.span);
            let lacks = format!("{} lacks `{}`", written.kind, member.name);
            reader.faults.push(Fault::error(origin, lacks).of(FaultCode::MissingMember));
        }
    }
    (form, places)
}

/// Reads what was left out as if its default had been written, so that relative paths in defaults are resolved as well.
pub(super) fn read_defaults<F: Form>(reader: &mut Reader<'_>, form: &mut F, places: &Places) {
    let blank = F::blank();
    for member in F::MEMBERS.iter().filter(|member| !places.has(member.name)) {
        let default = Value::from_json(&(member.write)(&blank));
        if !matches!(default.node, Node::Null) {
            reader.within(member.name, |reader| (member.read)(form, reader, &default));
        }
    }
}

/// Reports a member that no table knows, with the known one that it may have meant.
pub(super) fn unknown(
    reader: &mut Reader<'_>,
    entry: &Entry,
    message: String,
    known: impl Iterator<Item = &'static str> + Clone,
) {
    let hint = match nearest(&entry.name, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there is {}", listed(known, "and")),
    };
    let origin = reader.origin(&entry.at);
    reader.faults.push(Fault::error(origin, message).of(FaultCode::UnknownMember).hint(hint));
}

/// `a`, `b` and `c`.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>, and: &str) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {and} {last}", others.join(", ")),
        None => "nothing".to_owned(),
    }
}

/// What an object may be, as JSON Schema.
pub(super) fn schema_of<F: Form>() -> Json {
    let member = |member: &Member<F>| {
        let mut schema = (member.schema)();
        let doc = member.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        if let (false, Some(object)) = (doc.is_empty(), schema.as_object_mut()) {
            object.insert("description".to_owned(), Json::from(doc));
        }
        (member.name.to_owned(), schema)
    };
    let required: Vec<&str> = F::MEMBERS.iter().filter(|member| member.required).map(|member| member.name).collect();
    let members: serde_json::Map<String, Json> = F::MEMBERS.iter().map(member).collect();
    json!({ "type": "object", "properties": members, "required": required, "additionalProperties": false })
}

/// A schema of text that a variable may stand for, of which an editor knows nothing.
pub(super) fn or_variable(schema: &Json) -> Json {
    json!({ "anyOf": [schema, { "type": "string", "pattern": r"\$\{" }] })
}

/// Writes an object by its table of members; what is left out is left out.
pub(super) fn write_form<F: Form>(form: &F) -> Json {
    let members = F::MEMBERS.iter().map(|member| (member.name.to_owned(), (member.write)(form)));
    Json::Object(members.filter(|(_, value)| !value.is_null()).collect())
}
