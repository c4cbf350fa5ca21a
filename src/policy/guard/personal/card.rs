//! Payment cards: a known issuer prefix, a length that the issuer uses, and the Luhn digit.

use std::ops::Range;

use super::digits::{Run, byte, byte_before, ends_number, number, starts_number};

const DIGITS_MIN: usize = 12;
const DIGITS_MAX: usize = 19;

/// The most groups that a card is printed in.
const GROUPS_MAX: usize = 5;

/// How cards are printed in groups, longest first.
const LAYOUTS: [&[usize]; 6] =
    [&[4, 4, 4, 4, 3], &[4, 4, 4, 4, 2], &[4, 4, 4, 4, 1], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4]];

/// Whether a card may start with this run.
pub(super) const fn may_start(run: Run) -> bool {
    run.len() == 4 || (run.len() >= DIGITS_MIN && run.len() <= DIGITS_MAX)
}

/// The card that starts with `run`.
pub(super) fn read(text: &[u8], run: Run) -> Option<Range<usize>> {
    if !starts_number(text, run.start) {
        return None;
    }
    if run.len() != 4 {
        let is_card =
            !is_last_of_uuid(text, run) && ends_number(text, run.end) && is_card(text.get(run.start..run.end)?);
        return is_card.then_some(run.start..run.end);
    }
    let separator = byte(text, run.end).filter(|separator| matches!(separator, b' ' | b'-'))?;
    let mut groups = [run; GROUPS_MAX];
    let mut count = 1;
    let mut last = run;
    for group in groups.iter_mut().skip(1) {
        let Some((_, next)) = last.next(text, &[separator]) else { break };
        (*group, last) = (next, next);
        count += 1;
    }
    let groups = groups.get(..count)?;
    LAYOUTS.iter().find_map(|layout| {
        let groups = groups.get(..layout.len())?;
        let end = groups.last()?.end;
        let is_laid_out = groups.iter().zip(*layout).all(|(group, len)| group.len() == *len);
        (is_laid_out && ends_number(text, end) && is_card(text.get(run.start..end)?)).then_some(run.start..end)
    })
}

/// The last twelve of a UUID that happen to be digits.
fn is_last_of_uuid(text: &[u8], run: Run) -> bool {
    run.len() == 12
        && byte_before(text, run.start) == Some(b'-')
        && run.start.checked_sub(6).and_then(|at| byte(text, at)) == Some(b'-')
}

/// Judges digits with separators between them.
fn is_card(text: &[u8]) -> bool {
    let mut digits = [0u8; DIGITS_MAX];
    let mut len = 0;
    for value in text.iter().filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0') {
        match digits.get_mut(len) {
            Some(slot) => *slot = value,
            None => return false,
        }
        len += 1;
    }
    let digits = digits.get(..len).unwrap_or_default();
    issuer_has_length(digits) && luhn(digits)
}

/// The first digit of the check: doubled every second from the right, the sum ends in 0.
pub(super) fn luhn(digits: &[u8]) -> bool {
    let doubled = |digit: u8| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, &digit)| u32::from(if at % 2 == 1 { doubled(digit) } else { digit }))
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|&digit| digit != 0)
}

/// Issuer prefixes (ISO/IEC 7812) and the lengths in use.
fn issuer_has_length(digits: &[u8]) -> bool {
    let text: Vec<u8> = digits.iter().take(6).map(|digit| digit + b'0').collect();
    let prefix = |len: usize| text.get(..len).and_then(number).unwrap_or(0);
    let (p1, p2, p3, p4, len) = (prefix(1), prefix(2), prefix(3), prefix(4), digits.len());
    match len {
        _ if p1 == 4 => matches!(len, 13 | 16 | 19),
        _ if matches!(p2, 34 | 37) => len == 15,
        _ if p2 == 36 => matches!(len, 14 | 16),
        _ if (300..=305).contains(&p3) || p4 == 3095 || matches!(p2, 38 | 39) => len == 14,
        _ if (3528..=3589).contains(&p4) => (16..=19).contains(&len),
        _ if p2 == 35 => len == 16,
        _ if matches!(p4, 2131 | 1800) => len == 15,
        _ if (51..=55).contains(&p2) || (2221..=2720).contains(&p4) || p4 == 9792 || p2 == 81 => len == 16,
        _ if (2200..=2204).contains(&p4) => (16..=19).contains(&len),
        _ if is_maestro(p4) => matches!(len, 12 | 14 | 15 | 16 | 18 | 19),
        _ if matches!(p2, 56..=58) => (12..=19).contains(&len),
        _ if p2 == 50 => matches!(len, 16 | 18 | 19),
        _ if p4 == 6011 || (644..=649).contains(&p3) || matches!(p2, 60 | 62 | 65) => (16..=19).contains(&len),
        _ => false,
    }
}

const fn is_maestro(p4: u64) -> bool {
    matches!(p4, 5018 | 5020 | 5038 | 5893 | 6304 | 6390 | 6706 | 6709 | 6759 | 6761 | 6762 | 6763 | 6771)
}
