//! US social security numbers: `AAA-GG-SSSS` with the rules on each part; without hyphens only where the text says so.

use std::ops::Range;

use super::digits::{Run, byte, byte_before, ends_number, number, starts_number};

/// How far back a word such as `SSN` may stand, in bytes.
const CONTEXT_BYTES: usize = 40;

/// Whether a number may start with this run.
pub(super) const fn may_start(run: Run) -> bool {
    run.len() == 3 || run.len() == 9
}

/// The number that starts with `run`.
pub(super) fn read(text: &[u8], run: Run) -> Option<Range<usize>> {
    let before = byte_before(text, run.start);
    if !starts_number(text, run.start) || before == Some(b'-') || before == Some(b'+') {
        return None;
    }
    let (end, is_hyphenated) = if run.len() == 9 {
        (run.end, false)
    } else {
        let (separator, group) = run.next(text, b"- ")?;
        let (_, serial) = group.next(text, &[separator])?;
        if group.len() != 2 || serial.len() != 4 {
            return None;
        }
        (serial.end, separator == b'-')
    };
    let goes_on = byte(text, end) == Some(b'-') && byte(text, end + 1).is_some_and(|byte| byte.is_ascii_alphanumeric());
    let digits = number(text.get(run.start..end)?)?;
    let fits = ends_number(text, end) && !goes_on && is_assignable(digits);
    (fits && (is_hyphenated || has_context(text, run.start))).then_some(run.start..end)
}

/// Area not 000, 666 or 900 and above; group not 00; serial not 0000.
const fn is_assignable(digits: u64) -> bool {
    let (area, group, serial) = (digits / 1_000_000, digits / 10_000 % 100, digits % 10_000);
    area != 0 && area != 666 && area < 900 && group != 0 && serial != 0
}

fn has_context(text: &[u8], start: usize) -> bool {
    let window = text.get(start.saturating_sub(CONTEXT_BYTES)..start).unwrap_or_default().to_ascii_lowercase();
    memchr::memmem::find(&window, b"ssn").is_some() || memchr::memmem::find(&window, b"social").is_some()
}
