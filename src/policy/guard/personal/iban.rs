//! IBANs (ISO 13616): the country's length, and the remainder 1 modulo 97.

use std::ops::Range;

use super::digits::{Run, byte, byte_before, is_word};

/// The longest IBAN with the spaces between its groups.
pub(super) const CHARACTERS_MAX: usize = 34 + 8;

/// Whether two letters stand before two digits, at the start of a word; `before` is the byte before the run.
pub(super) fn may_start(text: &[u8], run: Run, before: u8) -> bool {
    before.is_ascii_alphabetic()
        && run.len() >= 2
        && run.start >= 2
        && text.get(run.start - 2..run.start).is_some_and(|country| country.iter().all(u8::is_ascii_alphabetic))
        && !is_word(byte_before(text, run.start - 2))
}

/// The IBAN whose check digits stand at the start of `run`.
pub(super) fn read(text: &[u8], run: Run) -> Option<Range<usize>> {
    let start = run.start.checked_sub(2)?;
    let country = [text.get(start)?.to_ascii_uppercase(), text.get(start + 1)?.to_ascii_uppercase()];
    let wanted = length_of(country)?;
    let mut characters = Vec::with_capacity(wanted);
    let mut at = start;
    while characters.len() < wanted {
        let next = byte(text, at)?;
        let is_between_groups = characters.len() % 4 == 0 && !characters.is_empty() && matches!(next, b' ' | b'-');
        if next.is_ascii_alphanumeric() {
            characters.push(next.to_ascii_uppercase());
        } else if !(is_between_groups && byte(text, at + 1)?.is_ascii_alphanumeric()) {
            return None;
        }
        at += 1;
    }
    (!is_word(byte(text, at)) && remainder(&characters) == 1).then_some(start..at)
}

/// The number that the IBAN is, its first four characters moved to the end, modulo 97.
fn remainder(characters: &[u8]) -> u32 {
    let (head, rest) = characters.split_at(characters.len().min(4));
    rest.iter().chain(head).fold(0u32, |value, &byte| {
        let digit = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            _ => u32::from(byte.wrapping_sub(b'A')) + 10,
        };
        (value * if digit > 9 { 100 } else { 10 } + digit) % 97
    })
}

/// Lengths of the IBAN registry, and of the countries that use IBANs without being in it.
fn length_of(country: [u8; 2]) -> Option<usize> {
    const LENGTHS: [(&[u8], usize); 18] = [
        (b"NO", 15),
        (b"BE", 16),
        (b"DKFIFKFOGLNLSD", 18),
        (b"MKSI", 19),
        (b"ATBAEEKZLTLUMNXK", 20),
        (b"CHHRLILV", 21),
        (b"BGBHCRDEGBGEIEMERSVA", 22),
        (b"AEGIILIQOMSOTL", 23),
        (b"ADCZESMDPKROSASESKTNVG", 24),
        (b"AOCVGWLYMZPTST", 25),
        (b"DZIRISTR", 26),
        (b"BICFCGCMDJFRGAGQGRITKMMCMGMRSMTD", 27),
        (b"ALAZBFBJBYCICYDOGTHNHUMALBMLNENIPLSNSVTG", 28),
        (b"BREGPSQAUA", 29),
        (b"JOKWMUYE", 30),
        (b"MTSC", 31),
        (b"LC", 32),
        (b"RU", 33),
    ];
    LENGTHS.iter().find(|(countries, _)| countries.chunks_exact(2).any(|code| code == country)).map(|(_, len)| *len)
}
