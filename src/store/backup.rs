//! A copy of an SQLite store, made while it is in use.
//!
//! **Invariant.** At the target's name there is never half a copy, and nothing that was there is overwritten.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use sqlx::sqlite::SqlitePool;

use super::{engine::Db, error::StoreError};

/// Copies the store to the new file `path`.
pub(super) async fn copy(db: &Db, path: &Path) -> Result<(), StoreError> {
    let failed = |reason: String| StoreError::Backup { path: path.display().to_string(), reason };
    let Db::Sqlite(pool) = db else {
        return Err(failed("the store is in PostgreSQL: use `pg_dump`".to_owned()));
    };
    if path.symlink_metadata().is_ok() {
        return Err(failed("it exists already".to_owned()));
    }
    let partial = partial_name(path).ok_or_else(|| failed("it names no file".to_owned()))?;
    // SQLite fills an empty file that is there, and so keeps its mode.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
    let file = made.map_err(|error| failed(format!("{}: {error}", partial.display())))?;
    let done = match fill(pool, &partial).await {
        Ok(()) => publish(&file, &partial, path).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    done.map_err(|reason| {
        // Best effort: the copy has failed already, and that is what is told.
        drop(fs::remove_file(&partial));
        failed(reason)
    })
}

async fn fill(pool: &SqlitePool, partial: &Path) -> Result<(), sqlx::Error> {
    let target = partial.to_str().ok_or_else(|| sqlx::Error::Protocol("the path is not UTF-8".to_owned()))?;
    sqlx::query("VACUUM INTO $1").bind(target.to_owned()).execute(pool).await.map(drop)
}

/// Gives the complete copy its name; SQLite itself does not wait for the disk here.
fn publish(file: &File, partial: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(partial, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder)?.sync_all()
}

/// Beside the target, so that it is on the same file system.
fn partial_name(path: &Path) -> Option<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}.partial", std::process::id()));
    Some(path.with_file_name(name))
}
