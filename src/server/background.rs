//! What runs beside the data plane, on the control runtime: discovery, names, sessions, the ops listener, reload.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::FutureExt as _;
use tokio::{signal::unix::Signal, sync::watch};

use super::{Rooms, StartError, doors::OPS, fleet, notify, tls};
use crate::{
    budget::clock_nanos,
    conf::Address,
    control::{Rejected, Reloaded, ToDiscover},
    discovery::{Apply, Asked, FIRST_ROUND_MAX, Found, Listing, Schedule, Settings},
    metrics::Scrape,
    model::records::Definition,
    ops,
    policy::{
        approval::ListedTool,
        schema::{ToolSchemas, overruns},
        snapshot::ServerPolicy,
    },
    proxy::Rediscover,
    upstream::sessions::keep_swept,
};

/// Servers that are asked for their tools at one time.
const DISCOVERIES_AT_ONCE_MAX: usize = 16;
/// How often ended sessions are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// How often sessions are counted for `/metrics`.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How often a node of a fleet looks whether another one has written.
pub(super) const REFRESH_EVERY: Duration = Duration::from_secs(1);
/// How often names are looked up.
const RESOLVE_EVERY: Duration = Duration::from_secs(15);

/// What a call does when a server says that its tools changed: leaves a hint, without waiting.
pub(super) fn rediscover(schedule: &Arc<OnceLock<Schedule>>) -> Rediscover {
    let schedule = Arc::clone(schedule);
    Box::new(move |organization, slug| {
        if let Some(schedule) = schedule.get() {
            schedule.changed(&format!("{organization}/{slug}").into());
        }
    })
}

/// Starts what runs without a listener.
pub(super) async fn start(rooms: &Arc<Rooms>, (hangups, rotations): (Signal, Signal)) {
    resolve_all(rooms).await;
    let servers = asked(rooms).await;
    let settings = Settings {
        interval: rooms.conf.discovery.interval.0,
        at_once_max: DISCOVERIES_AT_ONCE_MAX,
        first_round_max: FIRST_ROUND_MAX,
    };
    let schedule = Schedule::start(Arc::clone(&rooms.client), settings, servers, apply(rooms));
    let _ = rooms.schedule.set(schedule);
    tokio::spawn(keep_swept(Arc::downgrade(&rooms.sessions), SWEEP_EVERY));
    tokio::spawn(keep_resolved(Arc::clone(rooms)));
    tokio::spawn(super::issuers::keep_known(Arc::clone(rooms)));
    tokio::spawn(watch_discovery(Arc::clone(rooms)));
    tokio::spawn(reload_on_hangup(Arc::clone(rooms), hangups));
    if rooms.control.is_in_a_fleet() {
        tokio::spawn(fleet::keep_up(Arc::clone(rooms)));
    }
    tokio::spawn(reopen_on_usr1(Arc::clone(rooms), rotations));
}

/// Opens what operators use, once nobody else answers there, and tells the service manager how it goes.
///
/// # Errors
/// [`StartError::Listen`]
pub(super) fn open(rooms: &Arc<Rooms>) -> Result<(), StartError> {
    super::management::start(rooms)?;
    tokio::spawn(watch_listeners(Arc::clone(rooms)));
    tokio::spawn(notify::when_ready(Arc::clone(rooms)));
    if let Some(patience) = notify::patience() {
        tokio::spawn(notify::feed(Arc::clone(&rooms.vitals), patience));
    }
    Ok(())
}

async fn asked(rooms: &Rooms) -> Vec<Asked> {
    let list = rooms.control.to_discover().await;
    list.into_iter().map(|ToDiscover { name, target, protocol }| Asked { server: name, target, protocol }).collect()
}

/// Hands each outcome to the control room.
fn apply(rooms: &Arc<Rooms>) -> Apply {
    let rooms = Arc::downgrade(rooms);
    Arc::new(move |found: Found| {
        let rooms = rooms.upgrade();
        async move {
            let Some(rooms) = rooms else { return };
            let slug = found.server.split_once('/').map_or("", |(_, slug)| slug).to_owned();
            match &found.outcome {
                Ok(listing) => {
                    let done = rooms.control.listed(&found.server, listing.revision, listed(listing)).await;
                    if let Err(why) = &done {
                        rooms.metrics.rejected();
                        tracing::error!(server = %found.server, "a listing was not taken: {why}");
                    }
                    rooms.metrics.entries_dropped(&slug, u64::try_from(listing.dropped).unwrap_or(u64::MAX));
                    if listing.dropped > 0 {
                        tracing::warn!(server = %found.server, dropped = listing.dropped, "entries without a name");
                    }
                    rooms.metrics.discovered(&slug, done.is_ok());
                }
                Err(why) => {
                    tracing::warn!(server = %found.server, "discovery: {why}");
                    rooms.metrics.discovered(&slug, false);
                }
            }
        }
        .boxed()
    })
}

/// A listing in the words of the approval room: each tool with its definition and, if it can never be called, the reason.
pub(super) fn listed(listing: &Listing) -> Vec<ListedTool> {
    let judge = |json: &str| match serde_json::from_str(json) {
        Ok(value) => ToolSchemas::compile(&value).err().map(|fault| fault.to_string()),
        Err(_) => Some("its definition cannot be read".to_owned()),
    };
    let tools = listing.tools.iter();
    tools
        .map(|tool| ListedTool {
            name: tool.name.clone(),
            definition: Definition { sha256: tool.pin, json: Arc::clone(&tool.json) },
            fault: judge(&tool.json),
        })
        .collect()
}

pub(super) async fn resolve_all(rooms: &Rooms) {
    resolve(rooms, |_| true).await;
}

/// Looks the name of one server up, `organization/slug`, so that it can be called at once.
pub(super) async fn resolve_one(rooms: &Rooms, name: &str) {
    resolve(rooms, |server| {
        name.split_once('/').is_some_and(|(home, slug)| *server.organization == *home && *server.slug == *slug)
    })
    .await;
}

async fn resolve(rooms: &Rooms, wanted: impl Fn(&ServerPolicy) -> bool) {
    let Some(snapshot) = rooms.live.load() else { return };
    let servers = snapshot.organizations.values().flat_map(|organization| organization.servers.values());
    let lookups = servers.filter(|server| wanted(server)).map(|server| {
        let (addresses, name) = (Arc::clone(&server.upstream.addresses), Arc::clone(&server.slug));
        async move {
            if addresses.endpoint().literal.is_none()
                && let Err(why) = addresses.refresh(&rooms.resolver).await
            {
                tracing::warn!(server = %name, "name look-up: {why}");
            }
        }
    });
    let limit = Duration::from_secs(5);
    let _ = tokio::time::timeout(limit, futures::future::join_all(lookups)).await;
}

async fn keep_resolved(rooms: Arc<Rooms>) {
    loop {
        tokio::time::sleep(RESOLVE_EVERY).await;
        resolve_all(&rooms).await;
    }
}

/// SIGHUP: reads conf and policy again, all or nothing (contract §10). Pingora leaves the signal to its default, which kills.
async fn reload_on_hangup(rooms: Arc<Rooms>, mut hangups: Signal) {
    while hangups.recv().await.is_some() {
        let _ = reload(&rooms).await;
    }
}

/// Tells discovery which servers there are now.
pub(super) async fn set_schedule(rooms: &Rooms) {
    let servers = asked(rooms).await;
    let interval = rooms.live.load().map_or(rooms.conf.discovery.interval.0, |live| live.settings.discovery_interval);
    if let Some(schedule) = rooms.schedule.get() {
        schedule.set(servers, interval).await;
    }
}

/// Reloads certificates, conf and policy, all or nothing; tells discovery, and says in the log what came of it.
///
/// # Errors
/// [`Rejected`]: the running policy stays, and the certificates that are shown.
pub(super) async fn reload(rooms: &Arc<Rooms>) -> Result<Reloaded, Rejected> {
    notify::reloading();
    let reloaded = take_all(rooms).await;
    if reloaded.is_err() {
        rooms.metrics.rejected();
    }
    match &reloaded {
        Ok(done) => {
            if !done.warnings.is_empty() {
                tracing::warn!("{}", done.warnings);
            }
            resolve_all(rooms).await;
            set_schedule(rooms).await;
            tracing::info!(revision = done.revision, changed = done.changed.join(", "), "reloaded");
            if !done.restart_required.is_empty() {
                tracing::warn!(options = done.restart_required.join(", "), "these changes need a restart");
            }
            notify::ready(&format!("serving revision {}", done.revision));
        }
        Err(why) => {
            let what = match why {
                Rejected::Faults(_) => "the conf, the policy or a certificate has faults; what runs stays",
                Rejected::Store(_) => "the store failed; what runs stays",
            };
            tracing::error!("reload: {what}\n{why}");
            notify::ready("the last reload was rejected, see the log");
        }
    }
    reloaded
}

async fn take_all(rooms: &Rooms) -> Result<Reloaded, Rejected> {
    let certificates = rooms.identities.read_again().map_err(Rejected::Faults)?;
    let mut done = rooms.control.reload().await?;
    let shown = rooms.identities.show(certificates);
    done.changed.extend(shown.into_iter().map(|file| format!("certificate {file}")));
    tls::warn_of_expiry(&rooms.identities);
    Ok(done)
}

async fn reopen_on_usr1(rooms: Arc<Rooms>, mut rotations: Signal) {
    while rotations.recv().await.is_some() {
        rooms.log.reopen();
    }
}

/// `/metrics` and health.
///
/// # Errors
/// [`StartError::Listen`]
pub(super) fn open_ops(rooms: &Arc<Rooms>) -> Result<(), StartError> {
    let Some(address) = rooms.conf.ops.listen.clone() else { return Ok(()) };
    let Some(socket) = rooms.doors.load().get(OPS, &address)? else { return Ok(()) };
    let cannot = |why: std::io::Error| StartError::Listen(format!("ops.listen: {address}: {why}"));
    let listener = ops::Listener::on(socket, matches!(address, Address::Unix(_))).map_err(cannot)?;
    let (counts, open_sessions) = watch::channel(HashMap::new());
    tokio::spawn(keep_counted(Arc::clone(rooms), counts));
    let state = ops::State {
        metrics: Arc::clone(&rooms.metrics),
        ready: Arc::clone(&rooms.ready),
        scrape: Box::new({
            let rooms = Arc::clone(rooms);
            move |scrape| fill(&rooms, scrape, &open_sessions.borrow())
        }),
    };
    let vitals = Arc::clone(&rooms.vitals);
    tokio::spawn(async move {
        // Goes on during a drain: `/readyz` says 503 then. After an upgrade the next process answers.
        let mut succeeded = vitals.succeeded.subscribe();
        let until = async move {
            let _ = succeeded.wait_for(|succeeded| *succeeded).await;
        };
        let why = match ops::serve(listener, state, until).await {
            Ok(()) => return,
            Err(why) => why.to_string(),
        };
        vitals.fail(StartError::Listen(format!("ops.listen: {address}: {why}")));
    });
    Ok(())
}

/// Counts sessions now and then, so that a scrape waits for nobody.
async fn keep_counted(rooms: Arc<Rooms>, counts: watch::Sender<HashMap<Arc<str>, usize>>) {
    while counts.send(rooms.sessions.counts().await).is_ok() {
        tokio::time::sleep(COUNT_EVERY).await;
    }
}

/// What this process counted, as Prometheus reads it.
pub(super) fn counts(rooms: &Rooms) -> Vec<u8> {
    rooms.metrics.render(|scrape| fill(rooms, scrape, &HashMap::new()))
}

/// The values that are read when somebody looks.
fn fill(rooms: &Rooms, scrape: &mut Scrape, sessions: &HashMap<Arc<str>, usize>) {
    let now_ms = clock_nanos(rooms.state.started) / 1_000_000;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rooms.metrics.published(rooms.live.published());
    scrape.access_log_dropped(rooms.log.dropped());
    scrape.pattern_overruns(overruns());
    for (certificate, expires) in rooms.identities.expiries() {
        scrape.certificate(&certificate, expires);
    }
    if let Some(fleet) = &rooms.fleet {
        scrape.rate_limit_store(fleet.is_up());
    }
    scrape.subscriptions(rooms.state.counts.subscriptions.load(Ordering::Relaxed));
    if rooms.control.is_in_a_fleet() {
        scrape.policy_store(rooms.control.store_silence());
    }
    let Some(snapshot) = rooms.live.load() else { return };
    scrape.requests(rooms.state.counts.in_flight.load(Ordering::Relaxed), snapshot.settings.in_flight_max);
    for issuer in &snapshot.issuers {
        scrape.issuer_keys(issuer.name(), issuer.key_count());
    }
    let age = unix.saturating_sub(Duration::from_secs(u64::try_from(snapshot.created).unwrap_or(0)));
    scrape.snapshot(snapshot.revision, age);
    for ((server, state), count) in &rooms.control.tool_counts() {
        scrape.tools(server, state.as_str(), *count);
    }
    for organization in snapshot.organizations.values() {
        for server in organization.servers.values() {
            let health = &server.upstream.health;
            scrape.in_flight(&server.slug, u64::from(health.in_flight()));
            scrape.breaker(&server.slug, health.is_open());
            scrape.discovery_age(&server.slug, Duration::from_millis(health.listing_age_ms(now_ms)));
            let name = format!("{}/{}", organization.id, server.slug);
            let open = sessions.get(name.as_str()).copied().unwrap_or(0);
            scrape.sessions(&server.slug, u64::try_from(open).unwrap_or(u64::MAX));
        }
    }
}

async fn watch_discovery(rooms: Arc<Rooms>) {
    if let Some(schedule) = rooms.schedule.get() {
        schedule.first_round().await;
        rooms.ready.asked();
    }
}

/// Marks the listeners as bound once each takes a connection; a listener that never does ends the process.
async fn watch_listeners(rooms: Arc<Rooms>) {
    const LIMIT: Duration = Duration::from_secs(20);
    let end = tokio::time::Instant::now() + LIMIT;
    for listen in &rooms.conf.gateway.listen {
        while !answers(&listen.address).await {
            if tokio::time::Instant::now() >= end {
                let why = format!("gateway.listen: {}: it does not take connections", listen.address);
                rooms.vitals.fail(StartError::Listen(why));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    rooms.ready.bound();
}

async fn answers(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => {
            let mut to: SocketAddr = *address;
            if to.ip().is_unspecified() {
                to.set_ip(if to.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
            }
            tokio::net::TcpStream::connect(to).await.is_ok()
        }
        Address::Unix(path) => tokio::net::UnixStream::connect(path).await.is_ok(),
    }
}
