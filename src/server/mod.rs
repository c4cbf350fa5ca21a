//! Wires the process: listeners, services, signals, drain. Knows every room and decides nothing about a call.

mod background;
mod doors;
mod fleet;
mod issuers;
mod listen;
mod management;
mod notify;
mod signals;
mod tls;
mod upgrade;

use std::{
    path::Path,
    sync::{Arc, OnceLock, mpsc},
    time::Instant,
};

use pingora::server::{RunArgs, Server};
use thiserror::Error;
use tokio::{net::UnixStream, runtime::Runtime, signal::unix::Signal, sync::watch};

use self::{
    doors::Doors,
    notify::Pulse,
    signals::Signals,
    tls::Identities,
    upgrade::{Predecessor, Program},
};
use crate::{
    access_log::{self, AccessLog},
    budget::{self, Failures, Fleet},
    conf::{self, Conf},
    control::{Control, Rejected},
    metrics::Metrics,
    ops::Ready,
    policy::{
        compile::Handles,
        live::{Live, Slot},
        snapshot::Settings,
    },
    proxy::{Counts, Drain, Gateway, State},
    store::{Store, StoreError},
    traces::Traces,
    upstream::{
        client::Client,
        dns::Resolver,
        server::Registry,
        sessions::{IDLE_MAX, SessionLimits, Sessions, SharedSessions},
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
    /// SIGHUP and SIGUSR1.
    requests: (Signal, Signal),
    ended: mpsc::Receiver<End>,
    rooms: Arc<Rooms>,
    /// The process that this one takes over from.
    predecessor: Option<Predecessor>,
}

impl Running {
    /// Serves until a signal ends it and what ran then is answered. The process is to end after this.
    ///
    /// # Errors
    /// [`StartError::Listen`]: a listener died.
    pub fn run(self) -> Result<(), StartError> {
        let Self { runtime, server, stop, requests, ended, rooms, predecessor } = self;
        // A process that takes over accepts nothing before the one before it lets go.
        let (open, opened) = mpsc::channel();
        std::thread::Builder::new().name("pingora".to_owned()).spawn(move || {
            if opened.recv().is_ok() {
                server.run(RunArgs { shutdown_signal: Box::new(stop) });
            }
        })?;
        runtime.spawn(async move {
            background::start(&rooms, requests).await;
            let taken = match predecessor {
                Some(predecessor) => upgrade::take_over(Arc::clone(&rooms), predecessor).await,
                None => Ok(true),
            };
            let opening = taken
                .and_then(|taken| if taken { background::open(&rooms).map(|()| open.send(())) } else { Ok(Ok(())) });
            if let Err(why) = opening {
                rooms.vitals.fail(why);
            }
        });
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
    /// Another process serves since an upgrade.
    succeeded: watch::Sender<bool>,
    pulse: Pulse,
}

impl Vitals {
    fn new(ends: mpsc::Sender<End>) -> Self {
        let not_yet = || watch::Sender::new(false);
        Self { ends, closed: not_yet(), succeeded: not_yet(), pulse: Pulse::new() }
    }

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
    /// Empty once the process drains.
    doors: Slot<Doors>,
    program: Program,
    /// The process that serves since an upgrade; held while one is under way.
    heir: tokio::sync::Mutex<Option<UnixStream>>,
}

/// The access log, where the conf says.
fn open_log(conf: &Conf) -> Result<AccessLog, StartError> {
    AccessLog::open(&match &conf.log.access {
        conf::AccessLog::Stdout => access_log::Target::Stdout,
        conf::AccessLog::Off => access_log::Target::Off,
        conf::AccessLog::File(path) => access_log::Target::File(path.clone()),
    })
    .map(|log| log.sampling(conf.log.sample))
    .map_err(|why| StartError::Listen(format!("log.access: {why}")))
}

/// The store of shared rate limits, if there is to be one.
async fn shared_limits(conf: &Conf, started: Instant) -> Result<Option<Arc<Fleet>>, StartError> {
    let Some(url) = &conf.rate_limits.url else { return Ok(None) };
    let fleet = Fleet::start(url.expose(), started).await;
    fleet.map(Some).map_err(|why| StartError::Faults(format!("`rate_limits.url` cannot be used: {why}")))
}

/// Where the nodes of a fleet keep their legacy sessions, if there is to be such a place.
fn shared_sessions(conf: &Conf) -> Result<Option<SharedSessions>, StartError> {
    let Some(url) = &conf.rate_limits.url else { return Ok(None) };
    let shared = SharedSessions::new(url.expose(), IDLE_MAX);
    shared.map(Some).map_err(|why| StartError::Faults(format!("`rate_limits.url` cannot be used: {why}")))
}

/// A process that is to be a gateway: its control runtime, which hears signals from now on.
#[derive(Debug)]
pub struct Process {
    started: Instant,
    runtime: Runtime,
    signals: Signals,
}

impl Process {
    /// Starts the runtime and hears signals: none of them kills the process any more.
    ///
    /// # Errors
    /// [`StartError::Runtime`]
    pub fn new() -> Result<Self, StartError> {
        let started = Instant::now();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("toolgate-control")
            .enable_all()
            .build()?;
        let signals = runtime.block_on(async { Signals::hear() })?;
        Ok(Self { started, runtime, signals })
    }

    /// Reads the conf, binds the listeners and publishes the first policy. None: a signal ended it meanwhile.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(self, path: &Path) -> Result<Option<Running>, StartError> {
        self.begin(path, (Doors::default(), None))
    }

    /// As [`Process::start`], in the place of the running gateway whose socket is this process's standard input.
    ///
    /// # Errors
    /// [`StartError`]; the other one goes on.
    pub fn take_over(self, path: &Path) -> Result<Option<Running>, StartError> {
        let (doors, predecessor) = upgrade::receive()?;
        self.begin(path, (doors, Some(predecessor)))
    }

    fn begin(
        self,
        path: &Path,
        (handed, predecessor): (Doors, Option<Predecessor>),
    ) -> Result<Option<Running>, StartError> {
        let Self { started, runtime, signals: Signals { mut ends, hangups, rotations } } = self;
        let loaded = conf::load(path)
            .into_loaded()
            .map_err(|rejected| StartError::Faults(rejected.sources.render(&rejected.faults)))?;
        let doors = handed.open(&loaded.conf)?;
        let (tell_end, ended) = mpsc::channel();
        let furnished = runtime.block_on(async {
            // a store that does not answer may hold this up for long
            tokio::select! {
                biased;
                () = ends.recv() => None,
                furnished = furnish((path, loaded), doors, (started, Vitals::new(tell_end))) => Some(furnished),
            }
        });
        let Some((rooms, gateway)) = furnished.transpose()? else {
            tracing::info!("stopped before it served");
            runtime.shutdown_background();
            return Ok(None);
        };
        let server = listen::data_plane(&rooms, &gateway)?;
        let rooms = Arc::new(rooms);
        let stop = runtime.block_on(async {
            let stop = signals::end_by(ends, &rooms);
            rooms.ready.published();
            if predecessor.is_none() {
                // first, so that `/livez` and `/readyz` answer while the rest comes up
                background::open_ops(&rooms)?;
            } else {
                rooms.ready.bound();
            }
            Ok::<_, StartError>(stop)
        })?;
        Ok(Some(Running { runtime, server, stop, requests: (hangups, rotations), ended, rooms, predecessor }))
    }
}

/// Publishes the first policy, and makes all that the process's rooms share.
async fn furnish(
    (path, loaded): (&Path, conf::Loaded),
    doors: Doors,
    (started, vitals): (Instant, Vitals),
) -> Result<(Rooms, Gateway), StartError> {
    let conf = loaded.conf.clone();
    let identities = Identities::read(&conf).map_err(StartError::Faults)?;
    tls::warn_of_expiry(&identities);
    let metrics = Arc::new(Metrics::new());
    let log = open_log(&conf)?;
    let live = Arc::new(Live::default());
    let resolver = Resolver::system();
    let client = Arc::new(Client::new(resolver.clone()));
    let sessions = Sessions::in_a_fleet(Arc::clone(&client), SessionLimits::default(), shared_sessions(&conf)?);
    let mut handles = Handles::new(Registry::new(Arc::clone(&sessions)));
    let shared = shared_limits(&conf, started).await?;
    handles.buckets = budget::Registry::new(shared.clone());
    let store = Store::open_or_last_good(conf.store.url.expose(), conf.store.last_good.as_deref()).await?;
    let (control, warnings) = Control::start((path, loaded), Arc::clone(&live), (store, handles, started)).await?;
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
        traces: Traces::start().map_err(StartError::Faults)?,
        failures: Failures::default(),
        counts: Counts::default(),
        drain: Arc::new(Drain::new()),
        started,
        rediscover: background::rediscover(&schedule),
    });
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
        fleet: shared,
        ready: Arc::new(Ready::new(started)),
        identities,
        vitals: Arc::new(vitals),
        doors: Slot::new(doors),
        program: Program { executable: std::env::current_exe()?, conf: path.to_owned() },
        heir: tokio::sync::Mutex::default(),
        conf,
    };
    Ok((rooms, gateway))
}
