//! The users of a server: each one's credential checked and put into the place of the server's own.

use std::{collections::HashMap, sync::Arc};

use super::{Compiler, ServerSecrets, server_fault};
use crate::{
    conf::{Fault, FileSpan},
    model::records::{CredentialMode, Owned, Server},
    policy::{
        guard::CredentialMask,
        users::{UserAccess, Users},
    },
    upstream::target::{Credential, Target},
};

impl Compiler<'_, '_> {
    /// The users of a server in the mode `per_user`; none in the other.
    pub(super) fn users(&mut self, owned: &Owned<Server>, target: &Arc<Target>) -> Option<Users> {
        let server = &owned.value;
        if server.credential_mode != CredentialMode::PerUser {
            return None;
        }
        let mut by_name = HashMap::new();
        let secrets = self.inputs.users.get(&(server.organization.clone(), server.slug.clone()));
        for secret in secrets.into_iter().flatten() {
            let key = (server.organization.clone(), server.slug.clone(), Arc::clone(&secret.user));
            let known = self.handles.users.get(&key).filter(|access| access.is_of(secret, target)).cloned();
            let access = match known {
                Some(access) => access,
                None => {
                    let headers = secret.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
                    match Credential::new(headers, &self.inputs.conf.attribution.prefix) {
                        Ok(credential) => Arc::new(UserAccess::new(Arc::clone(secret), target, credential)),
                        Err(why) => {
                            let text = format!("server `{}`: the credential of a user: {why}", server.slug);
                            self.faults.push(Fault::warning(FileSpan::of(&owned.origin), text));
                            continue;
                        }
                    }
                }
            };
            self.handles.users.insert(key, Arc::clone(&access));
            by_name.insert(Arc::clone(&secret.user), access);
        }
        let connect_url = server.connect_url.as_deref().unwrap_or(&self.inputs.conf.gateway.console).into();
        Some(Users { connect_url, by_name })
    }

    /// What finds the server's own credentials. Where it cannot be made there is no server: it is left out like one of a bad URL.
    pub(super) fn mask(&mut self, owned: &Owned<Server>, secrets: &ServerSecrets) -> Option<CredentialMask> {
        let made = CredentialMask::new(secrets.credential.iter().map(|(_, value)| value.as_slice()));
        made.map_err(|why| self.faults.push(server_fault(owned, format!("server `{}`: {why}", owned.value.slug)))).ok()
    }
}
