//! Guardrails: what may not leave in arguments or come back in results (contract §7).
//!
//! A [`GuardRule`] is compiled with the policy and shared; a call has a [`GuardPlan`] of the rules that apply to it.
//! [`screen`] gathers the texts of a part of a document once, asks every rule, and answers with one [`Verdict`] and all
//! [`Match`]es. Pure and synchronous: no clock, no socket, no lock; an external engine is only named here, and asked elsewhere.
//!
//! Looked at: string values, member names, numbers as written, at any depth and in `_meta`; each text with escapes read as JSON reads
//! them (JSON within a string, two levels); each of these without invisible characters and in NFKC; adjacent text blocks of
//! `content`, joined; `blob`s, decoded from base64.
//!
//! **Not looked at:** images, audio and other base64 than `blob`; a blob beyond its first MiB, and one of a binary type that is not
//! UTF-8; texts that are compressed, encrypted, percent-encoded, in HTML entities, reversed, or spread over members; look-alike
//! letters of other scripts; text blocks that are joined with something between them. `tests/cases/guard/evasion.case` has each.
//!
//! **Invariants.** No message, match or error holds any of the text. Work is bounded by the bytes of the call times its rules.
//! A detector that fails, panics included, never lets a call through but by its rule's `on_engine_error = "allow"`.
//!
//! To add a detector: a file here, a variant of [`Detector`], a line in `rule.rs`, a case file in `tests/cases/guard`.

mod checks;
mod clean;
mod corpus;
mod credential;
mod edit;
mod form;
mod gate;
mod injection;
mod invisible;
mod keywords;
mod needles;
mod normal;
mod pattern;
mod personal;
mod rule;
mod rules;
mod screen;
mod secrets;
mod urls;
mod view;
mod work;

pub use clean::{clean_credentials, credential_edits};
pub use corpus::{BLOB_BYTES_MAX, Place};
pub use credential::{CREDENTIAL_BYTES_MAX, CredentialMask, MaskFault};
pub use edit::{Edit, apply_edits};
pub use rule::{EngineAddress, GuardPlan, GuardRule};
pub use screen::{EngineError, EngineFault, MATCHES_REPORTED_MAX, Match, Screening, Verdict, screen};
pub use work::{WORK_FLOOR, WORK_PER_BYTE};

#[cfg(doc)]
use crate::model::records::Detector;

#[cfg(test)]
mod tests;

/// What a match of that detector is replaced by.
const fn label(detector: &str) -> &'static str {
    match detector.as_bytes() {
        b"secrets" => "[redacted:secrets]",
        b"personal_data" => "[redacted:personal_data]",
        b"prompt_injection" => "[redacted:prompt_injection]",
        b"invisible_text" => "[redacted:invisible_text]",
        b"keywords" => "[redacted:keywords]",
        b"pattern" => "[redacted:pattern]",
        b"urls" => "[redacted:urls]",
        _ => "[redacted:engine]",
    }
}

/// Compiles what calls need whatever the policy is ([`clean_credentials`]), so that none pays for it; about 50 ms, once a process.
///
/// # Errors
/// In words, when the shipped rule file is at fault.
pub fn warm() -> Result<(), String> {
    secrets::Secrets::compile(&["jwt".to_owned()]).map(|_| ())
}
