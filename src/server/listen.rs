//! The data plane's listeners: Pingora's server over the edge.
//!
//! A listener that cannot be bound, or that dies, ends the process: half a gateway is worse than none, as nobody notices it.

use std::{
    os::fd::{IntoRawFd as _, OwnedFd},
    panic::AssertUnwindSafe,
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

use super::{Rooms, StartError, Vitals, doors::GATEWAY};
use crate::{
    conf::Address,
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

/// Pingora's server with one service on every listener. Its YAML is never read: everything comes from our conf.
///
/// # Errors
/// [`StartError::Faults`]: a `client_ca` that cannot be used. [`StartError::Listen`]: a socket that cannot be had.
pub(super) fn data_plane(rooms: &Rooms, gateway: &Gateway) -> Result<Server, StartError> {
    let conf = &rooms.conf;
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
    let (doors, mut sockets) = (rooms.doors.load(), Vec::new());
    for listen in &conf.gateway.listen {
        let tls = rooms.identities.settings(&listen.address).map_err(StartError::Faults)?;
        let name = match &listen.address {
            Address::Unix(path) => path.display().to_string(),
            Address::Tcp(address) => address.to_string(),
        };
        match (&listen.address, tls) {
            (Address::Unix(_), _) => service.add_uds(&name, None),
            (Address::Tcp(_), None) => service.add_tcp(&name),
            (Address::Tcp(_), Some(tls)) => service.add_tls_with_settings(&name, None, tls),
        }
        sockets.extend(doors.get(GATEWAY, &listen.address)?.map(|socket| (name, socket)));
    }
    server.add_service(Watched { service, sockets, vitals: Arc::clone(&rooms.vitals) });
    Ok(server)
}

/// The service on the listeners; says so when it ends without being told to.
struct Watched {
    service: Service<Door>,
    /// By the names that Pingora's table of inherited sockets has for them: it binds none.
    sockets: Vec<(String, OwnedFd)>,
    vitals: Arc<Vitals>,
}

#[async_trait]
impl pingora::services::Service for Watched {
    async fn start_service(&mut self, fds: Option<ListenFds>, shutdown: ShutdownWatch, listeners_per_fd: usize) {
        if let Some(inherited) = &fds {
            for (name, socket) in self.sockets.drain(..) {
                inherited.lock().add(name, socket.into_raw_fd());
            }
        }
        let beating = tokio::spawn(beat(Arc::clone(&self.vitals)));
        let serving = self.service.start_service(fds, shutdown.clone(), listeners_per_fd);
        let ended = AssertUnwindSafe(serving).catch_unwind().await;
        beating.abort();
        if *shutdown.borrow() {
            self.vitals.closed.send_replace(true);
            return;
        }
        let why = match ended {
            Err(_) => "gateway.listen: a listener could not be set up",
            Ok(()) => "gateway.listen: a listener died",
        };
        self.vitals.fail(StartError::Listen(why.to_owned()));
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
