//! The console: a few pages for reviewers on the TCP listener. Made here from the same catalog as the API's answers, and what a
//! person decides goes the way of the API; without scripts, and with nothing from elsewhere.
//!
//! The token of the API opens it: a login puts a cookie in its place (`sessions.rs`). Which page is where is in [`answer`]; how the
//! pages look, in `layout.rs`, `review.rs` and `lists.rs`.
//!
//! **Invariants.** Nothing is shown or done before the session's token was found good at that moment. A change needs, besides the
//! cookie, the secret of the session's forms and an `Origin` that is this listener's own.

mod form;
mod layout;
mod lists;
mod review;
mod sessions;

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use maud::Markup;

pub use self::sessions::Sessions;
use self::{form::Fields, sessions::Session};
use super::{
    Rooms,
    auth::{self, Caller},
    reply::Refused,
};
use crate::model::id::KeyDigest;

/// Where the console is.
const HOME: &str = "/console";
/// The cookie of a session.
const COOKIE: &str = "toolgate_console";
/// What a page may load and do: its own style sheet, its own forms, nothing else.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const STYLE: &str = include_str!("style.css");

/// Whether a path is one of the console.
pub(super) fn is_at(path: &str) -> bool {
    path.strip_prefix(HOME).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What the pages are made of.
struct Page<'r> {
    rooms: &'r Rooms,
    caller: Caller,
    session: Session,
    query: Fields,
}

/// A page, or where to go instead.
enum Shown {
    Page(Markup),
    /// A page that says why something was refused, with that status.
    Refused(u16, Markup),
    /// To another page, after something was done.
    Go(String),
}

/// Answers a request of a browser.
pub(super) async fn answer(rooms: &Arc<Rooms>, address: IpAddr, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let place = parts.uri.path().strip_prefix(HOME).unwrap_or_default().to_owned();
    let sends = parts.method == Method::POST;
    if !sends && parts.method != Method::GET && parts.method != Method::HEAD {
        return page(405, &layout::message("This page is read or sent as a form.")).into_response();
    }
    if place == "/style.css" && !sends {
        return ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response();
    }
    let sent = if sends {
        if !is_own_origin(&parts.headers) {
            return page(403, &layout::message("The form did not come from this page."));
        }
        match form::read(&parts.headers, body).await {
            Some(sent) => sent,
            None => return page(400, &layout::message("The form cannot be read.")),
        }
    } else {
        Fields::default()
    };
    if place == "/login" && sends {
        return log_in(rooms, address, &parts.headers, &sent).await;
    }
    let cookie = cookie(&parts.headers);
    let session = match &cookie {
        Some(cookie) => rooms.sessions.find(cookie).await,
        None => None,
    };
    let tokens = &rooms.control.catalog().conf.admin.tokens;
    let known = session.and_then(|session| Some((auth::known(tokens, &session.token)?, session)));
    let Some((caller, session)) = known else {
        return if place == "/login" { page(200, &layout::login(None)) } else { go(&format!("{HOME}/login")) };
    };
    if sends && !session.sent(sent.one("form")) {
        return page(403, &layout::message("The form is not one of this login; open the page anew."));
    }
    if place == "/logout" && sends {
        rooms.sessions.end(&cookie.unwrap_or_default()).await;
        return with_cookie(go(&format!("{HOME}/login")), "", 0, false);
    }
    let query = Fields::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let asked = Page { rooms, caller, session, query };
    let shown = match (place.as_str(), sends) {
        ("" | "/" | "/login", false) => Ok(Shown::Go(format!("{HOME}/tools"))),
        ("/tools", false) => lists::tools(&asked),
        ("/tool", false) => review::show(&asked),
        ("/tool", true) => review::decide(&asked, &sent).await,
        ("/keys", false) => lists::keys(&asked),
        ("/audit", false) => lists::audit(&asked).await,
        _ => Err(Refused::not_found("there is no such page")),
    };
    match shown {
        Ok(Shown::Page(markup)) => page(200, &markup),
        Ok(Shown::Refused(status, markup)) => page(status, &markup),
        Ok(Shown::Go(place)) => go(&place),
        Err(refused) => {
            let (status, _, message) = refused.parts();
            page(status, &layout::page(&asked, "Toolgate", &layout::told(message)))
        }
    }
}

async fn log_in(rooms: &Rooms, address: IpAddr, headers: &HeaderMap, sent: &Fields) -> Response {
    let digest = KeyDigest::of(sent.one("token").trim().as_bytes());
    if auth::known(&rooms.control.catalog().conf.admin.tokens, &digest).is_none() {
        let refused = auth::failed(rooms, address);
        let (status, _, _) = refused.parts();
        let told = if status == 429 { "Too many failed attempts from this address." } else { "No such token." };
        let mut response = page(status, &layout::login(Some(told)));
        if let Some(wait) = refused.into_response().headers().get(header::RETRY_AFTER) {
            response.headers_mut().insert(header::RETRY_AFTER, wait.clone());
        }
        return response;
    }
    let cookie = rooms.sessions.begin(digest).await;
    let secure = headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https:"));
    with_cookie(go(&format!("{HOME}/tools")), &cookie, sessions::SESSION_TIME.as_secs(), secure)
}

/// Whether a form was sent by a page of this listener. Browsers name the origin with each `POST`; what does not is refused.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let foreign = text(header::HeaderName::from_static("sec-fetch-site")).is_some_and(|site| site != "same-origin");
    let (Some(origin), Some(host), false) = (text(header::ORIGIN), text(header::HOST), foreign) else { return false };
    origin.split_once("://").is_some_and(|(scheme, rest)| matches!(scheme, "http" | "https") && rest == host)
}

/// The session's cookie; none where a browser sends it twice.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut ours = lines.flat_map(|line| line.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    });
    match (ours.next(), ours.next()) {
        (Some(one), None) => Some(one.to_owned()),
        _ => None,
    }
}

fn with_cookie(mut response: Response, value: &str, seconds: u64, secure: bool) -> Response {
    let secure = if secure { "; Secure" } else { "" };
    let line = format!("{COOKIE}={value}; Path={HOME}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
    response
}

fn page(status: u16, markup: &Markup) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // Not `no-referrer`: browsers would then send `Origin: null` with our own forms.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    (status, headers, markup.0.clone()).into_response()
}

/// To another page, to be read.
fn go(place: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response()
}
