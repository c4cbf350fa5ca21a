//! Fields of a form, and of a query, which has the same shape.

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, header},
};
use percent_encoding::utf8_percent_encode;
use url::form_urlencoded;

use crate::admin::pages::PLAIN;

/// The largest form, in bytes.
const FORM_BYTES_MAX: usize = 64 << 10;

/// Names and values, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads `a=b&c=d`.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// The first value of a name; empty if there is none.
    pub(super) fn one(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Every value of a name.
    pub(super) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a form that was sent; none: it is none, or too large.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Option<Fields> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    if !kind.split(';').next()?.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return None;
    }
    Some(Fields::parse(&to_bytes(body, FORM_BYTES_MAX).await.ok()?))
}

/// A path with a query; what has no value is left out.
pub(super) fn link(path: &str, fields: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    let mut joint = '?';
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(joint);
        out.push_str(name);
        out.push('=');
        out.extend(utf8_percent_encode(value, PLAIN));
        joint = '&';
    }
    out
}
