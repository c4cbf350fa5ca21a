//! Runs the [`Plan`]: asks servers in the background, hands each outcome to the control room, and answers those who wait for one.
//!
//! Never on a call's path; a call may only leave a hint ([`Schedule::changed`]), which neither waits nor locks.
//!
//! **Invariant.** An outcome is applied only while the server is still the one that was asked: same target, same protocol.

use std::{
    collections::{HashMap, HashSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use super::{
    listing::{DiscoveryError, Listing, list_tools},
    plan::Plan,
};
use crate::{
    model::records::Protocol,
    upstream::{client::Client, target::Target},
};

/// How long `/readyz` waits for the first round at most (contract §1).
pub const FIRST_ROUND_MAX: Duration = Duration::from_secs(10);
/// So many commands wait; a hint that finds no room is dropped, for the next interval comes.
const COMMANDS_MAX: usize = 1024;

/// A server to be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Unique in the process.
    pub server: Arc<str>,
    /// How it is reached.
    pub target: Arc<Target>,
    /// Its era, or that it is to be found out.
    pub protocol: Protocol,
}

/// What asking a server came to.
#[derive(Clone, Debug)]
pub struct Found {
    /// The server.
    pub server: Arc<str>,
    /// Its tools, or why there are none.
    pub outcome: Outcome,
}

/// A listing, shared by those who wait for it.
pub type Outcome = Result<Arc<Listing>, DiscoveryError>;

/// What the control room does with an outcome. Those who wait hear of it after this is done.
pub type Apply = Arc<dyn Fn(Found) -> BoxFuture<'static, ()> + Send + Sync>;

/// How often, and how many at one time.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `discovery.interval`
    pub interval: Duration,
    /// Servers asked at one time. Those whose outcome is being applied do not count: it waits for its turn, one a server.
    pub at_once_max: usize,
    /// How long the first round counts as running at most: [`FIRST_ROUND_MAX`].
    pub first_round_max: Duration,
}

/// The running schedule; ends when dropped.
#[derive(Debug)]
pub struct Schedule {
    commands: mpsc::Sender<Command>,
    first_round: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Command {
    Set(Vec<Asked>, Duration),
    Ask(Arc<str>, oneshot::Sender<Outcome>),
    Changed(Arc<str>),
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Schedule {
    /// Starts to ask `servers`, each at once and then each interval. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(client: Arc<Client>, settings: Settings, servers: Vec<Asked>, apply: Apply) -> Self {
        let (commands, inbox) = mpsc::channel(COMMANDS_MAX);
        let (first_round, is_done) = watch::channel(servers.is_empty());
        let mut driver = Driver {
            client,
            apply,
            born: Instant::now(),
            plan: Plan::new(millis(settings.interval), settings.at_once_max),
            servers: HashMap::new(),
            waiting: HashMap::new(),
            running: JoinSet::new(),
            first_pending: servers.iter().map(|asked| Arc::clone(&asked.server)).collect(),
            first_round,
        };
        driver.set(servers);
        let task = tokio::spawn(driver.run(inbox, settings.first_round_max));
        Self { commands, first_round: is_done, task }
    }

    /// Replaces the set of servers and the interval, after a reload. New ones, and those whose target or protocol changed, are asked
    /// at once.
    pub async fn set(&self, servers: Vec<Asked>, interval: Duration) {
        let _ = self.commands.send(Command::Set(servers, interval)).await;
    }

    /// Asks a server now, and waits until the outcome is applied. None: no such server, or it was removed meanwhile.
    pub async fn ask(&self, server: &str) -> Option<Outcome> {
        let (answer, wait) = oneshot::channel();
        self.commands.send(Command::Ask(server.into(), answer)).await.ok()?;
        wait.await.ok()
    }

    /// A server said that its tools changed; it is asked soon. Neither waits nor locks; may be called from a call's path.
    pub fn changed(&self, server: &Arc<str>) {
        let _ = self.commands.try_send(Command::Changed(Arc::clone(server)));
    }

    /// Whether each server of the start was asked once, answered or not, or `first_round_max` passed (`/readyz`).
    #[must_use]
    pub fn first_round_done(&self) -> bool {
        *self.first_round.borrow()
    }

    /// Waits for [`Self::first_round_done`].
    pub async fn first_round(&self) {
        let _ = self.first_round.clone().wait_for(|done| *done).await;
    }
}

/// One thing that a background task finished.
enum Step {
    Listed(Asked, Outcome, Vec<oneshot::Sender<Outcome>>),
    Applied(Arc<str>),
}

struct Driver {
    client: Arc<Client>,
    apply: Apply,
    born: Instant,
    plan: Plan,
    servers: HashMap<Arc<str>, Asked>,
    /// Those who wait for an asking that has not begun yet.
    waiting: HashMap<Arc<str>, Vec<oneshot::Sender<Outcome>>>,
    running: JoinSet<Step>,
    first_pending: HashSet<Arc<str>>,
    first_round: watch::Sender<bool>,
}

impl Driver {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>, first_round_max: Duration) {
        let first_deadline = self.born + first_round_max;
        loop {
            while let Some(server) = self.plan.start(self.now_ms()) {
                self.begin(&server);
            }
            let wake = self.plan.next_ms().map(|at| self.born + Duration::from_millis(at));
            let first_open = !*self.first_round.borrow();
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                Some(step) = self.running.join_next() => match step {
                    Ok(Step::Listed(asked, outcome, waiters)) => self.hand_over(asked, outcome, waiters),
                    Ok(Step::Applied(server)) => self.finish(&server),
                    Err(_) => {} // only when the runtime ends: neither step panics
                },
                () = sleep_until(wake) => {}
                () = tokio::time::sleep_until(first_deadline), if first_open => { self.first_round.send_replace(true); }
            }
        }
    }

    fn now_ms(&self) -> u64 {
        millis(self.born.elapsed())
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Set(servers, interval) => {
                self.plan.set_interval(millis(interval), self.now_ms());
                self.set(servers);
            }
            Command::Changed(server) => self.plan.changed(&server, self.now_ms()),
            Command::Ask(server, waiter) => {
                if self.plan.want(&server, self.now_ms()) {
                    self.waiting.entry(server).or_default().push(waiter);
                }
            }
        }
    }

    fn set(&mut self, servers: Vec<Asked>) {
        let now = self.now_ms();
        let wanted: HashMap<Arc<str>, Asked> =
            servers.into_iter().map(|asked| (Arc::clone(&asked.server), asked)).collect();
        self.plan.set(wanted.keys().cloned(), now);
        for (server, asked) in &wanted {
            if self.servers.get(server).is_some_and(|before| before != asked) {
                self.plan.want(server, now);
            }
        }
        self.servers = wanted;
        self.waiting.retain(|server, _| self.servers.contains_key(server));
        self.first_pending.retain(|server| self.servers.contains_key(server));
        self.judge_first_round();
    }

    fn begin(&mut self, server: &Arc<str>) {
        let Some(asked) = self.servers.get(server).cloned() else { return self.finish(server) };
        let waiters = self.waiting.remove(server).unwrap_or_default();
        let client = Arc::clone(&self.client);
        self.running.spawn(async move {
            let listing = AssertUnwindSafe(list_tools(&client, &asked.target, asked.protocol)).catch_unwind().await;
            let outcome = listing.unwrap_or(Err(DiscoveryError::Internal)).map(Arc::new);
            Step::Listed(asked, outcome, waiters)
        });
    }

    fn hand_over(&mut self, asked: Asked, outcome: Outcome, waiters: Vec<oneshot::Sender<Outcome>>) {
        let server = Arc::clone(&asked.server);
        self.plan.answered(&server);
        match self.servers.get(&server) {
            None => self.finish(&server),
            Some(now) if *now != asked => {
                self.waiting.entry(Arc::clone(&server)).or_default().extend(waiters);
                self.plan.want(&server, self.now_ms());
                self.finish(&server);
            }
            Some(_) => {
                let applying = (self.apply)(Found { server: Arc::clone(&server), outcome: outcome.clone() });
                self.running.spawn(async move {
                    let _ = AssertUnwindSafe(applying).catch_unwind().await;
                    for waiter in waiters {
                        let _ = waiter.send(outcome.clone());
                    }
                    Step::Applied(server)
                });
            }
        }
    }

    fn finish(&mut self, server: &Arc<str>) {
        self.plan.done(server, self.now_ms());
        self.first_pending.remove(server);
        self.judge_first_round();
    }

    fn judge_first_round(&self) {
        if self.first_pending.is_empty() {
            self.first_round.send_if_modified(|done| !std::mem::replace(done, true));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
