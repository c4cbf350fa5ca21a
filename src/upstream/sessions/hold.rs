//! Whether a session is good and how many calls use it, in one word: whoever takes it up, gives it back, finds it lost or sweeps it
//! sees what the others did. Checked in every order of events by `tests/model`.

use crate::model::atomic::{AtomicU32, Ordering};

/// The session is taken up no more; the other bits count the calls that use it.
const GONE: u32 = 1 << 31;

/// The word. Starts good and unused.
#[derive(Debug, Default)]
pub(super) struct Hold(AtomicU32);

impl Hold {
    /// One more call uses it. False: it is gone, and there is nothing to give back.
    pub(super) fn take(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        while seen & GONE == 0 {
            match self.0.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// A call that took it is done.
    pub(super) fn give_back(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// It is lost: nobody takes it up any more, for good. Those who use it go on.
    pub(super) fn end(&self) {
        self.0.fetch_or(GONE, Ordering::AcqRel);
    }

    /// Ends it unless a call uses it; whether nobody does.
    pub(super) fn retire(&self) -> bool {
        matches!(self.0.compare_exchange(0, GONE, Ordering::AcqRel, Ordering::Acquire), Ok(_) | Err(GONE))
    }

    /// Whether it may still be taken up.
    pub(super) fn is_good(&self) -> bool {
        self.0.load(Ordering::Acquire) & GONE == 0
    }
}
