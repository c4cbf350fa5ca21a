//! The last good policy of a node: what PostgreSQL held when the node last took it, in a file (`docs/fleet.md`).
//!
//! One line with version and checksum, then JSON. Objects name credentials only as references, as in the store; the key that seals
//! `requestState` is in it, so the file is for its owner only.
//!
//! **Invariant.** The file is whole or not there, mode 0600; one that was changed, or that another version wrote, is never read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Stored, error::StoreError};
use crate::model::id::{decode_hex32, encode_hex};

/// How the file begins: what it is, and the version of its form.
const HEAD: &str = "toolgate-last-good 1 sha256:";

/// What was kept.
pub(super) struct LastGood {
    pub(super) stored: Stored,
    pub(super) state_key: [u8; 32],
    /// Since the store was last known to hold it.
    pub(super) age: Duration,
}

#[derive(Serialize)]
struct Written<'w> {
    state_key: String,
    stored: &'w Stored,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Found {
    state_key: String,
    stored: Stored,
}

/// Replaces the file.
pub(super) fn write(path: &Path, stored: &Stored, state_key: [u8; 32]) -> Result<(), StoreError> {
    let body = serde_json::to_vec(&Written { state_key: encode_hex(&state_key), stored });
    let done = body.map_err(io::Error::from).and_then(|body| replace(path, &body));
    done.map_err(|why| fault(path, format!("it cannot be written: {why}")))
}

fn replace(path: &Path, body: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    match fs::remove_file(&new) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(format!("{HEAD}{}\n", encode_hex(&Sha256::digest(body))).as_bytes())?;
    file.write_all(body)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

/// Reads the file; none: there is none.
pub(super) fn read(path: &Path) -> Result<Option<LastGood>, StoreError> {
    let bytes = match fs::read(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|why| fault(path, why.to_string()))?,
    };
    let written = fs::metadata(path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let age = SystemTime::now().duration_since(written).unwrap_or_default();
    let (head, body) = memchr::memchr(b'\n', &bytes)
        .and_then(|end| Some((bytes.get(..end)?, bytes.get(end + 1..)?)))
        .ok_or_else(|| fault(path, "it has no first line".to_owned()))?;
    let sum = std::str::from_utf8(head).ok().and_then(|head| head.strip_prefix(HEAD));
    let sum = sum.ok_or_else(|| fault(path, "another version wrote it, or it is something else".to_owned()))?;
    if sum != encode_hex(&Sha256::digest(body)) {
        return Err(fault(path, "its checksum is wrong".to_owned()));
    }
    let found: Found = serde_json::from_slice(body).map_err(|why| fault(path, why.to_string()))?;
    let state_key =
        decode_hex32(&found.state_key).ok_or_else(|| fault(path, "its key is not 64 hex digits".to_owned()))?;
    Ok(Some(LastGood { stored: found.stored, state_key, age }))
}

/// The store still holds what is in the file. A file that cannot be touched only looks older than it is.
pub(super) fn touch(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

fn fault(path: &Path, reason: String) -> StoreError {
    StoreError::LastGood { path: path.display().to_string(), reason }
}
