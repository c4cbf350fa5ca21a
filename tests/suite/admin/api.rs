//! A client of the management API: over the unix socket, or over TCP with a token.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::support::{gateway::Gw, upstream::Up};

/// Where the API is.
#[derive(Clone)]
pub struct Api {
    place: Place,
    token: Option<String>,
}

#[derive(Clone)]
enum Place {
    Socket(PathBuf),
    Tcp(SocketAddr),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: hyper::HeaderMap,
    /// The body.
    pub body: Value,
}

impl Api {
    /// The socket of a gateway.
    pub fn of(gw: &Gw) -> Self {
        Self { place: Place::Socket(gw.folder().join("toolgate.sock")), token: None }
    }

    /// A TCP listener.
    pub fn tcp(address: SocketAddr, token: Option<&str>) -> Self {
        Self { place: Place::Tcp(address), token: token.map(str::to_owned) }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None, &[]).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, Some(body.to_string()), &[]).await
    }

    pub async fn act(&self, path: &str) -> Reply {
        self.send("POST", path, None, &[]).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.send("PUT", path, Some(body.to_string()), &[]).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Reply {
        self.send("PATCH", path, Some(body.to_string()), &[]).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, None, &[]).await
    }

    /// Any request; a body is sent as JSON unless a header says otherwise.
    pub async fn send(&self, method: &str, path: &str, body: Option<String>, headers: &[(&str, &str)]) -> Reply {
        let answered = self.try_send(method, path, body, headers).await;
        answered.unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    /// As [`Self::send`], for a gateway that may be gone.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
        headers: &[(&str, &str)],
    ) -> Result<Reply, String> {
        let mut request = Request::builder().method(method).uri(path).header("host", "toolgate");
        if body.is_some() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default()))).map_err(|why| why.to_string())?;
        let (status, headers, text) = self.exchange(request).await?;
        let body = serde_json::from_str(&text).map_err(|why| format!("{why}: {text}"))?;
        Ok(Reply { status, headers, body })
    }

    /// Any request, and whatever text comes back.
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<(u16, hyper::HeaderMap, String), String> {
        let exchange = async {
            match &self.place {
                Place::Socket(path) => {
                    let stream = tokio::net::UnixStream::connect(path).await.map_err(|why| why.to_string())?;
                    exchange(stream, request).await
                }
                Place::Tcp(address) => {
                    let stream = tokio::net::TcpStream::connect(address).await.map_err(|why| why.to_string())?;
                    exchange(stream, request).await
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), exchange).await.map_err(|_| "no answer in time".to_owned())?
    }

    /// Every page of a list.
    pub async fn pages(&self, path: &str, name: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let page = self.get(&path).await.ok();
            all.extend(page[name].as_array().expect(name).iter().cloned());
            next = page["next"].as_str().map(str::to_owned);
        }
        all
    }

    /// Registers a mock server.
    pub async fn register(&self, slug: &str, up: &Up) -> Value {
        self.post("/v1/servers", json!({ "slug": slug, "url": up.url() })).await.made()
    }

    /// Approves the current definition of a tool.
    pub async fn approve(&self, server: &str, tool: &str, class: &str, labels: &[&str]) -> Reply {
        let path = format!("/v1/servers/{server}/tools/{tool}");
        let sha256 = self.get(&path).await.ok()["sha256"].clone();
        self.post(&format!("{path}/approve"), json!({ "expected_sha256": sha256, "class": class, "labels": labels }))
            .await
    }

    /// Makes a key; gives its token.
    pub async fn key(&self, id: &str) -> String {
        let body = json!({ "id": id, "project": "support", "environment": "production" });
        self.post("/v1/keys", body).await.made()["token"].as_str().expect("a token").to_owned()
    }

    /// Grants a server.
    pub async fn grant(&self, key: &str, server: &str, access: &str) -> Reply {
        self.put(&format!("/v1/keys/{key}/grants/{server}"), json!({ "access": access })).await
    }

    /// The live revision.
    pub async fn revision(&self) -> u64 {
        self.get("/v1/status").await.ok()["revision"].as_u64().expect("a revision")
    }
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(u16, hyper::HeaderMap, String), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let text = |why: hyper::Error| why.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(text)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.into_body().collect().await.map_err(text)?.to_bytes();
    Ok((status, headers, String::from_utf8_lossy(&bytes).into_owned()))
}

impl Reply {
    /// The body of a 200.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.shape();
        self.body.clone()
    }

    /// The body of a 201.
    #[track_caller]
    pub fn made(&self) -> Value {
        assert_eq!(self.status, 201, "{}", self.body);
        self.shape();
        self.body.clone()
    }

    /// Refused with that status and code, in the envelope of contract §2. Gives the message.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> String {
        let error = &self.body["error"];
        assert_eq!(
            (self.status, error["code"].as_str()),
            (status, Some(code).filter(|c| !c.is_empty())),
            "{}",
            self.body
        );
        let kind = match status {
            401 => "authentication_error",
            403 => "permission_denied",
            404 => "not_found",
            429 => "rate_limit_exceeded",
            503 => "internal_error",
            _ => "invalid_request_error",
        };
        assert_eq!(error["type"], kind, "{}", self.body);
        let members: Vec<&String> = error.as_object().expect("an error").keys().collect();
        assert_eq!(members.len(), 3, "{}", self.body);
        self.shape();
        error["message"].as_str().expect("a message").to_owned()
    }

    #[track_caller]
    fn shape(&self) {
        let header = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("content-type"), Some("application/json"));
        assert!(header("x-request-id").is_some_and(|id| id.starts_with("req_")), "{:?}", self.headers);
        assert!(header("access-control-allow-origin").is_none(), "no CORS");
    }
}
