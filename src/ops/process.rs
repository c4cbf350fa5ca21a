//! The process itself, as `/proc` tells of it (proc(5)).

use std::{fs, path::Path};

use crate::metrics::Process;

/// Ticks a second of the times in `/proc` (`USER_HZ`): 100 on every Linux that this runs on.
const TICKS: f64 = 100.0;

/// What `/proc` says of this process.
pub(super) fn process(proc: &Path) -> Process {
    let read = |path: &str| fs::read_to_string(proc.join(path)).ok();
    let stat = read("self/stat");
    // After the name, which may hold anything: fields 3 and on of proc(5).
    let fields: Vec<&str> = stat
        .as_deref()
        .and_then(|stat| stat.rsplit_once(") "))
        .map_or_else(Vec::new, |(_, rest)| rest.split(' ').collect());
    let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<f64>().ok();
    let status = read("self/status");
    let resident = status.as_deref().and_then(|status| word_after(status, "VmRSS:", 0));
    let limits = read("self/limits");
    let boot = read("stat");
    Process {
        cpu_seconds: field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS),
        resident_bytes: resident.map(|kib| kib * 1024.0),
        open_fds: fs::read_dir(proc.join("self/fd"))
            .ok()
            .and_then(|fds| u32::try_from(fds.count()).ok())
            .map(f64::from),
        max_fds: limits.as_deref().and_then(|limits| word_after(limits, "Max open files", 0)),
        threads: field(20),
        started_unix: boot
            .as_deref()
            .and_then(|stat| word_after(stat, "btime", 0))
            .zip(field(22))
            .map(|(boot, t)| boot + t / TICKS),
    }
}

/// The number that is the `nth` word after `name` on its line.
fn word_after(text: &str, name: &str, nth: usize) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(nth)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_process_is_read_from_proc() {
        let own = process(Path::new("/proc"));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(
            own.resident_bytes.unwrap() > 1e6
                && own.open_fds.unwrap() >= 3.0
                && own.max_fds.unwrap() >= own.open_fds.unwrap()
        );
        assert!(own.threads.unwrap() >= 1.0 && own.cpu_seconds.unwrap() >= 0.0);
        assert!((0.0..86_400.0).contains(&(now + 60.0 - own.started_unix.unwrap())), "{own:?}");
        assert_eq!(process(Path::new("/nowhere")), Process::default());
    }
}
