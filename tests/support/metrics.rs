//! The Prometheus text of `/metrics`, read as an operator's tools would.

use std::collections::BTreeMap;

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The series' name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// All samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub Vec<Sample>);

impl Metrics {
    /// Reads the text format; lines that are no sample are left out.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The sum of the samples of that name that have these labels; 0 when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name, labels).map(|sample| sample.value).sum()
    }

    /// The sum as a count, for counters and gauges of whole numbers; panics at a fraction.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> usize {
        let sum = self.sum(name, labels);
        sum.to_string().parse().unwrap_or_else(|_| panic!("{name} is {sum}, not a count"))
    }

    /// The samples of that name that have these labels.
    pub fn of<'a>(&'a self, name: &'a str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name == name && labels.iter().all(|(n, v)| sample.labels.get(*n).is_some_and(|have| have == v))
        })
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, labels)) = series.split_once('{') else {
        return Some(Sample { name: series.to_owned(), labels: BTreeMap::new(), value });
    };
    let mut rest = labels.strip_suffix('}')?;
    let mut out = BTreeMap::new();
    while let Some((label, after)) = rest.split_once("=\"") {
        let end = closing_quote(after)?;
        let value = after[..end].replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\");
        out.insert(label.trim_start_matches(',').to_owned(), value);
        rest = &after[end + 1..];
    }
    Some(Sample { name: name.to_owned(), labels: out, value })
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return Some(at),
            _ => escaped = false,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let metrics = Metrics::parse("# HELP a b\na 1\na_total{x=\"1\",y=\"q\\\"}\"} 2.5\na_total{x=\"2\"} 3\n");
        assert_eq!(metrics.sum("a", &[]), 1.0);
        assert_eq!(metrics.sum("a_total", &[]), 5.5);
        assert_eq!(metrics.sum("a_total", &[("y", "q\"}")]), 2.5);
        assert_eq!(metrics.sum("none", &[]), 0.0);
    }
}
