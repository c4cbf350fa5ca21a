//! What a reload changed, in the words of its log line and of the management API's answer. Names only, never a value.

use std::collections::BTreeMap;

use crate::{
    conf::Conf,
    model::records::{Owned, Records},
};

/// The most changes that are named one by one.
const NAMED_MAX: usize = 50;

/// Names the options and the policy objects that differ.
pub(super) fn summary((was, is): (&Conf, &Conf), (before, after): (&Records, &Records)) -> Vec<String> {
    let mut out: Vec<String> = was.differing(is).into_iter().map(str::to_owned).collect();
    compare(&mut out, "organization", (&before.organizations, &after.organizations), |o| o.id.clone());
    compare(&mut out, "project", (&before.projects, &after.projects), |p| format!("{}/{}", p.organization, p.id));
    compare(&mut out, "server", (&before.servers, &after.servers), |s| format!("{}/{}", s.organization, s.slug));
    compare(&mut out, "key", (&before.keys, &after.keys), |key| key.id.clone());
    compare(&mut out, "grant", (&before.grants, &after.grants), |grant| format!("{} on {}", grant.key, grant.server));
    compare(&mut out, "approval", (&before.approvals, &after.approvals), |pin| {
        format!("{}/{} {}", pin.organization, pin.server, pin.tool.escape_debug())
    });
    compare(&mut out, "guardrail", (&before.guardrails, &after.guardrails), |rule| {
        format!("{}/{}", rule.organization, rule.name)
    });
    let more = out.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        out.truncate(NAMED_MAX);
        out.push(format!("and {more} more"));
    }
    out
}

fn compare<T: PartialEq>(
    out: &mut Vec<String>,
    kind: &str,
    (before, after): (&[Owned<T>], &[Owned<T>]),
    name: impl Fn(&T) -> String,
) {
    let mut old: BTreeMap<String, &T> = before.iter().map(|object| (name(&object.value), &object.value)).collect();
    for object in after {
        let named = name(&object.value);
        match old.remove(&named) {
            None => out.push(format!("{kind} {named} added")),
            Some(old) if *old != object.value => out.push(format!("{kind} {named} changed")),
            Some(_) => {}
        }
    }
    out.extend(old.into_keys().map(|named| format!("{kind} {named} removed")));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;
    use crate::model::records::{Origin, Project};

    fn projects(list: &[(&str, bool)]) -> Records {
        let project = |(id, archived): &(&str, bool)| Owned {
            value: Project { id: (*id).to_owned(), organization: "acme".to_owned(), archived: *archived },
            origin: Origin::Api,
        };
        Records { projects: list.iter().map(project).collect(), ..Records::default() }
    }

    #[test]
    fn what_differs_is_named_and_nothing_else() {
        let (was, mut is) = (Conf::default(), Conf::default());
        is.limits.in_flight = 7;
        is.gateway.threads = 3;
        let before = projects(&[("a", false), ("b", false), ("c", false)]);
        let after = projects(&[("d", false), ("b", true), ("a", false)]);
        assert_eq!(
            summary((&was, &is), (&before, &after)),
            [
                "gateway.threads",
                "limits.in_flight",
                "project acme/d added",
                "project acme/b changed",
                "project acme/c removed"
            ]
        );
        assert_eq!(summary((&was, &was), (&before, &before)), [""; 0]);
    }

    #[test]
    fn a_long_list_is_cut() {
        let names: Vec<String> = (0..NAMED_MAX + 3).map(|n| format!("p{n}")).collect();
        let many: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
        let conf = Conf::default();
        let out = summary((&conf, &conf), (&projects(&[]), &projects(&many)));
        assert_eq!((out.len(), out.last().unwrap().as_str()), (NAMED_MAX + 1, "and 3 more"));
    }
}
