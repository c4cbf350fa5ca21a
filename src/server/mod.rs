//! Wires the process: listeners, services, signals, drain. Knows every room and decides nothing about a call.

mod background;
mod listen;
mod management;
mod notify;
mod signals;
mod tls;

use std::{
    path::Path,
    sync::{Arc, OnceLock, mpsc},
    time::Instant,
};

use pingora::server::{RunArgs, Server};
use thiserror::Error;
use tokio::{runtime::Runtime, sync::watch};

use self::{notify::Pulse, tls::Identities};
use crate::{
    access_log::{self, AccessLog},
    budget::{self, Failures, Fleet},
    conf::{self, Conf},
    control::{Control, Rejected},
    metrics::Metrics,
    ops::Ready,
    policy::{compile::Handles, live::Live, snapshot::Settings},
    proxy::{Counts, Drain, Gateway, State},
    store::{Store, StoreError},
    upstream::{
        client::Client,
        dns::Resolver,
        server::Registry,
        sessions::{SessionLimits, Sessions},
    },
};

/// Why the gateway did not start, or could not go on.
#[derive(Debug, Error)]
pub enum StartError {
    /// The conf or the policy has faults; rendered.
    #[error("{0}")]
    Faults(String),
    /// The store cannot be opened.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
    /// A listener cannot be bound, a file of it cannot be read, or it died.
    #[error("{0}")]
    Listen(String),
    /// The runtime cannot be started.
    #[error("the runtime: {0}")]
    Runtime(#[from] std::io::Error),
}

impl StartError {
    /// The exit code of sysexits(3): 78 for a faulty conf, 69 for a store that is not there, 71 for the system.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Faults(_) => 78,
            Self::Store(_) => 69,
            Self::Listen(_) | Self::Runtime(_) => 71,
        }
    }
}

impl From<Rejected> for StartError {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Faults(text) => Self::Faults(text),
            Rejected::Store(error) => Self::Store(error),
        }
    }
}

/// A gateway that is ready to run.
pub struct Running {
    /// Of the control plane; ends with this.
    runtime: Runtime,
    server: Server,
    stop: signals::Stop,
    ended: mpsc::Receiver<End>,
}

impl Running {
    /// Serves until a signal ends it and what ran then is answered. The process is to end after this.
    ///
    /// # Errors
    /// [`StartError::Listen`]: a listener died.
    pub fn run(self) -> Result<(), StartError> {
        let Self { runtime, server, stop, ended } = self;
        std::thread::Builder::new()
            .name("pingora".to_owned())
            .spawn(move || server.run(RunArgs { shutdown_signal: Box::new(stop) }))?;
        let end = ended.recv().unwrap_or(End::Drained);
        runtime.shutdown_background();
        match end {
            End::Drained => Ok(()),
            End::Failed(why) => Err(why),
        }
    }
}

/// How serving came to its end.
#[derive(Debug)]
enum End {
    /// A signal came, and nothing runs any more.
    Drained,
    /// It cannot go on.
    Failed(StartError),
}

/// How the parts of the process tell that they live, and how they end.
#[derive(Debug)]
struct Vitals {
    /// The first end counts.
    ends: mpsc::Sender<End>,
    /// The gateway's listeners are closed.
    closed: watch::Sender<bool>,
    pulse: Pulse,
}

impl Vitals {
    /// The process cannot go on.
    fn fail(&self, why: StartError) {
        let _ = self.ends.send(End::Failed(why));
    }
}

/// What the rooms of the process share.
struct Rooms {
    conf: Conf,
    live: Arc<Live>,
    control: Arc<Control>,
    client: Arc<Client>,
    sessions: Arc<Sessions>,
    resolver: Resolver,
    metrics: Arc<Metrics>,
    log: AccessLog,
    state: Arc<State>,
    schedule: Arc<OnceLock<crate::discovery::Schedule>>,
    /// The store of shared rate limits; none without `rate_limits.url`.
    fleet: Option<Arc<Fleet>>,
    ready: Arc<Ready>,
    identities: Identities,
    vitals: Arc<Vitals>,
}

/// The access log, where the conf says.
fn open_log(conf: &Conf) -> Result<AccessLog, StartError> {
    AccessLog::open(&match &conf.log.access {
        conf::AccessLog::Stdout => access_log::Target::Stdout,
        conf::AccessLog::Off => access_log::Target::Off,
        conf::AccessLog::File(path) => access_log::Target::File(path.clone()),
    })
    .map_err(|why| StartError::Listen(format!("log.access: {why}")))
}

/// The store of shared rate limits, if there is to be one.
async fn fleet(conf: &Conf, started: Instant) -> Result<Option<Arc<Fleet>>, StartError> {
    let Some(url) = &conf.rate_limits.url else { return Ok(None) };
    let fleet = Fleet::start(url.expose(), started).await;
    fleet.map(Some).map_err(|why| StartError::Faults(format!("`rate_limits.url` cannot be used: {why}")))
}

/// Reads the conf, publishes the first policy, binds the listeners and starts discovery.
///
/// # Errors
/// [`StartError`]
pub fn start(path: &Path) -> Result<Running, StartError> {
    let started = Instant::now();
    let loaded = conf::load(path)
        .into_loaded()
        .map_err(|rejected| StartError::Faults(rejected.sources.render(&rejected.faults)))?;
    let conf = loaded.conf.clone();
    listen::probe(&conf)?;
    let identities = Identities::read(&conf).map_err(StartError::Faults)?;
    tls::warn_of_expiry(&identities);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("toolgate-control")
        .enable_all()
        .build()?;
    let metrics = Arc::new(Metrics::new());
    let log = open_log(&conf)?;
    let live = Arc::new(Live::default());
    let resolver = Resolver::system();
    let client = Arc::new(Client::new(resolver.clone()));
    let sessions = Sessions::new(Arc::clone(&client), SessionLimits::default());
    let mut handles = Handles::new(Registry::new(Arc::clone(&sessions)));
    let fleet = runtime.block_on(fleet(&conf, started))?;
    handles.buckets = budget::Registry::new(fleet.clone());
    let (control, warnings) = runtime.block_on(async {
        let store = Store::open(conf.store.url.expose()).await?;
        let first = Control::start((path, loaded), Arc::clone(&live), (store, handles, started)).await?;
        Ok::<_, StartError>(first)
    })?;
    if !warnings.is_empty() {
        tracing::warn!("{warnings}");
    }
    let schedule = Arc::new(OnceLock::new());
    let gateway = Gateway::new(State {
        live: Arc::clone(&live),
        defaults: Arc::new(Settings::default()),
        client: Arc::clone(&client),
        metrics: Arc::clone(&metrics),
        log: log.clone(),
        failures: Failures::default(),
        counts: Counts::default(),
        drain: Arc::new(Drain::new()),
        started,
        rediscover: background::rediscover(&schedule),
    });
    let (ends, ended) = mpsc::channel();
    let rooms = Rooms {
        live,
        control: Arc::new(control),
        client,
        sessions,
        resolver,
        metrics,
        log,
        state: gateway.shared(),
        schedule,
        fleet,
        ready: Arc::new(Ready::new(started)),
        identities,
        vitals: Arc::new(Vitals { ends, closed: watch::Sender::new(false), pulse: Pulse::new() }),
        conf,
    };
    let server = listen::data_plane(&rooms.conf, &gateway, &rooms.identities, &rooms.vitals)?;
    let rooms = Arc::new(rooms);
    let stop = runtime.block_on(async {
        let stop = signals::hear(&rooms)?;
        background::start(&rooms).await?;
        Ok::<_, StartError>(stop)
    })?;
    Ok(Running { runtime, server, stop, ended })
}
