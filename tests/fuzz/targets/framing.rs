//! The head of a request: what passes has at most one length or one coding, one host, and no line end that another reader could miss.
#![no_main]

use libfuzzer_sys::fuzz_target;
use toolgate::proxy::framing::judge;

const HEAD_MAX: u64 = 4096;

fuzz_target!(|data: &[u8]| {
    // With a good beginning and end the fuzzer does not have to find them.
    let framed = [b"POST /gateway/mcp HTTP/1.1\r\nHost: a\r\n", data, b"\r\n\r\n"].concat();
    for head in [data, &framed] {
        if judge(head, HEAD_MAX).is_ok() {
            check(head);
        }
    }
});

fn check(head: &[u8]) {
    assert!(head.len() as u64 <= HEAD_MAX && !head.contains(&0));
    let bare = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    assert!(!(0..head.len()).any(bare), "a bare LF");
    let text: String = head.iter().map(|&byte| char::from(byte)).collect();
    let lines: Vec<(String, &str)> = text
        .split("\r\n")
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])))
        .collect();
    let all = |name: &str| lines.iter().filter(|(n, _)| n == name).map(|(_, v)| *v).collect::<Vec<_>>();
    let (lengths, codings) = (all("content-length"), all("transfer-encoding"));
    assert!(lengths.len() + codings.len() <= 1, "two framings");
    assert!(lengths.iter().all(|v| v.parse::<u64>().is_ok_and(|n| n.to_string() == *v)), "an odd length");
    assert!(codings.iter().all(|v| v.eq_ignore_ascii_case("chunked")), "an odd coding");
    let modern = text.split("\r\n").next().is_some_and(|line| line.ends_with("HTTP/1.1"));
    assert!(all("host").len() <= 1 && (!modern || all("host").len() == 1), "hosts");
    assert!(lines.iter().all(|(name, _)| !name.contains([' ', '\t'])), "white space in a name");
}
