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

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().parse::<f64>().is_ok() {
            return Err(format!("`{text}` has no unit: write `{text}s` or `{text}ms`"));
        }
        humantime::parse_duration(text)
            .map(Span)
            .map_err(|_| format!("`{text}` is not a duration: write for example `10s`, `250ms`, `1h`"))
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().parse::<f64>().is_ok() {
            return Err(format!("`{text}` has no unit: write `{text}B`, `{text}KiB` or `{text}MiB`"));
        }
        text.parse::<bytesize::ByteSize>()
            .map(|b| Size(b.as_u64()))
            .map_err(|_| format!("`{text}` is not a size: write for example `256KiB`, `1MiB`"))
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a rate: write `N/s`, `N/min` or `N/hour`, N from 1 to 1000000000");
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let per = match unit.trim() {
            "s" => RateUnit::Second,
            "min" => RateUnit::Minute,
            "hour" => RateUnit::Hour,
            _ => return Err(wrong()),
        };
        match count.trim().parse::<u32>() {
            Ok(count @ 1..=1_000_000_000) => Ok(Rate { count, per }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&humantime::format_duration(self.0).to_string().replace(' ', ""))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, unit) = match self.0 {
            n if n >= 1 << 30 && n % (1 << 30) == 0 => (n >> 30, "GiB"),
            n if n >= 1 << 20 && n % (1 << 20) == 0 => (n >> 20, "MiB"),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => (n >> 10, "KiB"),
            n => (n, "B"),
        };
        write!(f, "{n}{unit}")
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
