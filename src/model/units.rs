//! Durations, sizes and rates as people write them; a bare number is an error (contract §10).

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// `30s`, `250ms`, `1h`: a duration with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// `1MiB`, `256KiB`, `10kB`: a size in bytes with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

/// `N/s`, `N/min` or `N/hour`: a token bucket of capacity N, refilled evenly over the unit (contract §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Capacity, and tokens a unit; at least 1.
    pub count: u32,
    /// The unit.
    pub per: RateUnit,
}

/// The unit of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateUnit {
    /// `s`
    Second,
    /// `min`
    Minute,
    /// `hour`
    Hour,
}

impl RateUnit {
    /// The unit's length.
    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            Self::Second => Duration::from_secs(1),
            Self::Minute => Duration::from_secs(60),
            Self::Hour => Duration::from_secs(3600),
        }
    }
}

/// What a span is written in, longest first, in milliseconds; the first name of a length is the one we write.
const SPAN_UNITS: [(&str, u64); 9] = [
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("m", 60_000),
    ("min", 60_000),
    ("s", 1000),
    ("sec", 1000),
    ("ms", 1),
];

/// What a size is written in, in bytes. Units of 1000 are read; units of 1024 are written.
const SIZE_UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
];

impl FromStr for Span {
    type Err = String;
    /// Whole numbers with their units, longest first: `250ms`, `1h30m`. A month is no unit, so `1M` is not taken for `1m`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is not a duration: write for example `10s`, `250ms` or `1h30m`", shown(text));
        if is_bare_number(text) {
            return Err(format!("`{0}` has no unit: write `{0}s` or `{0}ms`", shown(text)));
        }
        let (mut rest, mut total, mut last) = (text, 0u64, u64::MAX);
        while !rest.is_empty() {
            let (count, tail) = leading_number(rest).ok_or_else(wrong)?;
            let length = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at_checked(length).ok_or_else(wrong)?;
            let unit = SPAN_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
            if unit >= last {
                return Err(wrong());
            }
            total = count.checked_mul(unit).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
            (rest, last) = (tail, unit);
        }
        if last == u64::MAX { Err(wrong()) } else { Ok(Self(Duration::from_millis(total))) }
    }
}

impl FromStr for Size {
    type Err = String;
    /// One whole number and its unit: `256KiB`, `10kB`, `512B`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is not a size: write for example `512B`, `256KiB` or `1MiB`", shown(text));
        if is_bare_number(text) {
            return Err(format!("`{0}` has no unit: write `{0}B`, `{0}KiB` or `{0}MiB`", shown(text)));
        }
        let (count, unit) = leading_number(text).ok_or_else(wrong)?;
        let unit = SIZE_UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(wrong)?.1;
        count.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

/// Whether a person wrote a number and forgot the unit.
fn is_bare_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|c| c.is_ascii_digit() || c == b'.')
}

/// The digits that `text` begins with, and what follows them.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(length)?;
    digits.parse().ok().map(|count| (count, rest))
}

/// A written value as a message may show it: escaped, and cut to 64 characters.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        shown.push('…');
    }
    shown
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{}` is not a rate: write `N/s`, `N/min` or `N/hour`, N from 1 to 1000000000", shown(text));
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let per = match unit {
            "s" => RateUnit::Second,
            "min" => RateUnit::Minute,
            "hour" => RateUnit::Hour,
            _ => return Err(wrong()),
        };
        match leading_number(count).map(|(count, rest)| (u32::try_from(count), rest)) {
            Some((Ok(count @ 1..=1_000_000_000), "")) => Ok(Rate { count, per }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Span {
    /// The longest unit that holds the span exactly (a lone minute is `60s`); it reads as the same span again, to the millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        let exact = |(_, unit): &&(&str, u64)| {
            let least = if *unit == 60_000 { 2 * unit } else { *unit };
            millis >= u128::from(least) && millis.is_multiple_of(u128::from(*unit))
        };
        match SPAN_UNITS.iter().find(exact) {
            Some((name, unit)) => write!(f, "{}{name}", millis / u128::from(*unit)),
            None => f.write_str("0s"),
        }
    }
}

impl fmt::Display for Size {
    /// The largest unit of 1024 that holds the size exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(name, unit): &&(&str, u64)| {
            (*name == "B" || name.contains('i')) && self.0 >= *unit && self.0.is_multiple_of(*unit)
        };
        match SIZE_UNITS.iter().find(exact) {
            Some((name, unit)) => write!(f, "{}{name}", self.0 / unit),
            None => f.write_str("0B"),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per {
            RateUnit::Second => "s",
            RateUnit::Minute => "min",
            RateUnit::Hour => "hour",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

/// Serde as the written text, for types with `FromStr` and `Display`.
macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(D::Error::custom)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
    )*};
}
serde_as_text!(Span, Size, Rate);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Rate, RateUnit, Size, Span};
    use std::time::Duration;

    #[test]
    fn spans_are_read_exactly() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("10s", 10_000),
            ("1m", 60_000),
            ("1min", 60_000),
            ("1hour", 3_600_000),
            ("90s", 90_000),
            ("1h30m", 5_400_000),
            ("1d2h3m4s5ms", 93_784_005),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(millis))), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_span_is_refused() {
        for text in [
            "",
            "s",
            "30",
            "1.5",
            "1.5s",
            "-1s",
            "1M",
            "1y",
            "1 s",
            " 1s",
            "1s ",
            "1s1s",
            "1s1m",
            "1m1min",
            "1secs",
            "1e3s",
            "+1s",
            "٣s",
            "99999999999999999999s",
            "18446744073709551615s",
            "10µs",
            "\n",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_exactly() {
        for (text, bytes) in [
            ("0B", 0),
            ("512B", 512),
            ("10kB", 10_000),
            ("256KiB", 262_144),
            ("1 MiB", 1_048_576),
            ("2GiB", 2_147_483_648),
            ("9007199254740993B", 9_007_199_254_740_993),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "",
            "B",
            "1024",
            "1.5",
            "1.5MiB",
            "-1B",
            "1M",
            "1K",
            "1mb",
            "1kib",
            "1TiB",
            "18446744073709551615GiB",
            "1 MiB ",
            "1MiB1KiB",
            "99999999999999999999B",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_read_exactly() {
        let rate = |count, per| Ok(Rate { count, per });
        assert_eq!("1/s".parse(), rate(1, RateUnit::Second));
        assert_eq!("600/min".parse(), rate(600, RateUnit::Minute));
        assert_eq!("1000000000/hour".parse(), rate(1_000_000_000, RateUnit::Hour));
        for text in [
            "",
            "600",
            "0/s",
            "1000000001/s",
            "-1/s",
            "1.5/s",
            "1/sec",
            "1/m",
            "1/h",
            "1/",
            "/s",
            "+1/s",
            "1/s/s",
            " 1/s",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        for millis in [0, 1, 999, 1000, 1001, 60_000, 90_000, 3_600_000, 5_400_000, 86_400_000, 604_800_000, 86_400_001]
        {
            let span = Span(Duration::from_millis(millis));
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for bytes in [0, 1, 1000, 1023, 1024, 1025, 1 << 20, (1 << 20) + 1024, 1 << 30, 1 << 40, u64::MAX] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
        assert_eq!(Span(Duration::from_secs(90)).to_string(), "90s");
        assert_eq!(Span(Duration::from_secs(60)).to_string(), "60s");
        assert_eq!(Size(262_144).to_string(), "256KiB");
    }

    #[test]
    fn messages_show_values_escaped_and_cut() {
        let message = format!("{}\n", "x".repeat(70)).parse::<Size>().unwrap_err();
        assert!(message.contains('…') && !message.contains('\n'), "{message}");
    }
}
