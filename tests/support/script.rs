//! Answers as text with macros, so that a hostile server is a line of a table.
//!
//! | macro | does |
//! |---|---|
//! | `${ID}` | the id that the gateway sent, as JSON |
//! | `${LEN}` | length of the JSON document after the head |
//! | `${rep N X}` | X, N times |
//! | `${bytewise}` | what follows is written one byte at a time |
//! | `${drip MS}` | what follows one byte each MS; at the end of the text: spaces for ever |
//! | `${every MS X}` | X each MS, for ever |
//! | `${flush}` | a boundary between two writes |
//! | `${gzip_zeros N}` | gzip of N zero bytes |
//! | `${gate NAME}` | waits until the test opens the gate |
//! | `${stall}` | silence for ever |
//! | `${close}`, `${reset}` | ends the connection with a FIN, with a reset |

use std::io::Write;

use super::http::find;

/// One act of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes bytes, and flushes.
    Bytes(Vec<u8>),
    /// Writes bytes so many times.
    Repeat(usize, Vec<u8>),
    /// Writes one byte after the other.
    Bytewise(Vec<u8>),
    /// Writes a byte each so many milliseconds; when empty, spaces for ever.
    Drip(u64, Vec<u8>),
    /// Writes the bytes each so many milliseconds, for ever.
    Every(u64, Vec<u8>),
    /// Waits for the gate of that name.
    Gate(String),
    /// Waits for the peer to go away.
    Stall,
    /// Ends with a FIN.
    Close,
    /// Ends with a reset.
    Reset,
}

impl Step {
    /// How many bytes this step sends; none when there is no end to it.
    fn length(&self) -> Option<usize> {
        match self {
            Self::Bytes(bytes) | Self::Bytewise(bytes) => Some(bytes.len()),
            Self::Repeat(times, bytes) => Some(times * bytes.len()),
            Self::Drip(_, bytes) if !bytes.is_empty() => Some(bytes.len()),
            Self::Gate(_) => Some(0),
            _ => None,
        }
    }
}

/// How many bytes a script sends; none when it does not end in an orderly way.
pub fn length(steps: &[Step]) -> Option<usize> {
    steps.iter().map(Step::length).sum()
}

/// Replaces `${NAME}` by the value of each pair.
pub fn substitute(text: &[u8], values: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = text.to_vec();
    for (name, value) in values {
        let mark = format!("${{{name}}}");
        let mut from = 0;
        while let Some(at) = find(&out[from..], mark.as_bytes()) {
            out.splice(from + at..from + at + mark.len(), value.iter().copied());
            from += at + value.len();
        }
    }
    out
}

/// Fills `${LEN}` in: the length of the first JSON document behind the blank line, or of all that follows it.
pub fn fill_length(text: &[u8]) -> Vec<u8> {
    let Some(body) = find(text, b"\r\n\r\n").map(|at| &text[at + 4..]) else { return text.to_vec() };
    let mut documents = serde_json::Deserializer::from_slice(body).into_iter::<serde::de::IgnoredAny>();
    let length = match documents.next() {
        Some(Ok(_)) => documents.byte_offset(),
        _ => body.len(),
    };
    substitute(text, &[("LEN", length.to_string().as_bytes())])
}

/// Reads a script; panics at a macro that it does not know.
pub fn parse(text: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = text;
    let mut literal: fn(Vec<u8>) -> Step = Step::Bytes;
    let mut drip = None;
    let push = |steps: &mut Vec<Step>, bytes: &[u8], drip: Option<u64>, literal: fn(Vec<u8>) -> Step| {
        if !bytes.is_empty() {
            steps.push(drip.map_or_else(|| literal(bytes.to_vec()), |ms| Step::Drip(ms, bytes.to_vec())));
        }
    };
    while let Some(at) = find(rest, b"${") {
        push(&mut steps, &rest[..at], drip, literal);
        let end = at + 2 + closing(&rest[at + 2..]);
        let inside = &rest[at + 2..end];
        rest = &rest[end + 1..];
        let (name, argument) = split(inside);
        match name {
            "flush" => {}
            "bytewise" => literal = Step::Bytewise,
            "drip" => drip = Some(number(argument)),
            _ => steps.push(step(name, argument)),
        }
    }
    push(&mut steps, rest, drip, literal);
    if let (Some(ms), true) = (drip, rest.is_empty()) {
        steps.push(Step::Drip(ms, Vec::new()));
    }
    steps
}

/// Expands a script that only has bytes and repetitions.
pub fn expand(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for step in parse(text) {
        match step {
            Step::Bytes(bytes) => out.extend(bytes),
            Step::Repeat(times, bytes) => out.extend(bytes.repeat(times)),
            other => panic!("{other:?} has no fixed bytes"),
        }
    }
    out
}

fn step(name: &str, argument: &[u8]) -> Step {
    match name {
        "rep" => {
            let (times, bytes) = split(argument);
            Step::Repeat(number(times.as_bytes()), bytes.to_vec())
        }
        "every" => {
            let (ms, bytes) = split(argument);
            Step::Every(number(ms.as_bytes()), bytes.to_vec())
        }
        "gzip_zeros" => gzip_zeros(number(argument)),
        "gate" => Step::Gate(String::from_utf8(argument.to_vec()).expect("a name")),
        "stall" => Step::Stall,
        "close" | "close_after_send" => Step::Close,
        "reset" => Step::Reset,
        other => panic!("no macro is called {other:?}"),
    }
}

/// The word before the first space, and what follows that space.
fn split(text: &[u8]) -> (&str, &[u8]) {
    let at = text.iter().position(|&b| b == b' ').unwrap_or(text.len());
    let word = std::str::from_utf8(&text[..at]).expect("a macro's name");
    (word, text.get(at + 1..).unwrap_or_default())
}

fn number<N: std::str::FromStr>(text: &[u8]) -> N {
    let text = std::str::from_utf8(text).expect("digits");
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// The index of the brace that closes the one before `text`.
fn closing(text: &[u8]) -> usize {
    let mut open = 1;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return at;
        }
    }
    // `${rep 200 }}` repeats a closing brace, `${rep 200 [}` an opening bracket.
    text.iter().position(|&b| b == b'}').expect("a closing brace")
}

/// Gzip of so many zeros, rounded up to whole members of at most 1 MiB.
fn gzip_zeros(count: usize) -> Step {
    let piece = vec![0u8; count.min(1 << 20)];
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&piece).expect("memory");
    Step::Repeat(count.div_ceil(piece.len().max(1)), encoder.finish().expect("memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_become_steps() {
        let cases: &[(&str, Vec<Step>)] = &[
            ("ab", vec![Step::Bytes(b"ab".to_vec())]),
            ("a${flush}b", vec![Step::Bytes(b"a".to_vec()), Step::Bytes(b"b".to_vec())]),
            ("${rep 3 {\"a\":{}},}x", vec![Step::Repeat(3, b"{\"a\":{}},".to_vec()), Step::Bytes(b"x".to_vec())]),
            ("${rep 2 [}${rep 2 ]}", vec![Step::Repeat(2, b"[".to_vec()), Step::Repeat(2, b"]".to_vec())]),
            ("${bytewise}ab", vec![Step::Bytewise(b"ab".to_vec())]),
            ("{${drip 500}", vec![Step::Bytes(b"{".to_vec()), Step::Drip(500, Vec::new())]),
            ("${drip 5}ab", vec![Step::Drip(5, b"ab".to_vec())]),
            ("${every 1000 : k\n\n}", vec![Step::Every(1000, b": k\n\n".to_vec())]),
            ("x${close}", vec![Step::Bytes(b"x".to_vec()), Step::Close]),
        ];
        for (text, expected) in cases {
            assert_eq!(&parse(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_length_is_that_of_the_first_document() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: ${LEN}\r\n\r\n{\"a\":1}HTTP/1.1 200 OK\r\n\r\nxx";
        assert!(find(&fill_length(text), b"Content-Length: 7\r\n").is_some());
        assert!(find(&fill_length(b"Content-Length: ${LEN}\r\n\r\nno json"), b": 7\r\n").is_some());
    }

    #[test]
    fn zeros_inflate() {
        let Step::Repeat(2, member) = gzip_zeros(2 << 20) else { panic!("two members") };
        let mut out = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&member[..]), &mut out).expect("gzip");
        assert_eq!(out, vec![0; 1 << 20]);
    }
}
