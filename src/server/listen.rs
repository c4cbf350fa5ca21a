//! The data plane's listeners: Pingora's server over the edge.
//!
//! A listener that cannot be bound, or that dies, ends the process: half a gateway is worse than none, as nobody notices it.

use std::{
    net::TcpListener,
    os::unix::{fs::FileTypeExt as _, net::UnixStream},
    panic::AssertUnwindSafe,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt as _;
use pingora::{
    proxy::http_proxy,
    server::{ListenFds, Server, ShutdownWatch, configuration::ServerConf},
    services::listening::Service,
};

use super::{StartError, Vitals, tls::Identities};
use crate::{
    conf::{Address, Conf},
    proxy::{Door, Gateway},
};

/// Idle connections to servers that are kept.
const POOL_MAX: usize = 1024;
/// The first try of a call and one renewal of a legacy session.
const TRIES_MAX: usize = 2;
/// How long Pingora would wait before it ends its threads by itself: never, as `signals.rs` ends the process.
const NEVER_SECS: u64 = 10 * 365 * 86_400;
/// How often the threads of the data plane show that they live.
const BEAT: Duration = Duration::from_secs(1);

/// Whether every listener can be bound: a clear error before anything starts.
///
/// # Errors
/// [`StartError::Listen`]
pub(super) fn probe(conf: &Conf) -> Result<(), StartError> {
    for listen in &conf.gateway.listen {
        let refused = |why: String| StartError::Listen(format!("gateway.listen: {}: {why}", listen.address));
        match &listen.address {
            Address::Tcp(address) => drop(TcpListener::bind(address).map_err(|why| refused(why.to_string()))?),
            Address::Unix(path) => probe_unix(path).map_err(refused)?,
        }
    }
    Ok(())
}

/// Pingora removes whatever lies at the path, so a file and a socket in use are told apart from a dead socket here.
fn probe_unix(path: &Path) -> Result<(), String> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => Err("there is a file that is no socket".to_owned()),
        Ok(_) if UnixStream::connect(path).is_ok() => Err("somebody listens there".to_owned()),
        Ok(_) => Ok(()),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                Err(format!("there is no folder {}", folder.display()))
            }
            _ => Ok(()),
        },
        Err(why) => Err(why.to_string()),
    }
}

/// Pingora's server with one service on every listener. Its YAML is never read: everything comes from our conf.
///
/// # Errors
/// [`StartError::Faults`]: a `client_ca` that cannot be used.
pub(super) fn data_plane(
    conf: &Conf,
    gateway: &Gateway,
    identities: &Identities,
    vitals: &Arc<Vitals>,
) -> Result<Server, StartError> {
    let threads = match conf.gateway.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => usize::try_from(threads).unwrap_or(1),
    };
    let server_conf = ServerConf {
        threads,
        work_stealing: false,
        max_retries: TRIES_MAX,
        upstream_keepalive_pool_size: POOL_MAX,
        grace_period_seconds: Some(NEVER_SECS),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, server_conf);
    let proxy = http_proxy(&server.configuration, gateway.clone());
    let mut service = Service::new("gateway".to_owned(), Door::new(proxy, gateway.clone()));
    service.threads = Some(threads);
    for listen in &conf.gateway.listen {
        let tls = identities.settings(&listen.address).map_err(StartError::Faults)?;
        match (&listen.address, tls) {
            (Address::Unix(path), _) => service.add_uds(&path.display().to_string(), None),
            (Address::Tcp(address), None) => service.add_tcp(&address.to_string()),
            (Address::Tcp(address), Some(tls)) => service.add_tls_with_settings(&address.to_string(), None, tls),
        }
    }
    server.add_service(Watched { service, conf: conf.clone(), vitals: Arc::clone(vitals) });
    Ok(server)
}

/// The service on the listeners; says so when it ends without being told to.
struct Watched {
    service: Service<Door>,
    conf: Conf,
    vitals: Arc<Vitals>,
}

#[async_trait]
impl pingora::services::Service for Watched {
    async fn start_service(&mut self, fds: Option<ListenFds>, shutdown: ShutdownWatch, listeners_per_fd: usize) {
        let beating = tokio::spawn(beat(Arc::clone(&self.vitals)));
        let serving = self.service.start_service(fds, shutdown.clone(), listeners_per_fd);
        let ended = AssertUnwindSafe(serving).catch_unwind().await;
        beating.abort();
        if *shutdown.borrow() {
            self.vitals.closed.send_replace(true);
            return;
        }
        let why = match (ended, probe(&self.conf)) {
            (Err(_), Err(why)) => why.to_string(),
            (Err(_), Ok(())) => "gateway.listen: a listener could not be bound".to_owned(),
            (Ok(()), _) => "gateway.listen: a listener died".to_owned(),
        };
        self.vitals.fail(StartError::Listen(why));
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        self.service.threads()
    }
}

/// Asks one thread of the data plane after the other, at random, for a sign of life, and waits for it for as long as it takes.
async fn beat(vitals: Arc<Vitals>) {
    loop {
        if pingora_runtime::current_handle().spawn(async {}).await.is_ok() {
            vitals.pulse.beat();
        }
        tokio::time::sleep(BEAT).await;
    }
}
