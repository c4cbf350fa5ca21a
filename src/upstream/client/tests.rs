//! Tests of `client.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use super::{
    super::mock::{Act, Mock, target},
    *,
};
use crate::model::mcp::Revision;

const LIMITS: Limits = Limits { body_bytes_max: 1000, timeout: Duration::from_secs(10) };

fn headers(target: &Target) -> Headers<'_> {
    Headers {
        revision: Some(Revision::MODERN),
        method: "tools/list",
        name: None,
        params: &[],
        session: None,
        credential: target.credential.headers(),
    }
}

async fn whole(client: &Client, target: &Target, limits: Limits) -> Result<(u16, Vec<u8>), ClientError> {
    let reply = client.post(target, &headers(target), b"{}".to_vec(), limits).await?;
    Ok((reply.status, reply.body.whole().await?))
}

/// What one scripted answer comes to.
async fn answer(act: Act, limits: Limits) -> Result<(u16, Vec<u8>), ClientError> {
    let mock = Mock::start(move |_| act.clone()).await;
    let client = Client::new(Resolver::table([]));
    let got = whole(&client, &mock.target(), limits).await;
    assert_eq!(mock.seen().len(), 1, "nothing is sent twice");
    got
}

#[tokio::test]
async fn the_server_sees_exactly_our_headers() {
    let mock = Mock::start(|_| Act::empty(202)).await;
    let client = Client::new(Resolver::table([]));
    assert_eq!(whole(&client, &mock.target(), LIMITS).await, Ok((202, Vec::new())));
    let seen = &mock.seen()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str(), seen.body.as_slice()), ("POST", "/mcp", &b"{}"[..]));
    let expected = [
        ("accept", "application/json, text/event-stream"),
        ("accept-encoding", "identity"),
        ("authorization", "Bearer canary-secret"),
        ("content-length", "2"),
        ("content-type", "application/json"),
        ("host", &mock.address.to_string()),
        ("mcp-method", "tools/list"),
        ("mcp-protocol-version", "2026-07-28"),
    ];
    let got: Vec<_> = seen.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(got, expected);
}

#[tokio::test]
async fn redirects_are_answers_and_are_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let act = Act::empty(status).header("Location: /elsewhere").header("Set-Cookie: a=b");
        assert_eq!(answer(act, LIMITS).await, Ok((status, Vec::new())));
    }
}

#[tokio::test]
async fn coded_bodies_are_refused_whatever_they_hold() {
    for coding in ["gzip", "br", "deflate", "zstd", "identity, gzip", "x"] {
        let act = Act::with(200, &format!("Content-Encoding: {coding}\r\n"), b"xyz");
        assert_eq!(answer(act, LIMITS).await, Err(ClientError::Encoded), "{coding}");
    }
    let plain = Act::with(200, "Content-Encoding: identity\r\n", b"xyz");
    assert_eq!(answer(plain, LIMITS).await, Ok((200, b"xyz".to_vec())));
}

#[tokio::test]
async fn bodies_stop_at_their_limit() {
    let chunked = |n: usize| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        Act::Raw(format!("{head}{n:x}\r\n{}\r\n0\r\n\r\n", "a".repeat(n)).into_bytes())
    };
    let large = Err(ClientError::TooLarge { limit_bytes: 1000 });
    assert_eq!(answer(Act::with(200, "", &[b'a'; 1000]), LIMITS).await, Ok((200, vec![b'a'; 1000])));
    assert_eq!(answer(Act::with(200, "", &[b'a'; 1001]), LIMITS).await, large);
    assert_eq!(answer(chunked(1000), LIMITS).await, Ok((200, vec![b'a'; 1000])));
    assert_eq!(answer(chunked(1001), LIMITS).await, large);
    let declared = Act::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec());
    assert_eq!(answer(declared, LIMITS).await, large, "a declared length is believed");
}

#[tokio::test]
async fn the_wall_clock_stops_silence_and_drips() {
    let short = Limits { timeout: Duration::from_millis(200), ..LIMITS };
    assert_eq!(answer(Act::Hang, short).await, Err(ClientError::TimedOut));
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec();
    let drip = Act::Drip(head, vec![b'a'; 1000], Duration::from_millis(5));
    assert_eq!(answer(drip, short).await, Err(ClientError::TimedOut));
    let slow_head = Act::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; 1000], Duration::from_millis(5));
    assert_eq!(answer(slow_head, short).await, Err(ClientError::TimedOut));
}

#[tokio::test]
async fn broken_answers_are_interruptions() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    for raw in ["", "HTTP/1.1 200", "garbage\r\n\r\n", cut, "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
        let got = answer(Act::Close(raw.as_bytes().to_vec()), LIMITS).await;
        assert_eq!(got, Err(ClientError::Interrupted), "{raw:?}");
    }
}

#[tokio::test]
async fn addresses_are_judged_at_connect_time() {
    let mock = Mock::start(|_| Act::empty(202)).await;
    let port = mock.address.port();
    let named = target(&format!("http://h.example:{port}/mcp"));
    let resolved = |ips: &[&str]| {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Client::new(Resolver::table([("h.example".to_owned(), ips)]))
    };
    assert!(whole(&resolved(&["127.0.0.1"]), &named, LIMITS).await.is_ok());
    let two_faced = resolved(&["127.0.0.1", "10.0.0.1"]);
    assert_eq!(whole(&two_faced, &named, LIMITS).await, Err(ClientError::Address(ResolveError::Refused)));
    let unknown = Client::new(Resolver::table([]));
    assert_eq!(whole(&unknown, &named, LIMITS).await, Err(ClientError::Address(ResolveError::NotFound)));
    let strict = Target { rules: Arc::default(), ..(*mock.target()).clone() };
    assert_eq!(whole(&unknown, &strict, LIMITS).await, Err(ClientError::Address(ResolveError::Refused)));
    let own = EgressRules { own_addresses: vec![mock.address], ..(*named.rules).clone() };
    let own = Target { rules: Arc::new(own), ..named.clone() };
    assert_eq!(whole(&resolved(&["127.0.0.1"]), &own, LIMITS).await, Err(ClientError::Address(ResolveError::Own)));
    assert_eq!(mock.seen().len(), 1);
}

#[tokio::test]
async fn a_closed_port_is_a_failed_connection() {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let closed = target(&format!("http://127.0.0.1:{port}/secret-path"));
    let fault = whole(&Client::new(Resolver::system()), &closed, LIMITS).await.unwrap_err();
    assert_eq!(fault, ClientError::Connect);
    assert!(fault.is_unsent());
    let shown = format!("{fault} {fault:?}");
    assert!(!shown.contains("secret") && !shown.contains("127.0.0.1"), "{shown}");
}

#[tokio::test]
async fn a_broken_ca_is_a_fault_of_the_setup() {
    let mut bad = target("https://127.0.0.1:1/");
    bad.tls = Arc::new(TlsOptions { ca_pem: Some(b"nonsense".to_vec()), identity_pem: None });
    assert_eq!(whole(&Client::new(Resolver::system()), &bad, LIMITS).await, Err(ClientError::Setup));
}

#[tokio::test]
async fn only_one_clean_session_id_counts() {
    let check = async |lines: &str, expected: Option<&str>| {
        let act = Act::with(200, lines, b"");
        let mock = Mock::start(move |_| act.clone()).await;
        let target = mock.target();
        let client = Client::new(Resolver::table([]));
        let reply = client.post(&target, &headers(&target), Vec::new(), LIMITS).await.unwrap();
        assert_eq!(reply.session_id.as_deref(), expected, "{lines:?}");
    };
    check("Mcp-Session-Id: abc\r\n", Some("abc")).await;
    check("", None).await;
    check("Mcp-Session-Id: \r\n", None).await;
    check("Mcp-Session-Id: a b\r\n", None).await;
    check("Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n", None).await;
    let at = |n: usize| format!("Mcp-Session-Id: {}\r\n", "s".repeat(n));
    check(&at(SESSION_ID_BYTES_MAX), Some(&"s".repeat(SESSION_ID_BYTES_MAX))).await;
    check(&at(SESSION_ID_BYTES_MAX + 1), None).await;
}

#[test]
fn media_types_are_read_without_their_parameters() {
    for (text, media) in [
        ("application/json", Media::Json),
        ("Application/JSON ; charset=utf-8", Media::Json),
        ("text/event-stream;x", Media::EventStream),
        ("text/html", Media::Other),
        ("application/jsonx", Media::Other),
        ("", Media::Other),
    ] {
        assert_eq!(Media::of(HeaderValue::from_str(text).ok().as_ref()), media, "{text}");
    }
    assert_eq!(Media::of(None), Media::Other);
}
