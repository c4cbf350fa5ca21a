//! Which servers the gateway may talk to: judges a URL as written, and an address as resolved (contract §9, security 1.7).
//!
//! The rule is an allow-rule: an address passes because it is global unicast, or because the operator opened its
//! network; everything else is refused, also inside the IPv6 families that carry an IPv4 address.
//! Knows no DNS, no connection and no policy object.
//!
//! **Invariant.** No text of this room repeats the URL it refuses: URLs may hold secrets.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use ipnet::IpNet;
use rustls::pki_types::ServerName;
use thiserror::Error;
use url::{Host, Url};

/// The longest server URL, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// What `[egress]` opens, and where the gateway itself listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct EgressRules {
    /// `egress.allow_http`: plain HTTP is allowed too.
    pub allow_http: bool,
    /// `egress.allow_networks`: networks that are open although they are not public.
    pub allow_networks: Vec<IpNet>,
    /// Addresses of our own listeners; a server there would be a loop, so nothing opens them.
    pub own_addresses: Vec<SocketAddr>,
}

/// A server's URL, judged and taken apart. Holds no user name, password or fragment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// HTTPS; plain HTTP otherwise.
    pub https: bool,
    /// The host without brackets and without a trailing dot, as to be resolved.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
    /// Path and query, starting with `/`.
    pub path_and_query: String,
    /// The name for TLS: the host name, or the address in text form.
    pub sni: String,
    /// The address, where the host is written as one.
    pub literal: Option<IpAddr>,
}

impl fmt::Debug for Endpoint {
    /// Without the query, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        write!(f, "Endpoint({}://{}{path})", if self.https { "https" } else { "http" }, self.authority())
    }
}

impl Endpoint {
    /// The value of the `Host` header: brackets around IPv6, the port unless it is the scheme's own.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = match self.literal {
            Some(IpAddr::V6(ip)) => format!("[{ip}]"),
            _ => self.host.clone(),
        };
        let default = if self.https { 443 } else { 80 };
        if self.port == default { host } else { format!("{host}:{}", self.port) }
    }

    /// The whole URL, rebuilt from the judged parts. For connecting only: never for a message or a log.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path_and_query)
    }
}

/// Why a URL is refused: `invalid_mcp_server_url` (contract §9). The text is for a person and repeats nothing of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UrlFault {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("the URL is longer than 2048 bytes")]
    TooLong,
    /// A control character, white space or a backslash: readers disagree on what such a URL means.
    #[error("the URL contains a control character, white space or a backslash")]
    Character,
    /// Not `https://…`, nor `http://…` where that is open.
    #[error("the URL must start with https:// (egress.allow_http opens http://)")]
    Scheme,
    /// It has a user name or password.
    #[error("the URL must not contain a user name or password; use `credential`")]
    UserInfo,
    /// It has a fragment.
    #[error("the URL must not contain a fragment (#)")]
    Fragment,
    /// The host is empty, or no host name that TLS can verify.
    #[error("the URL's host is empty or is not a valid host name")]
    Host,
    /// Port 0.
    #[error("the URL's port must not be 0")]
    Port,
    /// Not a URL by the WHATWG rules.
    #[error("the URL cannot be parsed")]
    Syntax,
    /// The host is an address, or a name of this machine, that is not open.
    #[error("the URL's host is not a public address (egress.allow_networks opens networks)")]
    NotPublic,
    /// The gateway's own listener.
    #[error("the URL points to the gateway itself")]
    Own,
}

/// Judges a server's URL as written and takes it apart. A host name still has to be resolved, and its addresses judged.
///
/// # Errors
/// The first [`UrlFault`] that applies.
pub fn judge_url(text: &str, rules: &EgressRules) -> Result<Endpoint, UrlFault> {
    let authority = judge_text(text, rules)?;
    if authority.contains('@') {
        return Err(UrlFault::UserInfo);
    }
    let url = Url::parse(text).map_err(|fault| match fault {
        url::ParseError::EmptyHost
        | url::ParseError::IdnaError
        | url::ParseError::InvalidIpv4Address
        | url::ParseError::InvalidIpv6Address
        | url::ParseError::InvalidDomainCharacter => UrlFault::Host,
        url::ParseError::InvalidPort => UrlFault::Port,
        _ => UrlFault::Syntax,
    })?;
    if url.fragment().is_some() {
        return Err(UrlFault::Fragment);
    }
    let https = url.scheme() == "https";
    let port = match url.port_or_known_default() {
        None | Some(0) => return Err(UrlFault::Port),
        Some(port) => port,
    };
    let (host, literal) = judge_host(&url, rules)?;
    if let Some(ip) = literal {
        if is_own(SocketAddr::new(ip, port), rules) {
            return Err(UrlFault::Own);
        }
        if !judge_ip(ip, rules) {
            return Err(UrlFault::NotPublic);
        }
    }
    let path_and_query = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    Ok(Endpoint { https, sni: host.clone(), host, port, path_and_query, literal })
}

/// Whether a connection to `ip` is allowed: global unicast, or opened by `egress.allow_networks`.
///
/// An IPv4-mapped address is judged as the IPv4 address it stands for. NAT64, 6to4, Teredo and IPv4-compatible
/// addresses are closed until their own network is opened, and then the address inside them must pass as well.
/// Never open: unspecified, multicast and broadcast addresses. No allocation, no lock.
#[must_use]
pub fn judge_ip(ip: IpAddr, rules: &EgressRules) -> bool {
    match ip {
        IpAddr::V4(ip) => judge_v4(ip, rules),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(inner) => judge_v4(inner, rules),
            None => judge_v6(ip, rules),
        },
    }
}

/// Whether a connection to `address` is allowed: [`judge_ip`], and not one of our own listeners.
#[must_use]
pub fn judge_address(address: SocketAddr, rules: &EgressRules) -> bool {
    judge_ip(address.ip(), rules) && !is_own(address, rules)
}

/// Whether `address` is one of our own listeners; a listener on the unspecified address is on every address of this machine.
#[must_use]
pub fn is_own(address: SocketAddr, rules: &EgressRules) -> bool {
    let ip = address.ip().to_canonical();
    rules.own_addresses.iter().any(|own| {
        own.port() == address.port()
            && (own.ip().to_canonical() == ip || (own.ip().to_canonical().is_unspecified() && is_local(ip)))
    })
}

/// Whether this machine bears `ip`: only then can a socket be bound to it.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// Judges what the parser would silently repair, and gives the authority part as written.
fn judge_text<'t>(text: &'t str, rules: &EgressRules) -> Result<&'t str, UrlFault> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlFault::TooLong);
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(UrlFault::Character);
    }
    let (scheme, rest) = text.split_once("://").ok_or(UrlFault::Scheme)?;
    let open = scheme.eq_ignore_ascii_case("https") || (rules.allow_http && scheme.eq_ignore_ascii_case("http"));
    if !open {
        return Err(UrlFault::Scheme);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(UrlFault::Host); // the parser would skip further slashes and take the path for the host
    }
    Ok(authority)
}

/// The host to resolve, and the address where it is written as one, in whatever spelling.
fn judge_host(url: &Url, rules: &EgressRules) -> Result<(String, Option<IpAddr>), UrlFault> {
    match url.host().ok_or(UrlFault::Host)? {
        Host::Ipv4(ip) => Ok((ip.to_string(), Some(IpAddr::V4(ip)))),
        Host::Ipv6(ip) => Ok((ip.to_string(), Some(IpAddr::V6(ip)))),
        Host::Domain(name) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            let empty_label = name.split('.').any(str::is_empty);
            if empty_label || ServerName::try_from(name).is_err() {
                return Err(UrlFault::Host);
            }
            let local = name == "localhost" || name.ends_with(".localhost");
            if local && !judge_v4(Ipv4Addr::LOCALHOST, rules) && !judge_v6(Ipv6Addr::LOCALHOST, rules) {
                return Err(UrlFault::NotPublic);
            }
            Ok((name.to_owned(), None))
        }
    }
}

fn judge_v4(ip: Ipv4Addr, rules: &EgressRules) -> bool {
    if ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast() {
        return false;
    }
    is_opened(IpAddr::V4(ip), rules) || !V4_CLOSED.iter().any(|&(net, bits)| in_v4(ip, net, bits))
}

fn judge_v6(ip: Ipv6Addr, rules: &EgressRules) -> bool {
    if ip.is_unspecified() || ip.is_multicast() {
        return false;
    }
    let opened = is_opened(IpAddr::V6(ip), rules);
    match embedded_v4(ip) {
        Some(inner) => opened && judge_v4(inner, rules),
        None => opened || (in_v6(ip, V6_GLOBAL) && !V6_CLOSED.iter().any(|&net| in_v6(ip, net))),
    }
}

fn is_opened(ip: IpAddr, rules: &EgressRules) -> bool {
    rules.allow_networks.iter().any(|net| net.contains(&ip))
}

/// The IPv4 address that `ip` leads to, for the families that carry one.
fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = ip.to_bits();
    let [_, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d] = ip.octets();
    let last = Ipv4Addr::new(a, b, c, d);
    if in_v6(ip, NAT64) || in_v6(ip, NAT64_LOCAL) || (in_v6(ip, V4_COMPATIBLE) && !ip.is_loopback()) {
        return Some(last);
    }
    if in_v6(ip, SIX_TO_FOUR) {
        let [_, _, a, b, c, d, ..] = bits.to_be_bytes();
        return Some(Ipv4Addr::new(a, b, c, d));
    }
    if in_v6(ip, TEREDO) {
        return Some(Ipv4Addr::from_bits(!last.to_bits())); // RFC 4380 §4: the client's address, inverted
    }
    None
}

fn in_v4(ip: Ipv4Addr, net: [u8; 4], bits: u32) -> bool {
    (ip.to_bits() ^ u32::from_be_bytes(net)).leading_zeros() >= bits
}

fn in_v6(ip: Ipv6Addr, (net, bits): ([u16; 8], u32)) -> bool {
    (ip.to_bits() ^ Ipv6Addr::from(net).to_bits()).leading_zeros() >= bits
}

type V6Net = ([u16; 8], u32);

/// The only unicast space that is handed out (RFC 4291 §2.4).
const V6_GLOBAL: V6Net = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
const NAT64: V6Net = ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const NAT64_LOCAL: V6Net = ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);
const V4_COMPATIBLE: V6Net = ([0; 8], 96);
const SIX_TO_FOUR: V6Net = ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
const TEREDO: V6Net = ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32);

/// Inside 2000::/3 and yet not public: protocol assignments, documentation, 6to4.
const V6_CLOSED: [V6Net; 4] = [
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    SIX_TO_FOUR,
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

/// IPv4 space that is not public (IANA special-purpose registry).
const V4_CLOSED: [([u8; 4], u32); 15] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

#[cfg(test)]
mod tests;
