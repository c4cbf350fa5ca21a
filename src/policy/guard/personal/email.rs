//! Email addresses: read outwards from each `@`, in ASCII or with other letters.

use memchr::memchr_iter;

use super::super::work::{Finding, Overrun, Work};

/// Longest local part and domain (RFC 5321 4.5.3.1), in bytes.
const LOCAL_BYTES_MAX: usize = 64;
const DOMAIN_BYTES_MAX: usize = 253;
/// What looks like a top-level domain but is how files end: `logo@2x.png`.
const FILE_ENDINGS: [&str; 16] =
    ["png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "css", "js", "ts", "tsx", "json", "html", "md", "py", "txt"];

/// Finds addresses.
pub(super) fn scan(text: &[u8], work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
    let mut done = 0;
    for at in memchr_iter(b'@', text) {
        let local = local_before(text, at, done);
        let domain = domain_after(text, at + 1);
        work.spend(8 + local + domain)?;
        let (start, end) = (at - local, at + 1 + domain);
        let local = text.get(start..at).unwrap_or_default();
        let domain = text.get(at + 1..end).unwrap_or_default();
        if is_local(local) && is_domain(domain) && !is_in_authority(text, start) && !is_scp(local, text.get(end)) {
            found.push(Finding { range: start..end, kind: "email" });
            done = end;
        }
    }
    Ok(())
}

fn local_before(text: &[u8], at: usize, done: usize) -> usize {
    let from = at.saturating_sub(LOCAL_BYTES_MAX + 1).max(done);
    let window = text.get(from..at).unwrap_or_default();
    let is_local = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || b".!#$%&'*+-/=?^_{|}~`".contains(byte);
    let mut len = window.iter().rev().take_while(|byte| is_local(byte)).count();
    // What may stand in an address in theory, and beside one in practice, is left off its start.
    let loose = |byte: &u8| b"!#$%&'*/=?^{|}~`.".contains(byte);
    if let Some(last) = window.iter().rev().take(len).position(|byte| b"/=?&'`|{}*!#$^".contains(byte)) {
        len = last;
    }
    while len > 0 && window.get(window.len() - len).is_some_and(loose) {
        len -= 1;
    }
    len
}

fn domain_after(text: &[u8], from: usize) -> usize {
    let window = text.get(from..).unwrap_or_default();
    let is_domain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte >= 0x80 || matches!(byte, b'-' | b'.');
    let mut len = window.iter().take(DOMAIN_BYTES_MAX + 1).take_while(|byte| is_domain(byte)).count();
    while len > 0 && window.get(len - 1).is_some_and(|byte| matches!(byte, b'.' | b'-')) {
        len -= 1;
    }
    len
}

fn is_local(local: &[u8]) -> bool {
    !local.is_empty()
        && local.len() <= LOCAL_BYTES_MAX
        && !local.windows(2).any(|pair| pair == b"..")
        && !local.ends_with(b".")
}

/// At least two labels, the last of letters only (or punycode) and no file ending.
fn is_domain(domain: &[u8]) -> bool {
    let mut labels = domain.split(|&byte| byte == b'.').rev();
    let Some(top) = labels.next() else { return false };
    let is_label = |label: &[u8]| (1..=63).contains(&label.len()) && !label.starts_with(b"-") && !label.ends_with(b"-");
    let is_top = top.len() >= 2
        && (top.iter().all(|byte| byte.is_ascii_alphabetic() || *byte >= 0x80) || top.starts_with(b"xn--"))
        && !FILE_ENDINGS.iter().any(|ending| top.eq_ignore_ascii_case(ending.as_bytes()));
    let mut count = 0;
    domain.len() <= DOMAIN_BYTES_MAX
        && is_top
        && labels.all(|label| {
            count += 1;
            is_label(label)
        })
        && count > 0
}

/// `https://user:password@host`: that is a URL's user information.
fn is_in_authority(text: &[u8], start: usize) -> bool {
    let window = text.get(start.saturating_sub(128)..start).unwrap_or_default();
    let word = window
        .iter()
        .rposition(|byte| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'<' | 0))
        .map_or(0, |at| at + 1);
    let word = window.get(word..).unwrap_or_default();
    memchr::memmem::rfind(word, b"://")
        .is_some_and(|at| !word.get(at + 3..).unwrap_or_default().iter().any(|byte| matches!(byte, b'/' | b'?' | b'#')))
}

/// `git@host:path`: an address of `ssh`, not of a person.
fn is_scp(local: &[u8], next: Option<&u8>) -> bool {
    local == b"git" && next == Some(&b':')
}
