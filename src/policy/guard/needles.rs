//! Many short byte strings, found in one pass: leftmost first, and of those that start together the longest.
//!
//! A SIMD search where the processor has one and they are few enough, at some two instructions a byte; else an automaton, at twenty.

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Match, MatchKind, packed};

/// What is looked for. Each server has its own, so it is small: the table of a full automaton would take some 250 KiB each.
#[derive(Clone)]
pub(super) enum Needles {
    /// By SIMD.
    Packed(packed::Searcher),
    /// By automaton.
    Automaton(AhoCorasick),
}

impl Needles {
    /// Prepares the search.
    ///
    /// # Errors
    /// There are too many of them for any automaton.
    pub(super) fn build(needles: &[Vec<u8>]) -> Result<Self, BuildError> {
        let mut packed = packed::Config::new().match_kind(packed::MatchKind::LeftmostLongest).builder();
        if let Some(searcher) = packed.extend(needles).build() {
            return Ok(Self::Packed(searcher));
        }
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(kind).build(needles).map(Self::Automaton)
    }

    /// Hands each place to `take`, none of which overlap.
    pub(super) fn find(&self, text: &[u8], take: impl FnMut(Match)) {
        match self {
            Self::Packed(searcher) => searcher.find_iter(text).for_each(take),
            Self::Automaton(automaton) => automaton.find_iter(text).for_each(take),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;

    /// What both ways must find.
    fn naive(needles: &[Vec<u8>], text: &[u8]) -> Vec<(usize, usize)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < text.len() {
            let longest = needles.iter().filter(|needle| text[at..].starts_with(needle)).map(Vec::len).max();
            match longest {
                Some(len) => {
                    found.push((at, at + len));
                    at += len;
                }
                None => at += 1,
            }
        }
        found
    }

    fn found(needles: &Needles, text: &[u8]) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        needles.find(text, |hit| all.push((hit.start(), hit.end())));
        all
    }

    proptest! {
        #[test]
        fn it_is_the_leftmost_longest_at_each_place(
            needles in prop::collection::vec("[ab]{2,9}", 1..160),
            text in "[abc]{0,200}",
        ) {
            let needles: Vec<Vec<u8>> = needles.into_iter().map(String::into_bytes).collect();
            let built = Needles::build(&needles).unwrap();
            prop_assert_eq!(found(&built, text.as_bytes()), naive(&needles, text.as_bytes()));
        }
    }

    #[test]
    fn few_are_packed_and_many_are_not() {
        let words =
            |count: usize| -> Vec<Vec<u8>> { (0..count).map(|n| format!("needle-{n:03}").into_bytes()).collect() };
        assert!(matches!(Needles::build(&words(200)).unwrap(), Needles::Automaton(_)));
        assert!(matches!(Needles::build(&[]).unwrap(), Needles::Automaton(_)), "nothing to look for");
        for count in [1, 20, 200] {
            assert_eq!(found(&Needles::build(&words(count)).unwrap(), b"a needle-000 b"), [(2, 12)]);
        }
    }
}
