//! The judge of server URLs: what passes is public HTTPS without user name, password or fragment, and stays what it is when read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolgate::upstream::egress::{EgressRules, judge_ip, judge_url};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let closed = EgressRules::default();
    let open = EgressRules { allow_http: true, ..EgressRules::default() };
    for (rules, prefix) in [(&closed, ""), (&closed, "https://"), (&open, "http://")] {
        let text = format!("{prefix}{text}");
        let Ok(endpoint) = judge_url(&text, rules) else { continue };
        assert!(endpoint.https || rules.allow_http);
        assert!(endpoint.port != 0 && !endpoint.host.is_empty() && endpoint.path_and_query.starts_with('/'));
        assert!(endpoint.literal.is_none_or(|ip| judge_ip(ip, rules)), "an address that is not public");
        assert!(!endpoint.host.eq_ignore_ascii_case("localhost"));
        let url = endpoint.url();
        assert!(url.is_ascii() && !url.contains(['@', '#', '\\']) && !url.contains(char::is_whitespace) || url.contains("/"));
        assert!(!endpoint.authority().contains(['@', '/', '#', '?', '\\', ' ']), "{}", endpoint.authority());
        if url.len() <= 2048 {
            let again = judge_url(&url, rules).expect("what was judged is judged the same");
            assert_eq!((again.host, again.port, again.path_and_query), (endpoint.host, endpoint.port, endpoint.path_and_query));
        }
    }
});
