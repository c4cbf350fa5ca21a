//! Which servers the gateway may talk to: judges a URL as written, and an address as resolved (contract §9, security 1.7).
//!
//! The rule is an allow-rule: an address passes because it is global unicast, or because the operator opened its
//! network; everything else is refused, also inside the IPv6 families that carry an IPv4 address.
//! Knows no DNS, no connection and no policy object.
//!
//! **Invariant.** No text of this room repeats the URL it refuses: URLs may hold secrets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
            if ServerName::try_from(name).is_err() {
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    fn opened(networks: &[&str]) -> EgressRules {
        let allow_networks = networks.iter().map(|n| n.parse().unwrap()).collect();
        EgressRules { allow_http: true, allow_networks, own_addresses: vec!["127.0.0.1:8080".parse().unwrap()] }
    }

    #[test]
    fn only_public_https_passes_by_default() {
        use UrlFault::{Character, Fragment, Host, NotPublic, Port, Scheme, Syntax, TooLong, UserInfo};
        let cases: &[(&str, UrlFault)] = &[
            ("http://mcp.example.com/mcp", Scheme),
            ("ftp://mcp.example.com/mcp", Scheme),
            ("mcp.example.com/mcp", Scheme),
            ("https:mcp.example.com/mcp", Scheme),
            ("https:127.0.0.1", Scheme),
            ("https:/mcp.example.com/", Scheme),
            ("//mcp.example.com/mcp", Scheme),
            ("", Scheme),
            ("file:///etc/passwd", Scheme),
            ("javascript://x/%0aalert", Scheme),
            ("https://", Host),
            ("https:///mcp", Host),
            ("https:///127.0.0.1/mcp", Host),
            ("https://./mcp", Host),
            ("https://exa mple.com/", Character),
            (" https://mcp.example.com/", Character),
            ("https://mcp.example.com/\r\nX: y", Character),
            ("https://h.example/\t", Character),
            ("https://h.example/\u{0}", Character),
            ("https://h.example/\u{85}", Character),
            ("https://example.com\\@127.0.0.1/", Character),
            ("https://user@mcp.example.com/mcp", UserInfo),
            ("https://user:pass@mcp.example.com/mcp", UserInfo),
            ("https://@mcp.example.com/mcp", UserInfo),
            ("https://:@mcp.example.com/mcp", UserInfo),
            ("https://mcp.example.com/mcp#x", Fragment),
            ("https://mcp.example.com/mcp#", Fragment),
            ("https://mcp.example.com:0/mcp", Port),
            ("https://mcp.example.com:70000/mcp", Port),
            ("https://mcp.example.com:x/mcp", Port),
            ("https://[::1/mcp", Host),
            ("https://1.2.3.4.5.6/mcp", Host),
            ("https://xn--zz--9/mcp", Host),
            ("https://exa%00mple.com/mcp", Host),
            ("https://127.0.0.1/mcp", NotPublic),
            ("https://127.0.0.1./mcp", NotPublic),
            ("https://127.1/mcp", NotPublic),
            ("https://0177.0.0.1/mcp", NotPublic),
            ("https://017700000001/mcp", NotPublic),
            ("https://2130706433/mcp", NotPublic),
            ("https://0x7f000001/mcp", NotPublic),
            ("https://0x7f.1/mcp", NotPublic),
            ("https://%31%32%37.0.0.1/mcp", NotPublic),
            ("https://\u{ff11}\u{ff12}\u{ff17}.0.0.1/mcp", NotPublic),
            ("https://\u{2460}\u{2461}\u{2466}.0.0.1/mcp", NotPublic),
            ("https://0/mcp", NotPublic),
            ("https://[::1]/mcp", NotPublic),
            ("https://[::]/mcp", NotPublic),
            ("https://[::ffff:127.0.0.1]/mcp", NotPublic),
            ("https://[::ffff:a9fe:a9fe]/mcp", NotPublic),
            ("https://[64:ff9b::a9fe:a9fe]/mcp", NotPublic),
            ("https://[2002:a9fe:a9fe::1]/mcp", NotPublic),
            ("https://[fd00:ec2::254]/mcp", NotPublic),
            ("https://[fe80::1]/mcp", NotPublic),
            ("https://169.254.169.254/latest/meta-data/", NotPublic),
            ("https://100.100.100.200/mcp", NotPublic),
            ("https://10.0.0.1/mcp", NotPublic),
            ("https://localhost/mcp", NotPublic),
            ("https://LOCALHOST/mcp", NotPublic),
            ("https://localhost./mcp", NotPublic),
            ("https://a.localhost/mcp", NotPublic),
        ];
        for (text, fault) in cases {
            let got = judge_url(text, &EgressRules::default());
            assert_eq!(got, Err(*fault), "{text:?}");
        }
        let at = |n: usize| format!("https://h.example/{}", "a".repeat(n - "https://h.example/".len()));
        assert!(judge_url(&at(URL_BYTES_MAX), &EgressRules::default()).is_ok());
        assert_eq!(judge_url(&at(URL_BYTES_MAX + 1), &EgressRules::default()), Err(TooLong));
        assert_ne!(Syntax.to_string(), "");
    }

    #[test]
    fn a_good_url_is_taken_apart() {
        let check = |text: &str, https, host: &str, port, path: &str, authority: &str| {
            let end = judge_url(text, &opened(&["127.0.0.0/8", "::1/128"])).unwrap();
            assert_eq!(
                (end.https, end.host.as_str(), end.port, end.path_and_query.as_str(), end.authority().as_str()),
                (https, host, port, path, authority)
            );
            let again = judge_url(&end.url(), &opened(&["127.0.0.0/8", "::1/128"])).unwrap();
            assert_eq!(again, end, "rebuilding the URL changes nothing");
        };
        check("https://MCP.Example.com/mcp?a=b", true, "mcp.example.com", 443, "/mcp?a=b", "mcp.example.com");
        check("https://mcp.example.com.:443", true, "mcp.example.com", 443, "/", "mcp.example.com");
        check("HTTP://mcp.example.com:443/", false, "mcp.example.com", 443, "/", "mcp.example.com:443");
        check("https://8.8.8.8:8443/x", true, "8.8.8.8", 8443, "/x", "8.8.8.8:8443");
        check("https://[2606:4700::1111]/x", true, "2606:4700::1111", 443, "/x", "[2606:4700::1111]");
        check("http://[::1]:90/x", false, "::1", 90, "/x", "[::1]:90");
        check("https://bücher.example/a/../b", true, "xn--bcher-kva.example", 443, "/b", "xn--bcher-kva.example");
        check("http://localhost:1234/mcp", false, "localhost", 1234, "/mcp", "localhost:1234");
        check("https://mcp.example.com/user@host", true, "mcp.example.com", 443, "/user@host", "mcp.example.com");
    }

    #[test]
    fn addresses_are_judged_by_an_allow_rule() {
        let closed = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.9",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::8.8.8.8",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:0:8.8.8.8",
            "64:ff9b::10.0.0.1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "64:ff9b:1::8.8.8.8",
            "2002::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "2001::1",
            "2001:0:1:2::f7f7:f7f7",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff:ffff::",
            "4000::1",
            "5f00::1",
            "8000::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "1fff::1",
        ];
        let open = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.1",
            "203.0.112.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "2a00::1",
            "3ffe::1",
            "3fff:1000::1",
        ];
        for (list, expected) in [(&closed[..], false), (&open[..], true)] {
            for text in list {
                assert_eq!(judge_ip(text.parse().unwrap(), &EgressRules::default()), expected, "{text}");
            }
        }
    }

    #[test]
    fn opening_a_network_opens_no_more_than_it_says() {
        let check = |networks: &[&str], ip: &str, expected: bool| {
            assert_eq!(judge_ip(ip.parse().unwrap(), &opened(networks)), expected, "{ip} under {networks:?}");
        };
        check(&["10.1.0.0/16"], "10.1.2.3", true);
        check(&["10.1.0.0/16"], "10.2.0.1", false);
        check(&["10.1.0.0/16"], "::ffff:10.1.2.3", true);
        check(&["::ffff:0:0/96"], "::ffff:10.1.2.3", false);
        check(&["127.0.0.0/8"], "::1", false);
        check(&["fd00::/8"], "fd00:ec2::254", true);
        check(&["64:ff9b::/96"], "64:ff9b::8.8.8.8", true);
        check(&["64:ff9b::/96"], "64:ff9b::169.254.169.254", false);
        check(&["64:ff9b:1::/48"], "64:ff9b:1::10.0.0.1", false);
        check(&["64:ff9b:1::/48", "10.0.0.0/8"], "64:ff9b:1::10.0.0.1", true);
        check(&["2002::/16"], "2002:7f00:1::", false);
        check(&["2002::/16"], "2002:808:808::", true);
        check(&["2001::/32"], "2001:0:1:2::80ff:fffe", false); // 127.0.0.1 inverted
        check(&["2001::/32"], "2001:0:1:2::f7f7:f7f7", true); // 8.8.8.8 inverted
        check(&["::/0"], "::127.0.0.1", false);
        check(&["::/0"], "fe80::1", true);
        check(&["0.0.0.0/0", "::/0"], "0.0.0.0", false);
        check(&["0.0.0.0/0", "::/0"], "255.255.255.255", false);
        check(&["0.0.0.0/0", "::/0"], "224.0.0.1", false);
        check(&["0.0.0.0/0", "::/0"], "ff02::1", false);
        check(&["0.0.0.0/0", "::/0"], "::", false);
    }

    #[test]
    fn the_gateway_itself_is_never_opened() {
        let mut rules = opened(&["127.0.0.0/8", "::1/128"]);
        assert_eq!(judge_url("http://127.0.0.1:8080/gateway/mcp", &rules), Err(UrlFault::Own));
        assert_eq!(judge_url("http://127.1:8080/x", &rules), Err(UrlFault::Own));
        assert_eq!(judge_url("http://[::ffff:127.0.0.1]:8080/x", &rules), Err(UrlFault::Own));
        assert!(judge_url("http://127.0.0.1:8081/x", &rules).is_ok());
        assert!(judge_url("http://127.0.0.2:8080/x", &rules).is_ok());
        rules.own_addresses = vec!["[::]:8080".parse().unwrap()];
        assert_eq!(judge_url("http://127.0.0.2:8080/x", &rules), Err(UrlFault::Own));
        assert!(!judge_address("[::1]:8080".parse().unwrap(), &rules));
        assert!(judge_address("[::1]:8081".parse().unwrap(), &rules));
    }
}
