//! Codecs of plain values: how each kind of value is read, what is wrong with a bad one, and how it is written back.

use std::{marker::PhantomData, path::PathBuf, time::Duration};

use ipnet::{IpNet, Ipv4Net};
use serde_json::Value as Json;

use super::{
    fault::{Fault, nearest},
    read::{Codec, Form, Reader, Written, listed, read_form, write_form},
    value::{Node, Value},
};
use crate::model::{
    id::{KeyDigest, encode_hex, is_slug},
    pin::Pin,
    units::{Rate, Size, Span, shown},
};

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

/// Reads a value that is written as text with a unit; a bare number gets told how to write it.
fn with_unit<T: std::str::FromStr<Err = String>>(
    reader: &mut Reader<'_>,
    value: &Value,
    forms: fn(i64) -> [String; 2],
) -> Option<T> {
    match &value.node {
        Node::Text(text) => match text.parse() {
            Ok(read) => return Some(read),
            Err(why) => reader.wrong(&value.span, format!("is wrong: {why}")),
        },
        Node::Integer(n) => {
            let [first, second] = forms(*n);
            reader
                .wrong(&value.span, format!("is a bare number, which has no unit: write \"{first}\" or \"{second}\""));
        }
        Node::Number => reader.wrong(&value.span, "is a bare number: write a string with a whole number and its unit"),
        _ => reader.wrong(&value.span, format!("must be a string with a unit, not {}", value.kind())),
    }
    None
}

/// A time from `MIN` milliseconds to `MAX` seconds.
pub(super) struct Time<const MIN_MS: u64, const MAX_S: u64>;
impl<const MIN_MS: u64, const MAX_S: u64> Codec for Time<MIN_MS, MAX_S> {
    type Out = Span;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Span> {
        let span: Span = with_unit(reader, value, |n| [format!("{n}s"), format!("{n}ms")])?;
        let (least, most) = (Span(Duration::from_millis(MIN_MS)), Span(Duration::from_secs(MAX_S)));
        if span < least || span > most {
            reader.wrong(&value.span, format!("must be from {least} to {most}"));
            return None;
        }
        Some(span)
    }
    fn write(out: &Span) -> Json {
        Json::from(out.to_string())
    }
}

/// A size from `MIN` to `MAX` bytes.
pub(super) struct Bytes<const MIN: u64, const MAX: u64>;
impl<const MIN: u64, const MAX: u64> Codec for Bytes<MIN, MAX> {
    type Out = Size;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Size> {
        let size: Size = with_unit(reader, value, |n| {
            let other = u64::try_from(n).map_or_else(|_| format!("{n}KiB"), |n| Size(n).to_string());
            [format!("{n}B"), if other.ends_with("iB") { other } else { format!("{n}KiB") }]
        })?;
        if size < Size(MIN) || size > Size(MAX) {
            reader.wrong(&value.span, format!("must be from {} to {}", Size(MIN), Size(MAX)));
            return None;
        }
        Some(size)
    }
    fn write(out: &Size) -> Json {
        Json::from(out.to_string())
    }
}

/// `N/s`, `N/min` or `N/hour`.
pub(super) struct Rates;
impl Codec for Rates {
    type Out = Rate;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Rate> {
        with_unit(reader, value, |n| [format!("{n}/s"), format!("{n}/min")])
    }
    fn write(out: &Rate) -> Json {
        Json::from(out.to_string())
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
}

/// A path; a relative one is relative to the conf file.
pub(super) struct FilePath;
impl Codec for FilePath {
    type Out = PathBuf;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<PathBuf> {
        let text = Text::read(reader, value)?;
        reader.absolute(&text, &value.span)
    }
    fn write(out: &PathBuf) -> Json {
        Json::from(out.to_string_lossy())
    }
}

/// A network, or the address of one host. A mapped IPv4 address is read as the IPv4 address that it is.
pub(super) struct Net;
impl Codec for Net {
    type Out = IpNet;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<IpNet> {
        let written = text(reader, value)?;
        let net = written.parse().ok().or_else(|| written.parse().ok().map(|ip: std::net::IpAddr| IpNet::from(ip)));
        let Some(net) = net else {
            let why = format!("must be a network such as `10.0.0.0/8` or an address, not `{}`", shown(written));
            reader.wrong(&value.span, why);
            return None;
        };
        if net.trunc() != net {
            let message = format!("`{}` is `{net}`, which means `{}`", reader.label(), net.trunc());
            let origin = reader.origin(&value.span);
            reader.faults.push(Fault::warning(origin, message));
        }
        Some(unmapped(net.trunc()))
    }
    fn write(out: &IpNet) -> Json {
        Json::from(out.to_string())
    }
}

fn unmapped(net: IpNet) -> IpNet {
    match net {
        IpNet::V6(v6) if v6.prefix_len() >= 96 => match v6.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, v6.prefix_len() - 96).map_or(net, IpNet::V4),
            None => net,
        },
        _ => net,
    }
}

/// Reads 64 hex digits.
fn hex<T>(reader: &mut Reader<'_>, value: &Value, parse: fn(&str) -> Option<T>) -> Option<T> {
    let written = text(reader, value)?;
    let read = parse(written);
    if read.is_none() {
        let why = match written.chars().count() {
            64 => "must be the 64 hex digits of a SHA-256; there are others among them".to_owned(),
            length => format!("must be the 64 hex digits of a SHA-256; its length is {length}"),
        };
        reader.wrong(&value.span, why);
        // Perhaps the token itself stands here.
        reader.hide(&value.span);
    }
    read
}

/// The SHA-256 of a token.
pub(super) struct Digest;
impl Codec for Digest {
    type Out = KeyDigest;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<KeyDigest> {
        hex(reader, value, KeyDigest::from_hex)
    }
    fn write(out: &KeyDigest) -> Json {
        Json::from(encode_hex(&out.0))
    }
}

/// The SHA-256 of a tool definition.
pub(super) struct PinHex;
impl Codec for PinHex {
    type Out = Pin;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Pin> {
        hex(reader, value, Pin::from_hex)
    }
    fn write(out: &Pin) -> Json {
        Json::from(out.to_string())
    }
}

/// A moment, in seconds since 1970: an offset date-time of TOML, or a string as in RFC 3339.
pub(super) struct Moment;
impl Codec for Moment {
    type Out = i64;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<i64> {
        let (Node::Text(written) | Node::Time(written)) = &value.node else {
            reader
                .wrong(&value.span, format!("must be a date-time such as 2027-12-31T00:00:00Z, not {}", value.kind()));
            return None;
        };
        let moment = written.parse::<jiff::Timestamp>();
        if moment.is_err() {
            let why = "must be a date-time with its offset, such as 2027-12-31T00:00:00Z";
            reader.wrong(&value.span, why);
        }
        moment.ok().map(jiff::Timestamp::as_second)
    }
    fn write(out: &i64) -> Json {
        jiff::Timestamp::from_second(*out).map_or(Json::Null, |moment| Json::from(moment.to_string()))
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
