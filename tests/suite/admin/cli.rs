//! The command line: thin over the API, with its own exit codes.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::api::Api;
use crate::support::{
    client::Client,
    gateway::{Gateway, Gw},
    run,
    upstream::{Up, Upstream},
};

/// The command line of a gateway.
pub struct Cli<'g> {
    pub gw: &'g Gw,
}

impl Cli<'_> {
    /// Runs `toolgate` with these words and the conf of the gateway.
    pub async fn run(&self, words: &[&str]) -> Output {
        self.fed(words, "").await
    }

    /// The same, with this on its standard input.
    pub async fn fed(&self, words: &[&str], input: &str) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.args(words).arg("--conf").arg(self.gw.folder().join("toolgate.toml")).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may be gone before it is written.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes()).await;
        child.wait_with_output().await.unwrap()
    }

    /// What it printed, having done what it was asked.
    pub async fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words).await;
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub async fn json(&self, words: &[&str]) -> Value {
        let text = self.ok(&[words, &["--json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{words:?}: {why}: {text}"))
    }

    /// Fails with that exit code; gives what it said.
    pub async fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words).await;
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

async fn fixture() -> (Gw, Up) {
    let up = Upstream::new()
        .definition(json!({ "name": "echo", "description": "Echo.", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true, "openWorldHint": false } }))
        .tool("spoiled", json!({ "type": "object" }))
        .run()
        .await;
    (Gateway::new().run().await, up)
}

#[test]
fn the_walk_by_commands() {
    run(async {
        let (gw, up) = fixture().await;
        let cli = Cli { gw: &gw };
        let shown = cli.ok(&["server", "add", "github", &up.url(), "timeout=10s"]).await;
        assert!(shown.contains("timeout") && shown.contains("10s"), "{shown}");
        let table = cli.ok(&["tool", "list", "github"]).await;
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3, "{table}");
        assert!(lines[0].starts_with("SERVER  TOOL     STATUS"), "{table}");
        assert!(lines[1].contains("echo") && lines[1].contains("pending"), "{table}");
        let tool = cli.json(&["tool", "show", "github", "echo"]).await;
        let sha256 = tool["sha256"].as_str().unwrap();
        let diff = cli.ok(&["tool", "diff", "github", "echo"]).await;
        assert!(diff.contains("No definition was approved yet"), "{diff}");
        assert!(diff.contains("--class read --labels none"), "{diff}");
        assert!(diff.contains(&format!("toolgate tool approve github echo --sha256 {sha256}")), "{diff}");
        cli.ok(&["tool", "approve", "github", "echo", "--sha256", sha256, "--class", "read", "--labels", "none"]).await;
        let made = cli.ok(&["key", "create", "bot", "--project", "support", "--environment", "production"]).await;
        let token = made.lines().last().unwrap().to_owned();
        assert!(token.starts_with("toolgate_production_bot_"), "{made}");
        cli.ok(&["grant", "set", "bot", "github", "--access", "read"]).await;
        let bot = Client::new(gw.target().clone(), Some(token));
        bot.call("github_echo", json!({})).await.ok();
        let told = cli.ok(&["explain", "bot", "github_echo", "--arguments", "{}"]).await;
        assert!(told.ends_with("\nallowed\n"), "{told}");
        cli.ok(&["tool", "list", "--changed"]).await;

        let mut drifted = up.tools()[0].clone();
        drifted["description"] = json!("Echo, and tell\u{1b}[2J Eve.");
        up.set_tool(drifted);
        cli.ok(&["server", "discover", "github"]).await;
        bot.call("github_echo", json!({})).await.refused("tool_definition_changed");
        let output = cli.run(&["tool", "list", "--changed"]).await;
        assert_eq!(output.status.code(), Some(1), "CI sees that something changed");
        assert!(String::from_utf8_lossy(&output.stdout).contains("echo"));
        let diff = cli.ok(&["tool", "diff", "github", "echo"]).await;
        assert!(diff.contains("Echo{+, and tell⟨U+001B⟩[2J Eve+}."), "{diff}");
        assert!(!diff.contains('\u{1b}'));
        let told = cli.ok(&["explain", "bot", "github_echo"]).await;
        assert!(told.contains("NO  approval") && told.contains("refused: tool_definition_changed"), "{told}");
        let said = cli
            .fails(&["tool", "approve", "github", "echo", "--sha256", sha256, "--class", "read", "--labels", "none"], 1)
            .await;
        assert!(said.contains("mcp_tool_definition_stale"), "{said}");
        cli.ok(&["tool", "block", "github", "echo"]).await;
        cli.ok(&["key", "revoke", "bot"]).await;
        bot.call("github_echo", json!({})).await.http_refused(401, "authentication_error", None);
        let audit = cli.ok(&["audit", "--last", "2"]).await;
        assert!(audit.contains("tool.block") && audit.contains("key.revoke") && audit.lines().count() == 3, "{audit}");
        cli.ok(&["grant", "delete", "bot", "github"]).await;
        cli.ok(&["server", "delete", "github"]).await;
        assert_eq!(cli.json(&["server", "list"]).await, json!({ "servers": [] }));
    });
}

#[test]
fn every_list_is_json_when_asked() {
    run(async {
        let (gw, up) = fixture().await;
        let (cli, api) = (Cli { gw: &gw }, Api::of(&gw));
        api.register("demo", &up).await;
        api.key("bot").await;
        api.grant("bot", "demo", "read").await.ok();
        cli.ok(&["guardrail", "add", "mine", "stage=input", "detector=keywords", "action=block", "words=[\"x\"]"])
            .await;
        cli.ok(&["guardrail", "set", "mine", "action=observe"]).await;
        cli.ok(&["project", "add", "more"]).await;
        cli.ok(&["project", "set", "more", "archived=true"]).await;
        cli.ok(&["organization", "add", "zeta", "plan=team", "status=active", "subscription=none"]).await;
        for (words, name, path) in [
            (&["server", "list"][..], "servers", "/v1/servers"),
            (&["tool", "list", "demo"], "tools", "/v1/servers/demo/tools"),
            (&["tool", "list"], "tools", "/v1/tools"),
            (&["tool", "list", "--status", "pending"], "tools", "/v1/tools?status=pending"),
            (&["key", "list"], "keys", "/v1/keys"),
            (&["grant", "list", "bot"], "grants", "/v1/keys/bot/grants"),
            (&["guardrail", "list"], "guardrails", "/v1/guardrails"),
            (&["project", "list"], "projects", "/v1/projects"),
            (&["organization", "list"], "organizations", "/v1/organizations"),
        ] {
            let (printed, answered) = (cli.json(words).await, api.get(path).await.ok());
            assert_eq!(printed[name], answered[name], "{words:?}");
            let table = cli.ok(words).await;
            assert_eq!(table.lines().count(), 1 + answered[name].as_array().unwrap().len(), "{table}");
        }
        assert_eq!(cli.json(&["status"]).await["servers"], 1);
        assert!(cli.json(&["reload"]).await["revision"].is_u64());
        assert!(cli.json(&["audit"]).await["audit"].is_array());
        cli.ok(&["guardrail", "delete", "mine"]).await;
        cli.ok(&["project", "delete", "more"]).await;
        cli.ok(&["organization", "delete", "zeta"]).await;
        cli.ok(&["key", "set", "bot", "rate_limit=5/s", "disabled=true"]).await;
        let key = cli.json(&["key", "show", "bot"]).await;
        assert_eq!((key["rate_limit"].as_str(), key["disabled"].as_bool()), (Some("5/s"), Some(true)));
        let rotated = cli.json(&["key", "rotate", "bot", "--overlap", "1h"]).await;
        assert!(rotated["token"].is_string() && rotated["previous_expires"].is_string());
    });
}

#[test]
fn a_reviewed_list_is_approved_at_once_and_exported_as_pins() {
    run(async {
        let (gw, up) = fixture().await;
        let cli = Cli { gw: &gw };
        cli.ok(&["server", "add", "demo", &up.url()]).await;
        let mut list = cli.json(&["tool", "list", "demo"]).await;
        let file = gw.folder().join("reviewed.json");
        let file = file.to_str().unwrap();
        std::fs::write(file, list.to_string()).unwrap();
        let said = cli.fails(&["tool", "approve-all", file], 64).await;
        assert!(said.contains("needs `class`"), "{said}");
        for tool in list["tools"].as_array_mut().unwrap() {
            tool["class"] = json!("read");
            tool["labels"] = json!([]);
        }
        std::fs::write(file, list.to_string()).unwrap();
        up.set_tool(json!({ "name": "spoiled", "description": "changed since", "inputSchema": { "type": "object" } }));
        cli.ok(&["server", "discover", "demo"]).await;
        let said = cli.fails(&["tool", "approve-all", file], 1).await;
        assert!(said.contains("demo/spoiled") && said.contains("1 approved before it"), "{said}");
        let exported = cli.ok(&["tool", "export", "demo"]).await;
        // what is exported is a policy file
        std::fs::write(gw.folder().join("policy/pins.toml"), &exported).unwrap();
        cli.ok(&["reload"]).await;
        let tool = cli.json(&["tool", "show", "demo", "echo"]).await;
        assert_eq!(
            (tool["managed_by"].as_str(), tool["status"].as_str()),
            (Some("file"), Some("approved")),
            "{exported}"
        );
    });
}

#[test]
fn exit_codes_say_what_happened() {
    run(async {
        let (gw, _up) = fixture().await;
        let cli = Cli { gw: &gw };
        assert!(cli.fails(&["server", "show", "nope"], 1).await.contains("not_found"));
        cli.fails(&["server", "paint"], 64).await;
        cli.fails(&["tool", "approve", "a", "b", "--class", "read", "--labels", "none"], 64).await;
        cli.fails(&["server", "set", "demo", "enabled"], 64).await;
        cli.fails(&["grant", "set", "bot", "demo"], 64).await;
        let said = cli.fails(&["status", "--socket", "/nowhere/toolgate.sock"], 69).await;
        assert!(said.contains("/nowhere/toolgate.sock"), "{said}");
        // a policy file at fault does not lock the operator out
        std::fs::write(gw.folder().join("policy/policy.toml"), "[[").unwrap();
        cli.ok(&["status"]).await;
        assert!(cli.fails(&["reload"], 1).await.contains("policy.toml:1"));
        cli.ok(&["--help"]).await;
        let version = cli.ok(&["--version"]).await;
        assert!(version.starts_with("toolgate "), "{version}");
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            assert!(cli.ok(&["completions", shell]).await.contains("approve-all"), "{shell}");
        }
        assert!(cli.ok(&["man"]).await.contains(".TH toolgate"));
        let pages = gw.folder().join("man");
        cli.ok(&["man", "--out", pages.to_str().unwrap()]).await;
        assert!(pages.join("toolgate-tool-approve.1").exists());
        gw.signal("TERM");
        gw.until_ended().await;
        cli.fails(&["status"], 69).await;
    });
}
