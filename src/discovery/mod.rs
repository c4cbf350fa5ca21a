//! What tools a server has: asks for them, settles the server's era, and keeps asking (contract §6).
//!
//! Never runs on a call's path. Knows nothing of approvals: it hands over what the server said, byte for byte; the control
//! room decides what that changes.

mod listing;
mod plan;
mod schedule;

pub use listing::{
    DiscoveryError, LISTING_BYTES_MAX, LISTING_TIMEOUT, ListedTool, Listing, PAGES_MAX, TOOLS_MAX, list_tools,
};
pub use plan::{AFTER_CHANGE_MIN_MS, Plan};
pub use schedule::{Apply, Asked, FIRST_ROUND_MAX, Found, Outcome, Schedule, Settings};
