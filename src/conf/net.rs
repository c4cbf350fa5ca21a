//! Where things are on the network: listen addresses, URLs of servers and engines, origins, URLs of stores.
//!
//! Judges what is written. Whether an address may be reached is judged by `upstream::egress`, after DNS too.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde_json::{Value as Json, json};
use url::Url;

use super::{
    codec::{Nested, Opt, judged, text},
    measure::FilePath,
    read::{Codec, Form, Member, Reader, Written, members, read_form, schema_of, write_form},
    value::{Node, Value},
};
use crate::model::units::shown;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// `IP:port`; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// `unix:PATH`
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An entry of `gateway.listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// With TLS.
    pub tls: Option<Tls>,
}

/// The TLS identity of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// PEM certificate chain.
    pub certificate: PathBuf,
    /// PEM private key.
    pub key: PathBuf,
    /// PEM bundle of the authorities that a client's certificate must come from; none: clients need none.
    pub client_ca: Option<PathBuf>,
}

/// `IP:port` or `unix:PATH`.
pub(super) struct Addresses;
impl Codec for Addresses {
    type Out = Address;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Address> {
        let written = text(reader, value)?;
        if let Some(path) = written.strip_prefix("unix:") {
            if path.is_empty() {
                reader.wrong(&value.span, "names no path after `unix:`");
                return None;
            }
            return reader.absolute(path, &value.span).map(Address::Unix);
        }
        if let Ok(address) = written.parse() {
            return Some(Address::Tcp(address));
        }
        let why = format!("must be `IP:port` or `unix:PATH`, not `{}`", shown(written));
        let meant = written.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let meant = meant.or_else(|| written.strip_prefix(':').map(|port| format!("0.0.0.0:{port}")));
        let meant = meant.or_else(|| written.strip_prefix("*:").map(|port| format!("0.0.0.0:{port}")));
        match meant.filter(|meant| meant.parse::<SocketAddr>().is_ok()) {
            Some(meant) => reader.wrong_hint(&value.span, why, format!("write `{meant}`")),
            None => reader.wrong(&value.span, why),
        }
        None
    }
    fn write(out: &Address) -> Json {
        Json::from(out.to_string())
    }
}

/// `IP:port` alone.
pub(super) struct TcpAddresses;
impl Codec for TcpAddresses {
    type Out = SocketAddr;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<SocketAddr> {
        match Addresses::read(reader, value)? {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => {
                reader.wrong(&value.span, "must be `IP:port`");
                None
            }
        }
    }
    fn write(out: &SocketAddr) -> Json {
        Json::from(out.to_string())
    }
}

/// `"IP:port"`, or `{ address, tls = { certificate, key, client_ca } }`.
pub(super) struct Listens;
impl Codec for Listens {
    type Out = Listen;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Listen> {
        let Node::Table(table) = &value.node else {
            return Addresses::read(reader, value).map(|address| Listen { address, tls: None });
        };
        let (kind, before) = (format!("`{}`", reader.label()), reader.faults.len());
        let (form, places) = read_form::<ListenForm>(reader, &Written { table, span: value.span.clone(), kind: &kind });
        if let (Some(Address::Unix(_)), Some(at)) = (&form.address, places.of("tls")) {
            reader.wrong(&at, "cannot have `tls` at a unix socket");
        }
        let address = form.address.filter(|_| reader.faults.len() == before)?;
        Some(Listen { address, tls: form.tls })
    }
    fn write(out: &Listen) -> Json {
        match &out.tls {
            None => Addresses::write(&out.address),
            Some(_) => write_form(&ListenForm { address: Some(out.address.clone()), tls: out.tls.clone() }),
        }
    }
    fn schema() -> Json {
        json!({ "anyOf": [Addresses::schema(), schema_of::<ListenForm>()] })
    }
}

struct ListenForm {
    address: Option<Address>,
    tls: Option<Tls>,
}

impl Form for ListenForm {
    const MEMBERS: &'static [Member<Self>] = members! {
        address: Opt<Addresses>, required;
        tls: Opt<Nested<Tls>>;
    };
    fn blank() -> Self {
        Self { address: None, tls: None }
    }
}

impl Form for Tls {
    const MEMBERS: &'static [Member<Self>] = members! {
        certificate: FilePath, required;
        key: FilePath, required;
        client_ca: Opt<FilePath>;
    };
    fn blank() -> Self {
        Self { certificate: PathBuf::new(), key: PathBuf::new(), client_ca: None }
    }
}

/// Judges the URL of a server or an engine as it is written: what is wrong with it, as said after the member's name.
///
/// Whether it is public HTTPS is not judged here (`egress`, contract §9). A value with a password is never repeated.
///
/// # Errors
/// What to say after the member's name.
pub fn judge_url(written: &str) -> Result<Url, String> {
    if written.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("must not hold spaces or control characters".into());
    }
    if written.contains('\\') {
        return Err("must not hold a backslash".into());
    }
    let url = Url::parse(written).map_err(|why| format!("is no URL: {why}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("must begin with `https://` or `http://`, not `{}:`", shown(url.scheme())));
    }
    let after_scheme = written.get(url.scheme().len()..).unwrap_or("");
    let authority = after_scheme.strip_prefix("://").and_then(|rest| rest.split(['/', '?', '#']).next());
    match authority {
        None | Some("") => return Err(format!("must have `//` and a host after `{}:`", url.scheme())),
        Some(authority) if authority.contains('@') => {
            return Err("must not hold a user name or password: name them in `credential`".into());
        }
        Some(_) => {}
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment (`#`)".into());
    }
    if url.port() == Some(0) {
        return Err("must not name port 0".into());
    }
    Ok(url)
}

/// The URL of a server or an engine.
pub(super) struct Urls;
impl Codec for Urls {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        let read = judged(reader, value, |written| judge_url(written).map(|_| written.to_owned()));
        if read.is_none() && matches!(&value.node, Node::Text(text) if text.contains('@')) {
            reader.hide(&value.span);
        }
        read
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// The longest address that a message sends a person to, in bytes.
const WEB_ADDRESS_BYTES_MAX: usize = 512;

/// An address that a person opens: `https://…` or `http://…`, without a user.
pub(super) struct WebAddress;
impl Codec for WebAddress {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(reader, value, |written| {
            let good = Url::parse(written).is_ok_and(|url| {
                matches!(url.scheme(), "https" | "http") && url.username().is_empty() && url.password().is_none()
            });
            let plain = written.len() <= WEB_ADDRESS_BYTES_MAX
                && written.bytes().all(|byte| byte.is_ascii_graphic() && !b"`<>\"".contains(&byte));
            match good && plain {
                true => Ok(written.to_owned()),
                false => Err(format!(
                    "must be an address that a person opens, such as `https://app.example.com/connect`, not `{}`",
                    shown(written)
                )),
            }
        })
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// An origin as a browser sends it: scheme, host, port if it is not the scheme's own.
pub(super) struct Origins;
impl Codec for Origins {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        judged(reader, value, |written| {
            let wrong = || {
                let shown = shown(written);
                format!("must be an origin as a browser sends it, such as `https://app.example.com`, not `{shown}`")
            };
            let url = Url::parse(written).map_err(|_| wrong())?;
            let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            let origin = format!("{}://{host}{port}", url.scheme());
            if origin == written { Ok(origin) } else { Err(format!("{}: write `{}`", wrong(), shown(&origin))) }
        })
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}

/// A URL that may hold a password: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Dsn(String);

impl Dsn {
    /// The whole URL, password included: for the one who connects, never for a message.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes a URL as it is.
    pub(super) fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dsn({}:…)", self.0.split(':').next().unwrap_or(""))
    }
}

/// `sqlite:PATH` or `postgres://…`.
pub(super) struct StoreUrl;
impl Codec for StoreUrl {
    type Out = Dsn;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Dsn> {
        let written = text(reader, value)?;
        if let Some(rest) = written.strip_prefix("sqlite:") {
            return sqlite(reader, value, rest);
        }
        remote(reader, value, &["postgres", "postgresql"], "`sqlite:PATH` or `postgres://…`")
    }
    fn write(out: &Dsn) -> Json {
        Json::from(out.0.as_str())
    }
}

/// A database file beside the conf; the path is a URL's, so `%`, `?` and `#` of the folder are encoded.
fn sqlite(reader: &mut Reader<'_>, value: &Value, rest: &str) -> Option<Dsn> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let path = rest.split('?').next().unwrap_or("");
    if path.is_empty() {
        reader.wrong(&value.span, "names no file after `sqlite:`");
        return None;
    }
    if path == ":memory:" || path.starts_with('/') {
        return Some(Dsn(format!("sqlite:{rest}")));
    }
    let folder = reader.absolute("", &value.span)?;
    let folder = folder.to_string_lossy().replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Some(Dsn(format!("sqlite:{}/{rest}", folder.trim_end_matches('/'))))
}

/// `redis://…` or `rediss://…`.
pub(super) struct RedisUrl;
impl Codec for RedisUrl {
    type Out = Dsn;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<Dsn> {
        remote(reader, value, &["redis", "rediss"], "`redis://…` or `rediss://…`")
    }
    fn write(out: &Dsn) -> Json {
        Json::from(out.0.as_str())
    }
}

fn remote(reader: &mut Reader<'_>, value: &Value, schemes: &[&str], forms: &str) -> Option<Dsn> {
    let written = text(reader, value)?;
    let url = Url::parse(written).ok().filter(|url| schemes.contains(&url.scheme()) && url.has_host());
    if url.is_none() || written.chars().any(char::is_control) {
        reader.wrong(&value.span, format!("must be {forms}"));
        reader.hide(&value.span);
        return None;
    }
    Some(Dsn(written.to_owned()))
}

/// A host name or address as `allow` and `deny` of `urls` take it, in lower case.
pub(super) struct Host;
impl Codec for Host {
    type Out = String;
    fn read(reader: &mut Reader<'_>, value: &Value) -> Option<String> {
        let written = text(reader, value)?;
        let host = url::Host::parse(written).map(|host| host.to_string());
        match host {
            Ok(host) if !written.contains('*') => Some(host),
            _ => {
                let why = format!("must be a host such as `example.com`, not `{}`", shown(written));
                match written.strip_prefix("*.") {
                    Some(rest) => {
                        reader.wrong_hint(&value.span, why, format!("`{}` covers its subdomains", shown(rest)))
                    }
                    None => reader.wrong(&value.span, why),
                }
                None
            }
        }
    }
    fn write(out: &String) -> Json {
        Json::from(out.as_str())
    }
}
