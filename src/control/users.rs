//! Credentials of users (`credential_mode = "per_user"`): stored sealed, opened where a snapshot is compiled, never shown.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Weak},
};

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::{
    catalog::{Catalog, missing},
    change::{Asker, ServerName},
    error::ChangeError,
    next::Next,
    secrets,
};
use crate::{
    conf::{Conf, Fault, FileSpan},
    model::{
        records::{CredentialMode, Owned, Records, Server, UserCredential},
        units::shown,
    },
    policy::users::UserSecret,
    store::{Place, StoredObject, Vault, Write},
    upstream::target::Credential,
};

/// What the store calls one.
pub(super) const KIND: &str = "user_credential";
/// The most users of one server whose credentials are held.
pub const USERS_MAX: usize = 10_000;

/// Header names and values on their way to the store. Holds secrets: shows only the names.
#[derive(Clone)]
pub struct UserHeaders(pub Vec<(String, Vec<u8>)>);

impl fmt::Debug for UserHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Secrets by organization and slug.
pub(super) type Opened = HashMap<(String, String), Vec<Arc<UserSecret>>>;

/// A server takes its users' credentials, and there is no key to keep them by.
pub(super) fn key_fault(records: &Records, conf: &Conf) -> Option<Fault> {
    let is_per_user = |owned: &&Owned<Server>| owned.value.credential_mode == CredentialMode::PerUser;
    let server = records.servers.iter().find(is_per_user)?;
    let why = secrets::vault(conf).err()?;
    let text = format!(
        "server `{}` takes its users' credentials, which cannot be kept: store.key: {why}; its calls are refused",
        server.value.slug
    );
    Some(Fault::warning(FileSpan::of(&server.origin), text))
}

/// What was opened before: opening each credential anew with each change would cost more than the change.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The key by which it was.
    fingerprint: [u8; 32],
    /// By place and what is stored there.
    by_sealed: HashMap<[String; 4], Weak<UserSecret>>,
}

impl Known {
    /// Opens what is stored; what cannot be is told, a warning for each server.
    pub(super) fn open(&mut self, stored: &[UserCredential], conf: &Conf) -> (Opened, Vec<Fault>) {
        let mut opened = Opened::new();
        if stored.is_empty() {
            return (opened, Vec::new());
        }
        // Without a key nothing is opened, which `key_fault` tells.
        let Ok(vault) = secrets::vault(conf) else { return (opened, Vec::new()) };
        if self.fingerprint != vault.fingerprint() {
            (self.fingerprint, self.by_sealed) = (vault.fingerprint(), HashMap::new());
        }
        let mut lost: HashMap<(&str, &str), usize> = HashMap::new();
        for one in stored {
            match self.secret(one, &vault) {
                Some(secret) => {
                    opened.entry((one.organization.clone(), one.server.clone())).or_default().push(secret);
                }
                None => *lost.entry((&one.organization, &one.server)).or_default() += 1,
            }
        }
        self.by_sealed.retain(|_, secret| secret.strong_count() > 0);
        let told = lost.into_iter().map(|((organization, server), count)| {
            let text = format!(
                "{count} credentials of users of server `{organization}/{server}` cannot be opened with `store.key`: their users must connect again"
            );
            Fault::warning(None, text)
        });
        (opened, told.collect())
    }

    fn secret(&mut self, one: &UserCredential, vault: &Vault) -> Option<Arc<UserSecret>> {
        let key = [&one.organization, &one.server, &one.user, &one.sealed].map(String::clone);
        if let Some(known) = self.by_sealed.get(&key).and_then(Weak::upgrade) {
            return Some(known);
        }
        let headers = vault.open(place(one), &one.sealed).ok()?;
        let secret = Arc::new(UserSecret { user: one.user.as_str().into(), headers });
        self.by_sealed.insert(key, Arc::downgrade(&secret));
        Some(secret)
    }
}

/// Stores a user's credential, or replaces it. The server may be a file's: its users are not.
///
/// # Errors
/// [`ChangeError::NotFound`], [`ChangeError::Credential`], [`ChangeError::Invalid`]: the server takes none, or there is no key.
pub(super) fn put(
    next: &mut Next,
    catalog: &Catalog,
    (server, user, headers): (&ServerName, &str, &UserHeaders),
    asker: &Asker,
) -> Result<(), ChangeError> {
    let server = find(catalog, server)?;
    if server.credential_mode != CredentialMode::PerUser {
        let why = "keeps no credentials of users: its `credential_mode` is not `per_user`";
        return Err(ChangeError::Invalid(format!("server `{}` {why}", server.slug)));
    }
    if headers.0.is_empty() {
        return Err(ChangeError::Credential("a credential needs at least one header".to_owned()));
    }
    let given = headers.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    Credential::new(given, &next.conf.attribution.prefix).map_err(|why| ChangeError::Credential(why.to_string()))?;
    let vault = secrets::vault(&next.conf)
        .map_err(|why| ChangeError::Invalid(format!("credentials of users cannot be stored: store.key: {why}")))?;
    let mut made = UserCredential {
        organization: server.organization.clone(),
        server: server.slug.clone(),
        user: user.to_owned(),
        headers: headers.0.iter().map(|(name, _)| name.to_ascii_lowercase()).collect(),
        stored: Timestamp::now().to_string(),
        sealed: String::new(),
    };
    made.sealed = vault.seal(place(&made), &headers.0).map_err(|why| ChangeError::Invalid(why.to_string()))?;
    let of_it = |one: &UserCredential| one.organization == made.organization && one.server == made.server;
    let known = next.users.iter().position(|one| of_it(one) && one.user == user);
    let before = known.map(|at| show(&next.users.swap_remove(at)));
    if before.is_none() && next.users.iter().filter(|one| of_it(one)).count() >= USERS_MAX {
        let text = format!("server `{}` holds the credentials of {USERS_MAX} users already", server.slug);
        return Err(ChangeError::Invalid(text));
    }
    next.users.push(made.clone());
    next.writes.push(Write::PutObject(stored(&made)));
    next.note(&asker.who, "credential.store", (&made.organization, &name(&made)), (before, Some(show(&made))));
    Ok(())
}

/// Deletes a user's credential.
///
/// # Errors
/// [`ChangeError::NotFound`]
pub(super) fn delete(
    next: &mut Next,
    catalog: &Catalog,
    (server, user): (&ServerName, &str),
    asker: &Asker,
) -> Result<(), ChangeError> {
    let server = find(catalog, server)?;
    let is_it =
        |one: &UserCredential| one.organization == server.organization && one.server == server.slug && one.user == user;
    let at = next.users.iter().position(is_it).ok_or_else(|| missing("credential of user", user))?;
    forget(next, at, asker);
    Ok(())
}

/// Deletes the credentials of all users of a server that is deleted.
pub(super) fn delete_all(next: &mut Next, server: &Server, asker: &Asker) {
    let is_of = |one: &UserCredential| one.organization == server.organization && one.server == server.slug;
    while let Some(at) = next.users.iter().position(is_of) {
        forget(next, at, asker);
    }
}

fn forget(next: &mut Next, at: usize, asker: &Asker) {
    let gone = next.users.swap_remove(at);
    let StoredObject { kind, organization, id, .. } = stored(&gone);
    next.writes.push(Write::DeleteObject { kind, organization, id });
    next.note(&asker.who, "credential.delete", (&gone.organization, &name(&gone)), (Some(show(&gone)), None));
}

fn find<'c>(catalog: &'c Catalog, server: &ServerName) -> Result<&'c Server, ChangeError> {
    Ok(&catalog.find::<Server>(server.organization.as_deref(), &server.slug)?.value)
}

/// What may be shown of a credential: whose, which headers, since when.
#[must_use]
pub fn show(one: &UserCredential) -> Json {
    json!({ "server": one.server, "user": one.user, "headers": one.headers, "stored": one.stored })
}

fn name(one: &UserCredential) -> String {
    format!("{}/{}", one.server, one.user)
}

fn place(one: &UserCredential) -> Place<'_> {
    Place { organization: &one.organization, server: &one.server, user: &one.user }
}

fn stored(one: &UserCredential) -> StoredObject {
    let mut json = show(one);
    if let Some(members) = json.as_object_mut() {
        members.insert("sealed".to_owned(), Json::from(one.sealed.as_str()));
    }
    StoredObject {
        kind: KIND.to_owned(),
        organization: one.organization.clone(),
        id: name(one),
        json: json.to_string(),
    }
}

/// Reads what the store keeps.
///
/// # Errors
/// One that cannot be read back, in words.
pub(super) fn read_stored(objects: &[StoredObject]) -> Result<Vec<UserCredential>, String> {
    let read = |object: &StoredObject| -> Option<UserCredential> {
        let json: Json = serde_json::from_str(&object.json).ok()?;
        let text = |name: &str| json.get(name).and_then(Json::as_str).map(str::to_owned);
        let headers = json.get("headers")?.as_array()?;
        Some(UserCredential {
            organization: object.organization.clone(),
            server: text("server")?,
            user: text("user")?,
            headers: headers.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
            stored: text("stored")?,
            sealed: text("sealed")?,
        })
    };
    let of_kind = objects.iter().filter(|object| object.kind == KIND);
    of_kind
        .map(|object| {
            read(object).ok_or_else(|| format!("the store holds a {KIND} `{}` that cannot be read", shown(&object.id)))
        })
        .collect()
}
