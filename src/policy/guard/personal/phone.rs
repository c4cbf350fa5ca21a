//! Phone numbers: international with `+` and a country code that exists, or in North American layout.

use std::ops::Range;

use super::digits::{Run, byte, byte_before, is_word, number};

/// With the country code; a few small countries have fewer, and so have many numbers that are none.
const DIGITS_MIN: usize = 10;
const DIGITS_MAX: usize = 15;
/// Country codes (ITU-T E.164) by their first two digits. Those of two digits:
const TWO_DIGIT_CODES: [u64; 44] = [
    20, 27, 30, 31, 32, 33, 34, 36, 39, 40, 41, 43, 44, 45, 46, 47, 48, 49, 51, 52, 53, 54, 55, 56, 57, 58, 60, 61, 62,
    63, 64, 65, 66, 81, 82, 84, 86, 90, 91, 92, 93, 94, 95, 98,
];
/// Those of three digits: the first two, and the last ones that are in use.
const THREE_DIGIT_CODES: [(u64, &[u8]); 19] = [
    (21, b"12368"),
    (22, b"0123456789"),
    (23, b"0123456789"),
    (24, b"0123456789"),
    (25, b"012345678"),
    (26, b"012345689"),
    (29, b"01789"),
    (35, b"0123456789"),
    (37, b"012345678"),
    (38, b"01235679"),
    (42, b"013"),
    (50, b"0123456789"),
    (59, b"0123456789"),
    (67, b"02345679"),
    (68, b"012356789"),
    (85, b"02356"),
    (88, b"06"),
    (96, b"012345678"),
    (97, b"01234567"),
];

/// Whether a number may start with this run; `before` is the byte before it.
pub(super) fn may_start(text: &[u8], run: Run, before: u8) -> bool {
    match before {
        b'+' => true,
        b'(' => run.len() == 3 || byte_before(text, run.start - 1) == Some(b'+'),
        _ => run.len() == 3 || (run.len() == 1 && byte(text, run.start) == Some(b'1')),
    }
}

/// The number that starts with `run`.
pub(super) fn read(text: &[u8], run: Run) -> Option<Range<usize>> {
    if byte_before(text, run.start) == Some(b'+') {
        return international(text, run);
    }
    north_american(text, run)
}

fn international(text: &[u8], run: Run) -> Option<Range<usize>> {
    let start = run.start - 1;
    if is_word(byte_before(text, start)) {
        return None;
    }
    let (mut end, mut digits, mut best) = (run.end, run.len(), None);
    loop {
        if digits > DIGITS_MAX {
            break;
        }
        if digits >= DIGITS_MIN && !is_word(byte(text, end).filter(|byte| *byte != b'x')) {
            best = Some(end);
        }
        let Some(next) = after_separators(text, end) else { break };
        digits += next.len();
        end = next.end;
    }
    let end = best?;
    let plain: Vec<u8> = text.get(start..end)?.iter().copied().filter(u8::is_ascii_digit).collect();
    if plain.first() == Some(&b'1') {
        return (plain.len() == 11 && is_nanp(plain.get(1..)?)).then_some(start..end);
    }
    let two = number(plain.get(..2)?)?;
    let third = plain.get(2)?;
    let is_code = plain.first() == Some(&b'7')
        || TWO_DIGIT_CODES.contains(&two)
        || THREE_DIGIT_CODES.iter().any(|(start, last)| *start == two && last.contains(third))
        || (two == 99 && b"234568".contains(third));
    is_code.then_some(start..end)
}

/// The digits after one or two of the separators that people write in phone numbers.
fn after_separators(text: &[u8], end: usize) -> Option<Run> {
    let rest = text.get(end..)?;
    let skipped =
        rest.iter().take(3).take_while(|byte| matches!(byte, b' ' | b'-' | b'.' | b'(' | b')' | b'/')).count();
    if skipped == 0 || skipped > 2 {
        return None;
    }
    let run = Run::at(text, end + skipped);
    (run.len() > 0).then_some(run)
}

/// `(415) 555-0132`, `415-555-0132`, `415.555.0132`, each also after `1` and a separator.
fn north_american(text: &[u8], run: Run) -> Option<Range<usize>> {
    let (start, area) = if run.len() == 1 { (run.start, after_separators(text, run.end)?) } else { (run.start, run) };
    let is_in_parentheses = byte_before(text, area.start) == Some(b'(') && byte(text, area.end) == Some(b')');
    let start = if is_in_parentheses && run.len() == 3 { start - 1 } else { start };
    let before = byte_before(text, start);
    let after_number = matches!(before, Some(b'-' | b'.' | b'/'))
        && start.checked_sub(2).and_then(|at| byte(text, at)).is_some_and(|byte| byte.is_ascii_alphanumeric());
    if area.len() != 3 || is_word(before) || after_number || before == Some(b'+') {
        return None;
    }
    let (exchange, separator) = if is_in_parentheses {
        (after_separators(text, area.end)?, b'-')
    } else {
        let (separator, exchange) = area.next(text, b"-.")?;
        (exchange, separator)
    };
    let (_, line) = exchange.next(text, &[separator, b'.', b'-'])?;
    let goes_on =
        byte(text, line.end) == Some(b'-') && byte(text, line.end + 1).is_some_and(|byte| byte.is_ascii_digit());
    let plain: Vec<u8> = text.get(area.start..line.end)?.iter().copied().filter(u8::is_ascii_digit).collect();
    let fits = exchange.len() == 3
        && line.len() == 4
        && !goes_on
        && !is_word(byte(text, line.end).filter(|byte| *byte != b'x'))
        && is_nanp(&plain);
    fits.then_some(start..line.end)
}

/// Ten digits: area and exchange start with 2 to 9, the exchange is no service code.
fn is_nanp(digits: &[u8]) -> bool {
    let [a, b, _, c, d, e, ..] = digits else { return false };
    digits.len() == 10
        && (b'2'..=b'9').contains(a)
        && *b != b'9'
        && (b'2'..=b'9').contains(c)
        && (*d, *e) != (b'1', b'1')
}
