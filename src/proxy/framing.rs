//! Which HTTP we accept at all, judged on the bytes of the head as they came (contract §2 row 0, security 1.8).
//!
//! Pingora is lenient where two readers could disagree: both lengths, doubled or odd ones, other transfer codings, bare LF.
//! Here each of them is refused, and the connection closed.

use crate::refusal::Refusal;

/// Judges the raw head of an HTTP/1 request, from the request line to the empty line.
///
/// # Refuses
/// - [`Refusal::HeadTooLarge`]: over `bytes_max`.
/// - [`Refusal::Framing`]: anything that two readers could take differently.
pub fn judge(head: &[u8], bytes_max: u64) -> Result<(), Refusal> {
    if u64::try_from(head.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(Refusal::HeadTooLarge);
    }
    let mut lines = head.split_inclusive(|c| *c == b'\n').map(|line| line.strip_suffix(b"\r\n"));
    let request_line = lines.next().flatten().ok_or(Refusal::Framing("a line does not end in CRLF"))?;
    let version = request_line.rsplit(|c| *c == b' ').next().unwrap_or_default();
    if request_line.iter().filter(|c| **c == b' ').count() != 2 {
        return Err(Refusal::Framing("the request line must have three parts"));
    }
    if request_line.iter().any(u8::is_ascii_control) {
        return Err(Refusal::Framing("a control character in the request line"));
    }
    if !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        return Err(Refusal::Framing("another version than HTTP/1.1 and HTTP/1.0"));
    }
    let mut seen = Seen::default();
    for line in lines {
        let line = line.ok_or(Refusal::Framing("a line does not end in CRLF"))?;
        if !line.is_empty() {
            seen.header(line)?;
        }
    }
    seen.finish(version == b"HTTP/1.1")
}

#[derive(Default)]
struct Seen {
    lengths: usize,
    codings: usize,
    hosts: usize,
}

impl Seen {
    fn header(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let colon = line.iter().position(|c| *c == b':').ok_or(Refusal::Framing("a header without a colon"))?;
        let (name, value) = line.split_at(colon);
        let value = trimmed(value.get(1..).unwrap_or_default());
        if name.is_empty() || !name.iter().all(|c| is_token(*c)) {
            return Err(Refusal::Framing("a malformed header name"));
        }
        if value.iter().any(|c| matches!(c, 0 | b'\r' | b'\n')) {
            return Err(Refusal::Framing("a control character in a header"));
        }
        match name.to_ascii_lowercase().as_slice() {
            b"content-length" => {
                self.lengths += 1;
                if !is_length(value) {
                    return Err(Refusal::Framing("a malformed Content-Length"));
                }
            }
            b"transfer-encoding" => {
                self.codings += 1;
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::Framing("a transfer coding other than one chunked"));
                }
            }
            b"host" => self.hosts += 1,
            b"upgrade" if !value.eq_ignore_ascii_case(b"h2c") => {
                return Err(Refusal::Framing("Upgrade is not served"));
            }
            b"expect" if !value.eq_ignore_ascii_case(b"100-continue") => {
                return Err(Refusal::Framing("an unknown Expect"));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, http_1_1: bool) -> Result<(), Refusal> {
        match (self.lengths, self.codings, self.hosts) {
            (2.., _, _) => Err(Refusal::Framing("more than one Content-Length")),
            (_, 2.., _) => Err(Refusal::Framing("more than one Transfer-Encoding")),
            (1, 1, _) => Err(Refusal::Framing("both Content-Length and Transfer-Encoding")),
            (_, 1, _) if !http_1_1 => Err(Refusal::Framing("Transfer-Encoding before HTTP/1.1")),
            (_, _, 1) => Ok(()),
            (_, _, 0) if !http_1_1 => Ok(()),
            _ => Err(Refusal::Framing("there must be exactly one Host")),
        }
    }
}

/// Without the optional white space of RFC 9110 §5.6.3, which a bare CR is not.
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Digits without a sign, a list or a leading zero, that fit in 63 bits.
fn is_length(value: &[u8]) -> bool {
    (1..=18).contains(&value.len())
        && value.iter().all(u8::is_ascii_digit)
        && (value.len() == 1 || value.first() != Some(&b'0'))
}

/// RFC 9110 §5.6.2.
const fn is_token(c: u8) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(
            c,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::refusal::Refusal;

    fn head(lines: &[&str]) -> Vec<u8> {
        let mut out = String::new();
        for line in lines {
            out.push_str(line);
            out.push_str("\r\n");
        }
        out.push_str("\r\n");
        out.into_bytes()
    }

    #[test]
    fn plain_heads_pass() {
        for lines in [
            &["POST /gateway/mcp HTTP/1.1", "Host: a", "Content-Length: 10"][..],
            &["POST / HTTP/1.1", "Host: a", "transfer-encoding: CHUNKED"],
            &["POST / HTTP/1.1", "Host: a", "Upgrade: h2c", "Expect: 100-continue", "Content-Length: 0"],
            &["POST / HTTP/1.0", "Content-Length: 2"],
        ] {
            assert_eq!(judge(&head(lines), 1024), Ok(()), "{lines:?}");
        }
    }

    #[test]
    fn whatever_two_readers_could_take_differently_is_refused() {
        for extra in [
            &["Host: a", "Content-Length: 2", "Transfer-Encoding: chunked"][..],
            &["Host: a", "Content-Length: 2", "Content-Length: 2"],
            &["Host: a", "Content-Length: 2, 2"],
            &["Host: a", "Content-Length: +2"],
            &["Host: a", "Content-Length: 0002"],
            &["Host: a", "Content-Length: "],
            &["Host: a", "Content-Length: 99999999999999999999"],
            &["Host: a", "Transfer-Encoding: gzip, chunked"],
            &["Host: a", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
            &["Host: a", "Transfer-Encoding: identity"],
            &["Host: a", "Host: a"],
            &[],
            &["Host: a", "Upgrade: websocket"],
            &["Host: a", "Expect: miracles"],
            &["Host: a", "Bad Name: x"],
            &["Host: a", "X : y"],
            &["Host: a", "Content-Length: \r3"],
            &["Host: a", "Content-Length: 3\u{c}"],
            &["Host: a", "X: y\r"],
        ] {
            let mut lines = vec!["POST / HTTP/1.1"];
            lines.extend_from_slice(extra);
            assert!(matches!(judge(&head(&lines), 4096), Err(Refusal::Framing(_))), "{extra:?}");
        }
        let bare = b"POST / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n";
        assert!(matches!(judge(bare, 4096), Err(Refusal::Framing(_))));
        assert!(matches!(
            judge(&head(&["POST / HTTP/1.0", "Transfer-Encoding: chunked"]), 4096),
            Err(Refusal::Framing(_))
        ));
        for line in [
            "POST /a b HTTP/1.1",
            "POST /a\0 HTTP/1.1",
            "POST /a\tb HTTP/1.1",
            "POST /a\r HTTP/1.1",
            "POST /a xHTTP/1.1",
        ] {
            assert!(matches!(judge(&head(&[line, "Host: a"]), 4096), Err(Refusal::Framing(_))), "{line:?}");
        }
    }

    #[test]
    fn the_head_limit_is_in_bytes_and_equal_passes() {
        let head = head(&["POST / HTTP/1.1", "Host: a"]);
        let len = head.len() as u64;
        assert_eq!(judge(&head, len), Ok(()));
        assert_eq!(judge(&head, len - 1), Err(Refusal::HeadTooLarge));
    }
}
