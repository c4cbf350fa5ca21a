//! Keeps the public keys of token issuers at hand: asked for at the start, every five minutes, and when a token names a new one.

use std::{sync::Arc, time::Duration};

use super::Rooms;
use crate::{
    budget::clock_nanos,
    policy::issuers::Issuer,
    upstream::client::{Client, Limits},
};

/// How often it is looked whether an issuer is to be asked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// What is read of an answer.
const LIMITS: Limits = Limits { body_bytes_max: 1 << 20, timeout: Duration::from_secs(10) };

/// Asks each issuer that is due, for ever.
pub(super) async fn keep_known(rooms: Arc<Rooms>) {
    loop {
        let now_ms = clock_nanos(rooms.state.started) / 1_000_000;
        let snapshot = rooms.live.load();
        for issuer in snapshot.iter().flat_map(|snapshot| &snapshot.issuers).filter(|issuer| issuer.is_due(now_ms)) {
            let (client, issuer) = (Arc::clone(&rooms.client), Arc::clone(issuer));
            tokio::spawn(async move { ask(&client, &issuer, now_ms).await });
        }
        drop(snapshot);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn ask(client: &Client, issuer: &Issuer, now_ms: u64) {
    let learnt = match client.get(&issuer.jwks, LIMITS).await {
        Ok(reply) if reply.status == 200 => match reply.body.whole().await {
            Ok(body) => issuer.learn(&body, now_ms).map_err(str::to_owned),
            Err(why) => Err(why.to_string()),
        },
        Ok(reply) => Err(format!("it answered with status {}", reply.status)),
        Err(why) => Err(why.to_string()),
    };
    match learnt {
        Ok(keys) => tracing::debug!(issuer = issuer.name(), keys, "the keys of an issuer of tokens"),
        Err(why) => tracing::warn!(issuer = issuer.name(), "the keys of an issuer of tokens: {why}"),
    }
}
