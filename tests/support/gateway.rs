//! The gateway as a child process: conf and policy files in a folder of its own, signals, logs, and an end that always comes.

use std::{
    fs::{self, File},
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use toml::Table;

use super::{
    answer::Answer,
    client::{Client, Target},
    metrics::Metrics,
    policy::{Access, Policy, table},
    tls::Identity,
    upstream::Up,
};

/// How long the gateway may take to stop after SIGTERM before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Kills the gateway and removes its folder when the test process ends before it could do so itself.
const REAPER: &str = r#"
read -r line && exit 0
pids=$(cat "$1/pids")
kill -TERM $pids 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $pids 2>/dev/null || break; sleep 0.1; done
kill -KILL $pids 2>/dev/null
rm -rf "$1"
"#;

/// Builds a gateway.
#[derive(Default)]
pub struct Gateway {
    policy: Policy,
    conf: Table,
    ups: Vec<(String, Up)>,
    approve_all: bool,
    identity: Option<Identity>,
    files: Vec<(String, String)>,
    env: Vec<(String, String)>,
}

impl Gateway {
    /// A gateway with the organization `acme` and nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a mock server behind it.
    pub fn server(self, slug: &str, up: &Up) -> Self {
        self.server_with(slug, up, "")
    }

    /// Puts a mock server behind it, with more members of `[[server]]`.
    pub fn server_with(mut self, slug: &str, up: &Up, more: &str) -> Self {
        self.policy.server(slug, &up.url(), more);
        self.ups.push((slug.to_owned(), up.clone()));
        self
    }

    /// Makes a key with more members of `[[key]]`.
    pub fn key(mut self, id: &str, more: &str) -> Self {
        self.policy.key(id, &token(id), more);
        self
    }

    /// Grants a server to a key; makes the key when there is none.
    pub fn grant(mut self, key: &str, server: &str, access: Access) -> Self {
        if self.policy.find("key", key).is_none() {
            self.policy.key(key, &token(key), "");
        }
        self.policy.grant(key, server, &access);
        self
    }

    /// Pins every tool that the mock servers list when the gateway starts and that has no pin yet, as class `read`.
    pub fn approve_all(mut self) -> Self {
        self.approve_all = true;
        self
    }

    /// Pins one definition.
    pub fn approve(mut self, server: &str, definition: &Value, class: &str) -> Self {
        self.policy.approve(server, definition, class);
        self
    }

    /// Adds any object of a policy, written as TOML.
    pub fn object(mut self, kind: &str, toml: &str) -> Self {
        self.policy.add(kind, toml);
        self
    }

    /// Replaces members of an object.
    pub fn edit(mut self, kind: &str, name: &str, toml: &str) -> Self {
        self.policy.edit(kind, name, toml);
        self
    }

    /// Adds conf, written as TOML; tables are merged.
    pub fn conf(mut self, toml: &str) -> Self {
        merge(&mut self.conf, table(toml));
        self
    }

    /// Listens with TLS.
    pub fn tls(mut self, identity: &Identity) -> Self {
        self.identity = Some(identity.clone());
        self.file("gateway.pem", &identity.certificate_pem).file("gateway.key", &identity.key_pem)
    }

    /// Puts a file beside the conf file.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Sets an environment variable of the process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits until it is ready.
    pub async fn run(self) -> Gw {
        let gw = self.start();
        gw.until_ready().await;
        gw
    }

    /// Starts it without waiting.
    pub fn start(mut self) -> Gw {
        if self.approve_all {
            for (slug, up) in &self.ups {
                for definition in up.tools() {
                    if !self.policy.pins(slug, definition["name"].as_str().unwrap_or_default()) {
                        self.policy.approve(slug, &definition, "read");
                    }
                }
            }
        }
        let folder = new_folder();
        let listen = SocketAddr::from(([127, 0, 0, 1], super::free_port()));
        let ops = SocketAddr::from(([127, 0, 0, 1], super::free_port()));
        let mut conf = default_conf(listen, ops, self.identity.is_some());
        merge(&mut conf, std::mem::take(&mut self.conf));
        let base = conf["gateway"].get("base_path").and_then(|b| b.as_str()).unwrap_or("/gateway").to_owned();
        for (name, text) in &self.files {
            fs::write(folder.join(name), text).expect("a file");
        }
        fs::write(folder.join("toolgate.toml"), toml::to_string(&conf).expect("TOML")).expect("a file");
        write_policy(&folder, &self.policy);
        let process = Process::start(&folder, &self.env);
        let tls = self.identity.as_ref().map(|identity| identity.client(&["http/1.1"]));
        let target = Target { address: listen, tls, base };
        Gw { target, ops, folder, policy: Mutex::new(self.policy), env: self.env, process }
    }
}

/// A running gateway; dropping it ends the process.
pub struct Gw {
    target: Target,
    ops: SocketAddr,
    folder: PathBuf,
    policy: Mutex<Policy>,
    env: Vec<(String, String)>,
    process: Process,
}

/// What became of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// The new policy is live.
    Applied,
    /// The old one was kept.
    Rejected,
}

impl Gw {
    /// A client with that key; a name that is no key is sent with a token that nobody knows.
    pub fn client(&self, key: &str) -> Client {
        Client::new(self.target.clone(), Some(token(key)))
    }

    /// A client without a key.
    pub fn nobody(&self) -> Client {
        Client::new(self.target.clone(), None)
    }

    /// The variables that its process was given.
    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// Where it listens.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The policy that was written last.
    pub fn policy(&self) -> Policy {
        self.policy.lock().expect("no panic holds it").clone()
    }

    /// Writes a policy, sends SIGHUP, and waits until the gateway has taken or rejected it.
    pub async fn reload(&self, policy: &Policy) -> Reloaded {
        self.write(policy);
        self.hang_up().await
    }

    /// Writes a policy and tells nobody.
    pub fn write(&self, policy: &Policy) {
        write_policy(&self.folder, policy);
        policy.clone_into(&mut self.policy.lock().expect("no panic holds it"));
    }

    /// Runs `toolgate upgrade`, and speaks to the process that took over from then on; or what it said.
    pub async fn upgrade(&self) -> Result<(), String> {
        let upgrade = tokio::process::Command::new(env!("CARGO_BIN_EXE_toolgate"))
            .args(["upgrade", "--json", "--socket"])
            .arg(self.folder.join("toolgate.sock"))
            .stdin(Stdio::null())
            .output();
        let output = upgrade.await.expect("the command runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            return Err(text(&output.stderr));
        }
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        self.process.adopt(answer["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("a pid"));
        Ok(())
    }

    /// Waits until no process but the one that serves is left; the first must have ended well.
    pub async fn until_alone(&self) {
        let code = super::eventually("the end of the first process", async || self.process.first_ended()).await;
        assert_eq!(code, Some(0), "{}", self.log_text());
        let earlier = self.process.earlier();
        super::eventually("the end of the others", async || earlier.iter().all(|pid| is_gone(*pid)).then_some(()))
            .await;
    }

    /// The number of the process that serves.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Writes any text as the policy file and reloads.
    pub async fn reload_text(&self, policy: &str) -> Reloaded {
        fs::write(self.folder.join("policy/policy.toml"), policy).expect("a file");
        self.hang_up().await
    }

    /// Sends SIGHUP and waits until the files were taken or rejected.
    pub async fn hang_up(&self) -> Reloaded {
        let count = |metrics: &Metrics, result| metrics.sum("toolgate_snapshot_swaps_total", &[("result", result)]);
        let before = self.metrics().await;
        self.process.signal("HUP");
        super::eventually("the reload", async || {
            let now = self.metrics().await;
            if count(&now, "rejected") > count(&before, "rejected") {
                return Some(Reloaded::Rejected);
            }
            let moved = now.sum("toolgate_snapshot_revision", &[]) != before.sum("toolgate_snapshot_revision", &[]);
            (moved && count(&now, "applied") > count(&before, "applied")).then_some(Reloaded::Applied)
        })
        .await
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Asks the ops listener.
    pub async fn ops(&self, path: &str) -> Option<Answer> {
        let target = Target { address: self.ops, tls: None, base: String::new() };
        let client = Client::new(target, None).fresh();
        let mut connection = client.connect().await.ok()?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.ops);
        connection.write(head.as_bytes()).await.ok()?;
        let answer = connection.exchange(client.asked_by(b"")).finish().await.0;
        (answer.status != 0).then_some(answer)
    }

    /// Every metric.
    pub async fn metrics(&self) -> Metrics {
        let answer = self.ops("/metrics").await.unwrap_or_else(|| panic!("no metrics\n{}", self.log_text()));
        assert_eq!(answer.status, 200, "{}", answer.wire());
        Metrics::parse(&answer.text())
    }

    /// Waits until a metric has a value that the test wants.
    pub async fn until_metric(&self, name: &str, labels: &[(&str, &str)], wanted: impl Fn(f64) -> bool) -> f64 {
        let what = format!("{name}{labels:?}");
        super::eventually(&what, async || {
            let value = self.metrics().await.sum(name, labels);
            wanted(value).then_some(value)
        })
        .await
    }

    /// The state that the gateway counts a server's tools in, by waiting for it.
    pub async fn until_tools(&self, server: &str, state: &str, count: f64) {
        self.until_metric("toolgate_tools", &[("server", server), ("state", state)], |n| n == count).await;
    }

    /// The lines of the access log so far.
    pub fn access_log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join("stdout")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line.get("request_id").is_some() && line.get("outcome").is_some())
            .collect()
    }

    /// The access log's line of one request; waits for it.
    pub async fn access_line(&self, request_id: &str) -> Value {
        let find = async || self.access_log().into_iter().find(|line| line["request_id"] == request_id);
        super::eventually("the line of the access log", find).await
    }

    /// All that the process wrote.
    pub fn log_text(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        format!("{}{}", read("stdout"), read("stderr"))
    }

    /// Whether the process runs.
    pub fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Ends the process and starts another on the same files; waits until it is ready.
    pub async fn restart(&mut self) {
        self.signal("TERM");
        self.until_ended().await;
        self.process.keeps_folder = true;
        self.process = Process::start(&self.folder, &self.env);
        self.until_ready().await;
    }

    /// Waits until the process has ended; gives its exit code, which nobody is told of a process that took over.
    pub async fn until_ended(&self) -> Option<i32> {
        super::eventually("the end of the process", async || self.process.ended()).await
    }

    /// Waits until `/readyz` says 200.
    pub async fn until_ready(&self) {
        super::eventually("the gateway is ready", async || {
            assert!(self.is_alive(), "the gateway ended:\n{}", self.log_text());
            self.ops("/readyz").await.filter(|answer| answer.status == 200)
        })
        .await;
    }
}

/// The token of a key: the same for the whole run, different from run to run.
pub fn token(key: &str) -> String {
    static SECRET: std::sync::LazyLock<u64> = std::sync::LazyLock::new(rand::random);
    format!("tgk_{key}_{:016x}{}", *SECRET, "0123456789abcdef")
}

struct Process {
    /// The first one.
    child: Mutex<Child>,
    reaper: Child,
    /// Of the one that serves.
    pid: AtomicU32,
    folder: PathBuf,
    /// Another process goes on in the folder.
    keeps_folder: bool,
}

impl Process {
    fn start(folder: &Path, env: &[(String, String)]) -> Self {
        let file = |name| File::create(folder.join(name)).expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_toolgate"))
            .args(["serve", "--conf"])
            .arg(folder.join("toolgate.toml"))
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("the gateway starts");
        let pid = child.id();
        fs::write(folder.join("pids"), format!("{pid}\n")).expect("a file");
        let reaper = Command::new("sh")
            .args(["-c", REAPER, "reaper"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        let (child, pid) = (Mutex::new(child), AtomicU32::new(pid));
        Self { child, reaper, pid, folder: folder.to_owned(), keeps_folder: false }
    }

    fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Another process is the gateway from now on.
    fn adopt(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
        let mut pids = File::options().append(true).open(self.folder.join("pids")).expect("a file");
        writeln!(pids, "{pid}").expect("a file");
    }

    /// Those before the one that serves, but for the first.
    fn earlier(&self) -> Vec<u32> {
        let pids = fs::read_to_string(self.folder.join("pids")).expect("a file");
        let mut pids: Vec<u32> = pids.lines().skip(1).map(|pid| pid.parse().expect("a pid")).collect();
        pids.pop();
        pids
    }

    /// The exit code of the first process, once it ended.
    fn first_ended(&self) -> Option<Option<i32>> {
        let status = self.child.lock().expect("no panic holds it").try_wait().expect("a child");
        status.map(|status| status.code())
    }

    fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).stderr(Stdio::null()).status();
        sent.expect("kill exists");
    }

    fn ended(&self) -> Option<Option<i32>> {
        let first = self.child.lock().expect("no panic holds it").id();
        if self.pid() == first { self.first_ended() } else { is_gone(self.pid()).then_some(None) }
    }

    fn is_alive(&self) -> bool {
        self.ended().is_none()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_alive() {
            self.signal("TERM");
            let end = Instant::now() + STOP_LIMIT;
            while self.is_alive() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
            if self.is_alive() {
                self.signal("KILL");
            }
        }
        for pid in self.earlier().into_iter().filter(|pid| !is_gone(*pid)) {
            let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
        let mut child = self.child.lock().expect("no panic holds it");
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(child);
        if let Some(mut stdin) = self.reaper.stdin.take() {
            let _ = stdin.write_all(b"done\n");
        }
        let _ = self.reaper.wait();
        if !std::thread::panicking() && !self.keeps_folder {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Whether a process has ended, also when nobody has asked for its exit code yet.
fn is_gone(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("toolgate-test-{}-{number}", std::process::id()));
    fs::create_dir_all(folder.join("policy")).expect("a folder");
    folder
}

fn write_policy(folder: &Path, policy: &Policy) {
    fs::write(folder.join("policy/policy.toml"), policy.to_toml()).expect("a file");
}

/// The conf of a test: everything on 127.0.0.1, nothing that a long table of refusals would run into.
fn default_conf(listen: SocketAddr, ops: SocketAddr, tls: bool) -> Table {
    let listener = if tls {
        format!("{{ address = '{listen}', tls = {{ certificate = 'gateway.pem', key = 'gateway.key' }} }}")
    } else {
        format!("'{listen}'")
    };
    table(&format!(
        "[gateway]\nlisten = [{listener}]\nthreads = 2\n\
         [ops]\nlisten = '{ops}'\n\
         [admin]\nsocket = 'toolgate.sock'\n\
         [store]\nurl = 'sqlite:toolgate.db'\n\
         [policy]\nfiles = ['policy/*.toml']\n\
         [egress]\nallow_http = true\nallow_networks = ['127.0.0.0/8']\n\
         [timeouts]\ndrain = '2s'\n\
         [rate_limits]\nfailed_auth = 'off'\n\
         [log]\naccess = 'stdout'\n"
    ))
}

fn merge(into: &mut Table, from: Table) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(toml::Value::Table(have)), toml::Value::Table(more)) => merge(have, more),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}
