//! Detector `personal_data`: email addresses, phone numbers, payment cards, IBANs, US social security numbers.
//!
//! No expressions: one pass looks for `@`, one for digits, and small readers look at what stands there. Only forms that can be
//! told from other text are matched: phone numbers with `+` and a country code or in North American layout, cards with
//! a known prefix, length and Luhn digit, IBANs with the country's length and mod 97. Names, addresses, national phone
//! numbers without `+`, and numbers in other scripts' digits (save full-width ones, which are normalised) are not found.

mod card;
mod digits;
mod email;
mod iban;
mod phone;
mod ssn;

use super::work::{Finding, Overrun, Work};
use digits::{Run, Runs, byte_before};

/// Which types are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PersonalData {
    email: bool,
    phone: bool,
    card: bool,
    iban: bool,
    ssn: bool,
}

/// The types, as a policy names them.
const TYPES: [&str; 5] = ["email", "phone", "card", "iban", "us_ssn"];
/// Units of work of one candidate.
const CANDIDATE_UNITS: usize = 8;

impl PersonalData {
    /// The types that are named; none: all.
    ///
    /// # Errors
    /// In words, when a type is unknown.
    pub(super) fn compile(types: &[String]) -> Result<Self, String> {
        let all = types.is_empty();
        let mut wanted = Self { email: all, phone: all, card: all, iban: all, ssn: all };
        for kind in types {
            match kind.to_ascii_lowercase().replace('-', "_").as_str() {
                "email" | "email_address" => wanted.email = true,
                "phone" | "phone_number" => wanted.phone = true,
                "card" | "credit_card" => wanted.card = true,
                "iban" => wanted.iban = true,
                "us_ssn" | "ssn" => wanted.ssn = true,
                _ => return Err(format!("`{kind}` is no type of `personal_data`; there are {}", TYPES.join(", "))),
            }
        }
        Ok(wanted)
    }

    /// Finds personal data.
    pub(super) fn scan(self, text: &[u8], work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        if self.email {
            work.spend(text.len())?;
            email::scan(text, work, found)?;
        }
        if self.phone || self.card || self.iban || self.ssn {
            work.spend(text.len())?;
            self.scan_digits(text, work, found)?;
        }
        Ok(())
    }

    fn scan_digits(self, text: &[u8], work: &mut Work, found: &mut Vec<Finding>) -> Result<(), Overrun> {
        let mut runs = Runs::of(text);
        while let Some(run) = runs.next() {
            if let Some(finding) = self.judge(text, run, work)? {
                runs.skip_to(finding.range.end);
                found.push(finding);
            }
        }
        Ok(())
    }

    fn judge(self, text: &[u8], run: Run, work: &mut Work) -> Result<Option<Finding>, Overrun> {
        let found = |kind, range| Some(Finding { range, kind });
        let before = byte_before(text, run.start).unwrap_or_default();
        if self.iban && iban::may_start(text, run, before) {
            work.spend(iban::CHARACTERS_MAX)?;
            if let Some(range) = iban::read(text, run) {
                return Ok(found("iban", range));
            }
        }
        if self.phone && phone::may_start(text, run, before) {
            work.spend(2 * CANDIDATE_UNITS)?;
            if let Some(range) = phone::read(text, run) {
                return Ok(found("phone", range));
            }
        }
        if self.card && card::may_start(run) {
            work.spend(2 * CANDIDATE_UNITS)?;
            if let Some(range) = card::read(text, run) {
                return Ok(found("card", range));
            }
        }
        if self.ssn && ssn::may_start(run) {
            work.spend(CANDIDATE_UNITS)?;
            if let Some(range) = ssn::read(text, run) {
                return Ok(found("us_ssn", range));
            }
        }
        Ok(None)
    }
}
