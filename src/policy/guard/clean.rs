//! Credential-shaped text is removed from what a server says of an error, always, whatever the policy (contract §4).

use std::{
    collections::BTreeMap,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::model::jsonrpc::{Document, LeafKind, Spanned};

use super::{
    corpus::{Corpus, Located, Place},
    edit::{Cut, Edit, cut_text, merge},
    screen::{distinct, edits},
    secrets::Secrets,
    work::Work,
};

const LABEL: &str = "[redacted:secrets]";

/// `text` without what the `secrets` detector matches with all types; none if there is nothing of the kind.
///
/// A text that costs too much to look at is replaced whole.
#[must_use]
pub fn clean_credentials(text: &str) -> Option<String> {
    let corpus = Corpus::of_text(text);
    let cuts = credential_cuts(&corpus);
    let cuts = merge(cuts.into_values().next()?);
    Some(cut_text(text, &cuts))
}

/// The edits that take credential-shaped text out of `part`, a value of `document`: out of strings and member names, out of
/// blobs and of texts that only joined are credentials. A part that costs too much to look at loses all its strings.
#[must_use]
pub fn credential_edits(document: &Document<'_>, part: &Spanned<'_>) -> Vec<Edit> {
    let corpus = Corpus::of(part);
    let cuts = credential_cuts(&corpus);
    edits(document.raw(), &corpus, cuts)
}

fn credential_cuts(corpus: &Corpus) -> BTreeMap<usize, Vec<Cut>> {
    let mut found = Vec::new();
    let mut work = Work::for_bytes(corpus.text.len());
    let scan = || Secrets::all().scan(corpus.text.as_bytes(), &mut work, &mut found);
    let is_seen = matches!(catch_unwind(AssertUnwindSafe(scan)), Ok(Ok(())));
    let mut cuts: BTreeMap<usize, Vec<Cut>> = BTreeMap::new();
    let mut cut = |leaf: usize, range: Range<usize>| cuts.entry(leaf).or_default().push(Cut { range, label: LABEL });
    if !is_seen || corpus.is_cut {
        for leaf in 0..corpus.leaf_count() {
            let is_text = matches!(corpus.leaf(leaf), Some((LeafKind::String, _)));
            if is_text && !corpus.leaf_text(leaf).is_empty() {
                cut(leaf, 0..corpus.leaf_text(leaf).len());
            }
        }
        return cuts;
    }
    for (_, Located { place, parts }) in distinct(corpus, &found) {
        for (leaf, range) in parts {
            match place {
                Place::Blob => cut(leaf, 0..corpus.leaf_text(leaf).len()),
                Place::Value | Place::Name | Place::Number | Place::Joined => cut(leaf, range),
            }
        }
    }
    cuts
}
