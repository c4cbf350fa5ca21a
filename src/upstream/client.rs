//! The gateway's own HTTP client, for what it asks servers beside the data path: era probes, listings, sessions, cancellations.
//!
//! Follows no redirect, keeps no cookie, uses no proxy, decodes no content coding, sends nothing twice, and connects only
//! to addresses that were judged as they were resolved. Every answer has a byte limit and a wall clock.
//!
//! **Invariant.** An error's text is ours alone: never the URL, an address or a credential.

use std::{
    collections::HashMap,
    error::Error as StdError,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use thiserror::Error;
use tokio::{sync::Mutex, time::Instant};

use super::{
    dns::{ResolveError, Resolver},
    egress::{EgressRules, judge_address},
    envelope::{Headers, put_headers},
    target::{Target, TlsOptions, read_certificates},
};
use crate::model::mcp::HEADER_SESSION_ID;

/// So many different connection settings keep their connections; one more starts anew.
pub const POOLS_MAX: usize = 256;
/// An idle connection is kept so long: shorter than the 5 s after which common servers close theirs.
pub const POOL_IDLE: Duration = Duration::from_secs(3);
/// The longest session id that is accepted, in bytes.
pub const SESSION_ID_BYTES_MAX: usize = 1024;

/// How much of an answer is read, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of the body.
    pub body_bytes_max: usize,
    /// Wall clock from the start of the request to the last byte of the answer.
    pub timeout: Duration,
}

/// What went wrong between us and a server. The text is for a person, in our own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClientError {
    /// The name gave no address that we may connect to.
    #[error("{0}")]
    Address(#[from] ResolveError),
    /// No connection.
    #[error("could not connect to the server")]
    Connect,
    /// The TLS handshake failed: a certificate that does not verify, among others.
    #[error("could not connect to the server: its TLS certificate or handshake was not accepted")]
    Tls,
    /// The wall clock ran out.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The connection broke, or what came was not HTTP.
    #[error("the connection to the server broke before its answer was complete")]
    Interrupted,
    /// More bytes than the limit.
    #[error("the server's answer is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// A content coding, although identity was asked for (contract §3).
    #[error("the server's answer is compressed, although that was not accepted")]
    Encoded,
    /// A certificate, a key or the platform's roots could not be used.
    #[error(
        "the server's TLS settings (ca, client_certificate, client_key) or the system's root certificates cannot be used"
    )]
    Setup,
}

impl ClientError {
    /// Whether the request was certainly not sent.
    #[must_use]
    pub const fn is_unsent(self) -> bool {
        matches!(self, Self::Address(_) | Self::Connect | Self::Tls | Self::Setup)
    }
}

/// What an answer's `Content-Type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// `application/json`
    Json,
    /// `text/event-stream`
    EventStream,
    /// Anything else, or nothing.
    Other,
}

impl Media {
    /// Reads a `Content-Type`; parameters do not matter.
    #[must_use]
    pub fn of(value: Option<&HeaderValue>) -> Self {
        let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/json") {
            Self::Json
        } else if essence.eq_ignore_ascii_case("text/event-stream") {
            Self::EventStream
        } else {
            Self::Other
        }
    }
}

/// The head of an answer, and its body still to be read.
#[derive(Debug)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// What the body claims to be.
    pub media: Media,
    /// `Mcp-Session-Id`, where it is one value of visible ASCII. Only that of a good `initialize` counts.
    pub session_id: Option<String>,
    /// The body.
    pub body: Body,
}

/// A body being read, with what is left of its limits.
#[derive(Debug)]
pub struct Body {
    response: reqwest::Response,
    left: usize,
    limits: Limits,
    deadline: Instant,
}

impl Body {
    /// The next piece; none at the end.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`], [`ClientError::TooLarge`], [`ClientError::Interrupted`]
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let next = tokio::time::timeout_at(self.deadline, self.response.chunk()).await;
        let Some(chunk) = next.map_err(|_| ClientError::TimedOut)?.map_err(|error| classify(&error))? else {
            return Ok(None);
        };
        self.left = self
            .left
            .checked_sub(chunk.len())
            .ok_or(ClientError::TooLarge { limit_bytes: self.limits.body_bytes_max })?;
        Ok(Some(chunk))
    }

    /// Lets so many more bytes through.
    pub fn allow(&mut self, more_bytes: usize) {
        self.left = self.left.saturating_add(more_bytes);
    }

    /// All that is left.
    ///
    /// # Errors
    /// As [`Self::chunk`].
    pub async fn whole(mut self) -> Result<Vec<u8>, ClientError> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }
}

/// The client: one for the process, with connections kept for each distinct setting.
#[derive(Debug)]
pub struct Client {
    resolver: Resolver,
    pools: Mutex<HashMap<PoolKey, reqwest::Client>>,
}

/// Everything that decides whether two targets may share connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PoolKey {
    rules: Arc<EgressRules>,
    tls: Arc<TlsOptions>,
    connect_timeout: Duration,
    port: u16,
    https: bool,
    http2: bool,
}

impl Client {
    /// A client that resolves names with `resolver`.
    #[must_use]
    pub fn new(resolver: Resolver) -> Self {
        install_crypto();
        Self { resolver, pools: Mutex::default() }
    }

    /// Sends one POST with the headers of [`put_headers`] and reads the head of the answer. Nothing is ever sent twice.
    ///
    /// # Errors
    /// [`ClientError`]. A status is never an error here.
    pub async fn post(
        &self,
        target: &Target,
        headers: &Headers<'_>,
        body: Vec<u8>,
        limits: Limits,
    ) -> Result<Reply, ClientError> {
        self.send(target, (Method::POST, header_map(headers)), body, limits).await
    }

    /// Ends a legacy session. The answer does not matter: 405 is legal.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn delete(&self, target: &Target, headers: &Headers<'_>, limits: Limits) -> Result<u16, ClientError> {
        let mut map = header_map(headers);
        map.remove(header::CONTENT_TYPE);
        Ok(self.send(target, (Method::DELETE, map), Vec::new(), limits).await?.status)
    }

    /// Gets a JSON document.
    ///
    /// # Errors
    /// [`ClientError`]. A status is never an error here.
    pub async fn get(&self, target: &Target, limits: Limits) -> Result<Reply, ClientError> {
        let accept = (header::ACCEPT, HeaderValue::from_static("application/json"));
        let identity = (header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        self.send(target, (Method::GET, HeaderMap::from_iter([accept, identity])), Vec::new(), limits).await
    }

    async fn send(
        &self,
        target: &Target,
        (method, headers): (Method, HeaderMap),
        body: Vec<u8>,
        limits: Limits,
    ) -> Result<Reply, ClientError> {
        let deadline = Instant::now() + limits.timeout;
        judge_literal(target)?;
        let pool = self.pool(target).await?;
        let request = pool.request(method, target.endpoint.url()).headers(headers).body(body);
        let sent = tokio::time::timeout_at(deadline, request.send()).await;
        let response = sent.map_err(|_| ClientError::TimedOut)?.map_err(|error| classify(&error))?;
        refuse_coding(response.headers())?;
        if response.content_length().is_some_and(|length| length > limits.body_bytes_max as u64) {
            return Err(ClientError::TooLarge { limit_bytes: limits.body_bytes_max });
        }
        Ok(Reply {
            status: response.status().as_u16(),
            media: Media::of(response.headers().get(header::CONTENT_TYPE)),
            session_id: session_id(response.headers()),
            body: Body { response, left: limits.body_bytes_max, limits, deadline },
        })
    }

    async fn pool(&self, target: &Target) -> Result<reqwest::Client, ClientError> {
        let key = PoolKey {
            rules: Arc::clone(&target.rules),
            tls: Arc::clone(&target.tls),
            connect_timeout: target.connect_timeout,
            port: target.endpoint.port,
            https: target.endpoint.https,
            http2: target.http2,
        };
        let mut pools = self.pools.lock().await;
        if let Some(pool) = pools.get(&key) {
            return Ok(pool.clone());
        }
        let pool = build_pool(&key, self.resolver.clone()).ok_or(ClientError::Setup)?;
        if pools.len() >= POOLS_MAX {
            pools.clear(); // calls in flight keep theirs
        }
        pools.insert(key, pool.clone());
        Ok(pool)
    }
}

/// Chooses `ring` for the whole process, once.
pub fn install_crypto() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let _ = rustls::crypto::ring::default_provider().install_default(); // Err: somebody chose already
    });
}

fn build_pool(key: &PoolKey, resolver: Resolver) -> Option<reqwest::Client> {
    let judged = JudgedNames { resolver, rules: Arc::clone(&key.rules), port: key.port };
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .dns_resolver(Arc::new(judged))
        .connect_timeout(key.connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .https_only(key.https);
    builder = match (key.http2, key.https) {
        (false, _) => builder.http1_only(),
        (true, true) => builder,
        (true, false) => builder.http2_prior_knowledge(),
    };
    let private = key.tls.ca_pem.as_deref().map(read_certificates).transpose().ok()?;
    if let Some(certificates) = private {
        let roots: Result<Vec<_>, _> = certificates.iter().map(|der| reqwest::Certificate::from_der(der)).collect();
        builder = builder.tls_certs_only(roots.ok()?);
    } else if !key.https {
        builder = builder.tls_certs_only([]); // never used: spares reading the platform's roots
    }
    if let Some((certificate, secret)) = &key.tls.identity_pem {
        let pem = [certificate.as_slice(), b"\n", secret.as_slice()].concat();
        builder = builder.identity(reqwest::Identity::from_pem(&pem).ok()?);
    }
    builder.build().ok()
}

/// The only names that reqwest can connect to are those whose addresses all pass.
struct JudgedNames {
    resolver: Resolver,
    rules: Arc<EgressRules>,
    port: u16,
}

impl Resolve for JudgedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, rules, port) = (self.resolver.clone(), Arc::clone(&self.rules), self.port);
        Box::pin(async move {
            let host = name.as_str().trim_end_matches('.');
            let judged = resolver.resolve_name(host, port, &rules).await?;
            let addresses: Vec<_> = judged.into_iter().map(|ip| (ip, port).into()).collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// An address that is written in the URL meets no resolver, so it is judged here.
fn judge_literal(target: &Target) -> Result<(), ClientError> {
    match target.endpoint.literal {
        Some(ip) if !judge_address((ip, target.endpoint.port).into(), &target.rules) => {
            Err(ClientError::Address(ResolveError::Refused))
        }
        _ => Ok(()),
    }
}

fn header_map(headers: &Headers<'_>) -> HeaderMap {
    let mut map = HeaderMap::new();
    put_headers(headers, &mut |name, value| {
        if let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            value.set_sensitive(headers.credential.iter().any(|(secret, _)| *secret == name));
            map.insert(name, value);
        }
    });
    map
}

/// Anything but identity is refused: it could not be checked (contract §3).
fn refuse_coding(headers: &HeaderMap) -> Result<(), ClientError> {
    let plain = headers.get_all(header::CONTENT_ENCODING).iter().all(|value| {
        let value = value.as_bytes().trim_ascii();
        value.is_empty() || value.eq_ignore_ascii_case(b"identity")
    });
    if plain { Ok(()) } else { Err(ClientError::Encoded) }
}

/// The session id of an answer: exactly one, visible ASCII (2025-11-25 transports, "Session Management").
fn session_id(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(HEADER_SESSION_ID).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let text = value.to_str().ok()?;
    let usable = !text.is_empty() && text.len() <= SESSION_ID_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    usable.then(|| text.to_owned())
}

/// Puts a fault of the HTTP library into our own words; its text may hold the URL.
fn classify(error: &reqwest::Error) -> ClientError {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(fault) = inner.downcast_ref::<ResolveError>() {
            return ClientError::Address(*fault);
        }
        if inner.is::<rustls::Error>() {
            return ClientError::Tls;
        }
        // An `io::Error` that wraps another error is silent on it in `source`.
        let wrapped = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = wrapped.map(|wrapped| -> &(dyn StdError + 'static) { wrapped }).or_else(|| inner.source());
    }
    match error {
        error if error.is_connect() => ClientError::Connect,
        error if error.is_timeout() => ClientError::TimedOut,
        error if error.is_builder() => ClientError::Setup,
        _ => ClientError::Interrupted,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
