//! Detector `urls`: which hosts a text may point to.
//!
//! A URL is found by its scheme and slashes in any spelling that browsers take (`https:/\host`), by `www.`, and as the target of
//! a Markdown link or image (`](//host`). It is parsed by the WHATWG rules, so the host is the real one: behind user
//! information, percent-encoding, IDNA, odd IPv4 numbers and back slashes. What an allow list can't judge, it doesn't allow.
//!
//! **Not looked at:** hosts that are written without any of these (`evil.example/x`), schemes without a host (`mailto:`, `data:`), user
//! information with spaces in it (`https://good.example @evil.example/`), where a redirecting host leads.

use std::{
    ops::Range,
    sync::{Arc, LazyLock},
};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use url::{Host, Url};

use super::work::{Finding, Overrun, Work};

/// The most hosts of one rule.
const HOSTS_MAX: usize = 10_000;
/// The longest URL that is parsed, in bytes: a longer one is judged by its start.
const URL_BYTES_MAX: usize = 4096;
/// How far past its end a URL is read on for an `@`, in bytes.
const OVERREACH_BYTES: usize = 256;
/// How long a scheme may be.
const SCHEME_BYTES_MAX: usize = 32;

/// Where a URL may start.
static STARTS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(["://", "http:", "https:", "ws:", "wss:", "ftp:", "www.", "](//", "](\\\\", "](/\\", "](\\/"])
        .ok()
});

/// Compiled host lists.
#[derive(Clone, Debug)]
pub(super) struct Urls {
    allow: Arc<[Pattern]>,
    deny: Arc<[Pattern]>,
}

/// A host, and whether its subdomains are meant alone.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    host: String,
    is_below_only: bool,
    is_address: bool,
}

impl Urls {
    /// Compiles the lists of a rule. `example.com` covers its subdomains; `*.example.com` only them.
    ///
    /// # Errors
    /// In words, when both lists are empty or an entry is no host.
    pub(super) fn compile(allow: &[String], deny: &[String]) -> Result<Self, String> {
        if allow.is_empty() && deny.is_empty() {
            return Err("`urls` needs `allow` or `deny`".to_owned());
        }
        if allow.len() + deny.len() > HOSTS_MAX {
            return Err(format!("`urls` has more than {HOSTS_MAX} hosts"));
        }
        let compile = |list: &[String]| list.iter().map(|entry| Pattern::compile(entry)).collect::<Result<Vec<_>, _>>();
        Ok(Self { allow: compile(allow)?.into(), deny: compile(deny)?.into() })
    }

    /// Finds URLs in one text whose host is denied, or not allowed.
    pub(super) fn scan(&self, text: &str, work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        work.spend(text.len())?;
        let Some(starts) = STARTS.as_ref() else { return Err(Overrun) };
        if !broken_urls(text).iter().all(|target| self.allows_target(target)) {
            found.push(Finding { range: 0..text.len(), kind: "urls" });
            return Ok(());
        }
        let mut from = 0;
        while let Some(hit) = starts.find(aho_corasick::Input::new(text).range(from..)) {
            from = hit.end();
            let Some(candidate) = Candidate::read(text, hit.range()) else {
                work.spend(8)?;
                from = floor_up(text, hit.start() + 1);
                continue;
            };
            work.spend(64 + 2 * candidate.range.len())?;
            if !candidate.targets.iter().all(|target| self.allows_target(target)) {
                from = from.max(candidate.range.end);
                found.push(Finding { range: candidate.range, kind: "urls" });
            }
        }
        Ok(())
    }

    fn allows_target(&self, target: &Target) -> bool {
        let host = match target {
            Target::None => return true,
            Target::Odd => return self.allow.is_empty(),
            Target::Host(host) => host,
        };
        !self.deny.iter().any(|pattern| pattern.covers(host))
            && (self.allow.is_empty() || self.allow.iter().any(|pattern| pattern.covers(host)))
    }
}

impl Pattern {
    fn compile(entry: &str) -> Result<Self, String> {
        let wrong = || format!("`{entry}` is no host: write for example `example.com`, without scheme, port or path");
        let (text, is_below_only) = match entry.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (entry, false),
        };
        if text.is_empty() || text.contains(['/', '@', '?', '#', '\\', '*', ' ']) {
            return Err(wrong());
        }
        let is_v6 = text.matches(':').count() > 1 && !text.starts_with('[');
        if text.contains(':') && !is_v6 && !text.starts_with('[') {
            return Err(wrong());
        }
        let authority = if is_v6 { format!("[{text}]") } else { text.to_owned() };
        let url = Url::parse(&format!("http://{authority}/")).map_err(|_| wrong())?;
        let host = url.host().ok_or_else(wrong)?;
        let is_address = !matches!(host, Host::Domain(_));
        Ok(Self { host: plain(&host), is_below_only, is_address })
    }

    fn covers(&self, host: &str) -> bool {
        let is_below = || {
            !self.is_address
                && host.strip_suffix(self.host.as_str()).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
        };
        (!self.is_below_only && host == self.host) || is_below()
    }
}

fn plain(host: &Host<&str>) -> String {
    host.to_string().trim_end_matches('.').to_ascii_lowercase()
}

/// A piece of text that a reader may take for a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    range: Range<usize>,
    /// Where it points, by each way to tell where it ends.
    targets: Vec<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// Points nowhere.
    None,
    /// Points somewhere, but no one can say where.
    Odd,
    /// The host, in ASCII, lower case, without a final dot.
    Host(String),
}

impl Candidate {
    fn read(text: &str, hit: Range<usize>) -> Option<Self> {
        let marker = text.get(hit.clone())?;
        let start = match marker.as_bytes() {
            [b']', ..] => hit.start + 2,
            [b':', ..] => scheme_start(text, hit.start),
            _ => hit.start,
        };
        let is_inside_word = start == hit.start
            && text.get(..start)?.chars().next_back().is_some_and(|before| before.is_alphanumeric())
            && !marker.starts_with([']', ':']);
        if is_inside_word {
            return None;
        }
        let end = start + length(text.get(start..)?);
        let written = text.get(start..end.min(floor(text, start + URL_BYTES_MAX)))?;
        let after = text.get(hit.end..)?;
        if marker.ends_with(':') && !after.starts_with(['/', '\\']) && !written.contains('.') {
            return None;
        }
        let before = if marker.eq_ignore_ascii_case("www.") {
            "http://"
        } else if marker.starts_with(']') || (marker.starts_with(':') && start == hit.start) {
            "http:"
        } else {
            ""
        };
        let read = |written: &str| {
            host_of(&format!("{before}{}", if before == "http:" { written.trim_start_matches(':') } else { written }))
        };
        // A Markdown target ends at its parenthesis, though a URL doesn't; what is in quotes ends at the quote, though user
        // information may have one. Where an `@` follows, both readings count.
        let (short, rest) = split_at_parenthesis(written);
        let mut targets = vec![read(short)];
        if rest.contains('@') {
            targets.push(read(written));
        }
        if let Some(longer) = up_to_space(text, start, end).filter(|longer| longer.len() > written.len()) {
            targets.push(read(longer));
        }
        Some(Self { range: start..end, targets })
    }
}

fn split_at_parenthesis(written: &str) -> (&str, &str) {
    match written.find(')') {
        Some(at) if !written.get(..at).is_some_and(|before| before.contains('(')) => written.split_at(at),
        _ => (written, ""),
    }
}

/// The text from `start` past the end that was read, up to the next space, if user information may reach over that end.
fn up_to_space(text: &str, start: usize, end: usize) -> Option<&str> {
    let (_, authority) = text.get(start..end)?.split_once(':')?;
    if authority.trim_start_matches(['/', '\\']).contains(['/', '\\', '?', '#']) {
        return None;
    }
    let window = text.get(start..floor(text, end + OVERREACH_BYTES))?;
    let len =
        window.find(|character: char| character.is_whitespace() || character.is_control()).unwrap_or(window.len());
    let longer = window.get(..len)?;
    longer.get(end - start..).is_some_and(|rest| rest.contains('@')).then_some(longer)
}

/// Where a text points that is nothing but URLs with line breaks or tabs in them: parsers skip these.
fn broken_urls(text: &str) -> Vec<Target> {
    let text = text.trim();
    if text.len() > URL_BYTES_MAX || !text.contains(['\t', '\n', '\r']) || text.contains(' ') {
        return Vec::new();
    }
    let mut wholes: Vec<String> = Vec::new();
    for piece in text.split(['\t', '\n', '\r']) {
        match wholes.last_mut() {
            // A piece that starts a URL of its own makes a list of it.
            Some(whole) if !starts_url(piece) => whole.push_str(piece),
            _ => wholes.push(piece.to_owned()),
        }
    }
    wholes.iter().filter(|whole| starts_url(whole)).map(|whole| host_of(whole)).collect()
}

fn starts_url(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, rest)| {
        (1..=SCHEME_BYTES_MAX).contains(&scheme.len())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
            && rest.starts_with(['/', '\\'])
    })
}

/// Where the scheme before `://` starts.
fn scheme_start(text: &str, colon: usize) -> usize {
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let before = text.as_bytes().get(..colon).unwrap_or_default();
    colon - before.iter().rev().take(SCHEME_BYTES_MAX).take_while(|byte| is_scheme(byte)).count()
}

/// How far the URL goes: up to space, quotes, brackets of markup; closing punctuation of a sentence is not part of it.
fn length(rest: &str) -> usize {
    let ends = |character: char| {
        character.is_whitespace()
            || character.is_control()
            || matches!(character, '<' | '>' | '"' | '`' | '“' | '”' | '）' | '」')
    };
    let mut url = rest.get(..rest.find(ends).unwrap_or(rest.len())).unwrap_or_default();
    let mut surplus = [('(', ')'), ('[', ']'), ('{', '}')]
        .map(|(open, close)| (close, url.matches(close).count().saturating_sub(url.matches(open).count())));
    while let Some((at, last)) = url.char_indices().next_back() {
        let is_surplus = surplus.iter_mut().find(|(close, count)| *close == last && *count > 0);
        let is_closing = matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '|' | '\\');
        match is_surplus {
            Some((_, count)) => *count -= 1,
            None if is_closing => {}
            None => break,
        }
        url = url.get(..at).unwrap_or_default();
    }
    url.len()
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn floor_up(text: &str, at: usize) -> usize {
    (at..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len())
}

fn host_of(written: &str) -> Target {
    match Url::parse(written) {
        Ok(url) => match url.host() {
            Some(Host::Domain("")) | None => Target::None,
            Some(host) if url.scheme() == "file" && host.to_string() == "localhost" => Target::None,
            // The host of a scheme that isn't special is opaque: it is read as a special one would be.
            Some(host) => match Url::parse(&format!("http://{host}/")) {
                Ok(special) => special.host().map_or(Target::Odd, |host| Target::Host(plain(&host))),
                Err(_) => Target::Odd,
            },
        },
        Err(url::ParseError::EmptyHost | url::ParseError::RelativeUrlWithoutBase) => Target::None,
        Err(_) => Target::Odd,
    }
}
