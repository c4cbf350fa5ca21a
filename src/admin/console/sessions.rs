//! Who is logged in on the console: a cookie that means nothing elsewhere stands for the token that was shown at the login.
//!
//! **Invariants.** Neither a cookie nor a token is kept, only their digests; a session is worth what its token is worth at the
//! moment of the call; what changes something needs the form's own secret besides the cookie.

use std::{
    collections::HashMap,
    fmt,
    time::{Duration, Instant},
};

use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

use crate::{admin::token, model::id::KeyDigest};

/// How long a login lasts.
pub(super) const SESSION_TIME: Duration = Duration::from_secs(8 * 3600);
/// The most logins at one time; the oldest gives way.
const SESSIONS_MAX: usize = 1000;

/// The logins of this process.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<KeyDigest, Session>>);

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

/// One login.
#[derive(Clone)]
pub(super) struct Session {
    /// Digest of the token that was shown.
    pub(super) token: KeyDigest,
    /// What each form of the session sends along.
    form: String,
    began: Instant,
}

impl Session {
    /// The secret of its forms.
    pub(super) fn form(&self) -> &str {
        &self.form
    }

    /// Whether a form is one of this session.
    pub(super) fn sent(&self, form: &str) -> bool {
        bool::from(self.form.as_bytes().ct_eq(form.as_bytes()))
    }
}

impl Sessions {
    /// Begins a session; gives its cookie.
    pub(super) async fn begin(&self, token: KeyDigest) -> String {
        let cookie = token::secret();
        let session = Session { token, form: token::secret(), began: Instant::now() };
        let mut all = self.0.lock().await;
        all.retain(|_, session| session.began.elapsed() < SESSION_TIME);
        if all.len() >= SESSIONS_MAX
            && let Some(oldest) = all.iter().min_by_key(|(_, session)| session.began).map(|(cookie, _)| *cookie)
        {
            all.remove(&oldest);
        }
        all.insert(KeyDigest::of(cookie.as_bytes()), session);
        cookie
    }

    /// The session of a cookie.
    pub(super) async fn find(&self, cookie: &str) -> Option<Session> {
        let all = self.0.lock().await;
        all.get(&KeyDigest::of(cookie.as_bytes())).filter(|session| session.began.elapsed() < SESSION_TIME).cloned()
    }

    /// Ends a session.
    pub(super) async fn end(&self, cookie: &str) {
        self.0.lock().await.remove(&KeyDigest::of(cookie.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyDigest, SESSIONS_MAX, Sessions};

    #[tokio::test]
    async fn a_session_is_found_by_its_cookie_until_it_ends() {
        let sessions = Sessions::default();
        let token = KeyDigest::of(b"t");
        let (one, two) = (sessions.begin(token).await, sessions.begin(token).await);
        let found = sessions.find(&one).await.unwrap();
        assert!(found.token == token && found.sent(found.form()));
        assert!(!found.sent("") && !found.sent(sessions.find(&two).await.unwrap().form()));
        assert!(sessions.find("").await.is_none() && sessions.find("x").await.is_none());
        sessions.end(&one).await;
        assert!(sessions.find(&one).await.is_none() && sessions.find(&two).await.is_some());
    }

    #[tokio::test]
    async fn the_oldest_gives_way() {
        let sessions = Sessions::default();
        let first = sessions.begin(KeyDigest::of(b"t")).await;
        let mut last = String::new();
        for _ in 0..SESSIONS_MAX {
            last = sessions.begin(KeyDigest::of(b"t")).await;
        }
        assert!(sessions.find(&first).await.is_none() && sessions.find(&last).await.is_some());
    }
}
