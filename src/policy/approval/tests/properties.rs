//! What no sequence of events may do.

use proptest::prelude::*;

use super::{World, listed_tool, recording, together};
use crate::{
    model::records::ApprovalStatus,
    policy::approval::{ToolState, apply_listing},
};

/// What a person does, and what a server does.
fn any_event() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any_listing(),
        2 => "approve=[ABC]",
        1 => Just("block".to_owned()),
        1 => "(pin|block)=[ABC]",
        1 => Just("pin=".to_owned()),
    ]
}

fn any_listing() -> impl Strategy<Value = String> {
    prop_oneof![9 => "\\[([ABC]!?){0,2}\\]", 1 => Just("restart".to_owned())]
}

proptest! {
    #[test]
    fn no_listing_lifts_changed(
        life in proptest::collection::vec(any_event(), 1..20),
        listings in proptest::collection::vec(any_listing(), 1..12),
    ) {
        let mut world = World::default();
        world.play("[A]");
        for event in &life {
            world.play(event);
        }
        let mut sticky = world.known[0].changed;
        for event in &listings {
            let before = world.state();
            world.play(event);
            let after = world.state();
            if after == ToolState::Approved {
                // A mismatch before the pinned bytes were ever seen is the one case that a listing may end.
                prop_assert!(!sticky, "{event} lifted `changed`");
            }
            sticky |= world.known[0].changed;
            prop_assert_eq!(before == ToolState::Blocked, after == ToolState::Blocked);
        }
    }

    #[test]
    fn only_pinned_bytes_are_approved(life in proptest::collection::vec(any_event(), 1..30)) {
        let mut world = World::default();
        world.play("[A]");
        let mut approved = None;
        let mut blocked = false;
        for event in &life {
            let outcome = world.play(event);
            // A model of it that knows only what people said.
            match (event.as_str(), &world.file) {
                ("block", _) => blocked = true,
                (approve, None) if approve.starts_with("approve=") && outcome == "approved" => {
                    (approved, blocked) = (world.known[0].pin, false);
                }
                (approve, Some(_)) if approve.starts_with("approve=") && outcome == "approved" => blocked = false,
                (pinned, Some(file)) if pinned.starts_with("pin=") || pinned.starts_with("block=") => {
                    approved = approved.filter(|pin| *pin == file.sha256);
                }
                _ => {}
            }
            if world.state() == ToolState::Approved {
                let said = world.file.as_ref().map_or(approved, |file| Some(file.sha256));
                prop_assert_eq!(world.known[0].current.as_ref().map(|d| d.sha256), said);
                prop_assert!(!blocked);
                let by_file = world.file.as_ref().is_some_and(|file| file.status == ApprovalStatus::Blocked);
                prop_assert!(!by_file);
            }
        }
    }

    #[test]
    fn no_known_name_is_dropped(
        rounds in proptest::collection::vec(proptest::collection::vec(("[a-d]|a\\.b|a_b", "[AB]"), 0..6), 1..8),
    ) {
        let mut known = vec![];
        let mut ever = std::collections::BTreeSet::new();
        for (recorded, round) in (1..).zip(rounds) {
            ever.extend(round.iter().map(|(name, _)| name.clone()));
            let listed = round.iter().map(|(name, letter)| listed_tool(name, letter)).collect();
            let applied = apply_listing(known, recording(recorded), listed, &[]);
            known = together(applied);
            let mut have: Vec<_> = known.iter().map(|record| record.name.clone()).collect();
            have.sort();
            prop_assert_eq!(have, ever.iter().cloned().collect::<Vec<_>>());
        }
    }
}
