//! A folder that is gone when its guard is.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A new folder below the system's folder for temporary files.
pub(super) struct TempDir(PathBuf);

impl TempDir {
    pub(super) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("toolgate-{:016x}", rand::random::<u64>()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The URL of a store in it.
    pub(super) fn url(&self) -> String {
        format!("sqlite:{}", self.0.join("toolgate.db").display())
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
