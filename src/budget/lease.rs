//! One node's part of a token bucket that a fleet shares (contract §8): what a call spends from, and what is told to the store.
//!
//! The bucket itself is in Redis. A node takes a few tokens of it ahead — a *lease*, at most its part of a sixteenth of the
//! limit ([`Standing::hold`]) — and a call takes one of those. The first lease after a pause is taken on credit and told to the
//! store right after (*owed*), so that a call on a quiet limit does not wait either. While the store is away, calls are paid from
//! the node's share, and told when it is back (*spent*).
//!
//! **Invariants.** A call takes a token with one atomic: no lock, no allocation, no await. Tokens in hand plus tokens owed are
//! never more than one lease, so that a fleet admits at most an eighth of the limit more than one bucket would: a sixteenth in
//! hand while the bucket is full, and a sixteenth owed while it is empty. Once told that the bucket is empty, a node takes
//! nothing on credit before it was told otherwise.
//!
//! Knows no socket: `fleet.rs` carries [`Booking`]s to the store and [`Answer`]s back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
};

use tokio::sync::mpsc::UnboundedSender;

use super::{Bucket, Short};
use crate::model::units::{Rate, RateUnit};

/// A lease is at most this part of the limit, divided by the nodes.
const PART: u32 = 16;
/// Fleets are never taken for smaller than this: a limit that one node may lease is one that two nodes may.
const NODES_MIN: u32 = 2;
/// How long a node leaves an empty bucket alone before a call asks for it; its background task is there sooner.
const PAUSE_NS: u64 = 20_000_000;
/// Of an empty bucket that gives its next token later than this, nothing is fetched ahead: the token is for the call that comes for
/// it, on whichever node, and not for a node whose callers may be gone.
const FETCHED_NS_MAX: u64 = 100_000_000;
/// Nothing in hand, and the next call may take a lease on credit.
const CREDIT: u64 = u64::MAX;

/// The smallest count of a limit that any fleet leases; smaller ones are asked for call by call. A fleet of more than two
/// nodes asks for each limit below 16 times its nodes.
pub const LEASED_MIN: u32 = PART * NODES_MIN;

/// What all limits of a node know of the fleet.
#[derive(Debug)]
pub(super) struct Standing {
    /// Nodes last seen, this one included.
    pub(super) nodes: AtomicU32,
    /// Whether the store answers.
    pub(super) up: AtomicBool,
    /// Limits that have something to tell.
    pub(super) queue: UnboundedSender<Arc<Lease>>,
}

impl Standing {
    fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Tokens of a lease; 0: the limit is too small to lease.
    pub(super) fn hold(&self, rate: Rate) -> u64 {
        u64::from(rate.count / PART.saturating_mul(self.nodes().max(NODES_MIN)))
    }

    /// What this node goes on with while the store is away: its part of the limit, at least 1.
    fn share(&self, rate: Rate) -> Rate {
        Rate { count: (rate.count / self.nodes()).max(1), per: rate.per }
    }
}

/// One limit on this node.
#[derive(Debug)]
pub struct Lease {
    standing: Arc<Standing>,
    /// The bucket's key in the store.
    name: String,
    /// In hand: taken from the store, or owed to it. Or [`CREDIT`].
    tokens: AtomicU64,
    /// The call that leaves so many in hand asks for more.
    low: AtomicU64,
    /// On credit, not told yet.
    owed: AtomicU64,
    /// From the share, not told yet.
    spent: AtomicU64,
    /// No call asks the store before.
    dry_until_ns: AtomicU64,
    /// The bucket has a token again.
    due_ns: AtomicU64,
    /// The bucket is empty and refills slowly: only a call that waits for a token takes one ([`FETCHED_NS_MAX`]).
    slow: AtomicBool,
    /// A call was refused since the store was asked last.
    wanted: AtomicBool,
    /// In the queue.
    queued: AtomicBool,
    /// The rate of the call that came to the end of the lease last; see [`packed`].
    rate: AtomicU64,
    /// Whole tokens in the bucket when the store was asked last, and when that was; 0: never.
    level: AtomicI64,
    level_at_ns: AtomicU64,
    /// What calls are paid from while the store is away.
    share: Bucket,
}

/// What a node tells the store of a limit; the script's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Booking {
    /// Capacity and unit.
    pub(super) rate: Rate,
    /// Tokens to take.
    pub(super) want: u64,
    /// Tokens given back.
    pub(super) back: u64,
    /// Tokens on credit.
    pub(super) owed: u64,
    /// Tokens from the share.
    pub(super) spent: u64,
    /// Nobody used the limit for a while; all of it is given back.
    pub(super) quiet: bool,
}

/// What the store says of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Tokens taken.
    pub(super) taken: u64,
    /// Whole tokens left; below 0: owed.
    pub(super) level: i64,
    /// Until there is a whole token; 0: there is.
    pub(super) wait_ns: u64,
}

impl Lease {
    pub(super) fn new(standing: Arc<Standing>, name: String) -> Self {
        Self {
            standing,
            name,
            tokens: AtomicU64::new(CREDIT),
            low: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            spent: AtomicU64::new(0),
            dry_until_ns: AtomicU64::new(0),
            due_ns: AtomicU64::new(0),
            slow: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            rate: AtomicU64::new(0),
            level: AtomicI64::new(0),
            level_at_ns: AtomicU64::new(0),
            share: Bucket::default(),
        }
    }

    /// The bucket's key in the store.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes one token.
    ///
    /// # Errors
    /// [`Short`]
    pub(super) fn charge(self: &Arc<Self>, rate: Rate, now_ns: u64) -> Result<(), Short> {
        match self.take() {
            Some(left) => {
                if left == self.low.load(Ordering::Relaxed) {
                    self.report(rate);
                }
                Ok(())
            }
            None => self.without_token(rate, now_ns),
        }
    }

    /// Takes a token in hand; how many are left.
    fn take(&self) -> Option<u64> {
        let less = |tokens: u64| Some(tokens.wrapping_sub(1)).filter(|left| *left < CREDIT - 1);
        self.tokens.try_update(Ordering::AcqRel, Ordering::Relaxed, less).ok().map(|before| before.wrapping_sub(1))
    }

    #[cold]
    fn without_token(self: &Arc<Self>, rate: Rate, now_ns: u64) -> Result<(), Short> {
        if !self.standing.up.load(Ordering::Acquire) {
            return self.charge_share(rate, now_ns).map_err(Short::Wait);
        }
        let dry_until_ns = self.dry_until_ns.load(Ordering::Acquire);
        if now_ns < dry_until_ns {
            self.wanted.store(!self.is_slow(), Ordering::Release);
            return Err(Short::Wait(seconds(dry_until_ns - now_ns)));
        }
        let hold = self.standing.hold(rate);
        if hold == 0 {
            self.note_rate(rate);
            return Err(Short::Ask);
        }
        let on_credit = self.exchange(CREDIT, hold - 1);
        if on_credit {
            self.owed.fetch_add(hold, Ordering::AcqRel);
            self.low.store(hold / 2, Ordering::Relaxed);
        }
        self.report(rate);
        if on_credit { Ok(()) } else { Err(Short::Ask) }
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        self.tokens.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes one token of this node's share of the limit, when the store cannot be asked.
    ///
    /// The share starts with this node's part of what the bucket was last known to hold.
    ///
    /// # Errors
    /// The whole seconds to the next one, rounded up, at least 1.
    pub(super) fn charge_share(self: &Arc<Self>, rate: Rate, now_ns: u64) -> Result<(), u64> {
        let (nodes, share) = (self.standing.nodes(), self.standing.share(rate));
        let known_ns = self.level_at_ns.load(Ordering::Acquire);
        if known_ns > 0 {
            let refilled = refilled(rate, now_ns.saturating_sub(known_ns));
            let level = self.level.load(Ordering::Acquire).saturating_add(refilled).clamp(0, i64::from(rate.count));
            self.share.lower(share, u64::try_from(level).unwrap_or(0) / u64::from(nodes), now_ns);
        }
        self.share.charge(share, now_ns)?;
        self.spent.fetch_add(1, Ordering::AcqRel);
        self.report(rate);
        Ok(())
    }

    fn note_rate(&self, rate: Rate) {
        self.rate.store(packed(rate), Ordering::Relaxed);
    }

    /// Has the background task look at this limit.
    fn report(self: &Arc<Self>, rate: Rate) {
        self.note_rate(rate);
        if !self.queued.swap(true, Ordering::AcqRel) {
            // Fails only when the process ends.
            let _ = self.standing.queue.send(Arc::clone(self));
        }
    }

    /// The tokens in hand, for the background task to see whether anybody uses them.
    pub(super) fn in_hand(&self) -> u64 {
        match self.tokens.load(Ordering::Acquire) {
            CREDIT => 0,
            tokens => tokens,
        }
    }

    /// Whether calls were refused and there should be tokens again.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.is_wanted() && now_ns >= self.due_ns.load(Ordering::Acquire)
    }

    fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Acquire)
    }

    /// Whether calls were refused since the store was told last.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// What is to be told to the store now; the caller sends it and ends with [`Self::settle`] or [`Self::lost`].
    pub(super) fn book(&self, quiet: bool) -> Booking {
        self.queued.store(false, Ordering::Release);
        self.wanted.store(false, Ordering::Release);
        let rate = unpacked(self.rate.load(Ordering::Relaxed));
        let owed = self.owed.swap(0, Ordering::AcqRel);
        let spent = self.spent.swap(0, Ordering::AcqRel);
        self.exchange(CREDIT, 0);
        let back = if quiet { self.tokens.swap(0, Ordering::AcqRel) } else { 0 };
        let want = if quiet || self.is_slow() { 0 } else { self.standing.hold(rate).saturating_sub(self.in_hand()) };
        Booking { rate, want, back, owed, spent, quiet }
    }

    /// One token for a call that waits for it.
    pub(super) fn ask(&self, rate: Rate) -> Booking {
        Booking { rate, want: 1, back: 0, owed: 0, spent: 0, quiet: false }
    }

    /// The store has taken a booking of the background task.
    pub(super) fn settle(&self, booking: Booking, answer: Answer, now_ns: u64) {
        self.note(booking.rate, answer, now_ns);
        self.low.store(self.standing.hold(booking.rate) / 2, Ordering::Relaxed);
        self.tokens.fetch_add(answer.taken, Ordering::AcqRel);
        if booking.quiet && answer.wait_ns == 0 {
            self.exchange(0, CREDIT);
        }
    }

    /// The store has answered a call that waits. Tells whether the call has its token.
    ///
    /// # Errors
    /// The whole seconds to the next one, rounded up, at least 1.
    pub(super) fn asked(&self, rate: Rate, answer: Answer, now_ns: u64) -> Result<(), u64> {
        self.note(rate, answer, now_ns);
        if answer.taken > 0 { Ok(()) } else { Err(seconds(answer.wait_ns)) }
    }

    /// A booking of the background task got no answer: whether it was taken is not known. What was used is told again, and
    /// what was given back is lost: the error is on the side of the limit.
    pub(super) fn lost(&self, booking: Booking) {
        self.owed.fetch_add(booking.owed, Ordering::AcqRel);
        self.spent.fetch_add(booking.spent, Ordering::AcqRel);
    }

    fn note(&self, rate: Rate, answer: Answer, now_ns: u64) {
        self.level.store(answer.level, Ordering::Release);
        self.level_at_ns.store(now_ns, Ordering::Release);
        let pause_ns = match answer.wait_ns {
            0 => 0,
            // Its background task fetches the next tokens for all calls at once.
            wait_ns if self.standing.hold(rate) > 0 => wait_ns.max(PAUSE_NS),
            wait_ns => wait_ns,
        };
        if pause_ns > 0 {
            self.exchange(CREDIT, 0);
        }
        self.slow.store(answer.wait_ns > FETCHED_NS_MAX, Ordering::Release);
        self.due_ns.store(now_ns.saturating_add(answer.wait_ns), Ordering::Release);
        self.dry_until_ns.store(now_ns.saturating_add(pause_ns), Ordering::Release);
    }
}

/// Whole seconds, rounded up, at least 1.
fn seconds(wait_ns: u64) -> u64 {
    wait_ns.div_ceil(1_000_000_000).max(1)
}

/// Whole tokens that come back in `passed_ns`.
fn refilled(rate: Rate, passed_ns: u64) -> i64 {
    let tokens = u128::from(passed_ns) * u128::from(rate.count) / rate.per.length().as_nanos().max(1);
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

fn packed(rate: Rate) -> u64 {
    let unit = match rate.per {
        RateUnit::Second => 1,
        RateUnit::Minute => 2,
        RateUnit::Hour => 3,
    };
    (u64::from(rate.count) << 2) | unit
}

fn unpacked(packed: u64) -> Rate {
    let per = match packed & 3 {
        1 => RateUnit::Second,
        2 => RateUnit::Minute,
        _ => RateUnit::Hour,
    };
    Rate { count: u32::try_from(packed >> 2).unwrap_or(u32::MAX), per }
}

#[cfg(test)]
mod tests;
