//! Detector `urls`: which hosts a text may point to.
//!
//! A URL is found by its scheme and slashes in any spelling that browsers take (`https:/\host`), by `www.`, and as the target of
//! a Markdown link or image (`](//host`). It is parsed by the WHATWG rules, so the host is the real one: behind user
//! information, percent-encoding, IDNA, odd IPv4 numbers and back slashes. What an allow list can't judge, it doesn't allow. Hosts that
//! are written without any of these (`evil.example/x`), and schemes without a host (`mailto:`, `data:`), are not looked at.

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

    /// Finds URLs whose host is denied, or not allowed.
    pub(super) fn scan(&self, text: &str, work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        work.spend(text.len())?;
        let Some(starts) = STARTS.as_ref() else { return Err(Overrun) };
        let mut from = 0;
        while let Some(hit) = starts.find(aho_corasick::Input::new(text).range(from..)) {
            from = hit.end();
            let Some(candidate) = Candidate::read(text, hit.range()) else {
                work.spend(8)?;
                from = floor_up(text, hit.start() + 1);
                continue;
            };
            work.spend(64 + 2 * candidate.range.len())?;
            if !self.allows(&candidate) {
                from = from.max(candidate.range.end);
                found.push(Finding { range: candidate.range, kind: "urls" });
            }
        }
        Ok(())
    }

    fn allows(&self, candidate: &Candidate) -> bool {
        let host = match &candidate.host {
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
    host: Target,
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
        let host = if marker.eq_ignore_ascii_case("www.") {
            host_of(&format!("http://{written}"))
        } else if marker.starts_with(']') || marker.starts_with(':') && start == hit.start {
            host_of(&format!("http:{}", written.trim_start_matches(':')))
        } else {
            host_of(written)
        };
        Some(Self { range: start..end, host })
    }
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
    // `](https://a)` leaves a parenthesis in the middle when more follows; a host never has one.
    let written =
        written.split_once(")").map_or(written, |(before, _)| if before.contains('(') { written } else { before });
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
