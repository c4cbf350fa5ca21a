//! Reads the conf file and the policy files that it names. Every fault of every file is reported in one run.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use toml::de::DeTable;

use super::{
    fault::{Fault, FaultCode, Sources},
    interpolate::{Env, expand_all},
    options::Conf,
    policy::{Policy, read_policy},
    read::Reader,
    resolve::resolve,
    sections::{Sections, read_conf},
    value::Table,
};
use crate::model::records::Records;

/// The largest conf or policy file, in bytes: room for a policy of some 500,000 objects.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// A conf and the policy objects of its files, each without an error; not yet judged together ([`resolve`]).
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The options, paths absolute.
    pub conf: Conf,
    /// The objects of the policy files, in the order of the files' names.
    pub policy: Policy,
    /// The texts that were read, to render faults with.
    pub sources: Sources,
    /// What a person should know; no error is among them.
    pub warnings: Vec<Fault>,
}

/// Why a conf and its policy files cannot be used.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The texts that were read, to render faults with.
    pub sources: Sources,
    /// Errors and warnings of all files.
    pub faults: Vec<Fault>,
}

/// What reading came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The texts that were read, to render faults with.
    pub sources: Sources,
    /// Errors and warnings of all files.
    pub faults: Vec<Fault>,
    conf: Conf,
    policy: Policy,
    cut: bool,
}

impl Outcome {
    /// What was read.
    ///
    /// # Errors
    /// All faults, if any is an error: nothing of it may be used.
    pub fn into_loaded(self) -> Result<Loaded, Rejected> {
        let Self { sources, faults, conf, policy, .. } = self;
        if faults.iter().any(Fault::is_error) {
            return Err(Rejected { sources, faults });
        }
        Ok(Loaded { conf, policy, sources, warnings: faults })
    }

    /// All faults, those of the objects together included: what `toolgate check` prints. `api` holds the objects that the
    /// management API made. Objects are not judged together if a syntax error hid some of them.
    #[must_use]
    pub fn check(&self, api: Records) -> Vec<Fault> {
        let mut faults = self.faults.clone();
        if !self.cut {
            let mut policy = self.policy.clone();
            policy.add(api);
            faults.extend(resolve(policy, &self.conf, &self.sources).1);
        }
        faults
    }
}

/// Reads a conf file, the environment and the policy files. Blocks on the disk.
#[must_use]
pub fn load(path: &Path) -> Outcome {
    let env = |name: &str| std::env::var(name).ok();
    read_all(
        path,
        &Disk { env: &env, read: &read_file, find: &find_files, absolute: &|path| std::path::absolute(path) },
    )
}

/// Reads a conf file and policy files from texts by path, the conf file first. A relative path lies below `/`.
#[must_use]
pub fn from_texts(files: &[(&str, &str)], env: &dyn Fn(&str) -> Option<String>) -> Outcome {
    let texts: BTreeMap<&Path, &str> = files.iter().map(|(path, text)| (Path::new(*path), *text)).collect();
    let missing = || "no such file".to_owned();
    let read = |path: &Path| texts.get(path).map(|text| (*text).to_owned()).ok_or_else(missing);
    let find = |pattern: &str| {
        let pattern = glob::Pattern::new(pattern).map_err(|why| why.to_string())?;
        let matches = |path: &&&Path| pattern.matches_path_with(path, MATCHING);
        Ok(texts.keys().filter(matches).map(|path| path.to_path_buf()).collect())
    };
    let conf = files.first().map_or("", |(path, _)| path);
    let absolute = |path: &Path| Ok(Path::new("/").join(path));
    read_all(Path::new(conf), &Disk { env, read: &read, find: &find, absolute: &absolute })
}

/// Reads one conf file from a text.
#[must_use]
pub fn from_text(path: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Outcome {
    from_texts(&[(path, text)], env)
}

/// What reading needs of the world.
struct Disk<'a> {
    env: Env<'a>,
    read: &'a dyn Fn(&Path) -> Result<String, String>,
    find: &'a dyn Fn(&str) -> Result<Vec<PathBuf>, String>,
    absolute: &'a dyn Fn(&Path) -> std::io::Result<PathBuf>,
}

/// `*` crosses no folder and finds no hidden file, such as an editor's or a half-written one.
const MATCHING: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

fn read_file(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|why| why.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|why| why.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is larger than {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|why| {
        let before = why.as_bytes().get(..why.utf8_error().valid_up_to()).unwrap_or_default();
        format!("it is not UTF-8 in line {}", memchr::memchr_iter(b'\n', before).count() + 1)
    })
}

fn find_files(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let found = glob::glob_with(pattern, MATCHING).map_err(|why| why.to_string())?;
    let mut paths = found.collect::<Result<Vec<_>, _>>().map_err(|why| why.to_string())?;
    paths.retain(|path| !path.is_dir());
    paths.sort();
    Ok(paths)
}

fn read_all(path: &Path, disk: &Disk<'_>) -> Outcome {
    let (sources, faults, conf, policy) = Default::default();
    let mut out = Outcome { sources, faults, conf, policy, cut: false };
    let beside = path.parent().unwrap_or(Path::new(""));
    let folder = match (disk.absolute)(path) {
        Ok(path) => path.parent().unwrap_or(Path::new("/")).to_path_buf(),
        Err(why) => {
            out.faults.push(Fault::error(None, format!("{}: {why}", path.display())).of(FaultCode::UnreadableFile));
            return out;
        }
    };
    let mut places = Sections::default();
    let read = read_one(&mut out, path, (disk, &folder), |out, reader, table| {
        (out.conf, places) = read_conf(reader, table);
    });
    if let Err(why) = read {
        out.faults.push(Fault::error(None, format!("{}: {why}", path.display())).of(FaultCode::UnreadableFile));
        return out;
    }
    let conf: Arc<str> = path.to_string_lossy().into();
    let mut done: Vec<PathBuf> = Vec::new();
    for (index, entry) in out.conf.policy.files.clone().iter().enumerate() {
        let span = places.of("policy").and_then(|places| places.item("files", index));
        let origin = span.map(|span| super::fault::FileSpan { path: Arc::clone(&conf), span });
        let pattern = pattern_beside(beside, entry);
        let found = match (disk.find)(&pattern) {
            Ok(found) => found,
            Err(why) => {
                out.faults.push(Fault::error(origin.clone(), format!("`{entry}` is no pattern for files: {why}")));
                continue;
            }
        };
        if found.is_empty() {
            out.faults.push(Fault::warning(origin.clone(), format!("`policy.files`: nothing matches `{entry}`")));
        }
        for path in found {
            if done.contains(&path) {
                continue;
            }
            let read = read_one(&mut out, &path, (disk, &folder), |out, reader, table| {
                read_policy(reader, table, &mut out.policy);
            });
            if let Err(why) = read {
                out.faults.push(
                    Fault::error(origin.clone(), format!("{}: {why}", path.display())).of(FaultCode::UnreadableFile),
                );
            }
            done.push(path);
        }
    }
    out
}

/// A pattern of `policy.files` as seen from the working folder; the folder's own characters stand for themselves.
fn pattern_beside(beside: &Path, entry: &str) -> String {
    if Path::new(entry).is_absolute() || beside.as_os_str().is_empty() {
        return entry.to_owned();
    }
    format!("{}/{entry}", glob::Pattern::escape(&beside.to_string_lossy()).trim_end_matches('/'))
}

/// Reads one file: syntax, variables, then what `judge` makes of it.
fn read_one(
    out: &mut Outcome,
    path: &Path,
    (disk, folder): (&Disk<'_>, &Path),
    judge: impl FnOnce(&mut Outcome, &mut Reader<'_>, &Table),
) -> Result<(), String> {
    let text: Arc<str> = (disk.read)(path)?.into();
    let path: Arc<str> = path.to_string_lossy().into();
    out.sources.add(Arc::clone(&path), Arc::clone(&text));
    let mut reader = Reader::of_file(Arc::clone(&path), folder);
    let (document, errors) = DeTable::parse_recoverable(&text);
    let mut table = Table::from_toml(document.get_ref());
    reader.cut = !errors.is_empty();
    for (span, why) in expand_all(&mut table, &text, disk.env) {
        reader.fault(&span, why);
    }
    judge(out, &mut reader, &table);
    if reader.cut {
        out.cut = true;
        let lines: Vec<usize> =
            errors.iter().filter_map(|error| error.span()).map(|span| line(&text, span.start)).collect();
        // What a syntax error made of its line is not worth a second fault.
        let spoilt =
            |fault: &Fault| fault.origin.as_ref().is_some_and(|at| lines.contains(&line(&text, at.span.start)));
        reader.faults.retain(|fault| !spoilt(fault));
        for error in errors {
            let origin = reader.origin(&error.span().unwrap_or_default());
            reader.faults.push(Fault::error(origin, error.message()).of(FaultCode::InvalidToml));
        }
    }
    for span in reader.masks {
        out.sources.mask(&path, span);
    }
    out.faults.extend(reader.faults);
    Ok(())
}

fn line(text: &str, at: usize) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes().get(..at).unwrap_or_default()).count()
}
