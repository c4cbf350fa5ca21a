//! The sessions of a fleet: which one a key has, kept in Redis, so that the key finds it again on whichever node it lands
//! (`docs/fleet.md`).
//!
//! A node that needs a session takes the one that is kept, or claims the opening and keeps what it opened; others wait for that for a
//! while and then make their own. Redis is asked only where a session would be opened, never by a call that has one; away or slow,
//! each node keeps its own.
//!
//! **Invariants.** A session that the server no longer knows is replaced by one node. A session that another node may use is never
//! ended. Names hold no key, no credential and no server in clear.

use std::{fmt, future::Future, time::Duration};

use redis::{
    Client, Script, ScriptInvocation,
    aio::{ConnectionManager, ConnectionManagerConfig},
};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout};

use super::{AskError, Opened, SessionKey};
use crate::model::{id::encode_hex, mcp::Revision};

/// The longest that an opening waits for one answer of Redis.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// How long a claim holds, if its node says nothing more.
const CLAIM: Duration = Duration::from_secs(15);
/// How long a node waits for another one that is opening a session.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// How often it looks.
const WAIT_TICK: Duration = Duration::from_millis(20);
/// A session is kept for so long after the time for which it may be idle.
const GRACE: Duration = Duration::from_secs(60);

/// Takes the session that is kept, or claims the opening. ARGV: claim, its milliseconds, milliseconds of a session, whether one is
/// lost, its id.
const FIND: &str = r"
local id, revision = unpack(redis.call('HMGET', KEYS[1], 'id', 'revision'))
if id and not (ARGV[4] == '1' and id == ARGV[5]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return { 'open', id, revision }
end
if not id and redis.call('EXISTS', KEYS[1]) == 1 then return { 'busy', '', '' } end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'claim', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { 'claimed', '', '' }";
/// Keeps what the claim's node has opened; an empty revision: nothing. ARGV: claim, milliseconds, id, revision.
const KEEP: &str = r"
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'id', ARGV[3], 'revision', ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1";
/// Forgets a session that no node has used for the time for which it may be idle; 1: it may be ended. ARGV: id, milliseconds of grace.
const END: &str = r"
if redis.call('HGET', KEYS[1], 'id') ~= ARGV[1] then return 1 end
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then return 0 end
redis.call('DEL', KEYS[1])
return 1";
/// A session is in use. ARGV: id, milliseconds.
const USE: &str = r"
if redis.call('HGET', KEYS[1], 'id') == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1";

/// The sessions that a fleet shares.
pub struct SharedSessions {
    connection: ConnectionManager,
    idle_max: Duration,
    find: Script,
    keep: Script,
    end: Script,
    use_: Script,
}

/// What Redis says of a key's session.
enum Found {
    Open(Opened),
    Claimed,
    Busy,
    /// It does not answer, or with something else.
    Away,
}

impl SharedSessions {
    /// Connects when a session is first needed. `idle_max` is how long a session may be idle.
    ///
    /// # Errors
    /// The URL cannot be used; in words without the URL.
    pub fn new(url: &str, idle_max: Duration) -> Result<Self, String> {
        let client = Client::open(url).map_err(|why| why.to_string())?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(ANSWER_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        let connection = ConnectionManager::new_lazy_with_config(client, config).map_err(|why| why.to_string())?;
        let [find, keep, end, use_] = [FIND, KEEP, END, USE].map(Script::new);
        Ok(Self { connection, idle_max, find, keep, end, use_ })
    }

    /// The session of `key`: the one that is kept, unless it is `lost`; else what `make` opens, which is kept.
    ///
    /// # Errors
    /// What `make` comes to.
    pub(super) async fn open(
        &self,
        key: &SessionKey,
        lost: Option<&str>,
        make: impl Future<Output = Result<Opened, AskError>>,
    ) -> Result<Opened, AskError> {
        let (name, claim) = (name(key), format!("{:032x}", rand::random::<u128>()));
        let end = Instant::now() + WAIT_MAX;
        let claimed = loop {
            match self.find(&name, &claim, lost).await {
                Found::Open(opened) => return Ok(opened),
                Found::Claimed => break true,
                Found::Busy if Instant::now() < end => tokio::time::sleep(WAIT_TICK).await,
                Found::Busy | Found::Away => break false,
            }
        };
        let made = make.await;
        if claimed {
            let (id, revision) = match &made {
                Ok(opened) => (opened.id.as_deref().unwrap_or(""), opened.revision.as_str()),
                Err(_) => ("", ""),
            };
            let mut call = self.keep.key(&name);
            call.arg(&claim).arg(millis(self.kept())).arg(id).arg(revision);
            let _ = self.ask::<i64>(&call).await;
        }
        made
    }

    /// Says that a session is in use, so that no other node ends it.
    pub(super) async fn in_use(&self, key: &SessionKey, id: &str) {
        let mut call = self.use_.key(name(key));
        call.arg(id).arg(millis(self.kept()));
        let _ = self.ask::<i64>(&call).await;
    }

    /// Whether a session that this node does not need may be ended: no other node has used it lately.
    pub(super) async fn may_end(&self, key: &SessionKey, id: &str) -> bool {
        let mut call = self.end.key(name(key));
        call.arg(id).arg(millis(GRACE));
        self.ask::<i64>(&call).await == Some(1)
    }

    async fn find(&self, name: &str, claim: &str, lost: Option<&str>) -> Found {
        let mut call = self.find.key(name);
        call.arg(claim).arg(millis(CLAIM)).arg(millis(self.kept()));
        call.arg(u8::from(lost.is_some())).arg(lost.unwrap_or(""));
        match self.ask::<(String, String, String)>(&call).await {
            Some((word, ..)) if word == "claimed" => Found::Claimed,
            Some((word, ..)) if word == "busy" => Found::Busy,
            Some((_, id, revision)) => match Revision::parse(&revision) {
                Some(revision) => Found::Open(Opened { id: Some(id).filter(|id| !id.is_empty()), revision }),
                None => Found::Away,
            },
            None => Found::Away,
        }
    }

    async fn ask<T: redis::FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Option<T> {
        let mut connection = self.connection.clone();
        match timeout(ANSWER_MAX, call.invoke_async(&mut connection)).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(why)) => {
                tracing::debug!("sessions of the fleet: {why}");
                None
            }
            Err(_) => None,
        }
    }

    fn kept(&self) -> Duration {
        self.idle_max + GRACE
    }
}

impl fmt::Debug for SharedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSessions")
    }
}

/// The key in Redis, with the hash tag of a cluster.
fn name(key: &SessionKey) -> String {
    let mut hash = Sha256::new();
    for part in [key.server.as_bytes(), &key.credential, key.owner.as_deref().unwrap_or("").as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("toolgate:{{session:{}}}", encode_hex(&hash.finalize()))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
