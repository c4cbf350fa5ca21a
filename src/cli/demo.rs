//! `toolgate demo`: the gateway on its default port with a built-in MCP server behind it, and calls to try.
//!
//! `--once` plays the same calls through against itself and exits 0 if every answer was right: the demo is its own test.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use serde_json::{Value, json};

use super::{demo_server::DemoServer, serve};
use crate::{
    conf::{LogFormat, LogLevel},
    model::id::{KeyDigest, encode_hex},
    model::mcp::{META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION, Revision},
    server,
};

/// The conf and policy that the repository ships, filled in with this run's addresses.
const CONF: &str = include_str!("../../conf/demo/toolgate.toml");
const POLICY: &str = include_str!("../../conf/demo/policy.toml");
/// The key that the demo prints. It is in the open because this is a demo.
const KEY: &str = "toolgate_demo_reader_key";

/// Runs the command.
pub(super) fn run(once: bool, listen: Option<SocketAddr>) -> ExitCode {
    match start(once, listen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "toolgate demo: {why}");
            ExitCode::FAILURE
        }
    }
}

fn start(once: bool, listen: Option<SocketAddr>) -> Result<(), String> {
    let (gateway, ops, console) = match (listen, once) {
        (Some(listen), _) => (listen, free_port()?, free_port()?),
        (None, true) => (free_port()?, free_port()?, free_port()?),
        (None, false) => (local(8080), local(9902), local(9901)),
    };
    let token: String = (0..16).map(|_| format!("{:02x}", rand::random::<u8>())).collect();
    let runtime = tokio::runtime::Runtime::new().map_err(|why| why.to_string())?;
    let upstream = runtime.block_on(super::demo_server::start()).map_err(|why| why.to_string())?;
    // before there is anything to leave behind: Ctrl-C ends the demo in order from here on
    let process = server::Process::new().map_err(|why| why.to_string())?;
    let folder = Folder::make()?;
    let console = Console { listen: console, token, socket: folder.0.join("toolgate.sock") };
    let conf = write_conf(&folder.0, &upstream.url(), (gateway, ops), &console)?;
    serve::start_log(if once { LogLevel::Off } else { LogLevel::Warn }, LogFormat::Text);
    let Some(running) = process.start(&conf).map_err(|why| why.to_string())? else { return Ok(()) };
    let play = Play { gateway, ops, console };
    let folder_path = folder.0.clone();
    let watcher = std::thread::spawn(move || {
        if let Err(why) = runtime.block_on(play.ready()) {
            leave(&folder_path, &format!("toolgate demo: {why}\n"), 1);
        }
        if once {
            let code = runtime.block_on(play.once(&upstream));
            leave(&folder_path, "", code);
        }
        let _ = std::io::stdout().write_all(play.banner(&upstream.url()).as_bytes());
        loop {
            std::thread::park();
        }
    });
    let ended = running.run().map_err(|why| why.to_string());
    drop(watcher);
    drop(folder);
    ended
}

/// Ends the process; the folder of the run goes with it.
fn leave(folder: &Path, text: &str, code: i32) -> ! {
    let _ = std::io::stderr().write_all(text.as_bytes());
    let _ = std::fs::remove_dir_all(folder);
    std::process::exit(code)
}

/// A folder of this run alone, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("toolgate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write_conf(
    folder: &Path,
    url: &str,
    (gateway, ops): (SocketAddr, SocketAddr),
    console: &Console,
) -> Result<PathBuf, String> {
    let sha256 = encode_hex(&KeyDigest::of(console.token.as_bytes()).0);
    let tokens = format!("[{{ name = \"demo\", role = \"admin\", sha256 = \"{sha256}\" }}]");
    let conf = CONF
        .replace("[admin]\n", &format!("[admin]\nlisten = \"{}\"\ntokens = {tokens}\n", console.listen))
        .replace("127.0.0.1:8080", &gateway.to_string())
        .replace("127.0.0.1:9902", &ops.to_string())
        .replace("${TOOLGATE_DEMO_DIR:-.}", &folder.display().to_string())
        + "\n[log]\naccess = \"off\"\n";
    let policy = POLICY.replace("${TOOLGATE_DEMO_URL:-http://127.0.0.1:9903/mcp}", url);
    let path = folder.join("toolgate.toml");
    std::fs::write(&path, conf).map_err(|why| why.to_string())?;
    std::fs::write(folder.join("policy.toml"), policy).map_err(|why| why.to_string())?;
    Ok(path)
}

fn free_port() -> Result<SocketAddr, String> {
    TcpListener::bind(local(0)).and_then(|listener| listener.local_addr()).map_err(|why| why.to_string())
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// The calls of the demo.
struct Play {
    gateway: SocketAddr,
    ops: SocketAddr,
    console: Console,
}

/// Where the demo is managed.
struct Console {
    listen: SocketAddr,
    /// Drawn anew for each run: unlike the keys, it changes things.
    token: String,
    socket: PathBuf,
}

impl Play {
    /// Waits until the gateway serves.
    async fn ready(&self) -> Result<(), String> {
        let url = format!("http://{}/readyz", self.ops);
        for _ in 0..1500 {
            if let Ok(answer) = http().get(&url).send().await
                && answer.status().is_success()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("the gateway did not become ready within 15 s".to_owned())
    }

    /// Plays everything through; the exit code.
    async fn once(&self, upstream: &DemoServer) -> i32 {
        let mut failed = 0;
        let mut show = |what: &str, got: &str, right: bool| {
            let mark = if right { "ok  " } else { "FAIL" };
            let _ = writeln!(std::io::stdout(), "{mark} {what}\n     {got}");
            failed += i32::from(!right);
        };
        let listed = self.post("tools/list", None, json!({}), "application/json").await;
        show(
            "list the tools that the key may use",
            &listed,
            listed.contains("demo_add") && !listed.contains("demo_write_note"),
        );
        let sum = self.call("demo_add", json!({"a": 2, "b": 3})).await;
        show("an allowed call", &sum, sum.contains("\"isError\":true").eq(&false) && sum.contains('5'));
        let refused = self.call("demo_write_note", json!({"text": "hello"})).await;
        show("a refused one", &refused, refused.contains("tool_not_allowed"));
        let wrong = self.call("demo_add", json!({"a": "two", "b": 3})).await;
        show("arguments that do not fit", &wrong, wrong.contains("invalid_tool_arguments") && wrong.contains("/a"));
        let streamed =
            self.post("tools/call", Some("demo_count"), json!({"to": 3}), "application/json, text/event-stream").await;
        show(
            "a streamed one with progress",
            &streamed,
            streamed.matches("notifications/progress").count() == 3 && streamed.contains("\"id\":1"),
        );
        let before = self.call("demo_forecast", json!({"city": "Paris"})).await;
        show("before the definition changes", &before, !before.contains("\"isError\":true"));
        upstream.flip_definition();
        let mut after = String::new();
        for _ in 0..1000 {
            after = self.call("demo_forecast", json!({"city": "Paris"})).await;
            if after.contains("tool_definition_changed") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        show("a definition that changed under your eyes", &after, after.contains("tool_definition_changed"));
        let _ = writeln!(std::io::stdout(), "{} passed, {failed} failed", 7 - failed);
        i32::from(failed > 0)
    }

    async fn call(&self, tool: &str, arguments: Value) -> String {
        self.post("tools/call", Some(tool), arguments, "application/json").await
    }

    async fn post(&self, method: &str, tool: Option<&str>, arguments: Value, accept: &str) -> String {
        let request = http()
            .post(format!("http://{}/gateway/mcp", self.gateway))
            .header("authorization", format!("Bearer {KEY}"))
            .header("accept", accept)
            .header("content-type", "application/json")
            .header("mcp-protocol-version", Revision::MODERN.as_str())
            .header("mcp-method", method);
        let request = match tool {
            Some(tool) => request.header("mcp-name", tool),
            None => request,
        };
        match request.body(body(method, tool, &arguments).to_string()).send().await {
            Ok(answer) => answer.text().await.unwrap_or_else(|why| why.to_string()),
            Err(why) => why.to_string(),
        }
    }

    fn banner(&self, upstream: &str) -> String {
        let mut out = format!(
            "\nToolgate demo\n  endpoint  http://{0}/gateway/mcp\n  key       {KEY}\n  metrics   http://{1}/metrics\n  \
             console   http://{2}/console\n  token     {3}\n\nTo manage it, as docs/management.md walks through:\n\
             export TOOLGATE_SOCKET={4} GATEWAY=http://{0} DEMO={5}\n\nCopy and paste, in another terminal:\n",
            self.gateway,
            self.ops,
            self.console.listen,
            self.console.token,
            self.console.socket.display(),
            upstream.trim_end_matches("/mcp")
        );
        let calls = [
            ("list the tools that the key may use", "tools/list", None, json!({})),
            ("an allowed call", "tools/call", Some("demo_add"), json!({"a": 2, "b": 3})),
            ("a refused one", "tools/call", Some("demo_write_note"), json!({"text": "hello"})),
            ("arguments that do not fit", "tools/call", Some("demo_add"), json!({"a": "two", "b": 3})),
            ("a streamed one, with progress", "tools/call", Some("demo_count"), json!({"to": 5})),
            ("a forecast", "tools/call", Some("demo_forecast"), json!({"city": "Paris"})),
        ];
        for (what, method, tool, arguments) in calls {
            out.push_str(&format!("\n# {what}\n{}\n", self.curl(method, tool, &arguments)));
        }
        out.push_str(&format!(
            "\n# the server changes the definition of `forecast`; a second later the same call is refused\n\
             curl -s -X POST {}\n\nCtrl-C ends the demo.\n",
            upstream.replace("/mcp", "/flip")
        ));
        out
    }

    fn curl(&self, method: &str, tool: Option<&str>, arguments: &Value) -> String {
        let name = tool.map_or_else(String::new, |tool| format!(" -H 'Mcp-Name: {tool}'"));
        format!(
            "curl -sN http://{}/gateway/mcp -H 'Authorization: Bearer {KEY}' -H 'Content-Type: application/json' \\\n  \
             -H 'Accept: application/json, text/event-stream' -H 'MCP-Protocol-Version: {}' -H 'Mcp-Method: {method}'{name} \\\n  -d '{}'",
            self.gateway,
            Revision::MODERN,
            body(method, tool, arguments)
        )
    }
}

fn body(method: &str, tool: Option<&str>, arguments: &Value) -> Value {
    let mut meta = serde_json::Map::new();
    meta.insert(META_PROTOCOL_VERSION.to_owned(), json!(Revision::MODERN.as_str()));
    meta.insert(META_CLIENT_CAPABILITIES.to_owned(), json!({}));
    if tool == Some("demo_count") {
        meta.insert("progressToken".to_owned(), json!("p1"));
    }
    let params = match tool {
        Some(tool) => json!({"_meta": meta, "name": tool, "arguments": arguments}),
        None => json!({"_meta": meta}),
    };
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn http() -> reqwest::Client {
    crate::upstream::client::install_crypto();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(15)).build().unwrap_or_default()
}
