//! Codecs of measured and structured values: times, sizes, rates, moments, networks, digests, paths.

use std::{path::PathBuf, time::Duration};

use ipnet::{IpNet, Ipv4Net};
use serde_json::{Value as Json, json};

use super::{
    codec::{Text, text},
    fault::Fault,
    read::{Codec, Reader, or_variable},
    value::{Node, Value},
};
use crate::model::{
    id::{KeyDigest, encode_hex},
    pin::Pin,
    units::{Rate, Size, Span, shown},
};

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
    fn schema() -> Json {
        let (least, most) = (Span(Duration::from_millis(MIN_MS)), Span(Duration::from_secs(MAX_S)));
        let title = format!("a duration such as \"30s\" or \"250ms\", from {least} to {most}");
        or_variable(&json!({ "title": title, "type": "string", "pattern": "^([0-9]+[a-z]+)+$" }))
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
    fn schema() -> Json {
        let title = format!("a size such as \"256KiB\" or \"1MiB\", from {} to {}", Size(MIN), Size(MAX));
        or_variable(&json!({ "title": title, "type": "string", "pattern": "^[0-9]+ *[A-Za-z]+$" }))
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
    fn schema() -> Json {
        let title = "a rate: N/s, N/min or N/hour";
        or_variable(&json!({ "title": title, "type": "string", "pattern": "^[0-9]+/(s|min|hour)$" }))
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

fn hex_schema() -> Json {
    or_variable(&json!({ "type": "string", "pattern": "^[0-9A-Fa-f]{64}$" }))
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
    fn schema() -> Json {
        hex_schema()
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
    fn schema() -> Json {
        hex_schema()
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
    fn schema() -> Json {
        // A date-time of TOML, which tools hand to a schema in forms of their own.
        json!({})
    }
}
