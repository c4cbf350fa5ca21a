//! Which server is asked when. Pure: time comes in as milliseconds of a clock that never goes back.
//!
//! Knows no task, no socket and no result but that there was one.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// After a server was asked, a `list_changed` makes it be asked again no sooner than this, in milliseconds: a server that
/// says so with every call must not be asked with every call.
pub const AFTER_CHANGE_MIN_MS: u64 = 5_000;

/// The plan: every server has one next time, or is being asked, or its answer is being taken in.
#[derive(Debug)]
pub struct Plan {
    interval_ms: u64,
    at_once_max: usize,
    servers: HashMap<Arc<str>, State>,
    due: BTreeSet<(u64, Arc<str>)>,
    asking: usize,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// When it is asked next; while it is being asked, when it must be asked once more, if sooner than in an interval.
    next_ms: Option<u64>,
    /// From when it is asked until its answer is taken in.
    asking: bool,
    /// It holds one of the places of those who are asked at one time.
    holds_place: bool,
    asked_ms: Option<u64>,
    removed: bool,
}

impl Plan {
    /// An empty plan: each server each `interval_ms`, `at_once_max` at one time.
    #[must_use]
    pub fn new(interval_ms: u64, at_once_max: usize) -> Self {
        let (interval_ms, at_once_max) = (interval_ms.max(1), at_once_max.max(1));
        Self { interval_ms, at_once_max, servers: HashMap::new(), due: BTreeSet::new(), asking: 0 }
    }

    /// Replaces the set of servers. New ones are due at once, those that stay keep their time, the rest are forgotten.
    pub fn set(&mut self, servers: impl IntoIterator<Item = Arc<str>>, now_ms: u64) {
        let wanted: BTreeSet<Arc<str>> = servers.into_iter().collect();
        for (name, state) in &mut self.servers {
            if !wanted.contains(name) {
                state.removed = true;
                if let Some(next) = state.next_ms.take_if(|_| !state.asking) {
                    self.due.remove(&(next, Arc::clone(name)));
                }
            }
        }
        self.servers.retain(|_, state| state.asking || !state.removed);
        for name in wanted {
            match self.servers.get_mut(&name) {
                Some(state) if state.removed => {
                    state.removed = false; // it came back while its old answer is still awaited: ask once more
                    state.next_ms = Some(now_ms);
                }
                Some(_) => {}
                None => {
                    self.due.insert((now_ms, Arc::clone(&name)));
                    let state = State {
                        next_ms: Some(now_ms),
                        asking: false,
                        holds_place: false,
                        asked_ms: None,
                        removed: false,
                    };
                    self.servers.insert(name, state);
                }
            }
        }
    }

    /// Each server each `interval_ms` from now on; one that would wait for longer than that is asked sooner.
    pub fn set_interval(&mut self, interval_ms: u64, now_ms: u64) {
        let interval_ms = interval_ms.max(1);
        if std::mem::replace(&mut self.interval_ms, interval_ms) > interval_ms {
            let names: Vec<Arc<str>> = self.due.iter().map(|(_, name)| Arc::clone(name)).collect();
            for name in names {
                self.bring_forward(&name, now_ms.saturating_add(interval_ms));
            }
        }
    }

    /// Somebody wants a server to be asked now. Whether the plan knows it.
    pub fn want(&mut self, name: &str, now_ms: u64) -> bool {
        self.bring_forward(name, now_ms)
    }

    /// A server said that its tools changed.
    pub fn changed(&mut self, name: &str, now_ms: u64) {
        let rested = self
            .servers
            .get(name)
            .and_then(|state| state.asked_ms)
            .map_or(now_ms, |asked| asked.saturating_add(AFTER_CHANGE_MIN_MS).max(now_ms));
        self.bring_forward(name, rested);
    }

    /// The next server to ask now, if one is due and there is room.
    pub fn start(&mut self, now_ms: u64) -> Option<Arc<str>> {
        let room = self.asking < self.at_once_max && self.due.first().is_some_and(|(at, _)| *at <= now_ms);
        let (_, name) = if room { self.due.pop_first()? } else { return None };
        let state = self.servers.get_mut(&name)?;
        (state.next_ms, state.asking, state.holds_place, state.asked_ms) = (None, true, true, Some(now_ms));
        self.asking += 1;
        Some(name)
    }

    /// A server that was started has answered, or will not: another one may be asked while this answer is taken in. This one is not
    /// asked again before [`Self::done`].
    pub fn answered(&mut self, name: &str) {
        if let Some(state) = self.servers.get_mut(name)
            && std::mem::take(&mut state.holds_place)
        {
            self.asking -= 1;
        }
    }

    /// A server that was started has been asked, answered or not, and the answer was taken in. Whether it is still in the plan.
    pub fn done(&mut self, name: &str, now_ms: u64) -> bool {
        self.answered(name);
        let Some((name, mut state)) = self.servers.remove_entry(name) else { return false };
        if state.removed {
            return false;
        }
        let next = state.next_ms.unwrap_or(u64::MAX).min(now_ms.saturating_add(self.interval_ms));
        (state.next_ms, state.asking) = (Some(next), false);
        self.due.insert((next, Arc::clone(&name)));
        self.servers.insert(name, state);
        true
    }

    /// When [`Self::start`] has something to give next, if nothing else happens; none while all room is taken.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        self.due.first().filter(|_| self.asking < self.at_once_max).map(|(at, _)| *at)
    }

    fn bring_forward(&mut self, name: &str, at_ms: u64) -> bool {
        let Some((name, state)) = self.servers.get_key_value(name).map(|(name, state)| (Arc::clone(name), *state))
        else {
            return false;
        };
        if state.removed {
            return false;
        }
        let next = state.next_ms.map_or(at_ms, |next| next.min(at_ms));
        if !state.asking {
            if let Some(old) = state.next_ms {
                self.due.remove(&(old, Arc::clone(&name)));
            }
            self.due.insert((next, Arc::clone(&name)));
        }
        self.servers.insert(name, State { next_ms: Some(next), ..state });
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    /// One line a step: `time act args [= expected]`.
    fn check(interval: u64, at_once: usize, script: &str) {
        let mut plan = Plan::new(interval, at_once);
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (act, expected) = line.split_once('=').map_or((line, ""), |(act, expected)| (act, expected.trim()));
            let words: Vec<&str> = act.split_whitespace().collect();
            let now: u64 = words[0].parse().unwrap();
            let show = |found: Option<String>| found.unwrap_or_else(|| "-".into());
            let got = match words[1] {
                "set" => {
                    plan.set(words[2..].iter().map(|name| (*name).into()), now);
                    String::new()
                }
                "want" => plan.want(words[2], now).to_string(),
                "changed" => {
                    plan.changed(words[2], now);
                    String::new()
                }
                "interval" => {
                    plan.set_interval(words[2].parse().unwrap(), now);
                    String::new()
                }
                "start" => show(plan.start(now).map(|name| name.to_string())),
                "answered" => {
                    plan.answered(words[2]);
                    String::new()
                }
                "done" => plan.done(words[2], now).to_string(),
                "next" => show(plan.next_ms().map(|at| at.to_string())),
                other => panic!("{other}"),
            };
            assert_eq!(got, expected, "{line}");
            let due: usize = plan.servers.values().filter(|state| !state.asking).count();
            assert_eq!(due, plan.due.len(), "{line}: each server is due or being asked");
            assert_eq!(plan.asking, plan.servers.values().filter(|state| state.holds_place).count(), "{line}");
            assert!(plan.servers.values().all(|state| state.asking || !state.holds_place), "{line}");
        }
    }

    #[test]
    fn each_server_is_asked_at_start_and_each_interval() {
        check(
            1000,
            9,
            "0 next = -\n0 set a b\n0 next = 0\n0 start = a\n0 start = b\n0 start = -\n5 done a = true\n7 done b = true
            7 next = 1005\n1004 start = -\n1005 start = a\n1007 start = b",
        );
    }

    #[test]
    fn a_shorter_interval_holds_at_once_and_a_longer_one_from_the_next_time() {
        check(
            100_000,
            9,
            "0 set a b\n0 start = a\n0 start = b\n5 done a = true\n6 interval 1000\n6 next = 1006\n7 done b = true\n1006 start = a
            1006 next = 1007\n1007 done a = true\n1007 interval 5000\n1007 start = b\n1007 next = 2007\n2007 start = a\n2008 done a = true
            2008 next = 7008",
        );
    }

    #[test]
    fn no_more_than_so_many_at_once() {
        check(
            1000,
            2,
            "0 set a b c\n0 start = a\n0 start = b\n0 start = -\n0 next = -\n1 done a = true\n1 next = 0\n1 start = c\n1 start = -",
        );
    }

    #[test]
    fn an_answer_that_is_taken_in_holds_nobody_up_but_its_server() {
        check(
            1000,
            1,
            "0 set a b c\n0 start = a\n0 start = -\n1 answered a\n1 answered a\n1 next = 0\n1 start = b\n1 start = -\n2 want a = true
            3 answered b\n3 start = c\n4 answered c\n4 start = -\n5 done a = true\n5 start = a\n6 answered zz\n6 set b\n7 done c = false
            7 done a = false\n8 start = -\n9 done b = true\n9 next = 1009",
        );
    }

    #[test]
    fn a_server_that_is_wanted_is_asked_at_once_and_once_more_if_it_is_being_asked() {
        check(1000, 9, "0 set a\n0 start = a\n1 done a = true\n2 want a = true\n2 want a = true\n2 start = a\n2 start = -\n3 want a = true
            3 start = -\n4 done a = true\n4 start = a\n5 done a = true\n5 next = 1005\n6 want x = false");
    }

    #[test]
    fn a_change_is_asked_for_after_a_rest() {
        check(100_000, 9, "0 set a\n0 start = a\n10 done a = true\n20 changed a\n30 changed a\n30 next = 5000\n5000 start = a\n5001 done a = true
            5001 next = 105001\n20000 changed a\n20000 start = a\n20001 changed a\n20002 done a = true\n20002 next = 25000\n1 changed x");
    }

    #[test]
    fn a_change_never_puts_an_asking_off() {
        check(1000, 9, "0 set a\n0 start = a\n1 done a = true\n2 changed a\n2 next = 1001");
    }

    #[test]
    fn servers_come_and_go() {
        check(1000, 9, "0 set a b\n0 start = a\n0 start = b\n1 done a = true\n2 set b c\n2 next = 2\n2 start = c\n2 start = -
            3 set c\n3 want b = false\n4 done b = false\n5 done c = true\n5 next = 1005\n6 done zz = false\n7 set\n7 next = -");
        check(
            1000,
            9,
            "0 set a\n0 start = a\n1 set\n2 set a\n2 start = -\n3 done a = true\n3 start = a\n4 done a = true\n4 next = 1004",
        );
    }
}
