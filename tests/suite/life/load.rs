//! Load for the tests of this folder: clients that call until they are told to stop, and a record of each answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{answer::Answer, client::Client};

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

/// Clients that call.
pub struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<(String, Answer)>>>,
}

impl Load {
    /// Starts a client for each entry; each calls its tools in turn.
    pub fn start(clients: impl IntoIterator<Item = (Client, Uses)>, tools: &'static [&'static str]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |(client, uses)| tokio::spawn(call(client, uses, (tools, Arc::clone(&stop))));
        let tasks = clients.into_iter().map(start).collect();
        Self { stop, tasks }
    }

    /// Lets each client end its call; gives each tool that was called with its answer, in no order.
    pub async fn stop(self) -> Vec<(String, Answer)> {
        self.stop.store(true, Ordering::Relaxed);
        self.join().await
    }

    /// Waits for clients that end because the gateway does.
    pub async fn join(self) -> Vec<(String, Answer)> {
        let mut all = Vec::new();
        for task in self.tasks {
            all.extend(crate::support::within("the end of a client", task).await.expect("no client panics"));
        }
        all
    }
}

/// Calls until it is told to stop, or until no connection is to be had.
async fn call(client: Client, uses: Uses, (tools, stop): (&[&str], Arc<AtomicBool>)) -> Vec<(String, Answer)> {
    let mut answers = Vec::new();
    let mut kept = None;
    for tool in tools.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if uses == Uses::Http2 {
            answers.push(((*tool).to_owned(), client.call(tool, json!({})).await));
            continue;
        }
        let request = client.calling(tool, "{}");
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match client.connect().await {
                Ok(connection) => connection,
                Err(_) => break,
            },
        };
        let sent = Instant::now();
        let _ = connection.write(&request.bytes()).await;
        let (mut answer, again) = connection.exchange(request.asked).finish().await;
        answer.took = sent.elapsed();
        answers.push(((*tool).to_owned(), answer));
        kept = again.filter(|_| uses == Uses::Kept);
    }
    answers
}
