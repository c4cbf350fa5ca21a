//! A fleet of this one node: a Redis of its own on loopback, ended with the world whose limits it shares.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;
use toolgate::budget;

/// The Redis, and the runtime that talks to it.
pub struct Fleet {
    redis: Child,
    runtime: Runtime,
    link: Arc<budget::Fleet>,
}

impl Fleet {
    /// Starts both, and waits until the one answers the other.
    pub fn start() -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let redis = command.stdout(Stdio::null()).spawn().expect("redis-server is installed");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let link =
            runtime.block_on(budget::Fleet::start(&format!("redis://127.0.0.1:{port}"), Instant::now())).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !link.is_up() {
            assert!(Instant::now() < end, "Redis does not answer on {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { redis, runtime, link }
    }

    /// Limits that it shares.
    pub fn limits(&self) -> budget::Registry {
        let _here = self.runtime.enter();
        budget::Registry::new(Some(Arc::clone(&self.link)))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.redis.kill().unwrap();
        self.redis.wait().unwrap();
    }
}
