//! Tests of `egress.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use super::{
    UrlFault::{Character, Fragment, Host, NotPublic, Port, Scheme, UserInfo},
    *,
};

fn opened(networks: &[&str]) -> EgressRules {
    let allow_networks = networks.iter().map(|n| n.parse().unwrap()).collect();
    EgressRules { allow_http: true, allow_networks, own_addresses: vec!["127.0.0.1:8080".parse().unwrap()] }
}

#[test]
fn only_public_https_passes_by_default() {
    for (text, fault) in REFUSED_URLS {
        let got = judge_url(text, &EgressRules::default());
        assert_eq!(got, Err(*fault), "{text:?}");
    }
    let at = |n: usize| format!("https://h.example/{}", "a".repeat(n - "https://h.example/".len()));
    assert!(judge_url(&at(URL_BYTES_MAX), &EgressRules::default()).is_ok());
    assert_eq!(judge_url(&at(URL_BYTES_MAX + 1), &EgressRules::default()), Err(UrlFault::TooLong));
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
    for (list, expected) in [(CLOSED, false), (OPEN, true)] {
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

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    /// Whatever is put together from what URLs are made of: no panic, and what passes is public HTTPS that reads the same again.
    #[test]
    fn whatever_passes_is_public_https(parts in proptest::collection::vec(proptest::sample::select(PIECES.to_vec()), 0..8)) {
        let text = format!("https://{}", parts.concat());
        let rules = EgressRules::default();
        if let Ok(end) = judge_url(&text, &rules) {
            assert!(end.https && end.port != 0 && !end.host.is_empty(), "{text}");
            assert!(end.literal.is_none_or(|ip| judge_ip(ip, &rules)), "{text}");
            assert_ne!(end.host.rsplit('.').next(), Some("localhost"), "{text}");
            assert!(end.url().bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
            assert_eq!(judge_url(&end.url(), &rules), Ok(end), "{text}");
        }
    }

    /// An address stays as closed as the IPv4 address in it, in every family that carries one.
    #[test]
    fn embedding_opens_nothing(bits: u32) {
        let inner = Ipv4Addr::from_bits(bits);
        let mapped = IpAddr::V6(inner.to_ipv6_mapped());
        assert_eq!(judge_ip(mapped, &EgressRules::default()), judge_ip(inner.into(), &EgressRules::default()));
        let [a, b, c, d] = inner.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        for carrier in [
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
        ] {
            assert!(!judge_ip(carrier.into(), &EgressRules::default()));
            let all = opened(&["::/0"]);
            assert_eq!(judge_ip(carrier.into(), &all), judge_ip(inner.into(), &all), "{carrier} carries {inner}");
        }
    }
}

#[test]
fn an_endpoint_shows_no_query() {
    let end = judge_url("https://h.example:81/mcp?key=canary", &EgressRules::default()).unwrap();
    assert_eq!(format!("{end:?}"), "Endpoint(https://h.example:81/mcp)");
}

const PIECES: [&str; 40] = [
    "127.0.0.1",
    "0x7f",
    "1",
    "0",
    "10",
    "255",
    "8.8.8.8",
    ".",
    "..",
    ":",
    ":443",
    ":0",
    ":99999",
    "/",
    "//",
    "?",
    "#",
    "@",
    "a",
    "b-c",
    "xn--",
    "localhost",
    "example.com",
    "[",
    "]",
    "[::1]",
    "[2606:4700::1]",
    "::ffff:",
    "%31",
    "%00",
    "%2e",
    "\u{ff11}",
    "\u{3002}",
    "ß",
    "é",
    "\\",
    " ",
    "\r\n",
    "\t",
    "_",
];

const REFUSED_URLS: &[(&str, UrlFault)] = &[
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
    ("https://localhost../mcp", Host),
    ("https://a..b/mcp", Host),
    ("https://.a/mcp", Host),
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

const CLOSED: &[&str] = &[
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
const OPEN: &[&str] = &[
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
