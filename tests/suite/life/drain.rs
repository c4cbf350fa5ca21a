//! How the gateway starts, drains and ends (contract §1 `/readyz`, §10 `timeouts.drain`).

use std::{net::TcpListener, os::unix::net::UnixListener};

use serde_json::json;

use crate::support::{
    Faults,
    answer::Era,
    client::{BOTH, Client},
    eventually, free_port,
    gateway::{Gateway, Gw},
    policy::Access::Read,
    run,
    tls::{Identity, Leaf},
    upstream::{Form, Reply, Speaks, Up, Upstream},
    within,
};

/// Longer than any wait of a test: what ends sooner did not wait for it.
const LONG: &str = "[timeouts]\ndrain = '10m'";

/// Every tool has its own way to be slow.
async fn server(speaks: Speaks) -> Up {
    let object = || json!({ "type": "object" });
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${TOKEN},"progress":1}}"#;
    let up = Upstream::new().speaks(speaks).tool("echo", object());
    let up = up
        .tool("gated", object())
        .reply("gated", Reply::After(vec!["${gate go}".into()], Box::new(Reply::text("done"))));
    let up = up.tool("silent", object()).reply("silent", Reply::raw("${stall}"));
    let half = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{${stall}";
    let up = up.tool("half", object()).reply("half", Reply::raw(half));
    let stream = Reply::After(vec![progress.into(), "${stall}".into()], Box::new(Reply::Echo));
    up.tool("stream", object()).reply("stream", stream).run().await
}

async fn gateway(up: &Up, conf: &str) -> Gw {
    Gateway::new().conf(conf).server("demo", up).grant("ann", "demo", Read).approve_all().run().await
}

async fn until_not_ready(gw: &Gw) {
    eventually("readiness goes", async || {
        let answer = gw.ops("/readyz").await?;
        (answer.status == 503).then(|| assert!(answer.text().contains("stopping"), "{}", answer.text()))
    })
    .await;
}

async fn until_refusing(client: &Client) {
    eventually("no new connection is taken", async || client.connect().await.is_err().then_some(())).await;
}

#[test]
fn a_drain_answers_what_runs_and_takes_nothing_new() {
    for signal in ["TERM", "INT"] {
        run(async {
            let up = server(Speaks::Modern).await;
            let gw = gateway(&up, LONG).await;
            let ann = gw.client("ann").fresh();
            let running = ann.start(ann.calling("demo_gated", "{}")).await;
            up.until_calls(1).await;
            gw.signal(signal);
            until_not_ready(&gw).await;
            assert_eq!(gw.ops("/livez").await.map(|answer| answer.status), Some(200), "it is alive");
            until_refusing(&ann).await;
            assert!(gw.is_alive(), "a call runs");
            up.open("go");
            let answer = running.finish().await.0;
            assert_eq!(answer.said(), "done");
            assert!(answer.closed, "the connection ends with it: {}", answer.wire());
            assert_eq!(gw.until_ended().await, Some(0), "{signal}");
            assert_eq!(gw.access_line(answer.request_id()).await["outcome"], "ok", "the log is whole");
        });
    }
}

#[test]
fn an_idle_gateway_ends_at_once_and_its_kept_connections_are_told() {
    run(async {
        let up = server(Speaks::Modern).await;
        let gw = gateway(&up, LONG).await;
        let ann = gw.client("ann");
        ann.call("demo_echo", json!({})).await.ok();
        let mut idle = ann.connect().await.unwrap();
        gw.signal("TERM");
        until_not_ready(&gw).await;
        // the kept connection may have sent already: it is answered, and told to go
        let answer = ann.call("demo_echo", json!({})).await;
        answer.ok();
        assert_eq!(answer.header("connection"), Some("close"), "{}", answer.wire());
        assert!(answer.closed, "{}", answer.wire());
        assert_eq!(idle.until_closed().await, b"", "an idle connection is closed without a word");
        assert_eq!(gw.until_ended().await, Some(0));
    });
}

#[test]
fn what_still_runs_at_the_end_of_the_drain_is_refused_in_our_words() {
    run(async {
        for speaks in [Speaks::Modern, Speaks::Legacy] {
            let up = server(speaks).await;
            let gw = gateway(&up, "[timeouts]\ndrain = '1500ms'").await;
            let mut running = Vec::new();
            for tool in ["silent", "half", "stream"] {
                for era in [Era::Modern, Era::Legacy] {
                    for accept in [BOTH, "application/json", "text/event-stream"] {
                        let client = gw.client("ann").fresh().era(era).accept(accept).progress(json!("p"));
                        let exchange = client.start(client.calling(&format!("demo_{tool}"), "{}")).await;
                        running.push((format!("{speaks:?} {tool} {era:?} {accept}"), tool, exchange));
                    }
                }
            }
            let rows = running.len();
            up.until_calls(rows).await;
            gw.signal("TERM");
            let mut faults = Faults::default();
            let mut ids = Vec::new();
            for (name, tool, exchange) in running {
                let (answer, kept) = exchange.finish().await;
                // a stream whose head was out before the drain could not say so, but its connection ends all the same
                let ended = match kept {
                    Some(mut connection) => connection.until_closed().await.is_empty(),
                    None => answer.closed,
                };
                ids.push(answer.header("x-request-id").unwrap_or_default().to_owned());
                let row = async {
                    let message = answer.refused("upstream_timeout");
                    assert!(message.contains("being stopped") && message.contains("may already have run"), "{message}");
                    assert!(ended, "{}", answer.wire());
                    let progress = tool == "stream" && !name.ends_with("/json");
                    assert_eq!(answer.messages.len(), 1 + usize::from(progress), "{}", answer.wire());
                };
                faults.row(name.clone(), row).await;
            }
            assert_eq!(gw.until_ended().await, Some(0));
            faults.assert_none(rows);
            for id in ids {
                assert_eq!(gw.access_line(&id).await["outcome"], "upstream_timeout");
            }
        }
    });
}

#[test]
fn a_second_signal_refuses_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "TERM"), ("TERM", "INT")] {
        run(async {
            let up = server(Speaks::Modern).await;
            let gw = gateway(&up, LONG).await;
            let ann = gw.client("ann").fresh();
            let json = ann.start(ann.calling("demo_silent", "{}")).await;
            let client = gw.client("ann").fresh().progress(json!("p"));
            let mut stream = client.start(client.calling("demo_stream", "{}")).await;
            stream.next_event().await.expect("progress");
            // half a head, on a connection that the gateway has taken: one that still waits at a closed door is reset by the kernel
            let kept = gw.client("ann");
            let (_, connection) = kept.start(kept.calling("demo_echo", "{}")).await.finish().await;
            let mut headless = connection.expect("a kept connection");
            headless.write(b"POST /gateway/mcp HTTP/1.1\r\n").await.unwrap();
            // a head without its body, that the gateway has read
            let mut bodyless = ann.connect().await.unwrap();
            bodyless.write(&ann.calling("demo_echo", "{}").head_bytes()).await.unwrap();
            up.until_calls(3).await;
            gw.until_metric("toolgate_requests_in_flight", &[], |n| n == 3.0).await;
            gw.signal(first);
            until_not_ready(&gw).await;
            assert!(gw.is_alive());
            gw.signal(second);
            json.finish().await.0.refused("upstream_timeout");
            stream.finish().await.0.refused("upstream_timeout");
            let text = String::from_utf8(bodyless.until_closed().await).unwrap();
            assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("request_timeout"), "{text}");
            assert_eq!(headless.until_closed().await, b"");
            assert_eq!(gw.until_ended().await, Some(0), "{first}, {second}");
        });
    }
}

#[test]
fn http2_streams_are_answered_in_a_drain() {
    run(async {
        let identity = Identity::new(Leaf::Good);
        let up = server(Speaks::Modern).await;
        for (tool, conf) in [("gated", LONG), ("silent", "[timeouts]\ndrain = '500ms'")] {
            let gateway = Gateway::new().tls(&identity).conf(conf).server("demo", &up);
            let gw = gateway.grant("ann", "demo", Read).approve_all().run().await;
            let called = up.calls().len();
            let client = gw.client("ann").http2();
            let running = tokio::spawn(async move { client.call(&format!("demo_{tool}"), json!({})).await });
            up.until_calls(called + 1).await;
            gw.signal("TERM");
            until_not_ready(&gw).await;
            if tool == "gated" {
                up.open("go");
                assert_eq!(running.await.unwrap().said(), "done");
            } else {
                running.await.unwrap().refused("upstream_timeout");
            }
            assert_eq!(gw.until_ended().await, Some(0), "{tool}");
        }
    });
}

#[test]
fn the_drain_time_is_the_one_of_the_last_reload() {
    run(async {
        let up = server(Speaks::Modern).await;
        let gw = gateway(&up, LONG).await;
        let path = gw.folder().join("toolgate.toml");
        let conf = std::fs::read_to_string(&path).unwrap().replace("10m", "300ms");
        std::fs::write(path, conf).unwrap();
        gw.hang_up().await;
        let ann = gw.client("ann").fresh();
        let running = ann.start(ann.calling("demo_silent", "{}")).await;
        up.until_calls(1).await;
        gw.signal("TERM");
        running.finish().await.0.refused("upstream_timeout");
        assert_eq!(gw.until_ended().await, Some(0));
    });
}

#[test]
fn a_slow_reader_gets_its_whole_answer() {
    run(async {
        let up = server(Speaks::Modern).await;
        up.on("echo", Reply::Sized(900_000));
        let gw = gateway(&up, LONG).await;
        let ann = gw.client("ann").fresh();
        // the answer is larger than the buffers of the sockets, so its end waits in the gateway until somebody reads
        let mut all = Vec::new();
        for _ in 0..8 {
            all.push(ann.start(ann.calling("demo_echo", "{}")).await);
        }
        up.until_calls(8).await;
        gw.signal("TERM");
        until_not_ready(&gw).await;
        for exchange in all {
            exchange.finish().await.0.ok();
        }
        assert_eq!(gw.until_ended().await, Some(0));
    });
}

#[test]
fn a_listener_that_cannot_be_bound_ends_the_process_with_a_clear_word() {
    run(async {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let folder = std::env::temp_dir().join(format!("toolgate-life-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (live, file) = (folder.join("live.sock"), folder.join("file.sock"));
        let _listening = UnixListener::bind(&live).unwrap();
        std::fs::write(&file, "mine").unwrap();
        let unix = |path: &std::path::Path| format!("[gateway]\nlisten = ['unix:{}']", path.display());
        let rows = [
            (format!("[gateway]\nlisten = ['{address}']"), format!("gateway.listen: {address}: ")),
            (format!("[ops]\nlisten = '{address}'"), format!("ops.listen: {address}: ")),
            (unix(&live), "gateway.listen: unix:".to_owned()),
            (unix(&file), "gateway.listen: unix:".to_owned()),
            (unix(&folder.join("none/x.sock")), "gateway.listen: unix:".to_owned()),
            ("[gateway]\nlisten = ['192.0.2.1:8080']".to_owned(), "gateway.listen: 192.0.2.1:8080: ".to_owned()),
        ];
        let count = rows.len();
        let mut faults = Faults::default();
        for (conf, word) in rows {
            let gw = Gateway::new().conf(&conf).start();
            let row = async {
                assert_eq!(gw.until_ended().await, Some(71), "{}", gw.log_text());
                assert!(gw.log_text().contains(&word), "{word} in {}", gw.log_text());
            };
            faults.row(conf, row).await;
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        std::fs::remove_dir_all(folder).unwrap();
        faults.assert_none(count);
    });
}

#[test]
fn a_socket_that_a_dead_gateway_left_is_used_again() {
    run(async {
        let folder = std::env::temp_dir().join(format!("toolgate-life-dead-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("gateway.sock");
        drop(UnixListener::bind(&path).unwrap());
        let conf = format!("[gateway]\nlisten = ['unix:{}']", path.display());
        let gw = Gateway::new().conf(&conf).run().await;
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        gw.signal("TERM");
        assert_eq!(gw.until_ended().await, Some(0));
        std::fs::remove_dir_all(folder).unwrap();
    });
}

#[test]
fn a_signal_that_comes_while_it_starts_is_not_lost() {
    run(async {
        let mut faults = Faults::default();
        let rows: &[&[&str]] = &[&["TERM"], &["INT"], &["HUP", "USR1", "TERM"]];
        for signals in rows {
            let before_the_policy = async {
                // a store that takes connections and never says a word: the listeners are bound, and nothing else is there yet
                let store = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("postgres://gate@{}/gate", store.local_addr().unwrap());
                let gw = Gateway::new().conf(&format!("[store]\nurl = '{url}'")).start();
                let _asking = within("the store is asked", store.accept()).await.unwrap();
                gw.nobody().connect().await.expect("its door is open");
                signals.iter().for_each(|signal| gw.signal(signal));
                assert_eq!(gw.until_ended().await, Some(0), "{}", gw.log_text());
            };
            faults.row(format!("{signals:?} before the policy"), before_the_policy).await;
            let before_it_is_ready = async {
                let up = Upstream::new().form(Form::Json).tool("echo", json!({ "type": "object" })).run().await;
                up.list_with(Some(Reply::raw("${stall}")));
                let gw = Gateway::new().server("demo", &up).grant("ann", "demo", Read).start();
                up.until("tools/list").await;
                signals.iter().for_each(|signal| gw.signal(signal));
                assert_eq!(gw.until_ended().await, Some(0), "{}", gw.log_text());
            };
            faults.row(format!("{signals:?} before it is ready"), before_it_is_ready).await;
        }
        faults.assert_none(2 * rows.len());
    });
}

#[test]
fn a_demo_that_is_interrupted_as_soon_as_it_listens_leaves_nothing_behind() {
    run(async {
        for signal in ["INT", "TERM"] {
            let folder = std::env::temp_dir().join(format!("toolgate-life-demo-{}-{signal}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
            let mut demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_toolgate"))
                .args(["demo", "--listen", &address.to_string()])
                .env("TMPDIR", &folder)
                .stdout(std::process::Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let connect = async || tokio::net::TcpStream::connect(address).await.ok();
            drop(eventually("the demo listens", connect).await);
            let pid = demo.id().unwrap().to_string();
            let sent = tokio::process::Command::new("kill").arg(format!("-{signal}")).arg(pid).status().await;
            assert!(sent.unwrap().success());
            assert_eq!(within("the demo ends", demo.wait()).await.unwrap().code(), Some(0), "{signal}");
            std::fs::remove_dir(&folder).expect("an empty folder");
        }
    });
}
