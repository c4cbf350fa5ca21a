//! The gate before the expressions: SIMD or Aho-Corasick finds keywords, and says which forms to try there.

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind, packed};
use memchr::memmem;

use super::{
    form::Form,
    rules::{Case, Written},
};

/// The most keywords in one SIMD searcher: more make it slower than two.
const PACKED_KEYWORDS_MAX: usize = 56;
/// Keywords shorter than this have a searcher of their own, so that they don't blunt the one of the longer.
const FINGERPRINT_BYTES: usize = 4;

/// A searcher and, for each of its keywords, the forms to try.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) searcher: Searcher,
    /// By keyword.
    pub(super) forms: Vec<Vec<usize>>,
}

/// How the keywords of one gate are found.
#[derive(Debug)]
pub(super) enum Searcher {
    Packed(packed::Searcher),
    Automaton(AhoCorasick),
    One(Box<memmem::Finder<'static>>),
}

impl Searcher {
    /// The first keyword at or after `from`: where it starts, and which it is.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        if from >= text.len() {
            return None;
        }
        match self {
            Self::Packed(searcher) => {
                searcher.find_in(text, (from..text.len()).into()).map(|hit| (hit.start(), hit.pattern().as_usize()))
            }
            Self::Automaton(automaton) => automaton
                .find(aho_corasick::Input::new(text).range(from..))
                .map(|hit| (hit.start(), hit.pattern().as_usize())),
            Self::One(finder) => finder.find(text.get(from..)?).map(|at| (from + at, 0)),
        }
    }
}

/// Keywords without those that start with another, so that at most one of them stands at any place.
pub(super) fn build_gates(rules: &[Written], forms: &[Form], case: Case) -> Result<Vec<Gate>, String> {
    let fold = |word: &str| if case == Case::Any { word.to_ascii_lowercase() } else { word.to_owned() };
    let mut words: Vec<String> = rules.iter().flat_map(|rule| &rule.keywords).map(|word| fold(word)).collect();
    words.sort_unstable();
    words.dedup();
    let mut shortest: Vec<String> = Vec::new();
    for word in words {
        if !shortest.last().is_some_and(|last| word.starts_with(last.as_str())) {
            shortest.push(word);
        }
    }
    let mut pools: Vec<Vec<String>> = Vec::new();
    if case == Case::Any {
        pools.push(shortest);
    } else {
        let (long, short): (Vec<_>, Vec<_>) = shortest.into_iter().partition(|word| word.len() >= FINGERPRINT_BYTES);
        let (three, two): (Vec<_>, Vec<_>) = short.into_iter().partition(|word| word.len() == FINGERPRINT_BYTES - 1);
        pools.extend([long, three].iter().flat_map(|words| evenly(words)));
        pools.extend(two.into_iter().map(|word| vec![word]));
    }
    pools
        .into_iter()
        .filter(|pool| !pool.is_empty())
        .map(|pool| build_gate(pool, (rules, forms), (case, &fold)))
        .collect()
}

/// The words in as few pools as may be, of about the same size: a small one costs a pass over the text as well.
fn evenly(words: &[String]) -> impl Iterator<Item = Vec<String>> {
    let pools = words.len().div_ceil(PACKED_KEYWORDS_MAX).max(1);
    words.chunks(words.len().div_ceil(pools).max(1)).map(<[String]>::to_vec)
}

fn build_gate(
    pool: Vec<String>,
    (rules, forms): (&[Written], &[Form]),
    (case, fold): (Case, &dyn Fn(&str) -> String),
) -> Result<Gate, String> {
    let tried = |word: &String| {
        let of_word = |rule: &Written| rule.keywords.iter().any(|keyword| fold(keyword).starts_with(word.as_str()));
        let is_tried = |form: &Form| form.rules.first().and_then(|rule| rules.get(*rule)).is_some_and(of_word);
        forms.iter().enumerate().filter(|(_, form)| is_tried(form)).map(|(index, _)| index).collect()
    };
    let tried_forms = pool.iter().map(tried).collect();
    let searcher = match (case, pool.as_slice()) {
        (Case::Exact, [word]) => Some(Searcher::One(Box::new(memmem::Finder::new(word).into_owned()))),
        (Case::Exact, _) => packed::Searcher::new(&pool).map(Searcher::Packed),
        (Case::Any, _) => None,
    };
    let searcher = match searcher {
        Some(searcher) => searcher,
        None => Searcher::Automaton(
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostFirst)
                .kind(Some(AhoCorasickKind::DFA))
                .ascii_case_insensitive(case == Case::Any)
                .build(&pool)
                .map_err(|error| error.to_string())?,
        ),
    };
    Ok(Gate { searcher, forms: tried_forms })
}
