//! Runs of ASCII digits, and what stands beside them.

/// Bytes that are looked at together: the compiler makes one vector operation of it.
const STRIDE: usize = 32;

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

/// The first digit at or after `from`.
pub(super) fn next_digit(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(chunk) = text.get(at..at + STRIDE) {
        if chunk.iter().fold(false, |any, byte| any | byte.is_ascii_digit()) {
            break;
        }
        at += STRIDE;
    }
    text.get(at..)?.iter().position(u8::is_ascii_digit).map(|found| at + found)
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
