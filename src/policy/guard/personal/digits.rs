//! Runs of ASCII digits, and what stands beside them.

/// Bytes that are looked at together.
const BLOCK: usize = u64::BITS as usize;
/// The highest bit of each byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The runs of digits in a text, one after the other.
pub(super) struct Runs<'t> {
    text: &'t [u8],
    /// Where the block starts that is looked at.
    block: usize,
    /// A bit for each byte of the block: whether it is a digit that has not been passed.
    digits: u64,
}

impl<'t> Runs<'t> {
    /// All runs of `text`.
    pub(super) fn of(text: &'t [u8]) -> Self {
        Self { text, block: 0, digits: digits_at(text, 0) }
    }

    /// Passes over what stands before `at`.
    pub(super) fn skip_to(&mut self, at: usize) {
        if at < self.block + BLOCK {
            self.digits &= u64::MAX << at.saturating_sub(self.block);
        } else {
            self.block = at;
            self.digits = digits_at(self.text, at);
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        while self.digits == 0 {
            self.block += BLOCK;
            if self.block >= self.text.len() {
                return None;
            }
            self.digits = digits_at(self.text, self.block);
        }
        let offset = self.digits.trailing_zeros() as usize;
        let len = (self.digits >> offset).trailing_ones() as usize;
        let start = self.block + offset;
        // A run that reaches the end of the block may go on in the next.
        let run = if offset + len < BLOCK { Run { start, end: start + len } } else { Run::at(self.text, start) };
        self.skip_to(run.end);
        Some(run)
    }
}

/// A run of digits that no digit stands before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Offset of its first digit.
    pub(super) start: usize,
    /// Offset after its last digit.
    pub(super) end: usize,
}

impl Run {
    /// The run that starts at `start`.
    pub(super) fn at(text: &[u8], start: usize) -> Self {
        let rest = text.get(start..).unwrap_or_default();
        let len = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        Self { start, end: start + len }
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

/// A bit for each byte of the block at `at`: whether it is a digit. Beyond the text's end there are none.
fn digits_at(text: &[u8], at: usize) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    if let Some(block) = rest.first_chunk() {
        return digits_of(block);
    }
    let mut block = [0; BLOCK];
    block.iter_mut().zip(rest).for_each(|(byte, other)| *byte = *other);
    digits_of(&block)
}

fn digits_of(block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks();
    words.iter().rev().fold(0, |bits, word| bits << 8 | digits_of_word(u64::from_le_bytes(*word)))
}

const fn digits_of_word(word: u64) -> u64 {
    // A digit becomes 0 to 9. Adding 118 to seven bits, which carries into no other byte, sets the highest of all but these.
    let offset = word ^ 0x3030_3030_3030_3030;
    let digits = !(((offset & !HIGH) + 0x7676_7676_7676_7676) | offset) & HIGH;
    // The product moves the bit of each byte next to those of the others.
    (digits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
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
        ], 0..200), from in 0..220usize) {
            let is_digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
            let end = |start| (start..).find(|&at| !is_digit(at)).unwrap();
            let starts = |at: &usize| is_digit(*at) && (*at == from || at.checked_sub(1).is_none_or(|at| !is_digit(at)));
            let naive: Vec<Run> = (from..text.len()).filter(starts).map(|start| Run { start, end: end(start) }).collect();
            let mut runs = Runs::of(&text);
            runs.skip_to(from);
            prop_assert_eq!(runs.collect::<Vec<_>>(), naive);
        }
    }
}
