//! Lists: sorted by a key, filtered, a page at a time where `?limit=` says so. `next` is the path of the next page, with all that
//! the query had.
//!
//! A page begins after a key, not at a number: what is made or deleted while somebody turns the pages moves no other entry.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value as Json};

use super::{
    call::Call,
    reply::{Refused, Reply},
};

/// The most entries of one page.
pub(super) const LIMIT_MAX: usize = 1000;

/// What a segment of a path or a value of a query leaves as it is (RFC 3986 unreserved).
pub(super) const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Members of the query of every list.
pub(super) const PARAMS: [&str; 2] = ["limit", "after"];

/// Percent-encodes a segment.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Answers with a list: `entries` are pairs of a key that is unique and orders them, and what is shown.
///
/// # Errors
/// 400: a bad `limit`.
pub(super) fn page<'a>(
    call: &Call,
    (path, name): (&str, &str),
    entries: impl Iterator<Item = (String, Box<dyn FnOnce() -> Json + 'a>)>,
) -> Result<Reply, Refused> {
    let limit = match call.param("limit") {
        None => usize::MAX,
        Some(text) => text
            .parse()
            .ok()
            .filter(|limit| (1..=LIMIT_MAX).contains(limit))
            .ok_or_else(|| Refused::invalid(format!("`limit` must be from 1 to {LIMIT_MAX}")))?,
    };
    let after = call.param("after");
    let mut entries: Vec<_> = entries.filter(|(key, _)| after.is_none_or(|after| key.as_str() > after)).collect();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    let more = entries.len() > limit;
    entries.truncate(limit);
    let last = entries.last().map(|(key, _)| key.clone()).unwrap_or_default();
    let shown: Vec<Json> = entries.into_iter().map(|(_, show)| show()).collect();
    let mut body = Map::new();
    body.insert(name.to_owned(), Json::Array(shown));
    if more {
        let others = call.params().filter(|(name, _)| !PARAMS.contains(name));
        let others: String = others.map(|(name, value)| format!("&{name}={}", encoded(value))).collect();
        let next = format!("{path}?limit={limit}&after={}{others}", encoded(&last));
        body.insert("next".to_owned(), Json::from(next));
    }
    Ok(Reply::ok(Json::Object(body)))
}
