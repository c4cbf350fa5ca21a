//! A real PostgreSQL of one test: its own data, port and folder, ended by its id. PostgreSQL refuses to run as root, so a test that
//! does runs it as the user `postgres`, which Debian's package makes.

use std::{
    fs,
    io::Write,
    net::TcpStream,
    os::unix::{fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::free_port;

/// Ends PostgreSQL, also a stopped one, when the test process ends before it could do so itself; its children end with it.
const REAPER: &str = r#"read -r line && exit 0; kill -CONT "$1"; kill -INT "$1"; sleep 1; rm -rf "$2""#;

/// A PostgreSQL of one test.
pub struct Postgres {
    /// Its port.
    pub port: u16,
    folder: PathBuf,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    child: Option<(Child, Child)>,
}

impl Postgres {
    /// Starts one; none, and a word about it, where it is not installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            println!("skipped: PostgreSQL is not on this machine");
            return None;
        };
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("toolgate-postgres-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let user = user(&folder);
        let mut postgres = Self { port, folder, programs, user, child: None };
        let mut initdb = postgres.command("initdb");
        initdb.args(["--username=admin", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]);
        let made = initdb.arg("--pgdata").arg(postgres.folder.join("data")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        postgres.begin();
        postgres.sql("CREATE ROLE gate LOGIN; GRANT ALL ON SCHEMA public TO gate");
        Some(postgres)
    }

    /// Starts it, again after [`Self::stop`] or [`Self::kill`]; waits until it takes connections.
    pub fn begin(&mut self) {
        let mut command = self.command("postgres");
        let port = self.port.to_string();
        command.args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
            "-c",
            "logging_collector=off",
            "-p",
            &port,
        ]);
        command.arg("-k").arg(&self.folder).arg("-D").arg(self.folder.join("data"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut reaper = Command::new("sh");
        reaper.args(["-c", REAPER, "reaper", &child.id().to_string()]).arg(&self.folder).stdin(Stdio::piped());
        self.child = Some((child, reaper.spawn().unwrap()));
        let end = Instant::now() + Duration::from_secs(30);
        while !self.answers() {
            assert!(Instant::now() < end, "PostgreSQL does not listen on {}", self.port);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.try_sql("SELECT 1").is_ok()
    }

    /// Sends a signal to the server and to every one of its processes.
    pub fn signal(&self, name: &str) {
        let pid = self.pid();
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &pid]).output().unwrap().stdout;
        let children = String::from_utf8(children).unwrap();
        let all = std::iter::once(pid.as_str()).chain(children.split_whitespace());
        let sent = Command::new("kill").arg(format!("-{name}")).args(all).stderr(Stdio::null()).status();
        sent.unwrap();
    }

    /// Lets the gateways in, or answers them with an error.
    pub fn admits(&self, admits: bool) {
        self.sql(&format!("ALTER ROLE gate {}LOGIN", if admits { "" } else { "NO" }));
        if !admits {
            self.sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'gate'");
        }
    }

    /// Stops it as an administrator would who does not wait.
    pub fn stop(&mut self) {
        self.end("INT");
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // Its children see that it is gone, and end.
        self.end("QUIT");
    }

    fn end(&mut self, signal: &str) {
        let Some((mut child, mut reaper)) = self.child.take() else { return };
        let _ = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        let _ = child.wait();
        let _ = reaper.stdin.take().unwrap().write_all(b"done\n");
        let _ = reaper.wait();
    }

    fn pid(&self) -> String {
        self.child.as_ref().unwrap().0.id().to_string()
    }

    /// What `store.url` is, through `port`: its own, or that of a proxy before it.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://gate@127.0.0.1:{port}/postgres")
    }

    /// What `store.url` is.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Runs statements; what they print.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
    }

    fn try_sql(&self, sql: &str) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-q",
            "-t",
            "-A",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
            &format!("postgres://admin@127.0.0.1:{}/postgres", self.port),
        ]);
        let done = psql.env("PGCONNECT_TIMEOUT", "5").stdin(Stdio::null()).output().unwrap();
        if done.status.success() {
            Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&done.stderr).into_owned())
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).current_dir(&self.folder);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.signal("CONT");
            self.stop();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where Debian puts the programs of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    found.retain(|bin| bin.join("postgres").exists());
    found.sort();
    found.pop()
}

/// Who it runs as, if not as whoever runs the tests; the folder is given to that user.
fn user(folder: &Path) -> Option<(u32, u32)> {
    if std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder).unwrap()) != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.starts_with("postgres:")).expect("Debian's package makes that user");
    let fields: Vec<&str> = line.split(':').collect();
    let (uid, gid) = (fields[2].parse().unwrap(), fields[3].parse().unwrap());
    chown(folder, Some(uid), Some(gid)).unwrap();
    Some((uid, gid))
}
