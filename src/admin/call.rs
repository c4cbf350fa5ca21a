//! One call as handlers see it: the caller, the query, the body. Strict: an unknown member of the query, a doubled member of the
//! body, a wrong media type are errors.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, header::CONTENT_TYPE, header::IF_MATCH, request::Parts},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use url::form_urlencoded;

use super::{
    Rooms,
    auth::{Caller, Peer, authenticate, role_name},
    reply::Refused,
};
use crate::{
    conf::Role,
    control::change::{Asker, Confirm},
    model::{
        jsonrpc::{Document, JsonFault},
        units::shown,
    },
};

/// The largest body, in bytes.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;

/// Who calls, and the query.
#[derive(Clone, Debug)]
pub(super) struct Call {
    caller: Caller,
    params: BTreeMap<String, String>,
    if_match: Option<String>,
}

/// What every changing call takes in its query.
const CHANGING: [&str; 1] = ["expected_revision"];

impl Call {
    /// Lets the caller in, if its role is enough and the query has only these members.
    ///
    /// # Errors
    /// 403 `role_required`, then 400.
    pub(super) fn allow(&self, role: Role, params: &[&str]) -> Result<(), Refused> {
        if self.caller.role < role {
            return Err(Refused::role(role_name(role)));
        }
        let known = |name: &&String| !params.contains(&name.as_str()) && !CHANGING.contains(&name.as_str());
        match self.params.keys().find(known) {
            Some(name) => Err(Refused::invalid(format!("unknown member `{}` in the query", shown(name)))),
            None => Ok(()),
        }
    }

    /// A member of the query.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    /// Every member of the query, by name.
    pub(super) fn params(&self) -> impl Iterator<Item = (&str, &str)> {
        self.params.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// `?organization=`
    pub(super) fn organization(&self) -> Option<&str> {
        self.param("organization")
    }

    /// Who asks for a change, and for which revision: `If-Match`, or `?expected_revision=`.
    ///
    /// # Errors
    /// 400: not a revision.
    pub(super) fn asker(&self, confirm: Confirm) -> Result<Asker, Refused> {
        let header = self.if_match.as_deref().map(|tag| tag.trim().trim_matches('"')).filter(|tag| *tag != "*");
        let expected = match self.param("expected_revision").or(header) {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| Refused::invalid("the expected revision is not a number"))?),
        };
        Ok(Asker { who: self.caller.name.clone(), expected, confirm, note: None })
    }
}

impl FromRequestParts<Arc<Rooms>> for Call {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _rooms: &Arc<Rooms>) -> Result<Self, Refused> {
        let caller = parts.extensions.get::<Caller>().cloned().ok_or_else(Refused::internal)?;
        let mut params = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            if params.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(Refused::invalid(format!("the query has `{}` twice", shown(&name))));
            }
        }
        let if_match = match parts.headers.get(IF_MATCH) {
            None => None,
            Some(value) => {
                Some(value.to_str().map_err(|_| Refused::invalid("`If-Match` is not a revision"))?.to_owned())
            }
        };
        Ok(Self { caller, params, if_match })
    }
}

/// Tells who calls, before anything else is looked at.
///
/// # Errors
/// 401, 429
pub(super) fn admit(rooms: &Rooms, peer: &Peer, request: &mut Request) -> Result<(), Refused> {
    let caller = authenticate(rooms, peer, request.headers())?;
    request.extensions_mut().insert(caller);
    Ok(())
}

/// The segments of a path, decoded.
pub(super) struct At<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Rooms>> for At<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, rooms: &Arc<Rooms>) -> Result<Self, Refused> {
        match Path::<T>::from_request_parts(parts, rooms).await {
            Ok(Path(segments)) => Ok(Self(segments)),
            Err(_) => Err(Refused::invalid("the path is not percent-encoded UTF-8")),
        }
    }
}

/// A body, read to its limit and not yet looked at.
pub(super) struct Body {
    bytes: Bytes,
    is_json: bool,
}

impl FromRequest<Arc<Rooms>> for Body {
    type Rejection = Refused;

    async fn from_request(request: Request, rooms: &Arc<Rooms>) -> Result<Self, Refused> {
        let is_json = is_json(request.headers());
        match Bytes::from_request(request, rooms).await {
            Ok(bytes) => Ok(Self { bytes, is_json }),
            Err(why) if why.status() == 413 => Err(Refused::too_large(BODY_BYTES_MAX)),
            Err(_) => Err(Refused::invalid("the body did not arrive")),
        }
    }
}

/// A missing type is taken for JSON: there is no other.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (None, _) => true,
        (Some(one), None) => {
            let kind = one.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
            kind.trim().eq_ignore_ascii_case("application/json")
        }
        _ => false,
    }
}

impl Body {
    /// The JSON object that the body must be.
    ///
    /// # Errors
    /// 415, 400
    pub(super) fn object(&self) -> Result<Map<String, Json>, Refused> {
        if self.bytes.is_empty() {
            return Err(Refused::invalid("a JSON object is needed as body"));
        }
        self.optional()
    }

    /// The JSON object that the body is; an empty one if there is no body.
    ///
    /// # Errors
    /// 415, 400
    pub(super) fn optional(&self) -> Result<Map<String, Json>, Refused> {
        if self.bytes.is_empty() {
            return Ok(Map::new());
        }
        if !self.is_json {
            return Err(Refused::media_type());
        }
        let mut scratch = Vec::new();
        Document::parse(&self.bytes, &mut scratch).map_err(|fault| {
            Refused::invalid(match fault {
                JsonFault::NotJson { position, .. } => format!("the body is not JSON (at byte {position})"),
                JsonFault::Duplicate { .. } => "an object of the body names a member twice".to_owned(),
            })
        })?;
        match serde_json::from_slice(&self.bytes) {
            Ok(Json::Object(members)) => Ok(members),
            _ => Err(Refused::invalid("the body must be a JSON object")),
        }
    }

    /// A call that needs no body: one that is there must be an empty object.
    ///
    /// # Errors
    /// 415, 400
    pub(super) fn none(&self) -> Result<(), Refused> {
        only(&self.optional()?, &[])
    }

    /// The body as it was sent.
    pub(super) fn raw(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes `confirm_trifecta` out of a body: only the boolean `true` confirms.
pub(super) fn take_confirm(members: &mut Map<String, Json>) -> Confirm {
    match members.remove("confirm_trifecta") {
        None | Some(Json::Null | Json::Bool(false)) => Confirm::No,
        Some(Json::Bool(true)) => Confirm::Yes,
        Some(_) => Confirm::Wrong,
    }
}

/// Refuses members other than these.
///
/// # Errors
/// 400
pub(super) fn only(members: &Map<String, Json>, known: &[&str]) -> Result<(), Refused> {
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(Refused::invalid(format!("unknown member `{}`", shown(name)))),
        None => Ok(()),
    }
}
