//! Runs of ASCII digits, and what stands beside them.

/// Bytes that are looked at together, as one number.
const WORD: usize = size_of::<u64>();
/// The highest bit of each byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A run of digits that no digit stands before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Offset of its first digit.
    pub(super) start: usize,
    /// Offset after its last digit.
    pub(super) end: usize,
}

impl Run {
    /// The first run of which a digit stands at or after `from`, from there on.
    pub(super) fn first(text: &[u8], from: usize) -> Option<Self> {
        let mut at = from;
        while let Some(digits) = digits_at(text, at) {
            if digits != 0 {
                let offset = first_byte(digits);
                // Most runs end within the word. One that reaches its end is read anew.
                let len = first_byte((digits >> (8 * offset)) ^ HIGH);
                let start = at + offset;
                return Some(if offset + len < WORD {
                    Self { start, end: start + len }
                } else {
                    Self::at(text, start)
                });
            }
            at += WORD;
        }
        let start = at + text.get(at..)?.iter().position(u8::is_ascii_digit)?;
        Some(Self::at(text, start))
    }

    /// The run that starts at `start`.
    pub(super) fn at(text: &[u8], start: usize) -> Self {
        let mut end = start;
        while let Some(digits) = digits_at(text, end) {
            if digits != HIGH {
                return Self { start, end: end + first_byte(digits ^ HIGH) };
            }
            end += WORD;
        }
        let rest = text.get(end..).unwrap_or_default();
        Self { start, end: end + rest.iter().take_while(|byte| byte.is_ascii_digit()).count() }
    }

    /// How many digits it has.
    pub(super) const fn len(self) -> usize {
        self.end - self.start
    }

    /// The run that stands one separator further on, if it is one of `separators`.
    pub(super) fn next(self, text: &[u8], separators: &[u8]) -> Option<(u8, Self)> {
        let separator = byte(text, self.end).filter(|byte| separators.contains(byte))?;
        let next = Self::at(text, self.end + 1);
        (next.len() > 0).then_some((separator, next))
    }
}

/// The highest bit of each byte that is a digit, of the word at `at`; none if the text ends within it.
fn digits_at(text: &[u8], at: usize) -> Option<u64> {
    let word = u64::from_le_bytes(*text.get(at..)?.first_chunk()?);
    // A digit becomes 0 to 9. Adding 118 to seven bits, which carries into no other byte, sets the highest of all but these.
    let offset = word ^ 0x3030_3030_3030_3030;
    Some(!(((offset & !HIGH) + 0x7676_7676_7676_7676) | offset) & HIGH)
}

/// Which byte of the word the lowest of these bits stands in.
const fn first_byte(bits: u64) -> usize {
    bits.trailing_zeros() as usize / 8
}

/// The byte at `at`.
pub(super) fn byte(text: &[u8], at: usize) -> Option<u8> {
    text.get(at).copied()
}

/// The byte before `at`.
pub(super) fn byte_before(text: &[u8], at: usize) -> Option<u8> {
    at.checked_sub(1).and_then(|at| text.get(at)).copied()
}

/// Whether a word goes on with this byte.
pub(super) fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether what ends at `end` is the whole number: no word, and no decimals, go on there.
pub(super) fn ends_number(text: &[u8], end: usize) -> bool {
    let next = byte(text, end);
    let has_decimals = next == Some(b'.') && byte(text, end + 1).is_some_and(|byte| byte.is_ascii_digit());
    !(is_word(next) || has_decimals)
}

/// Whether a number starts at `start`: no word goes on there, and it is no decimal part.
pub(super) fn starts_number(text: &[u8], start: usize) -> bool {
    let before = byte_before(text, start);
    let is_decimal = matches!(before, Some(b'.' | b','))
        && start.checked_sub(2).and_then(|at| byte(text, at)).is_some_and(|byte| byte.is_ascii_digit());
    !is_word(before) && !is_decimal
}

/// The digits of a text as one number; other bytes are skipped. None past 18 digits.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let mut digits = 0u32;
    let mut value = 0u64;
    for byte in text.iter().filter(|byte| byte.is_ascii_digit()) {
        digits += 1;
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    }
    (digits <= 18).then_some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_those_that_a_look_at_each_byte_finds(text in prop::collection::vec(prop_oneof![
            3 => b'0'..=b'9', 1 => prop::sample::select(&b"/:\xb0\xb9\x00\x7f\xff "[..]), 1 => any::<u8>(),
        ], 0..40), from in 0..48usize) {
            let end = |start| (start..text.len()).find(|&at| !text[at].is_ascii_digit()).unwrap_or(text.len().max(start));
            let digit = (from..text.len()).find(|&at| text[at].is_ascii_digit());
            prop_assert_eq!(Run::first(&text, from), digit.map(|start| Run { start, end: end(start) }));
            prop_assert_eq!(Run::at(&text, from), Run { start: from, end: end(from) });
        }
    }
}
