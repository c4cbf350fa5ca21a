//! Named points of a change at which a test can have the process killed. They exist in builds with debug assertions alone:
//! what is shipped has neither the points nor the variable.
//!
//! `TOOLGATE_TEST_KILL` names a file; the process kills itself at the point whose name stands in it. The file may be written
//! while the process runs, so that a test chooses the moment from which on it holds.

/// Ends the process as `kill -9` does, if a test asked for this point.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    let Some(file) = std::env::var_os("TOOLGATE_TEST_KILL") else { return };
    if std::fs::read_to_string(file).is_ok_and(|wanted| wanted.trim() == name) {
        let pid = std::process::id().to_string();
        drop(std::process::Command::new("kill").args(["-KILL", &pid]).status());
        loop {
            std::thread::park();
        }
    }
}

/// Nothing: the points exist in builds with debug assertions alone.
#[cfg(not(debug_assertions))]
pub(crate) const fn point(_name: &str) {}
