//! The means by which `resolve` judges policy objects together: what is known so far, what is there twice, where an object
//! belongs, what a reference may have meant.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::Hash,
    ops::Range,
};

use super::{
    fault::{Fault, FaultCode, FileSpan, Sources, nearest},
    options::Conf,
    policy::{Item, Object},
};
use crate::model::{
    records::{Origin, Owned},
    units::shown,
};

/// How many names all "did you mean" of one sitting may be compared with; past it, faults come without.
const COMPARISONS_MAX: usize = 1_000_000;

/// One sitting: the faults so far, and what is known to refer to.
pub(super) struct Court<'a> {
    pub(super) conf: &'a Conf,
    pub(super) faults: Vec<Fault>,
    pub(super) known: Known,
    sources: &'a Sources,
    comparisons: usize,
}

/// What objects may refer to, as far as it was read.
#[derive(Default)]
pub(super) struct Known {
    /// Organizations: those of files, then those of the API.
    organizations: Vec<String>,
    organization_ids: HashSet<String>,
    /// How many organizations are of files.
    of_files: usize,
    /// Project ids by organization.
    pub(super) projects: Names,
    /// Server slugs by organization.
    pub(super) servers: Names,
    /// Keys by id: the organization, and whether it is revoked.
    pub(super) keys: BTreeMap<String, (String, bool)>,
}

impl Known {
    pub(super) fn has_organization(&self, id: &str) -> bool {
        self.organization_ids.contains(id)
    }

    /// Adds an organization; those of files come first.
    pub(super) fn add_organization(&mut self, id: &str, of_file: bool) {
        self.organizations.push(id.to_owned());
        self.organization_ids.insert(id.to_owned());
        self.of_files += usize::from(of_file);
    }
}

/// Names by organization.
#[derive(Default)]
pub(super) struct Names(HashMap<String, BTreeSet<String>>);

impl Names {
    pub(super) fn add(&mut self, home: &str, name: &str) {
        self.0.entry(home.to_owned()).or_default().insert(name.to_owned());
    }

    pub(super) fn has(&self, home: &str, name: &str) -> bool {
        self.0.get(home).is_some_and(|names| names.contains(name))
    }

    pub(super) fn of(&self, home: &str) -> Vec<&str> {
        self.0.get(home).into_iter().flatten().map(String::as_str).collect()
    }
}

impl<'a> Court<'a> {
    pub(super) fn new(conf: &'a Conf, sources: &'a Sources) -> Self {
        Self { conf, faults: Vec::new(), known: Known::default(), sources, comparisons: 0 }
    }

    pub(super) fn error(&mut self, at: Option<FileSpan>, message: String) {
        self.faults.push(Fault::error(at, message));
    }

    /// Whether this is the first of its kind under `key`; a second is a fault that names both places.
    pub(super) fn first<T: Object, K: Hash + Eq>(
        &mut self,
        seen: &mut HashMap<K, Option<FileSpan>>,
        item: &Item<T>,
        (member, key): (&str, K),
    ) -> bool {
        if item.value.is_nameless() {
            return false; // Its name is missing or no string, which was said already.
        }
        let at = place(item, member);
        let Some(first) = seen.get(&key) else {
            seen.insert(key, at);
            return true;
        };
        let first = match first {
            Some(first) => format!("the first is at {}", self.sources.place(first)),
            None => "the first was made through the API".to_owned(),
        };
        let twice = Fault::error(at, format!("{} is there twice", item.value.title()));
        self.faults.push(twice.of(FaultCode::Duplicate).hint(first));
        false
    }

    /// The organization of an object: the written one, or the only one that fits. What a file leaves out is looked for among
    /// the organizations of files first, so that nothing made through the API changes what a file means. Empty on a fault.
    pub(super) fn settle<T: Object>(
        &mut self,
        item: &Item<T>,
        written: &str,
        fits: impl Fn(&Known, &str) -> bool,
    ) -> String {
        if !written.is_empty() {
            if !self.known.has_organization(written) {
                let message =
                    format!("{} names organization `{}`, which does not exist", item.value.title(), shown(written));
                let fault = Fault::error(place(item, "organization"), message);
                self.lost(fault, written, |known| known.organizations.iter().map(String::as_str).collect());
            }
            return written.to_owned();
        }
        if item.places.has("organization") {
            return String::new(); // Written, but no string, which was said already.
        }
        let of_files = self.known.organizations.get(..self.known.of_files).unwrap_or_default();
        let homes =
            if item.origin == Origin::Api || of_files.is_empty() { &self.known.organizations[..] } else { of_files };
        let fitting: Vec<&String> = match homes {
            [only] => vec![only],
            several => several.iter().filter(|home| fits(&self.known, home)).collect(),
        };
        let title = item.value.title();
        let fault = match (homes.len(), fitting.as_slice()) {
            (_, [only]) => return (*only).clone(),
            (0, _) => Fault::error(FileSpan::of(&item.origin), format!("{title} belongs to no organization"))
                .hint("there is none: write an [[organization]]"),
            (_, [first, second, ..]) => {
                Fault::error(FileSpan::of(&item.origin), format!("{title} needs `organization`: there are several"))
                    .hint(format!("it could be `{}` or `{}`", shown(first), shown(second)))
            }
            (_, []) => {
                Fault::error(FileSpan::of(&item.origin), format!("{title} needs `organization`: there are several"))
                    .hint("none of them has all that it names")
            }
        };
        self.faults.push(fault);
        String::new()
    }

    /// Reports a reference to `name` that leads nowhere, with the known name that it may have meant.
    pub(super) fn lost(&mut self, fault: Fault, name: &str, known: impl Fn(&Known) -> Vec<&str>) {
        let candidates = if self.comparisons < COMPARISONS_MAX { known(&self.known) } else { Vec::new() };
        self.comparisons += candidates.len();
        let near = nearest(name, candidates).map(shown);
        let fault = fault.of(FaultCode::UnknownReference);
        self.faults.push(match near {
            Some(near) => fault.hint(format!("did you mean `{near}`?")),
            None => fault,
        });
    }
}

/// Where a member of an object stands; the object itself if the member was left out.
pub(super) fn place<T>(item: &Item<T>, member: &str) -> Option<FileSpan> {
    at(item, item.places.of(member))
}

/// Where an entry of a member that is a list stands.
pub(super) fn item_place<T>(item: &Item<T>, member: &str, index: usize) -> Option<FileSpan> {
    at(item, item.places.item(member, index).or_else(|| item.places.of(member)))
}

fn at<T>(item: &Item<T>, span: Option<Range<usize>>) -> Option<FileSpan> {
    let whole = FileSpan::of(&item.origin)?;
    Some(FileSpan { span: span.unwrap_or(whole.span), ..whole })
}

pub(super) fn owned<T>(item: Item<T>) -> Owned<T> {
    Owned { value: item.value, origin: item.origin }
}
