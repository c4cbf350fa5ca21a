//! A client of the management API over its unix socket: one request a connection.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value as Json};
use tokio::net::UnixStream;

use crate::conf;

/// How long one call may take; registering a slow server takes longest.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Entries of one page of a list.
const PAGE: usize = 1000;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nobody listens on the socket.
    NoGateway(String),
    /// The API refuses.
    Refused {
        /// `error.code`
        code: Option<String>,
        /// `error.message`
        message: String,
    },
    /// The command line cannot mean anything.
    Usage(String),
    /// Something else went wrong here.
    Broken(String),
}

impl Failure {
    /// The exit code of the process.
    pub(super) const fn exit_code(&self) -> u8 {
        match self {
            Self::NoGateway(_) => 69,
            Self::Usage(_) => super::USAGE,
            Self::Refused { .. } | Self::Broken(_) => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code: Some(code), message } => write!(f, "{code}: {message}"),
            Self::NoGateway(text) | Self::Usage(text) | Self::Broken(text) | Self::Refused { message: text, .. } => {
                f.write_str(text)
            }
        }
    }
}

/// The management API.
pub(super) struct Api {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
}

impl Api {
    /// The API of the socket that was named, or that the conf names.
    ///
    /// # Errors
    /// [`Failure::NoGateway`]: neither names one.
    pub(super) fn open(socket: Option<&Path>, conf: &Path) -> Result<Self, Failure> {
        let socket = match socket {
            Some(socket) => socket.to_owned(),
            None => socket_of(conf)?,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|why| Failure::Broken(why.to_string()))?;
        Ok(Self { socket, runtime })
    }

    /// Asks for what is there.
    pub(super) fn get(&self, path: &str) -> Result<Json, Failure> {
        self.call(Method::GET, path, None)
    }

    /// Asks for every page of a list.
    pub(super) fn list(&self, path: &str, name: &str) -> Result<Vec<Json>, Failure> {
        let joint = if path.contains('?') { '&' } else { '?' };
        let mut next = Some(format!("{path}{joint}limit={PAGE}"));
        let mut entries = Vec::new();
        while let Some(path) = next {
            let mut page = self.get(&path)?;
            match page.get_mut(name).map(Json::take) {
                Some(Json::Array(list)) => entries.extend(list),
                _ => return Err(Failure::Broken(format!("the answer has no `{name}`"))),
            }
            next = page.get("next").and_then(Json::as_str).map(str::to_owned);
        }
        Ok(entries)
    }

    /// Asks for something to be done.
    pub(super) fn post(&self, path: &str, body: Option<&Map<String, Json>>) -> Result<Json, Failure> {
        self.call(Method::POST, path, body)
    }

    /// Asks for something to be put.
    pub(super) fn put(&self, path: &str, body: &Map<String, Json>) -> Result<Json, Failure> {
        self.call(Method::PUT, path, Some(body))
    }

    /// Asks for members to be changed.
    pub(super) fn patch(&self, path: &str, body: &Map<String, Json>) -> Result<Json, Failure> {
        self.call(Method::PATCH, path, Some(body))
    }

    /// Asks for something to be deleted.
    pub(super) fn delete(&self, path: &str) -> Result<Json, Failure> {
        self.call(Method::DELETE, path, None)
    }

    fn call(&self, method: Method, path: &str, body: Option<&Map<String, Json>>) -> Result<Json, Failure> {
        let body = body.map(|body| serde_json::to_vec(body).unwrap_or_default());
        let answered = self.runtime.block_on(async {
            match tokio::time::timeout(TIMEOUT, self.exchange(method, path, body)).await {
                Ok(answered) => answered,
                Err(_) => Err(Failure::Broken("the gateway did not answer in time".to_owned())),
            }
        });
        let (status, bytes) = answered?;
        let json: Json = serde_json::from_slice(&bytes)
            .map_err(|_| Failure::Broken(format!("the gateway answered {status} with something that is not JSON")))?;
        if status.is_success() {
            return Ok(json);
        }
        let text = |name: &str| json.pointer(name).and_then(Json::as_str).map(str::to_owned);
        Err(Failure::Refused {
            code: text("/error/code"),
            message: text("/error/message").unwrap_or_else(|| format!("the gateway answered {status}")),
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|why| {
            Failure::NoGateway(format!("no gateway answers on {}: {why}; is it running?", self.socket.display()))
        })?;
        let broken = |why: String| Failure::Broken(format!("the gateway broke off: {why}"));
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|why| broken(why.to_string()))?;
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "toolgate");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|why| Failure::Usage(why.to_string()))?;
        let response = sender.send_request(request).await.map_err(|why| broken(why.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|why| broken(why.to_string()))?.to_bytes()))
    }
}

/// `admin.socket` of a conf file. The policy files are not read: the gateway may run while they are at fault.
fn socket_of(path: &Path) -> Result<PathBuf, Failure> {
    let lost = |why: String| Failure::NoGateway(format!("{why}; name the gateway's socket with --socket"));
    let path = std::path::absolute(path).map_err(|why| lost(format!("{}: {why}", path.display())))?;
    let text = std::fs::read_to_string(&path).map_err(|why| lost(format!("{}: {why}", path.display())))?;
    let name = path.to_string_lossy();
    let env = |name: &str| std::env::var(name).ok();
    let loaded = conf::from_texts(&[(&name, &text)], &env)
        .into_loaded()
        .map_err(|rejected| lost(rejected.sources.render(&rejected.faults)))?;
    loaded.conf.admin.socket.ok_or_else(|| lost(format!("{}: `admin.socket` is empty", path.display())))
}

/// A path of segments, each percent-encoded, with `?organization=` if one is named.
pub(super) fn path(segments: &[&str], organization: Option<&str>) -> String {
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    let mut path = "/v1".to_owned();
    for segment in segments {
        path.push('/');
        path.extend(utf8_percent_encode(segment, PLAIN));
    }
    if let Some(organization) = organization {
        path.push_str("?organization=");
        path.extend(utf8_percent_encode(organization, PLAIN));
    }
    path
}

/// Members of an object from `NAME=VALUE`: a value is JSON if it reads as such, else a string; `null` takes a member back to its default.
pub(super) fn members(written: &[String]) -> Result<Map<String, Json>, Failure> {
    let mut members = Map::new();
    for pair in written {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| Failure::Usage(format!("`{pair}` is not written NAME=VALUE")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Json::from(value));
        if members.insert(name.to_owned(), value).is_some() {
            return Err(Failure::Usage(format!("`{name}` is given twice")));
        }
    }
    Ok(members)
}

/// Puts a member in, unless it was left out.
pub(super) fn put(members: &mut Map<String, Json>, name: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        members.insert(name.to_owned(), value.into());
    }
}
