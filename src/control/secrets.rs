//! Reads what a server's references point to: environment, files, systemd credentials. Values are never logged.

use std::path::{Path, PathBuf};

use crate::{
    conf::Conf,
    model::records::{SecretRef, Server},
    policy::compile::ServerSecrets,
    store::Vault,
    upstream::target::TlsOptions,
};

/// The most bytes of one secret or certificate file.
const BYTES_MAX: u64 = 1 << 20;

/// Reads a server's credential and TLS material; what cannot be read is named, never shown.
pub(super) fn read(server: &Server, conf: &Conf) -> ServerSecrets {
    let mut secrets = ServerSecrets::default();
    for (name, reference) in &server.credential {
        match resolve(reference, conf) {
            Ok(value) => secrets.credential.push((name.clone(), value)),
            Err(why) => secrets.faults.push(format!("credential `{name}`: {why}")),
        }
    }
    let mut tls = TlsOptions::default();
    if let Some(path) = &server.ca {
        match read_file(path) {
            Ok(pem) => tls.ca_pem = Some(pem),
            Err(why) => secrets.faults.push(format!("ca: {why}")),
        }
    }
    if let (Some(certificate), Some(key)) = (&server.client_certificate, &server.client_key) {
        match (read_file(certificate), resolve(key, conf)) {
            (Ok(certificate), Ok(key)) => tls.identity_pem = Some((certificate, key)),
            (Err(why), _) => secrets.faults.push(format!("client_certificate: {why}")),
            (_, Err(why)) => secrets.faults.push(format!("client_key: {why}")),
        }
    }
    secrets.tls = tls;
    secrets
}

/// What seals the credentials of users.
///
/// # Errors
/// Why there is none, in words without any value.
pub(super) fn vault(conf: &Conf) -> Result<Vault, String> {
    let reference = conf.store.key.as_ref().ok_or("it is not set")?;
    Vault::new(&resolve(reference, conf)?).map_err(|why| why.to_string())
}

fn resolve(reference: &SecretRef, conf: &Conf) -> Result<Vec<u8>, String> {
    let value = match reference {
        SecretRef::Env(name) => std::env::var_os(name)
            .map(std::os::unix::ffi::OsStringExt::into_vec)
            .ok_or_else(|| format!("the environment variable `{name}` is not set"))?,
        SecretRef::File(path) => read_file(path)?,
        SecretRef::Credential(name) => read_file(&credential_path(name, conf)?)?,
    };
    let value = value.trim_ascii_end().to_vec();
    if value.is_empty() { Err("it is empty".to_owned()) } else { Ok(value) }
}

/// A systemd credential of that name, else a file in `admin.secrets`.
fn credential_path(name: &str, conf: &Conf) -> Result<PathBuf, String> {
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    if !plain {
        return Err("a credential's name must be a plain file name".to_owned());
    }
    let systemd = std::env::var_os("CREDENTIALS_DIRECTORY").map(|folder| PathBuf::from(folder).join(name));
    let ours = conf.admin.secrets.as_ref().map(|folder| folder.join(name));
    systemd
        .into_iter()
        .chain(ours)
        .find(|path| path.is_file())
        .ok_or_else(|| format!("there is no credential `{name}`"))
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let length = std::fs::metadata(path).map_err(|why| format!("{shown}: {}", why.kind()))?.len();
    if length > BYTES_MAX {
        return Err(format!("{shown}: larger than 1 MiB"));
    }
    std::fs::read(path).map_err(|why| format!("{shown}: {}", why.kind()))
}
