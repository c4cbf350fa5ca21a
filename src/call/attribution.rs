//! Stage `attribution`: who is this call for, by the caller's own account? (contract §10)
//!
//! Goes to the access log and the audit, never upstream and never into a metric label.

use http::HeaderMap;

use crate::refusal::Refusal;

/// The most attribution headers on a request.
pub const HEADERS_MAX: usize = 16;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 128;
/// The longest trace id, in bytes.
pub const TRACE_ID_BYTES_MAX: usize = 64;

/// What the caller said about itself, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// `trace_id`, from the query or the header.
    pub trace_id: Option<String>,
    /// Header name below the prefix, lower case, and its value.
    pub entries: Vec<(String, String)>,
}

impl Attribution {
    /// Whom the call is for.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.entries.iter().find(|(name, _)| name == "user").map(|(_, value)| value.as_str())
    }
}

/// Reads the attribution headers and `?trace_id=`.
///
/// # Refuses
/// - [`Refusal::InvalidAttribution`]: too many, unknown, repeated, too long, not visible ASCII, or two different trace ids.
pub fn read(headers: &HeaderMap, query: Option<&str>, prefix: &str) -> Result<Attribution, Refusal> {
    let mut attribution = Attribution::default();
    let mut count = 0usize;
    for name in headers.keys() {
        let Some(rest) = name.as_str().strip_prefix(prefix) else { continue };
        let mut values = headers.get_all(name).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return bad("a header is repeated") };
        count += 1;
        if count > HEADERS_MAX {
            return bad("more than 16 headers");
        }
        let known = matches!(rest, "user" | "team" | "session" | "trace-id")
            || rest.strip_prefix("tag-").is_some_and(|tag| !tag.is_empty());
        if !known {
            return bad("an unknown header");
        }
        let bytes = value.as_bytes();
        if bytes.is_empty() || bytes.len() > VALUE_BYTES_MAX || !bytes.iter().all(u8::is_ascii_graphic) {
            return bad("a value that is not 1 to 128 visible ASCII characters");
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        if rest == "trace-id" {
            attribution.trace_id = Some(text);
        } else {
            attribution.entries.push((rest.to_owned(), text));
        }
    }
    join_trace_id(&mut attribution, query)?;
    attribution.entries.sort();
    Ok(attribution)
}

fn join_trace_id(attribution: &mut Attribution, query: Option<&str>) -> Result<(), Refusal> {
    let mut from_query = query
        .unwrap_or("")
        .split('&')
        .filter_map(|pair| pair.strip_prefix("trace_id=").or_else(|| (pair == "trace_id").then_some("")));
    if let Some(value) = from_query.next() {
        if from_query.next().is_some() {
            return bad("trace_id is repeated");
        }
        if attribution.trace_id.as_deref().is_some_and(|header| header != value) {
            return bad("trace_id differs between query and header");
        }
        attribution.trace_id = Some(value.to_owned());
    }
    match &attribution.trace_id {
        Some(id) if !is_trace_id(id) => bad("trace_id is not 1 to 64 of [A-Za-z0-9._-]"),
        _ => Ok(()),
    }
}

fn is_trace_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= TRACE_ID_BYTES_MAX
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-'))
}

fn bad<T>(rule: &'static str) -> Result<T, Refusal> {
    Err(Refusal::InvalidAttribution(rule))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::read;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn well_formed_attribution_is_kept() {
        let map = headers(&[("x-toolgate-user", "ann"), ("x-toolgate-tag-cost", "a:1"), ("x-other", "é")]);
        let got = read(&map, Some("a=b&trace_id=t.1"), "x-toolgate-").unwrap();
        assert_eq!(got.trace_id.as_deref(), Some("t.1"));
        assert_eq!(got.entries, [("tag-cost".into(), "a:1".into()), ("user".into(), "ann".into())]);
    }

    #[test]
    fn each_malformation_is_refused() {
        let long = "x".repeat(129);
        let many: Vec<(String, &str)> = (0..17).map(|i| (format!("x-toolgate-tag-{i}"), "v")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        type Case<'c> = (&'c [(&'c str, &'c str)], Option<&'c str>);
        let cases: [Case<'_>; 10] = [
            (&[("x-toolgate-user", "a"), ("x-toolgate-user", "a")], None),
            (&[("x-toolgate-role", "a")], None),
            (&[("x-toolgate-tag-", "a")], None),
            (&[("x-toolgate-user", "")], None),
            (&[("x-toolgate-user", "a b")], None),
            (&[("x-toolgate-user", &long)], None),
            (&many, None),
            (&[("x-toolgate-trace-id", "a")], Some("trace_id=b")),
            (&[], Some("trace_id=a&trace_id=a")),
            (&[], Some("trace_id=a%20b")),
        ];
        for (pairs, query) in cases {
            assert!(read(&headers(pairs), query, "x-toolgate-").is_err(), "{pairs:?} {query:?}");
        }
    }
}
