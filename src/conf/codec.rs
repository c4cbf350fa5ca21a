//! Codecs of plain values and of what is made of others: how each is read, what is wrong with a bad one, how it is written.

use std::marker::PhantomData;

use serde_json::{Value as Json, json};

use super::{
    fault::nearest,
    read::{Codec, Form, Reader, Written, listed, or_variable, read_form, schema_of, write_form},
    value::{Node, Value},
};
use crate::model::{id::is_slug, units::shown};

/// The longest id of a policy object, in characters.
pub(super) const ID_CHARS_MAX: usize = 128;

/// The string that `value` must be.
pub(super) fn text<'v>(reader: &mut Reader<'_>, value: &'v Value) -> Option<&'v str> {
    match &value.node {
        Node::Text(text) => Some(text),
        _ => {
            reader.wrong(&value.span, format!("must be a string, not {}", value.kind()));
            None
        }
    }
}

/// `true` or `false`.
pub(super) struct Bool;
impl Codec for Bool {
    type Out = bool;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<bool> {
        match value.node {
            Node::Bool(b) => Some(b),
            _ => {
                reader.wrong(&value.span, format!("must be `true` or `false`, not {}", value.kind()));
                None
            }
        }
    }
    fn write(out: &bool) -> Json {
        Json::Bool(*out)
    }
    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

/// A whole number from `MIN` to `MAX`.
pub(super) struct Count<const MIN: u32, const MAX: u32>;
impl<const MIN: u32, const MAX: u32> Codec for Count<MIN, MAX> {
    type Out = u32;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<u32> {
        let count = match value.node {
            Node::Integer(n) => u32::try_from(n).ok(),
            Node::Number => None,
            _ => {
                reader.wrong(&value.span, format!("must be a whole number, not {}", value.kind()));
                return None;
            }
        };
        let count = count.filter(|count| (MIN..=MAX).contains(count));
        if count.is_none() {
            reader.wrong(&value.span, format!("must be a whole number from {MIN} to {MAX}"));
        }
        count
    }
    fn write(out: &u32) -> Json {
        Json::from(*out)
    }
    fn schema() -> Json {
        json!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A string with something to see in it, on one line.
pub(super) struct Text;
impl Codec for Text {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        let text = text(reader, value)?;
        if text.trim().is_empty() {
            reader.wrong(&value.span, "must not be empty");
            return None;
        }
        if text.chars().any(char::is_control) {
            reader.wrong(&value.span, "must not hold control characters");
            return None;
        }
        Some(text.to_owned())
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// An id or a name of a policy object, an environment: 1 to 128 characters, none of them control, no space at either end.
pub(super) struct Id;
impl Codec for Id {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        let id = Text::read(reader, value)?;
        if id.trim() != id || id.chars().nth(ID_CHARS_MAX).is_some() {
            let why = format!("must be 1 to {ID_CHARS_MAX} characters without spaces at its ends");
            reader.wrong(&value.span, why);
        }
        // A stand-in even when faulty: what refers to it is then not reported as well.
        Some(id)
    }
    fn write(out: &String) -> Json {
        if out.is_empty() { Json::Null } else { Json::from(out.as_str()) }
    }
}

/// A server's slug.
pub(super) struct Slug;
impl Codec for Slug {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        let slug = text(reader, value)?;
        if !is_slug(slug) {
            reader.wrong(&value.span, format!("must match [a-z0-9][a-z0-9_-]{{0,39}}, `{}` does not", shown(slug)));
        }
        Some(slug.to_owned())
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// Words that stand for the values of an enum.
pub(super) trait Words: Copy + PartialEq + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

/// Lists the words of enums.
macro_rules! words {
    ($($name:ty { $($word:literal = $value:expr),+ $(,)? })+) => {$(
        impl crate::conf::codec::Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, $value)),+];
        }
    )+};
}
pub(super) use words;

/// One of a set of words.
pub(super) struct Word<T>(PhantomData<T>);
impl<T: Words> Codec for Word<T> {
    type Out = T;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<T> {
        let written = text(reader, value)?;
        if let Some((_, read)) = T::WORDS.iter().find(|(word, _)| *word == written) {
            return Some(*read);
        }
        let words = T::WORDS.iter().map(|(word, _)| *word);
        let why = format!("must be {}, not `{}`", listed(words.clone(), "or"), shown(written));
        match nearest(written, words) {
            Some(near) => reader.wrong_hint(&value.span, why, format!("did you mean `{near}`?")),
            None => reader.wrong(&value.span, why),
        }
        None
    }
    fn write(out: &T) -> Json {
        T::WORDS.iter().find(|(_, value)| value == out).map_or(Json::Null, |(word, _)| Json::from(*word))
    }
    fn schema() -> Json {
        let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        or_variable(&json!({ "enum": words }))
    }
}

/// A list; each bad entry is reported, the others are kept.
pub(super) struct List<C>(PhantomData<C>);
impl<C: Codec> Codec for List<C> {
    type Out = Vec<C::Out>;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Vec<C::Out>> {
        match &value.node {
            Node::List(list) => {
                let read = |(index, item)| reader.at_index(index, |reader| C::read(reader, item));
                let items = list.iter().enumerate().filter(|(_, item)| !matches!(item.node, Node::Faulty));
                Some(items.filter_map(read).collect())
            }
            _ => {
                reader.wrong(&value.span, format!("must be a list, not {}", value.kind()));
                None
            }
        }
    }
    fn write(out: &Vec<C::Out>) -> Json {
        Json::Array(out.iter().map(C::write).collect())
    }
    fn schema() -> Json {
        json!({ "type": "array", "items": C::schema() })
    }
}

/// What may be left out.
pub(super) struct Opt<C>(PhantomData<C>);
impl<C: Codec> Codec for Opt<C> {
    type Out = Option<C::Out>;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Self::Out> {
        C::read(reader, value).map(Some)
    }
    fn write(out: &Self::Out) -> Json {
        out.as_ref().map_or(Json::Null, C::write)
    }
    fn schema() -> Json {
        C::schema()
    }
}

/// What an empty string turns off.
pub(super) struct OrEmpty<C>(PhantomData<C>);
impl<C: Codec> Codec for OrEmpty<C> {
    type Out = Option<C::Out>;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Self::Out> {
        match &value.node {
            Node::Text(text) if text.is_empty() => Some(None),
            _ => C::read(reader, value).map(Some),
        }
    }
    fn write(out: &Self::Out) -> Json {
        out.as_ref().map_or_else(|| Json::from(""), C::write)
    }
    fn schema() -> Json {
        json!({ "anyOf": [C::schema(), { "const": "" }] })
    }
}

/// What the word `off` turns off.
pub(super) struct OrOff<C>(PhantomData<C>);
impl<C: Codec> Codec for OrOff<C> {
    type Out = Option<C::Out>;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Self::Out> {
        match &value.node {
            Node::Text(text) if text == "off" => Some(None),
            _ => C::read(reader, value).map(Some),
        }
    }
    fn write(out: &Self::Out) -> Json {
        out.as_ref().map_or_else(|| Json::from("off"), C::write)
    }
    fn schema() -> Json {
        json!({ "anyOf": [C::schema(), { "const": "off" }] })
    }
}

/// An object inside an object.
pub(super) struct Nested<F>(PhantomData<F>);
impl<F: Form> Codec for Nested<F> {
    type Out = F;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<F> {
        let table = reader.table(value)?;
        let (kind, before) = (format!("`{}`", reader.label()), reader.faults.len());
        let (form, _) = read_form(reader, &Written { table, span: value.span.clone(), kind: &kind });
        (reader.faults.len() == before).then_some(form)
    }
    fn write(out: &F) -> Json {
        write_form(out)
    }
    fn schema() -> Json {
        schema_of::<F>()
    }
}

/// A codec for text that a function judges: the function gives what to say after the label.
pub(super) fn judged<T>(
    reader: &mut Reader<'_>,
    value: &Value,
    judge: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let written = text(reader, value)?;
    match judge(written) {
        Ok(read) => Some(read),
        Err(why) => {
            reader.wrong(&value.span, why);
            None
        }
    }
}

/// Entries that are non-empty strings, of any content: words, patterns, tool names.
pub(super) type Strings = List<Anything>;

/// A string that is not empty.
pub(super) struct Anything;
impl Codec for Anything {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(
            reader,
            value,
            |text| if text.is_empty() { Err("must not be empty".into()) } else { Ok(text.to_owned()) },
        )
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}
