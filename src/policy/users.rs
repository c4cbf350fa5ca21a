//! Users of servers that take each user's own credential (`credential_mode = "per_user"`): who may be spoken for, and with what.
//!
//! **Invariant.** A credential is reached by its user's name on its own server alone; what speaks for a user (headers, session,
//! connections) and what is taken out of answers for it (the mask) come from the same [`UserAccess`].

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

use super::guard::CredentialMask;
use crate::{
    refusal::Refusal,
    upstream::target::{Credential, Target},
};

/// A user's credential for a server, opened. Holds secrets: shows only whose it is.
#[derive(Clone, PartialEq, Eq)]
pub struct UserSecret {
    /// The user.
    pub user: Arc<str>,
    /// Header names and values.
    pub headers: Vec<(String, Vec<u8>)>,
}

impl fmt::Debug for UserSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserSecret").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How a server is spoken to for one user.
#[derive(Debug)]
pub struct UserAccess {
    /// What it was made of.
    secret: Arc<UserSecret>,
    /// The server as it is reached with the server's own credential.
    of: Arc<Target>,
    /// The server with the user's credential.
    pub target: Arc<Target>,
    mask: OnceLock<CredentialMask>,
}

impl UserAccess {
    /// The access of `secret` to the server at `of`, with its checked headers.
    #[must_use]
    pub fn new(secret: Arc<UserSecret>, of: &Arc<Target>, credential: Credential) -> Self {
        let target = Arc::new(Target { credential, ..Target::clone(of) });
        Self { secret, of: Arc::clone(of), target, mask: OnceLock::new() }
    }

    /// Whether it was made of these.
    #[must_use]
    pub fn is_of(&self, secret: &Arc<UserSecret>, of: &Arc<Target>) -> bool {
        Arc::ptr_eq(&self.secret, secret) && Arc::ptr_eq(&self.of, of)
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &Arc<str> {
        &self.secret.user
    }

    /// Finds the user's credential, and the server's own, in whatever the server sends. Made when the user first calls; if
    /// it cannot be made, nothing that the server says is let through.
    #[must_use]
    pub fn mask(&self) -> &CredentialMask {
        self.mask.get_or_init(|| {
            let own = self.of.credential.headers().iter().map(|(_, value)| value.as_bytes());
            let values = self.secret.headers.iter().map(|(_, value)| value.as_slice()).chain(own);
            CredentialMask::new(values).unwrap_or_else(|_| CredentialMask::of_everything())
        })
    }
}

/// The users of a server.
#[derive(Debug)]
pub struct Users {
    /// Where a person connects an account: `connect_url`.
    pub connect_url: Arc<str>,
    /// By name.
    pub by_name: HashMap<Arc<str>, Arc<UserAccess>>,
}

impl Users {
    /// The access of the user that a call names.
    ///
    /// # Refuses
    /// - [`Refusal::CredentialRequired`]: it names none, or one whose credential is not held.
    pub fn access(&self, user: Option<&str>) -> Result<&Arc<UserAccess>, Refusal> {
        let Some(user) = user else { return Err(Refusal::CredentialRequired { named: false }) };
        self.by_name.get(user).ok_or(Refusal::CredentialRequired { named: true })
    }
}
