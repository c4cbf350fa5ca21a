//! W3C trace context: which trace a request is on, and below which span (<https://www.w3.org/TR/trace-context/>).

use std::fmt;

/// The longest `tracestate` that is passed on, in bytes: what the specification asks for.
const STATE_BYTES_MAX: usize = 512;
/// The flag by which a caller has its trace recorded.
const SAMPLED: u8 = 1;
/// The flags that the specification knows: sampled, and that the trace id is random.
const FLAGS: u8 = 3;

/// A place on a trace; as text it is a `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace's id; never 0.
    pub trace: u128,
    /// The span that the next one is below; 0: none, the trace begins here.
    pub parent: u64,
    /// `trace-flags`, those that are known.
    pub flags: u8,
    /// `tracestate`
    pub state: Option<String>,
}

impl TraceContext {
    /// Reads a `traceparent`, and the `tracestate` beside it; none if the former is malformed. The latter never counts alone, and is left
    /// out where it is empty, too long or not ASCII that can be printed.
    #[must_use]
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.split('-');
        let mut number = |digits| hex(parts.next()?, digits);
        let (version, trace, parent, flags) = (number(2)?, number(32)?, number(16)?, number(2)?);
        // A later version may go on behind the parts of this one (§4.3).
        if version == 0xff || (version == 0 && parts.next().is_some()) || trace == 0 || parent == 0 {
            return None;
        }
        let printable = |state: &&str| state.bytes().all(|c| matches!(c, b' '..=b'~'));
        let state = state.filter(|state| !state.is_empty() && state.len() <= STATE_BYTES_MAX).filter(printable);
        Some(Self {
            trace,
            parent: u64::try_from(parent).ok()?,
            flags: u8::try_from(flags).ok()? & FLAGS,
            state: state.map(str::to_owned),
        })
    }

    /// A trace that begins here and is to be recorded; `trace` was drawn at random.
    #[must_use]
    pub const fn begin(trace: u128) -> Self {
        Self { trace, parent: 0, flags: FLAGS, state: None }
    }

    /// The place below a span on the same trace.
    #[must_use]
    pub fn below(&self, span: u64) -> Self {
        Self { parent: span, ..self.clone() }
    }

    /// Whether it is to be recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.parent, self.flags)
    }
}

/// So many lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn what_is_well_formed_is_kept_and_written_as_version_0() {
        let good = format!("00-{TRACE}-{SPAN}-01");
        for (text, written) in [
            (good.clone(), good.clone()),
            (format!("00-{TRACE}-{SPAN}-00"), format!("00-{TRACE}-{SPAN}-00")),
            (format!("00-{TRACE}-{SPAN}-ff"), format!("00-{TRACE}-{SPAN}-03")),
            (format!("cc-{TRACE}-{SPAN}-01"), good.clone()),
            (format!("01-{TRACE}-{SPAN}-01-more"), good),
        ] {
            assert_eq!(TraceContext::read(&text, None).unwrap().to_string(), written, "{text}");
        }
    }

    #[test]
    fn what_is_malformed_is_nothing() {
        for text in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", TRACE.replace('4', "+")),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{SPAN}-{TRACE}-01"),
            format!("00_{TRACE}_{SPAN}_01"),
        ] {
            assert_eq!(TraceContext::read(&text, Some("a=b")), None, "{text}");
        }
    }

    #[test]
    fn a_state_is_passed_on_where_a_header_could_bear_it() {
        let long = "x".repeat(STATE_BYTES_MAX);
        let longer = format!("{long}x");
        for (state, kept) in [
            ("a=b,c@d=e f", true),
            (long.as_str(), true),
            (longer.as_str(), false),
            ("", false),
            ("a=\u{e9}", false),
            ("a=b\r\nc: d", false),
        ] {
            let read = TraceContext::read(&format!("00-{TRACE}-{SPAN}-01"), Some(state)).unwrap();
            assert_eq!(read.state.as_deref(), kept.then_some(state), "{state}");
        }
    }
}
