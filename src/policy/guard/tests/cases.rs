//! Case files: `KIND SIGN TEXT` a line, `#` for comments.
//!
//! In TEXT, what must be found stands between `«` and `»`; escapes are `\n`, `\t`, `\\`, `\u{HEX}`. So that no key-like text lies
//! in the repository, secrets are made when the test runs: `{alnum:36}` and the like are random from a seed, `{luhn:411…}` adds the
//! check digit, `{iban:DE…}` the check digits, `{checksum:prefix_}` a token with its CRC, `{jwt}` a token, `{b64of:text}` encodes.

use base64::Engine as _;

use super::super::checks::{base62, crc32};

/// A line of a case file.
pub(super) struct Case {
    pub(super) line: usize,
    pub(super) kind: String,
    pub(super) sign: char,
    pub(super) text: String,
}

/// The cases of a file.
pub(super) fn read(file: &str) -> Vec<Case> {
    let path = format!("{}/tests/cases/guard/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| {
            let mut fields = line.splitn(3, ' ');
            let (kind, sign, text) =
                (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap_or_default());
            assert!(matches!(sign, "+" | "-"), "{file}:{}: the sign is + or -", at + 1);
            Case { line: at + 1, kind: kind.to_owned(), sign: sign.chars().next().unwrap(), text: text.to_owned() }
        })
        .collect()
}

/// The text with its macros and escapes carried out, and the ranges that were marked.
pub(super) fn expand(template: &str, seed: u64) -> (String, Vec<std::ops::Range<usize>>) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (mut out, mut marks, mut open) = (String::new(), Vec::new(), None);
    let mut rest = template;
    while let Some(character) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix('{')
            && let Some((inside, tail)) = after.split_once('}')
            && let Some(text) = expand_macro(inside, &mut random)
        {
            out.push_str(&text);
            rest = tail;
            continue;
        }
        if let Some(after) = rest.strip_prefix("\\u{") {
            let (hex, tail) = after.split_once('}').unwrap();
            out.push(char::from_u32(u32::from_str_radix(hex, 16).unwrap()).unwrap());
            rest = tail;
            continue;
        }
        rest = &rest[character.len_utf8()..];
        match character {
            '«' => open = Some(out.len()),
            '»' => marks.push(open.take().unwrap()..out.len()),
            '\\' => {
                let escaped = rest.chars().next().unwrap();
                rest = &rest[escaped.len_utf8()..];
                out.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    other => other,
                });
            }
            other => out.push(other),
        }
    }
    (out, marks)
}

/// xorshift64*: the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub(super) fn text(&mut self, alphabet: &str, len: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        (0..len).map(|_| letters[usize::try_from(self.next() % letters.len() as u64).unwrap()]).collect()
    }
}

fn expand_macro(inside: &str, random: &mut Random) -> Option<String> {
    const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
    const DIGITS: &str = "0123456789";
    let (name, argument) = inside.split_once(':').unwrap_or((inside, ""));
    let mut of = |alphabet: &str| argument.parse().ok().map(|len| random.text(alphabet, len));
    match name {
        "alnum" => of(&format!("{UPPER}{LOWER}{DIGITS}")),
        "upper" => of(&format!("{UPPER}{DIGITS}")),
        "base32" => of(&format!("{UPPER}234567")),
        "lower" => of(&format!("{LOWER}{DIGITS}")),
        "letters" => of(LOWER),
        "hex" => of("0123456789abcdef"),
        "digits" => of(DIGITS),
        "b64" => of(&format!("{UPPER}{LOWER}{DIGITS}+/")),
        "b64url" => of(&format!("{UPPER}{LOWER}{DIGITS}-_")),
        "pem" => argument.parse().ok().map(|lines: usize| {
            (0..lines).map(|_| format!("{}\n", random.text(&format!("{UPPER}{LOWER}{DIGITS}+/"), 64))).collect()
        }),
        "b64of" => Some(base64::engine::general_purpose::STANDARD.encode(argument)),
        "rep" => argument.split_once(':').map(|(count, text)| text.repeat(count.parse().unwrap())),
        "checksum" => {
            let body = random.text(&format!("{UPPER}{LOWER}{DIGITS}"), 30);
            let sum = base62(crc32(body.as_bytes()));
            Some(format!("{argument}{body}{}", std::str::from_utf8(&sum).unwrap()))
        }
        "jwt" => {
            let encode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
            let claims = format!(r#"{{"sub":"{}"}}"#, random.text(DIGITS, 10));
            let signature = random.text(&format!("{UPPER}{LOWER}{DIGITS}-_"), 43);
            Some(format!("{}.{}.{signature}", encode(r#"{"typ":"JWT","alg":"HS256"}"#), encode(&claims)))
        }
        "luhn" => {
            let digits: Vec<u32> = argument.chars().filter_map(|c| c.to_digit(10)).collect();
            let double = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
            let sum: u32 =
                digits.iter().rev().enumerate().map(|(at, &d)| if at % 2 == 0 { double(d) } else { d }).sum();
            Some(format!("{argument}{}", (10 - sum % 10) % 10))
        }
        "iban" => {
            let (country, account) = argument.split_at(2);
            let plain: String = account.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
            let number: String =
                format!("{plain}{country}00").chars().map(|c| c.to_digit(36).unwrap().to_string()).collect();
            let remainder = number.bytes().fold(0u32, |value, digit| (value * 10 + u32::from(digit - b'0')) % 97);
            Some(format!("{country}{:02}{account}", 98 - remainder))
        }
        _ => None,
    }
}
