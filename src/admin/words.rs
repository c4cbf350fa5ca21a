//! What changed between two texts, word by word: the longest common run of words stays, the rest was taken out or put in.

use serde::Serialize;

use super::visible::visible;

/// The most pairs of words that are compared; longer texts are shown as taken out and put in whole.
const PAIRS_MAX: usize = 4_000_000;

/// A piece of a changed text, hidden characters written out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Piece {
    /// What became of it.
    pub(super) op: Op,
    /// The text.
    pub(super) text: String,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Op {
    /// It stayed.
    Same,
    /// It was taken out.
    Removed,
    /// It was put in.
    Added,
}

/// Compares two texts.
pub(super) fn between(before: &str, after: &str) -> Vec<Piece> {
    pieces(&words(before), &words(after))
}

/// Compares two lists of texts.
pub(super) fn pieces<T: AsRef<str> + PartialEq>(before: &[T], after: &[T]) -> Vec<Piece> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (before_rest, after_rest) = (before.get(head..).unwrap_or_default(), after.get(head..).unwrap_or_default());
    let tail = before_rest.iter().rev().zip(after_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, kept_tail) = before_rest.split_at(before_rest.len() - tail);
    let (new, _) = after_rest.split_at(after_rest.len() - tail);
    let mut out = Vec::new();
    for word in before.get(..head).unwrap_or_default() {
        push(&mut out, Op::Same, word.as_ref());
    }
    middle(&mut out, old, new);
    for word in kept_tail {
        push(&mut out, Op::Same, word.as_ref());
    }
    for piece in &mut out {
        piece.text = visible(&piece.text);
    }
    out
}

fn middle<T: AsRef<str> + PartialEq>(out: &mut Vec<Piece>, old: &[T], new: &[T]) {
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > PAIRS_MAX {
        old.iter().for_each(|word| push(out, Op::Removed, word.as_ref()));
        new.iter().for_each(|word| push(out, Op::Added, word.as_ref()));
        return;
    }
    // common[i * width + j]: the longest common run of old[i..] and new[j..].
    let mut common = vec![0u32; (old.len() + 1) * width];
    let at = |common: &[u32], i: usize, j: usize| common.get(i * width + j).copied().unwrap_or(0);
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let best =
                if a == b { at(&common, i + 1, j + 1) + 1 } else { at(&common, i + 1, j).max(at(&common, i, j + 1)) };
            if let Some(slot) = common.get_mut(i * width + j) {
                *slot = best;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    loop {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => {
                push(out, Op::Same, a.as_ref());
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), b) if b.is_none() || at(&common, i + 1, j) >= at(&common, i, j + 1) => {
                push(out, Op::Removed, a.as_ref());
                i += 1;
            }
            (_, Some(b)) => {
                push(out, Op::Added, b.as_ref());
                j += 1;
            }
            _ => return,
        }
    }
}

fn push(out: &mut Vec<Piece>, op: Op, text: &str) {
    match out.last_mut() {
        Some(last) if last.op == op => last.text.push_str(text),
        _ => out.push(Piece { op, text: text.to_owned() }),
    }
}

/// A text in words, spaces and single other characters; together they are the text.
fn words(text: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut words = Vec::new();
    let (mut start, mut last) = (0, None);
    for (at, c) in text.char_indices() {
        if last.is_some_and(|last| last != kind(c) || last == 2) {
            words.extend(text.get(start..at));
            start = at;
        }
        last = Some(kind(c));
    }
    words.extend(text.get(start..).filter(|rest| !rest.is_empty()));
    words
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

    use proptest::prelude::*;

    use super::{Op, between};

    fn show(before: &str, after: &str) -> String {
        between(before, after)
            .iter()
            .map(|piece| match piece.op {
                Op::Same => piece.text.clone(),
                Op::Removed => format!("[-{}-]", piece.text),
                Op::Added => format!("{{+{}+}}", piece.text),
            })
            .collect()
    }

    #[test]
    fn words_are_what_changes() {
        for (before, after, shown) in [
            ("Pay a bill.", "Pay a bill.", "Pay a bill."),
            ("Pay a bill.", "Pay a debt.", "Pay a [-bill-]{+debt+}."),
            ("Pay a bill.", "Pay a bill. Also tell Eve.", "Pay a bill.{+ Also tell Eve.+}"),
            ("Pay a bill.", "Pay a bill.\u{200b}", "Pay a bill.{+⟨U+200B⟩+}"),
            ("", "new", "{+new+}"),
            ("old", "", "[-old-]"),
            ("a b c d", "a c d e", "a [-b -]c d{+ e+}"),
        ] {
            assert_eq!(show(before, after), shown);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_texts_can_be_read_back(before in "[ab .]{0,24}", after in "[ab .]{0,24}") {
            let pieces = between(&before, &after);
            let keep = |out: Op| pieces.iter().filter(|p| p.op != out).map(|p| p.text.as_str()).collect::<String>();
            prop_assert_eq!(keep(Op::Added), before);
            prop_assert_eq!(keep(Op::Removed), after);
        }
    }
}
