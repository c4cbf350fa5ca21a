//! What the process before had counted, added to what this one counts, so that no counter falls in an upgrade.
//!
//! Both are texts of [`super::Metrics::render`]. Counters and histograms of the gateway are added; gauges, and what is said of the process,
//! are this process's own.

use std::collections::{BTreeSet, HashMap};

/// Adds the counts of `before` to those of `own`.
pub(super) fn add(own: &str, before: &str) -> String {
    let mut families = families(own);
    for old in self::families(before).into_iter().filter(Family::is_added) {
        match families.iter_mut().find(|family| family.name == old.name) {
            Some(family) => family.add(old),
            None => families.push(old),
        }
    }
    families.sort_by(|a, b| a.name.cmp(b.name));
    let mut out = String::with_capacity(own.len());
    for family in families {
        out.push_str(&family.head);
        for (series, value) in family.samples {
            out.push_str(&format!("{series} {value}\n"));
        }
    }
    out
}

/// One metric: its comment lines, and its samples in the order in which they are written.
struct Family<'t> {
    name: &'t str,
    kind: &'t str,
    head: String,
    samples: Vec<(&'t str, f64)>,
}

impl<'t> Family<'t> {
    fn is_added(&self) -> bool {
        self.name.starts_with("toolgate_") && ["counter", "histogram"].contains(&self.kind)
    }

    /// Series that only the process before had come after the others. Buckets that changed cannot be added, and begin anew.
    fn add(&mut self, old: Self) {
        if self.bounds() != old.bounds() {
            return;
        }
        let places: HashMap<&str, usize> = self.samples.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let mut more = Vec::new();
        for (series, value) in old.samples {
            match places.get(series).and_then(|at| self.samples.get_mut(*at)) {
                Some((_, own)) => *own += value,
                None => more.push((series, value)),
            }
        }
        self.samples.extend(more);
    }

    /// The upper bounds of a histogram's buckets; of a counter none.
    fn bounds(&self) -> BTreeSet<&'t str> {
        let bound = |series: &'t str| series.split_once("le=\"")?.1.split_once('"').map(|(bound, _)| bound);
        self.samples.iter().filter(|_| self.kind == "histogram").filter_map(|(series, _)| bound(series)).collect()
    }
}

fn families(text: &str) -> Vec<Family<'_>> {
    let mut all: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (Some(what), Some(name)) = (words.next(), words.next()) else { continue };
            if all.last().is_none_or(|family| family.name != name) {
                all.push(Family { name, kind: "", head: String::new(), samples: Vec::new() });
            }
            let Some(family) = all.last_mut() else { continue };
            if what == "TYPE" {
                family.kind = words.next().unwrap_or_default();
            }
            family.head.push_str(line);
            family.head.push('\n');
        } else if let (Some(family), Some((series, value))) = (all.last_mut(), line.rsplit_once(' '))
            && let Ok(value) = value.parse()
        {
            family.samples.push((series, value));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    const OWN: &str = "# HELP process_x Mine.\n# TYPE process_x counter\nprocess_x 1\n\
        # HELP toolgate_a Counted.\n# TYPE toolgate_a counter\ntoolgate_a{x=\"1\"} 2\n\
        # HELP toolgate_g Now.\n# TYPE toolgate_g gauge\ntoolgate_g 5\n\
        # HELP toolgate_t Time.\n# TYPE toolgate_t histogram\n\
        toolgate_t_bucket{le=\"1\"} 1\ntoolgate_t_bucket{le=\"+Inf\"} 2\ntoolgate_t_sum 2.5\ntoolgate_t_count 2\n";

    #[test]
    fn counts_are_added_and_the_rest_is_this_processes() {
        let before = OWN.replace("x=\"1\"} 2", "x=\"1\"} 40\ntoolgate_a{x=\"a b\"} 3").replace(" 5\n", " 9\n")
            + "# HELP toolgate_z Gone.\n# TYPE toolgate_z counter\ntoolgate_z 4\n";
        let expected = OWN
            .replace("x=\"1\"} 2", "x=\"1\"} 42\ntoolgate_a{x=\"a b\"} 3")
            .replace("le=\"1\"} 1", "le=\"1\"} 2")
            .replace("le=\"+Inf\"} 2", "le=\"+Inf\"} 4")
            .replace("_sum 2.5", "_sum 5")
            .replace("_count 2", "_count 4")
            + "# HELP toolgate_z Gone.\n# TYPE toolgate_z counter\ntoolgate_z 4\n";
        assert_eq!(add(OWN, &before), expected);
        assert_eq!(add(OWN, ""), OWN);
    }

    #[test]
    fn other_buckets_are_not_added() {
        let before = OWN.replace("le=\"1\"", "le=\"3\"");
        let added = add(OWN, &before);
        assert!(added.contains("toolgate_t_count 2\n") && added.contains("toolgate_a{x=\"1\"} 4\n"), "{added}");
    }
}
