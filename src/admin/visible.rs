//! Makes what a reader would not see visible: hidden, control and look-alike characters become `⟨U+XXXX⟩`.
//!
//! Tells nothing of meaning; used where a person reviews what a server says of its tools.

/// The text with every character that hides, moves or imitates written out. Line feeds and tabs stay; what is written out already
/// stays as it is.
#[must_use]
pub fn visible(text: &str) -> String {
    if text.is_ascii() && !text.bytes().any(|c| c.is_ascii_control() && c != b'\n' && c != b'\t') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let latin = word.chars().any(|c| c.is_ascii_alphabetic());
        for c in word.chars() {
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            let written = || format!("⟨U+{:04X}⟩", u32::from(c));
            if is_hidden(c) {
                out.push_str(&written());
            } else {
                out.push(c);
                if latin && imitates_latin(c) && !rest.starts_with(&written()) {
                    out.push_str(&written());
                }
            }
        }
    }
    out
}

/// Whether a text holds characters that a reader does not see.
pub(super) fn hides(text: &str) -> bool {
    text.chars().any(is_hidden)
}

/// Whether a word mixes Latin letters with letters that look like Latin ones.
pub(super) fn imitates(text: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric())
        .any(|word| word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(imitates_latin))
}

/// Control, format, bidi, tag, filler and unusual space characters, and code points that are for nobody.
const fn is_hidden(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}'
        | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
}

/// Letters of the scripts that Latin is imitated with: Greek, Cyrillic, Armenian, Cherokee, Lisu, fullwidth and mathematical ones.
const fn imitates_latin(c: char) -> bool {
    matches!(c,
        '\u{251}' | '\u{261}' | '\u{370}'..='\u{52f}' | '\u{531}'..='\u{586}' | '\u{13a0}'..='\u{13fd}' | '\u{1d00}'..='\u{1d7f}'
        | '\u{a4d0}'..='\u{a4f7}' | '\u{ff21}'..='\u{ff3a}' | '\u{ff41}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}')
}

#[cfg(test)]
mod tests {
    use super::{hides, imitates, visible};

    #[test]
    fn what_a_reader_does_not_see_is_written_out() {
        for (text, shown) in [
            ("Pay a bill.", "Pay a bill."),
            ("two\nlines\tand a tab", "two\nlines\tand a tab"),
            ("zero\u{200b}width", "zero⟨U+200B⟩width"),
            ("\u{202e}abc", "⟨U+202E⟩abc"),
            ("tag\u{e0041}", "tag⟨U+E0041⟩"),
            ("b\u{456}ll", "b\u{456}⟨U+0456⟩ll"),
            ("счёт", "счёт"),
            ("a\r\nb", "a⟨U+000D⟩\nb"),
            ("no\u{a0}break", "no⟨U+00A0⟩break"),
            ("naïve café", "naïve café"),
        ] {
            assert_eq!(visible(text), shown);
            assert_eq!(visible(shown), shown, "written out once");
            assert_eq!(hides(text) || imitates(text), shown.contains('⟨'), "{text:?}");
        }
    }
}
