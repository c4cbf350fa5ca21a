//! How an answer looks: JSON with the revision as `ETag`, or the error envelope of contract §2.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value as Json, json};

use crate::{
    control::{ChangeError, Rejected},
    store::StoreError,
};

/// What a handler comes to.
pub(super) type Outcome = Result<Reply, Refused>;

/// A good answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    body: Json,
    revision: Option<u64>,
}

impl Reply {
    /// 200.
    pub(super) const fn ok(body: Json) -> Self {
        Self { status: StatusCode::OK, body, revision: None }
    }

    /// 201: made.
    pub(super) const fn created(body: Json) -> Self {
        Self { status: StatusCode::CREATED, body, revision: None }
    }

    /// With the revision that it speaks of.
    pub(super) const fn at(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(header::CONTENT_TYPE, JSON)], self.body.to_string()).into_response();
        if let Some(tag) = self.revision.and_then(|revision| HeaderValue::from_str(&format!("\"{revision}\"")).ok()) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// Why a call is refused.
#[derive(Debug)]
pub(super) struct Refused {
    status: u16,
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
    header: Option<(&'static str, String)>,
}

impl Refused {
    fn new((status, kind, code): (u16, &'static str, Option<&'static str>), message: impl Into<String>) -> Self {
        Self { status, kind, code, message: sentence(&message.into()), header: None }
    }

    /// 400 `invalid_request`
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new((400, INVALID, Some("invalid_request")), message)
    }

    /// 404 `not_found`
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new((404, "not_found", Some("not_found")), message)
    }

    /// 405
    pub(super) fn method() -> Self {
        Self::new((405, INVALID, None), "this path does not take that method")
    }

    /// 401, the same whatever the cause.
    pub(super) fn unauthenticated() -> Self {
        let refused =
            Self::new((401, "authentication_error", None), "a valid token is needed: `Authorization: Bearer TOKEN`");
        refused.with("www-authenticate", "Bearer".to_owned())
    }

    /// 429 for failing attempts.
    pub(super) fn too_many_failures(seconds: u64) -> Self {
        let refused = Self::new((429, "rate_limit_exceeded", None), "too many failed attempts from this address");
        refused.with("retry-after", seconds.to_string())
    }

    /// 403 `role_required`
    pub(super) fn role(role: &str) -> Self {
        Self::new((403, "permission_denied", Some("role_required")), format!("this needs the role `{role}`"))
    }

    /// 413 `request_too_large`
    pub(super) fn too_large(bytes_max: usize) -> Self {
        Self::new((413, INVALID, Some("request_too_large")), format!("the body is larger than {bytes_max} bytes"))
    }

    /// 415 `unsupported_media_type`
    pub(super) fn media_type() -> Self {
        Self::new((415, INVALID, Some("unsupported_media_type")), "the body must be `application/json`")
    }

    /// 500: a fault of our own; no detail leaks.
    pub(super) fn internal() -> Self {
        Self::new((500, "internal_error", None), "the gateway failed")
    }

    /// The status, `error.code` and the message, for who shows them elsewhere.
    pub(super) fn parts(&self) -> (u16, Option<&'static str>, &str) {
        (self.status, self.code, &self.message)
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.header = Some((name, value));
        self
    }
}

impl From<ChangeError> for Refused {
    fn from(error: ChangeError) -> Self {
        if let ChangeError::Store(why) = &error {
            tracing::error!("the store: {why}");
        }
        Self::new(error.row(), error.to_string())
    }
}

impl From<Rejected> for Refused {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Faults(text) => Self::invalid(text),
            Rejected::Store(why) => ChangeError::Store(why).into(),
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        ChangeError::Store(error).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let error = json!({ "error": { "type": self.kind, "code": self.code, "message": self.message } });
        let mut response = (status, [(header::CONTENT_TYPE, JSON)], error.to_string()).into_response();
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// A message that begins with a capital and ends with a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return String::new() };
    let end = if text.ends_with(['.', '!', '?', '\n']) { "" } else { "." };
    first.to_uppercase().chain(chars).collect::<String>() + end
}

const INVALID: &str = "invalid_request_error";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
