//! What an expression can't say of a secret: checksums, decoding, entropy, placeholders.
//!
//! Each check sees the whole text, the secret's range and the rule's whole match, and answers whether it is a match.
//! Checks read a bounded number of bytes round their match. They know neither rules nor JSON.

use std::ops::Range;

use super::rules::Check;

/// The check of the secret rule `id`; rules without one pass.
pub(super) fn of_secret(id: &str) -> Check {
    match id {
        "github-personal-access-token"
        | "github-oauth-token"
        | "github-user-token"
        | "github-app-token"
        | "github-refresh-token" => checksummed,
        "npm-token" => |text, secret, whole| checksummed(text, secret, whole) && has_digit(slice(text, secret)),
        "mailchimp-api-key" | "twilio-api-key" | "sendgrid-api-key" => {
            |text, secret, _| digits(slice(text, secret)) >= 3
        }
        "jwt" => jwt,
        "private-key" => private_key,
        "database-url" => database_url,
        "basic-auth-url" => basic_auth_url,
        "bearer-token" => bearer,
        "basic-credentials" => basic,
        "live-key" => live_key,
        "sk-key" | "sk-live-key" => |text, secret, _| !is_one_letter(tail(slice(text, secret), b'-')),
        "telegram-bot-token" => telegram,
        "query-credential" => |text, secret, _| has_digit(slice(text, secret)),
        "slack-token" => |text, _, whole| has_digit(slice(text, whole)),
        _ => passes,
    }
}

/// A match is a match.
pub(super) fn passes(_: &[u8], _: &Range<usize>, _: &Range<usize>) -> bool {
    true
}

/// Shannon entropy of the bytes' own distribution, in bits a byte.
pub(super) fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for &byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(byte)) {
            *count += 1;
        }
    }
    let total = u32::try_from(bytes.len()).map_or(f64::MAX, f64::from).max(1.0);
    let bits = |count: u32| {
        let share = f64::from(count) / total;
        -share * share.log2()
    };
    counts.iter().filter(|&&count| count > 0).map(|&count| bits(count)).sum()
}

fn slice<'t>(text: &'t [u8], range: &Range<usize>) -> &'t [u8] {
    text.get(range.clone()).unwrap_or_default()
}

fn tail(bytes: &[u8], separator: u8) -> &[u8] {
    bytes.rsplit(|&byte| byte == separator).next().unwrap_or_default()
}

fn has_digit(bytes: &[u8]) -> bool {
    bytes.iter().any(u8::is_ascii_digit)
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| byte.is_ascii_digit()).count()
}

/// `xxxx…`: how people leave a place for a key.
fn is_one_letter(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'x' | b'X' | b'_' | b'-' | b'.' | b'*'))
}

/// Prefix, 30 random characters, and their CRC-32 in six base 62 digits (public since 2021). Where the checksum is right
/// nothing else counts; where it is not, it must at least look random: a mistyped or a truncated token leaks as well.
fn checksummed(text: &[u8], secret: &Range<usize>, _: &Range<usize>) -> bool {
    let body = slice(text, secret).splitn(2, |&byte| byte == b'_').nth(1).unwrap_or_default();
    let has_checksum = body.split_at_checked(30).is_some_and(|(random, sum)| sum == base62(crc32(random)));
    has_checksum || entropy(body) >= 3.0
}

/// CRC-32 as in IEEE 802.3.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// Six digits of base 62, with zeros in front.
pub(super) fn base62(mut number: u32) -> [u8; 6] {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut out = [b'0'; 6];
    for slot in out.iter_mut().rev() {
        *slot = DIGITS.get((number % 62) as usize).copied().unwrap_or(b'0');
        number /= 62;
    }
    out
}

/// Bytes of a base64 text (either alphabet); whatever is in neither alphabet is skipped, as lenient decoders do.
pub(super) fn base64_bytes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut bits, mut held) = (0u32, 0u32);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => continue,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from((bits >> held) & 0xff).unwrap_or_default());
        }
    }
    out
}

/// The header decodes to a JSON object that names an algorithm.
fn jwt(text: &[u8], secret: &Range<usize>, _: &Range<usize>) -> bool {
    let token = slice(text, secret);
    let header = token.split(|&byte| byte == b'.').next().unwrap_or_default();
    let header = header.get(..4096).unwrap_or(header);
    let decoded = base64_bytes(header);
    decoded.starts_with(b"{") && memchr::memmem::find(&decoded, b"\"alg\"").is_some()
}

/// Somewhere in it there is a line of key, not only the words `BEGIN PRIVATE KEY`.
fn private_key(text: &[u8], _: &Range<usize>, whole: &Range<usize>) -> bool {
    let mut run = 0;
    slice(text, whole).iter().any(|byte| {
        run = if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') { run + 1 } else { 0 };
        run >= 32
    })
}

fn database_url(text: &[u8], secret: &Range<usize>, whole: &Range<usize>) -> bool {
    has_database_scheme(text, whole.start) && is_url_password(text, secret)
}

fn basic_auth_url(text: &[u8], secret: &Range<usize>, whole: &Range<usize>) -> bool {
    let scheme = scheme_before(text, whole.start);
    !scheme.is_empty() && !has_database_scheme(text, whole.start) && is_url_password(text, secret)
}

fn scheme_before(text: &[u8], end: usize) -> &[u8] {
    let before = text.get(..end).unwrap_or_default();
    let window = before.get(before.len().saturating_sub(24)..).unwrap_or_default();
    let start = window
        .iter()
        .rposition(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')))
        .map_or(0, |at| at + 1);
    window.get(start..).unwrap_or_default()
}

fn has_database_scheme(text: &[u8], end: usize) -> bool {
    const SCHEMES: [&[u8]; 17] = [
        b"postgres",
        b"postgresql",
        b"mysql",
        b"mysql2",
        b"mariadb",
        b"mongodb",
        b"redis",
        b"rediss",
        b"valkey",
        b"amqp",
        b"amqps",
        b"mssql",
        b"sqlserver",
        b"clickhouse",
        b"cockroachdb",
        b"oracle",
        b"nats",
    ];
    let scheme = scheme_before(text, end).to_ascii_lowercase();
    let scheme = scheme.split(|&byte| byte == b'+').next().unwrap_or_default();
    SCHEMES.contains(&scheme)
}

/// Not a variable, not a row of stars.
fn is_url_password(text: &[u8], secret: &Range<usize>) -> bool {
    let password = slice(text, secret);
    let is_variable = password.iter().any(|byte| matches!(byte, b'{' | b'}' | b'$' | b'[' | b']' | b'(' | b')'));
    !is_variable && !is_one_letter(password)
}

/// Long enough, and no word of prose (`Bearer authentication`) or of a manual (`Bearer YOUR_ACCESS_TOKEN`).
fn bearer(text: &[u8], secret: &Range<usize>, _: &Range<usize>) -> bool {
    let token = slice(text, secret);
    let digits = digits(token);
    let is_shout = token.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'-' | b'.'));
    let is_lower =
        token.iter().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'.' | b'/' | b'_' | b'='));
    if is_one_letter(token) || is_shout {
        return false;
    }
    if digits >= 2 {
        return true;
    }
    let is_prose = is_lower && token.iter().any(|byte| !byte.is_ascii_lowercase());
    token.len() >= 16 && !is_prose && entropy(token) >= 3.4
}

/// Decodes to printable `user:password`.
fn basic(text: &[u8], secret: &Range<usize>, _: &Range<usize>) -> bool {
    let decoded = base64_bytes(slice(text, secret));
    decoded.iter().position(|&byte| byte == b':').is_some_and(|at| at > 0 && at + 1 < decoded.len())
        && std::str::from_utf8(&decoded).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// A short lower-case prefix stands before it, and it is none of the keys that are meant to be public.
fn live_key(text: &[u8], secret: &Range<usize>, whole: &Range<usize>) -> bool {
    let before = text.get(..whole.start).unwrap_or_default();
    let window = before.get(before.len().saturating_sub(12)..).unwrap_or_default();
    let start = window.iter().rposition(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').map_or(0, |at| at + 1);
    let prefix = window.get(start..).unwrap_or_default();
    let digits = digits(slice(text, secret));
    (1..=10).contains(&prefix.len()) && !prefix.starts_with(b"pk") && prefix.is_ascii() && digits >= 2
}

/// Eight to ten digits of the bot's id stand before the colon.
fn telegram(text: &[u8], _: &Range<usize>, whole: &Range<usize>) -> bool {
    let before = text.get(..whole.start).unwrap_or_default();
    (8..=10).contains(&before.iter().rev().take(11).take_while(|byte| byte.is_ascii_digit()).count())
}
