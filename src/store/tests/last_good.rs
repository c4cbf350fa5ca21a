//! The file with the last good policy: whole or not there, and as old as the last word of the store.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    time::{Duration, SystemTime},
};

use super::{dir::TempDir, samples};
use crate::{
    model::mcp::Revision,
    store::{
        StoreError, Stored,
        last_good::{read, touch, write},
    },
};

#[test]
fn a_last_good_policy_is_read_back_whole_or_not_at_all() {
    let dir = TempDir::new();
    let path = dir.path().join("kept");
    assert!(read(&path).unwrap().is_none());
    let stored = Stored {
        revision: 7,
        objects: vec![samples::object("key", "ann", "{}")],
        overrides: vec![samples::object("revoked", "bob", "{\"\u{0}\":1}")],
        tools: vec![samples::tool("github", "echo"), samples::bare_tool("github", "two")],
        discoveries: vec![samples::discovery("github", Some(Revision::MODERN)), samples::discovery("x", None)],
    };
    for _ in 0..2 {
        write(&path, &stored, [9; 32]).unwrap();
        let found = read(&path).unwrap().unwrap();
        assert_eq!((found.stored, found.state_key), (stored.clone(), [9; 32]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let good = fs::read(&path).unwrap();
    for at in (0..good.len()).step_by(97).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).unwrap();
        assert!(matches!(read(&path), Err(StoreError::LastGood { .. })), "byte {at}");
    }
    for cut in [0, 20, good.len() - 1] {
        fs::write(&path, &good[..cut]).unwrap();
        assert!(matches!(read(&path), Err(StoreError::LastGood { .. })), "{cut} bytes");
    }
}

#[test]
fn a_file_is_as_old_as_the_last_word_of_the_store() {
    let dir = TempDir::new();
    let path = dir.path().join("kept");
    write(&path, &Stored::default(), [1; 32]).unwrap();
    let hour = Duration::from_secs(3600);
    File::open(&path).unwrap().set_modified(SystemTime::now() - hour).unwrap();
    assert!(read(&path).unwrap().unwrap().age >= hour);
    touch(&path);
    assert!(read(&path).unwrap().unwrap().age < hour);
}
