//! What a detector hands back, and how much it may spend: work is counted, never timed.
//!
//! A unit of work is about one byte looked at once. Knows no detector.

use std::ops::Range;

/// Units that one rule may spend on each byte of a call's text. A clean text costs each detector 1 to 4 of them.
pub const WORK_PER_BYTE: u64 = 24;
/// Units that one rule may spend on a call whatever its size, so that a short text full of keywords passes.
pub const WORK_FLOOR: u64 = 64 * 1024;

/// Part of a text that a detector objects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Byte range in the text.
    pub(super) range: Range<usize>,
    /// The detector's type: a rule id such as `jwt`, or the detector's only one.
    pub(super) kind: &'static str,
}

/// The allowance of one rule for one call is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overrun;

/// The allowance of one rule for one call.
#[derive(Clone, Debug)]
pub(super) struct Work {
    left: u64,
    #[cfg(test)]
    granted: u64,
}

impl Work {
    /// The allowance for a text of so many bytes.
    pub(super) const fn for_bytes(bytes: usize) -> Self {
        let granted = (bytes as u64).saturating_mul(WORK_PER_BYTE);
        let granted = if granted < WORK_FLOOR { WORK_FLOOR } else { granted };
        Self {
            left: granted,
            #[cfg(test)]
            granted,
        }
    }

    /// Takes `units` from the allowance.
    pub(super) const fn spend(&mut self, units: usize) -> Result<(), Overrun> {
        match self.left.checked_sub(units as u64) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Overrun)
            }
        }
    }

    /// Units spent so far.
    #[cfg(test)]
    pub(super) const fn spent(&self) -> u64 {
        self.granted - self.left
    }
}
