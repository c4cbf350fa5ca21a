//! Tests of `sessions.rs`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
use std::sync::atomic::AtomicUsize;

use serde_json::json;

use super::{
    super::{
        client::ClientError,
        dns::Resolver,
        legacy::SessionRef,
        mock::{Act, Mock, Seen},
    },
    *,
};

const OFFER: Revision = Revision::LATEST_LEGACY;

/// Answers `initialize` with sessions s1, s2 …, and everything else as a legacy server does.
fn legacy_server(stateless: bool) -> impl Fn(&Seen) -> Act + Send + Sync + 'static {
    let opened = AtomicUsize::new(0);
    move |seen| match seen.call().as_str() {
        "initialize" => {
            let number = opened.fetch_add(1, Ordering::SeqCst) + 1;
            let act = seen.result(json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}));
            if stateless { act } else { act.header(&format!("Mcp-Session-Id: s{number}")) }
        }
        "DELETE" => Act::empty(405),
        _ => Act::empty(202).header("Mcp-Session-Id: of-a-notification"),
    }
}

fn key(server: &str, owner: Option<&str>) -> SessionKey {
    SessionKey { server: server.into(), credential: [0; 32], owner: owner.map(Into::into), user: None }
}

fn pool(limits: SessionLimits) -> Arc<Sessions> {
    Sessions::new(Arc::new(Client::new(Resolver::table([]))), limits)
}

#[tokio::test]
async fn a_session_is_opened_once_and_then_found() {
    let mock = Mock::start(legacy_server(false)).await;
    let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", Some("ann")));
    assert!(pool.find(&key).is_none());
    let lease = pool.open(&target, &key, OFFER).await.unwrap();
    assert_eq!((lease.id(), lease.revision()), (Some("s1"), Revision::V2025_06_18));
    drop(lease);
    assert_eq!(pool.find(&key).unwrap().id(), Some("s1"));
    assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), Some("s1"));
    assert_eq!(mock.calls(), ["initialize", "notifications/initialized"]);
    let seen = mock.seen();
    let headers = ["mcp-session-id", "mcp-protocol-version", "authorization", "mcp-method"];
    let of = |at: usize| headers.map(|name| seen[at].header(name).map(str::to_owned));
    let secret = || Some("Bearer canary-secret".to_owned());
    assert_eq!(of(0), [None, None, secret(), None]);
    assert_eq!(of(1), [Some("s1".to_owned()), Some("2025-06-18".to_owned()), secret(), None]);
    assert_eq!(seen[0].json()["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(seen[0].json()["params"]["capabilities"], json!({}));
}

#[tokio::test]
async fn sessions_are_kept_apart_by_server_key_and_credential() {
    let mock = Mock::start(legacy_server(false)).await;
    let (pool, target) = (pool(SessionLimits::default()), mock.target());
    let rotated = SessionKey { credential: [1; 32], ..key("a", Some("ann")) };
    let keys = [key("a", Some("ann")), key("a", Some("bob")), key("b", Some("ann")), key("a", None), rotated];
    for (index, key) in keys.iter().enumerate() {
        let lease = pool.open(&target, key, OFFER).await.unwrap();
        assert_eq!(lease.id(), Some(format!("s{}", index + 1).as_str()));
    }
    assert_eq!(pool.counts().await, HashMap::from([("a".into(), 4), ("b".into(), 1)]));
    let other = super::tests::pool(SessionLimits::default());
    assert!(other.find(&keys[0]).is_none(), "pools do not mix on one thread");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_one_initialize_and_one_renewal() {
    let mock = Mock::start(legacy_server(false)).await;
    let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
    let open = || async {
        let callers = (0..50).map(|_| {
            let (pool, target, key) = (Arc::clone(&pool), Arc::clone(&target), key.clone());
            tokio::spawn(async move { pool.open(&target, &key, OFFER).await.unwrap() })
        });
        let leases = futures::future::join_all(callers).await;
        leases.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let leases = open().await;
    assert!(leases.iter().all(|lease| lease.id() == Some("s1")));
    let renewals = leases.into_iter().map(|lost| {
        let pool = Arc::clone(&pool);
        tokio::spawn(async move { pool.renew(lost, OFFER).await.unwrap().id().map(str::to_owned) })
    });
    for renewed in futures::future::join_all(renewals).await {
        assert_eq!(renewed.unwrap().as_deref(), Some("s2"));
    }
    assert_eq!(open().await[0].id(), Some("s2"));
    let opened = mock.calls().iter().filter(|call| *call == "initialize").count();
    assert_eq!(opened, 2);
    assert!(!mock.calls().contains(&"DELETE".to_owned()), "a lost session is not ended");
}

#[tokio::test]
async fn a_failed_opening_fails_all_who_wait_and_is_tried_again_by_the_next() {
    let asked = AtomicUsize::new(0);
    let good = legacy_server(false);
    let mock = Mock::start(move |seen| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Act::empty(401).header("Mcp-Session-Id: of-a-refusal"),
        _ => good(seen),
    });
    let mock = mock.await;
    let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
    let (first, second) = tokio::join!(pool.open(&target, &key, OFFER), pool.open(&target, &key, OFFER));
    assert_eq!(first.unwrap_err(), AskError::Credential { status: 401 });
    assert_eq!(second.unwrap_err(), AskError::Credential { status: 401 });
    assert_eq!(pool.counts().await, HashMap::new());
    assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), Some("s1"));
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_stop_the_others() {
    let mock = Mock::start(legacy_server(false)).await;
    let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
    {
        let mut impatient = Box::pin(pool.open(&target, &key, OFFER));
        assert!(futures::poll!(impatient.as_mut()).is_pending());
    }
    assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), Some("s1"));
    assert_eq!(mock.calls().iter().filter(|call| *call == "initialize").count(), 1);
}

#[tokio::test]
async fn stateless_servers_have_a_session_without_an_id() {
    let mock = Mock::start(legacy_server(true)).await;
    let (pool, target, key) = (pool(SessionLimits::default()), mock.target(), key("a", None));
    assert_eq!(pool.open(&target, &key, OFFER).await.unwrap().id(), None);
    pool.close().await;
    assert_eq!(mock.calls(), ["initialize", "notifications/initialized"], "there is nothing to end");
}

#[tokio::test]
async fn idle_sessions_are_ended_and_those_in_use_are_not() {
    let mock = Mock::start(legacy_server(false)).await;
    let pool = pool(SessionLimits { idle_max: Duration::ZERO, ..SessionLimits::default() });
    let target = mock.target();
    let used = pool.open(&target, &key("a", Some("ann")), OFFER).await.unwrap();
    drop(pool.open(&target, &key("a", Some("bob")), OFFER).await.unwrap());
    pool.sweep().await;
    let ended: Vec<_> = mock.seen().into_iter().filter(|seen| seen.method == "DELETE").collect();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0].header("mcp-session-id"), Some("s2"));
    assert_eq!(ended[0].header("authorization"), Some("Bearer canary-secret"));
    assert!(pool.find(&key("a", Some("bob"))).is_none(), "what a thread remembers is not served once it is gone");
    assert!(pool.find(&key("a", Some("ann"))).is_some());
    drop(used);
    let fresh = super::tests::pool(SessionLimits::default());
    drop(fresh.open(&target, &key("a", None), OFFER).await.unwrap());
    fresh.sweep().await;
    assert_eq!(fresh.counts().await.len(), 1, "a fresh session is not idle");
}

#[tokio::test]
async fn one_past_the_cap_evicts_an_idle_session_or_is_refused() {
    let mock = Mock::start(legacy_server(false)).await;
    let pool = pool(SessionLimits { sessions_max: 2, ..SessionLimits::default() });
    let target = mock.target();
    let [ann, bob, cid] = ["ann", "bob", "cid"].map(|name| key("a", Some(name)));
    let first = pool.open(&target, &ann, OFFER).await.unwrap();
    let second = pool.open(&target, &bob, OFFER).await.unwrap();
    assert_eq!(pool.open(&target, &cid, OFFER).await.unwrap_err(), AskError::SessionsFull);
    drop(second);
    assert_eq!(pool.open(&target, &cid, OFFER).await.unwrap().id(), Some("s3"));
    assert!(pool.find(&bob).is_none());
    assert!(pool.find(&ann).is_some());
    assert_eq!(pool.counts().await, HashMap::from([("a".into(), 2)]));
    drop(first);
}

#[tokio::test]
async fn closing_ends_every_session_and_opens_none() {
    let mock = Mock::start(legacy_server(false)).await;
    let (pool, target) = (pool(SessionLimits::default()), mock.target());
    let kept = pool.open(&target, &key("a", Some("ann")), OFFER).await.unwrap();
    drop(pool.open(&target, &key("a", Some("bob")), OFFER).await.unwrap());
    pool.keep(|key| key.owner.as_deref() == Some("ann")).await;
    assert_eq!(mock.calls().iter().filter(|call| *call == "DELETE").count(), 1);
    pool.close().await;
    assert_eq!(mock.calls().iter().filter(|call| *call == "DELETE").count(), 2);
    assert_eq!(pool.open(&target, &key("a", None), OFFER).await.unwrap_err(), AskError::SessionEnded);
    drop(kept);
}

#[tokio::test]
async fn initialize_is_judged() {
    let answer = |version: &'static str| move |seen: &Seen| seen.result(json!({"protocolVersion": version}));
    let check = async |script: Box<dyn Fn(&Seen) -> Act + Send + Sync>, expected: AskError| {
        let mock = Mock::start(script).await;
        let got = initialize(&Client::new(Resolver::table([])), &mock.target(), OFFER).await;
        assert_eq!(got, Err(expected));
        assert_eq!(mock.calls(), ["initialize"]);
    };
    check(Box::new(answer("2024-11-05")), AskError::Revision).await;
    check(Box::new(answer("2026-07-28")), AskError::Revision).await;
    check(Box::new(|seen| seen.result(json!({}))), AskError::NotMcp).await;
    check(Box::new(|_| Act::text(200, "hello")), AskError::NotMcp).await;
    check(Box::new(|_| Act::empty(202)), AskError::NotMcp).await;
    for status in [400, 404, 405] {
        check(Box::new(move |_| Act::text(status, "no")), AskError::OldTransport).await;
    }
    check(Box::new(|_| Act::text(418, "no")), AskError::Status { status: 418 }).await;
    check(Box::new(|seen| seen.error(400, -32602)), AskError::Rejected { code: -32602 }).await;
    check(Box::new(|_| Act::empty(500)), AskError::ServerFault { status: 500 }).await;
    check(Box::new(|_| Act::Close(Vec::new())), AskError::Client(ClientError::Interrupted)).await;
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let mock = Mock::start(move |seen| match seen.call().as_str() {
            "initialize" => seen.stream("id: 1\ndata: \n\n", json!({"protocolVersion": version})),
            _ => Act::empty(200),
        });
        let mock = mock.await;
        let opened = initialize(&Client::new(Resolver::table([])), &mock.target(), OFFER).await.unwrap();
        assert_eq!(opened.revision.as_str(), version);
        let sent = mock.seen()[1].header("mcp-protocol-version").map(str::to_owned);
        assert_eq!(sent.as_deref(), (version != "2025-03-26").then_some(version));
    }
}

#[tokio::test]
async fn a_servers_own_requests_are_declined_on_its_session() {
    let mock = Mock::start(|_| Act::empty(202)).await;
    let (client, target) = (Client::new(Resolver::table([])), mock.target());
    let session = SessionRef { revision: Revision::V2025_11_25, id: Some("s9") };
    legacy::answer_server_request(&client, &target, session, (b"0", "ping")).await;
    legacy::answer_server_request(&client, &target, session, (b"\"g1\"", "sampling/createMessage")).await;
    legacy::cancel(&client, &target, session, (super::super::envelope::OurId(7), "client disconnected")).await;
    let seen = mock.seen();
    assert!(seen.iter().all(|seen| seen.header("mcp-session-id") == Some("s9")));
    assert_eq!(seen[0].json(), json!({"jsonrpc": "2.0", "id": 0, "result": {}}));
    assert_eq!(seen[1].json()["error"]["code"], -32601);
    assert_eq!(seen[1].json()["id"], "g1");
    assert_eq!(seen[2].json()["params"], json!({"requestId": "g7", "reason": "client disconnected"}));
}
