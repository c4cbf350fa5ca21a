//! Sequences of events as data, with the state after each.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

use std::collections::HashMap;

use super::{
    Applied, ApproveError, ListedTool, Move, Recording, ToolState, adopt, apply_listing, apply_pins, approve, block,
    next_recorded, reaffirm, state, terms,
};
use crate::model::{
    pin::Pin,
    records::{Approval, ApprovalStatus, Class, Definition, Label, ToolRecord},
};

mod properties;

/// Each line: a name, then `event state` pairs. A listing is written `[…]`: letters are definitions, `!` a fault of
/// the one before, no letter: the tool is not listed. `pin=A` and `block=A` are a file's line, `pin=` none; `restart`
/// compiles what was stored again.
const SEQUENCES: &[(&str, &str)] = &[
    ("a new tool waits", "[A] pending, [A] pending, [B] pending"),
    ("a new tool that goes is removed and waits when it is back", "[A] pending, [] removed, [A] pending"),
    ("approved and same", "[A] pending, approve=A approved, [A] approved, restart approved"),
    ("approved and different sticks", "[A] pending, approve=A approved, [B] changed, [A] changed, restart changed"),
    (
        "an approval of the new bytes lifts it",
        "[A] pending, approve=A approved, [B] changed, approve=B approved, [B] approved",
    ),
    (
        "an approval of the old bytes lifts it",
        "[A] pending, approve=A approved, [B] changed, [A] changed, approve=A approved, [A] approved",
    ),
    (
        "a stale approval changes nothing",
        "[A] pending, approve=B stale, [B] pending, approve=A stale, approve=B approved, [C] changed, approve=B stale",
    ),
    ("gone and back unchanged", "[A] pending, approve=A approved, [] removed, [A] approved"),
    ("gone and back with other bytes", "[A] pending, approve=A approved, [] removed, [B] changed, [A] changed"),
    ("gone does not lift changed", "[A] pending, approve=A approved, [B] changed, [] removed, [A] changed"),
    ("what is gone cannot be approved", "[A] pending, [] removed, approve=A removed!"),
    ("a block holds", "[A] pending, block blocked, [A] blocked, [B] blocked, [] blocked, [A] blocked, restart blocked"),
    ("an approval lifts a block", "[A] pending, approve=A approved, block blocked, approve=A approved"),
    (
        "a block does not hide a change",
        "[A] pending, approve=A approved, block blocked, [B] blocked, [A] blocked, approve=A approved, [B] changed",
    ),
    ("a pin makes a name known", "pin=A removed, [] removed, [A] approved"),
    ("a pin approves what it names", "pin=A removed, [A] approved, [B] changed, [A] changed, restart changed"),
    (
        "before the pinned bytes are seen a mismatch does not stick",
        "[B] pending, pin=A changed, [C] changed, restart changed, [A] approved, [C] changed, [A] changed",
    ),
    ("a pin on what is listed already", "[A] pending, pin=A approved, [B] changed"),
    (
        "an edited pin is a new approval",
        "pin=A removed, [A] approved, [B] changed, pin=B approved, [B] approved, [A] changed",
    ),
    ("an edited pin may come first", "pin=A removed, [A] approved, pin=B changed, [A] changed, [B] approved"),
    (
        "a pin edited back and forth is new each time",
        "pin=A removed, [A] approved, [B] changed, pin=B approved, pin=A changed, [A] approved",
    ),
    (
        "the same pin again is no new approval",
        "pin=A removed, [A] approved, [B] changed, [A] changed, pin= pending, pin=A changed",
    ),
    ("without its pin a tool waits", "pin=A removed, [A] approved, pin= pending, [A] pending, pin=A approved"),
    (
        "re-affirming lifts changed",
        "pin=A removed, [A] approved, [B] changed, [A] changed, approve=A approved, [A] approved, [B] changed",
    ),
    (
        "re-affirming is of current bytes only",
        "pin=A removed, approve=A removed!, [A] approved, [B] changed, approve=A stale, approve=B managed",
    ),
    (
        "a block on top of a file holds until re-affirmed",
        "pin=A removed, [A] approved, block blocked, restart blocked, pin=B blocked, pin=A blocked, approve=B managed, approve=A approved",
    ),
    (
        "a file blocks",
        "[A] pending, block=A blocked, approve=A managed, [B] blocked, pin=A changed, [A] changed, approve=A approved",
    ),
    ("a file's block goes before an approval", "[A] pending, approve=A approved, block=A blocked, pin= approved"),
    (
        "a file's other pin ends an approval",
        "[A] pending, approve=A approved, pin=B changed, pin= pending, [B] pending",
    ),
    (
        "a file's same pin keeps what was seen",
        "[A] pending, approve=A approved, [B] changed, pin=A changed, [A] changed, approve=A approved",
    ),
    (
        "a fault cannot be approved",
        "[A!] pending, approve=A fault, [A] pending, approve=A approved, [A!] approved, approve=A fault",
    ),
    ("a pinned fault keeps its state", "pin=A removed, [A!] approved, approve=A fault, [B!] changed"),
    ("a name borne twice cannot be approved", "[AA] pending, approve=A fault, [AB] pending, approve=A fault"),
    ("other bytes do not hide behind the pinned ones", "[A] pending, approve=A approved, [AB] changed, [A] changed"),
    ("whichever comes first", "[A] pending, approve=A approved, [BA] changed"),
    ("twins of the pinned bytes are no mismatch", "[A] pending, approve=A approved, [AA] approved, [A] approved"),
];

#[test]
fn every_sequence_leads_where_the_contract_says() {
    for (name, steps) in SEQUENCES {
        let mut world = World::default();
        for (number, step) in steps.split(", ").enumerate() {
            let (event, expected) = step.split_once(' ').unwrap();
            let outcome = world.play(event);
            assert_eq!(outcome, expected, "{name}: step {number}, `{step}`");
        }
    }
}

/// One tool of one server, and its file.
#[derive(Default)]
struct World {
    known: Vec<ToolRecord>,
    file: Option<Approval>,
}

impl World {
    /// Plays an event; gives the tool's state, or why it was refused.
    fn play(&mut self, event: &str) -> String {
        let before = self.known.clone();
        if let Some(listed) = event.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            self.list(listed);
        } else if let Some((what, letter)) = event.split_once('=') {
            match what {
                "pin" => self.pin(letter, ApprovalStatus::Approved),
                "block" => self.pin(letter, ApprovalStatus::Blocked),
                "approve" => match self.approve(pin(letter)) {
                    Ok(()) => {}
                    Err(refused) => {
                        assert_eq!(before, self.known, "a refusal changes nothing");
                        return refused;
                    }
                },
                other => panic!("{other}"),
            }
        } else if event == "block" {
            assert_eq!(block(&mut self.known[0]), self.known != before);
        } else {
            assert_eq!(event, "restart");
            self.reload();
            assert_eq!(self.known, before, "a restart changes nothing");
        }
        self.state().as_str().to_owned()
    }

    fn state(&self) -> ToolState {
        let record = &self.known[0];
        assert!(record.approved.as_ref().is_none_or(|approved| Some(approved.sha256) == record.pin));
        assert!(record.pin_seen || !record.changed);
        let state = state(record, self.file.as_ref());
        if state == ToolState::Approved {
            // What is advertised and checked against is what is listed.
            assert_eq!(record.approved.as_ref().unwrap().sha256, record.current.as_ref().unwrap().sha256);
        }
        state
    }

    fn list(&mut self, listed: &str) {
        let mut tools: Vec<ListedTool> = vec![];
        for letter in listed.chars() {
            match letter {
                '!' => tools.last_mut().unwrap().fault = Some("broken".into()),
                letter => tools.push(listed_tool("t", &letter.to_string())),
            }
        }
        let pins: Vec<&Approval> = self.file.iter().collect();
        self.known = together(apply_listing(std::mem::take(&mut self.known), recording(1), tools, &pins));
    }

    fn pin(&mut self, letter: &str, status: ApprovalStatus) {
        self.file = (!letter.is_empty()).then(|| file("t", letter, status));
        // What a call meets between the reload and its being stored is the same.
        let at_once = self.known.first().map(|record| state(record, self.file.as_ref()));
        self.reload();
        assert_eq!(at_once.unwrap_or(ToolState::Removed), self.state());
    }

    fn reload(&mut self) {
        let pins: Vec<&Approval> = self.file.iter().collect();
        self.known = together(apply_pins(std::mem::take(&mut self.known), recording(1), &pins));
    }

    fn approve(&mut self, expected: Pin) -> Result<(), String> {
        let record = &mut self.known[0];
        let done = match &self.file {
            Some(file) => reaffirm(record, file, expected),
            None => approve(record, expected, Class::Read, vec![Label::SendsOut]),
        };
        done.map_err(|error| match error {
            ApproveError::Removed => "removed!".to_owned(),
            ApproveError::Fault(_) => "fault".to_owned(),
            ApproveError::Stale => "stale".to_owned(),
            ApproveError::ManagedByFile => "managed".to_owned(),
        })
    }
}

fn together(applied: Applied) -> Vec<ToolRecord> {
    applied.written.into_iter().chain(applied.unchanged).collect()
}

fn recording(recorded: i64) -> Recording<'static> {
    Recording { organization: "acme", server: "github", recorded }
}

fn pin(letter: &str) -> Pin {
    Pin([letter.as_bytes()[0]; 32])
}

fn definition(letter: &str) -> Definition {
    Definition { sha256: pin(letter), json: letter.into() }
}

fn listed_tool(name: &str, letter: &str) -> ListedTool {
    ListedTool { name: name.into(), definition: definition(letter), fault: None }
}

fn file(tool: &str, letter: &str, status: ApprovalStatus) -> Approval {
    Approval {
        organization: "acme".into(),
        server: "github".into(),
        tool: tool.into(),
        sha256: pin(letter),
        class: Class::Write,
        labels: vec![Label::PrivateData],
        status,
    }
}

fn names(records: &[ToolRecord]) -> Vec<&str> {
    records.iter().map(|record| record.name.as_str()).collect()
}

fn moved(name: &str, from: Option<ToolState>, to: ToolState) -> Move {
    Move { name: name.into(), from, to }
}

#[test]
fn a_listing_tells_what_is_to_be_stored_and_what_moved() {
    let listed = |letters: &[(&str, &str)]| letters.iter().map(|(name, letter)| listed_tool(name, letter)).collect();
    let first = apply_listing(vec![], recording(1), listed(&[("b", "A"), ("a", "A"), ("c", "A")]), &[]);
    assert_eq!(names(&first.written), ["a", "b", "c"]);
    assert!(first.written.iter().all(|record| record.recorded == 1 && record.server == "github"));
    let mut known = together(first);
    approve(&mut known[1], pin("A"), Class::Read, vec![]).unwrap();

    let pins = [&file("e", "A", ApprovalStatus::Approved)];
    let second = apply_listing(known, recording(2), listed(&[("a", "A"), ("b", "B"), ("d", "A")]), &pins);
    assert_eq!(names(&second.unchanged), ["a"]);
    assert_eq!(names(&second.written), ["b", "c", "d", "e"]);
    assert_eq!(
        second.moves,
        [
            moved("b", Some(ToolState::Approved), ToolState::Changed),
            moved("c", Some(ToolState::Pending), ToolState::Removed),
            moved("d", None, ToolState::Pending),
            moved("e", None, ToolState::Removed),
        ]
    );
    let recorded: Vec<_> = second.written.iter().map(|record| record.recorded).collect();
    assert_eq!(recorded, [1, 1, 2, 2]);

    let third = apply_listing(together(second), recording(3), vec![], &pins);
    assert_eq!(names(&third.written), ["a", "b", "d"]);
    assert_eq!(names(&third.unchanged), ["c", "e"]);
}

#[test]
fn pins_of_other_servers_and_organizations_are_not_ours() {
    let server = Approval { server: "gitlab".into(), ..file("t", "A", ApprovalStatus::Approved) };
    let organization = Approval { organization: "other".into(), ..file("t", "A", ApprovalStatus::Approved) };
    assert_eq!(apply_pins(vec![], recording(1), &[&server, &organization]), Applied::default());
    let applied = apply_listing(vec![], recording(1), vec![listed_tool("t", "A")], &[&server, &organization]);
    assert_eq!(state(&applied.written[0], None), ToolState::Pending);
    assert_eq!(applied.written[0].pin, None);
}

#[test]
fn names_that_cannot_be_told_apart_are_all_faulty() {
    let listed = ["a.b", "a_b", "twice", "c", "twice", "twice", "a/b"].map(|name| listed_tool(name, "A"));
    let applied = apply_listing(vec![], recording(1), listed.to_vec(), &[]);
    let faults: Vec<_> = applied.written.iter().map(|r| (r.name.as_str(), r.fault.as_deref())).collect();
    let exposed = Some("3 tools of its server have the exposed name `github_a_b`");
    let twice = Some("its server lists this name 3 times");
    assert_eq!(faults, [("a.b", exposed), ("a/b", exposed), ("a_b", exposed), ("c", None), ("twice", twice)]);

    // It is over when the listing is right again.
    let listed = ["a.b", "twice"].map(|name| listed_tool(name, "A"));
    let applied = apply_listing(applied.written, recording(2), listed.to_vec(), &[]);
    assert!(together(applied).iter().all(|record| record.fault.is_none()));
}

#[test]
fn a_fault_of_its_own_is_told_beside_a_clash() {
    let mut odd = listed_tool("a.b", "A");
    odd.fault = Some("its `inputSchema` is missing".into());
    let applied = apply_listing(vec![], recording(1), vec![odd, listed_tool("a_b", "A")], &[]);
    let fault = applied.written[0].fault.as_deref().unwrap();
    assert!(fault.starts_with("its `inputSchema` is missing; 2 tools of its server"), "{fault}");
}

#[test]
fn definitions_that_differ_only_in_spelling_write_nothing() {
    let known = together(apply_listing(vec![], recording(1), vec![listed_tool("t", "A")], &[]));
    let mut spelt = listed_tool("t", "A");
    spelt.definition.json = "A ".into();
    let applied = apply_listing(known.clone(), recording(2), vec![spelt], &[]);
    assert_eq!((applied.written, applied.unchanged), (vec![], known));
}

#[test]
fn the_file_decides_on_class_and_labels() {
    let mut record = apply_listing(vec![], recording(1), vec![listed_tool("t", "A")], &[]).written.remove(0);
    let pinned = file("t", "A", ApprovalStatus::Approved);
    assert_eq!(terms(&record, None), None);
    assert_eq!(terms(&record, Some(&pinned)), Some((Class::Write, &[Label::PrivateData][..])));
    approve(&mut record, pin("A"), Class::Read, vec![Label::SendsOut]).unwrap();
    assert_eq!(terms(&record, None), Some((Class::Read, &[Label::SendsOut][..])));
    assert_eq!(terms(&record, Some(&pinned)), Some((Class::Write, &[Label::PrivateData][..])));
    // A block keeps what was decided, for whoever approves it again.
    block(&mut record);
    assert_eq!(terms(&record, None), Some((Class::Read, &[Label::SendsOut][..])));
}

#[test]
fn numbers_follow_those_of_the_organization() {
    let mut tools = together(apply_listing(vec![], recording(7), vec![listed_tool("t", "A")], &[]));
    tools.extend(together(apply_listing(vec![], recording(3), vec![listed_tool("u", "A")], &[])));
    assert_eq!(next_recorded(&tools), HashMap::from([("acme", 8)]));
    tools[1].organization = "other".into();
    assert_eq!(next_recorded(&tools), HashMap::from([("acme", 8), ("other", 4)]));
    tools[0].recorded = i64::MAX;
    assert_eq!(next_recorded(&tools)["acme"], i64::MAX);
}

#[test]
fn adopting_twice_changes_nothing() {
    let mut record = apply_listing(vec![], recording(1), vec![listed_tool("t", "A")], &[]).written.remove(0);
    let pinned = file("t", "A", ApprovalStatus::Approved);
    assert!(adopt(&mut record, Some(&pinned)));
    let once = record.clone();
    assert!(!adopt(&mut record, Some(&pinned)));
    assert!(!adopt(&mut record, None));
    assert_eq!(record, once);
}
