//! Load for the tests of this folder: calls at a steady rate, whatever the answers take, and a record of each answer.
//!
//! An open loop: calls set out when their time has come, not when the one before is answered, and what one waits for a kept connection counts as its time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::Mutex,
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior},
};

use crate::support::{answer::Answer, client::Client, exchange::Connection};

/// Between one call and the next.
const EVERY: Duration = Duration::from_millis(20);
/// Calls that are under way at one time: a machine that cannot keep up gets fewer calls, not a longer queue.
const UNDER_WAY_MAX: usize = 32;

/// How a client uses connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// One, as long as the gateway keeps it.
    Kept,
    /// Another for each call.
    Fresh,
    /// HTTP/2, another for each call.
    Http2,
}

/// Clients that call in turn.
pub struct Load {
    stop: Arc<AtomicBool>,
    pacer: JoinHandle<Vec<(String, Answer)>>,
}

impl Load {
    /// Starts; each call is the next tool's, by the next client.
    pub fn start(clients: impl IntoIterator<Item = (Client, Uses)>, tools: &'static [&'static str]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let lane = |(client, uses)| Arc::new(Lane { client, uses, kept: Mutex::default() });
        let lanes = clients.into_iter().map(lane).collect();
        let pacer = tokio::spawn(pace(lanes, tools, Arc::clone(&stop)));
        Self { stop, pacer }
    }

    /// Ends the load; gives each tool that was called with its answer, in no order.
    pub async fn stop(self) -> Vec<(String, Answer)> {
        self.stop.store(true, Ordering::Relaxed);
        self.join().await
    }

    /// Waits for the end that comes when no connection is to be had.
    pub async fn join(self) -> Vec<(String, Answer)> {
        crate::support::within("the end of the load", self.pacer).await.expect("no client panics")
    }
}

/// A client, and the connection that it keeps.
struct Lane {
    client: Client,
    uses: Uses,
    kept: Mutex<Option<Connection>>,
}

async fn pace(lanes: Vec<Arc<Lane>>, tools: &[&'static str], stop: Arc<AtomicBool>) -> Vec<(String, Answer)> {
    let (mut calls, mut answers) = (JoinSet::new(), Vec::new());
    let mut clock = tokio::time::interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for turn in 0.. {
        let due = clock.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // each client calls each tool, whatever their numbers
        let (round, n) = (turn / lanes.len(), turn % lanes.len());
        let (lane, stop, tool) = (Arc::clone(&lanes[n]), Arc::clone(&stop), tools[(round + n) % tools.len()]);
        calls.spawn(async move { (tool, lane.call(tool, due, &stop).await) });
        while let Some(done) = calls.try_join_next() {
            answers.push(done);
        }
        if calls.len() >= UNDER_WAY_MAX {
            answers.extend(calls.join_next().await);
        }
    }
    answers.extend(calls.join_all().await.into_iter().map(Ok));
    let answers = answers.into_iter().map(|done| done.expect("no call panics"));
    answers.filter_map(|(tool, answer)| Some((tool.to_owned(), answer?))).collect()
}

impl Lane {
    /// One call; none: no connection is to be had, so that the load ends.
    async fn call(&self, tool: &str, due: Instant, stop: &AtomicBool) -> Option<Answer> {
        if self.uses == Uses::Http2 {
            return Some(self.client.call(tool, json!({})).await);
        }
        let mut place = match self.uses {
            Uses::Kept => Some(self.kept.lock().await),
            _ => None,
        };
        let mut kept = place.as_mut().and_then(|place| place.take());
        if let Some(connection) = &mut kept
            && connection.is_stale().await
        {
            kept = None;
        }
        let connection = match kept {
            Some(connection) => Some(connection),
            None => self.client.connect().await.ok(),
        };
        let Some(mut connection) = connection else {
            stop.store(true, Ordering::Relaxed);
            return None;
        };
        let request = self.client.calling(tool, "{}");
        let _ = connection.write(&request.bytes()).await;
        let (mut answer, again) = connection.exchange(request.asked).finish().await;
        answer.took = due.elapsed();
        if let Some(place) = place.as_mut() {
            **place = again;
        }
        Some(answer)
    }
}
