//! Listeners on unix sockets, as a proxy on the same machine uses them (contract §10 `listen`).

use std::{net::SocketAddr, path::PathBuf};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, UnixStream},
};

use crate::support::{
    Faults,
    answer::Era,
    client::{BOTH, Client, Target},
    eventually,
    gateway::{Gateway, Gw, token},
    policy::Access::Read,
    run,
    upstream::{Form, Up, Upstream},
};

/// A proxy that passes every byte on to a unix socket; gives its address.
async fn proxy(path: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let path = path.clone();
            tokio::spawn(async move {
                let mut gateway = UnixStream::connect(path).await?;
                copy_bidirectional(&mut client, &mut gateway).await
            });
        }
    });
    address
}

/// What the ops listener says on its unix socket; none: it does not answer.
async fn ops(gw: &Gw, path: &str) -> Option<String> {
    let mut socket = UnixStream::connect(gw.folder().join("ops.sock")).await.ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: ops\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await.ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

async fn gateway(up: &Up, trusted: &str) -> (Gw, SocketAddr) {
    let conf = format!(
        "[gateway]\nlisten = ['unix:gateway.sock']\ntrusted_proxies = [{trusted}]\n[ops]\nlisten = 'unix:ops.sock'"
    );
    let gateway = Gateway::new().conf(&conf).server("demo", up).grant("ann", "demo", Read);
    let gateway = gateway.key("far", "allow_ips = ['203.0.113.0/24']").grant("far", "demo", Read);
    let gw = gateway.approve_all().start();
    eventually("the gateway is ready", async || ops(&gw, "/readyz").await.filter(|said| said.contains(" 200 "))).await;
    let address = proxy(gw.folder().join("gateway.sock")).await;
    (gw, address)
}

fn client(gw: &Gw, address: SocketAddr, key: &str) -> Client {
    Client::new(Target { address, ..gw.target().clone() }, Some(token(key)))
}

#[test]
fn whole_calls_go_over_a_unix_socket() {
    run(async {
        let up = Upstream::new().form(Form::Sse).tool("echo", json!({ "type": "object" })).run().await;
        let (gw, address) = gateway(&up, "").await;
        let ann = client(&gw, address, "ann");
        let mut faults = Faults::default();
        let mut count = 0;
        for era in [Era::Modern, Era::Legacy] {
            for accept in [BOTH, "application/json", "text/event-stream"] {
                for client in [ann.clone(), ann.clone().server("demo"), ann.clone().fresh()] {
                    count += 1;
                    let client = client.era(era).accept(accept);
                    let row = async {
                        let before = up.calls().len();
                        let large = json!({ "text": "x".repeat(100_000) });
                        let answer = client.call(&client.named("demo", "echo"), large.clone()).await;
                        assert_eq!(answer.said(), large.to_string());
                        assert_eq!(up.calls().len() - before, 1);
                        let line = gw.access_line(answer.request_id()).await;
                        assert_eq!((&line["client_ip"], &line["outcome"]), (&json!("127.0.0.1"), &json!("ok")));
                    };
                    faults.row(format!("{era:?}, {accept}"), row).await;
                }
            }
        }
        faults.assert_none(count);
        let metrics = ops(&gw, "/metrics").await.unwrap();
        assert!(metrics.contains("toolgate_requests_total{"), "{metrics}");
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0));
    });
}

#[test]
fn who_comes_over_a_unix_socket_comes_from_the_loopback_address() {
    run(async {
        let up = Upstream::new().tool("echo", json!({ "type": "object" })).run().await;
        for (trusted, status) in [("", 403), ("'192.0.2.1'", 403), ("'127.0.0.1'", 200)] {
            let (gw, address) = gateway(&up, trusted).await;
            let before = up.calls().len();
            let far = client(&gw, address, "far").header("X-Forwarded-For", "203.0.113.9");
            let answer = far.call("demo_echo", json!({})).await;
            assert_eq!(answer.status, status, "{trusted}: {}", answer.wire());
            assert_eq!(up.calls().len() - before, usize::from(status == 200), "{trusted}");
        }
    });
}
