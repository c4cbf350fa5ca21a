//! `conf/profiles/infro.toml` held to the same tables as the default conf: only the names change, and all of them do.

use std::fs;

use serde_json::json;

use crate::{
    matrix::{ROWS, clients, gateway_with},
    support::{Faults, answer::Answer, gateway::Gw, run, upstream::Up},
};

/// What the default conf calls the prefix, the console and the product, and what the profile does; in this order.
const NAMES: [(&str, &str); 3] =
    [("X-Toolgate-", "X-INFRO-"), ("the Toolgate console", "INFRO, under MCP & connectors"), ("Toolgate", "INFRO")];

/// The profile as it is shipped; its policy is the test's own.
async fn infro() -> (Gw, Up) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/profiles/infro.toml");
    let shipped = fs::read_to_string(path).unwrap();
    let conf = shipped.replace("files = [\"policy.toml\"]", "files = ['policy/*.toml']");
    assert_ne!(conf, shipped, "the profile names its policy");
    gateway_with(&conf).await
}

fn renamed(text: &str) -> String {
    NAMES.iter().fold(text.to_owned(), |text, (default, infro)| text.replace(default, infro))
}

/// No name of the default is left in what the caller got, but for the mark, which keeps its name under any product.
#[track_caller]
fn check_names(answer: &Answer) {
    let wire = answer.wire().replace("toolgate/refusal", "").to_lowercase();
    assert!(!wire.contains("toolgate"), "{wire}");
}

#[test]
fn under_the_profile_only_the_names_change() {
    run(async {
        let ((default, _up), (infro, _near)) = (gateway_with("").await, infro().await);
        let mut faults = Faults::default();
        let (mut cells, mut named) = (0, 0);
        for row in ROWS {
            for ((way, plain), (_, client)) in clients(&default, row).into_iter().zip(clients(&infro, row)) {
                cells += 1;
                let tool = client.named(row.server, row.tool);
                let expected = plain.call_text(&tool, row.arguments).await.refused(row.code).to_owned();
                named += usize::from(expected.contains("Toolgate"));
                let check = async {
                    let answer = client.call_text(&tool, row.arguments).await;
                    assert_eq!(answer.refused(row.code), renamed(&expected));
                    check_names(&answer);
                };
                faults.row(format!("{}: {way}", row.name), check).await;
                for gw in [&default, &infro].into_iter().filter(|_| row.code == "upstream_timeout") {
                    gw.client("ann").call("slow_echo", json!({})).await.ok(); // five in a row would open the breaker
                }
            }
        }
        assert!(named > cells / 2, "most messages name the product: {named} of {cells}");
        faults.assert_none(cells);
    });
}

#[test]
fn the_profiles_names_are_everywhere() {
    run(async {
        let (gw, _up) = infro().await;
        let ann = gw.client("ann");
        let answer = gw.nobody().call("demo_echo", json!({})).await;
        let message = answer.http_refused(401, "authentication_error", None);
        assert!(message.contains("INFRO key") && message.contains(NAMES[1].1), "{message}");
        check_names(&answer);

        let bad = ann.calling("demo_echo", "{}").and("X-INFRO-Nonsense", "1");
        let answer = ann.send(bad).await;
        let message = answer.http_refused(400, "invalid_request_error", Some("invalid_attribution"));
        assert!(message.contains("`X-INFRO-*`"), "{message}");
        check_names(&answer);

        let good = ann.calling("demo_echo", "{}").and("X-INFRO-User", "ann@acme.test").and("X-Toolgate-Nonsense", "1");
        let answer = ann.send(good).await;
        assert_eq!(answer.ok()["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "INFRO");
        let line = gw.access_line(answer.request_id()).await;
        assert!(line["attribution"].to_string().contains("ann@acme.test"), "{line}");

        for answer in [
            ann.rpc("server/discover", json!({})).await,
            ann.rpc("tools/list", json!({})).await,
            ann.clone().legacy("2025-11-25").rpc("initialize", json!({ "protocolVersion": "2025-11-25" })).await,
            gw.client("ann").send(ann.posting("{}").to("/nope")).await,
        ] {
            check_names(&answer);
        }
        let hello =
            ann.clone().legacy("2025-11-25").rpc("initialize", json!({ "protocolVersion": "2025-11-25" })).await;
        assert_eq!(hello.ok()["serverInfo"]["name"], "INFRO");
    });
}
