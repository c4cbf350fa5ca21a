//! A real Redis of one test: on a port and in a folder of its own, ended by its id.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::free_port;

/// Ends Redis, also a stopped one, when the test process ends before it could do so itself.
const REAPER: &str = r#"read -r line && exit 0; kill -CONT "$1"; kill -KILL "$1"; rm -rf "$2""#;

/// A Redis of one test.
pub struct Redis {
    /// Its port.
    pub port: u16,
    /// Its folder.
    pub folder: PathBuf,
    /// More options.
    pub options: Vec<String>,
    child: Option<(Child, Child)>,
}

impl Redis {
    /// Starts one; none, and a word about it, where it is not installed.
    pub fn start() -> Option<Self> {
        let redis = Self::prepare(&[])?;
        Some(redis.started())
    }

    /// One that does not run yet.
    pub fn prepare(options: &[&str]) -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: redis-server is not on this machine");
            return None;
        }
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("toolgate-redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Some(Self { port, folder, options: options.iter().map(|o| (*o).to_owned()).collect(), child: None })
    }

    /// Starts it.
    pub fn started(mut self) -> Self {
        self.begin();
        self
    }

    /// Starts it, again after [`Self::end`]; waits until it listens.
    pub fn begin(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]).arg(&self.folder);
        if !self.options.iter().any(|option| option == "--tls-port") {
            command.args(["--port", &self.port.to_string()]);
        }
        command.args(&self.options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let mut reaper = Command::new("sh");
        reaper.args(["-c", REAPER, "reaper", &child.id().to_string()]).arg(&self.folder).stdin(Stdio::piped());
        self.child = Some((child, reaper.spawn().unwrap()));
        let end = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "Redis does not listen on {}", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let pid = self.child.as_ref().unwrap().0.id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap().success());
    }

    /// Kills it.
    pub fn end(&mut self) {
        let Some((mut child, mut reaper)) = self.child.take() else { return };
        let _ = child.kill();
        let _ = child.wait();
        let _ = reaper.stdin.take().unwrap().write_all(b"done\n");
        let _ = reaper.wait();
    }

    /// What `rate_limits.url` is.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends one command; the answer as it comes.
    pub fn command(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_suffix("+OK\r\n").unwrap_or(&answer).to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
