//! Schemas, compiled once and checked on every call: the only room that knows `jsonschema`.
//!
//! Takes definitions as servers sent them and says what is wrong with them in words that an approver understands; takes
//! values as they were parsed and says where they break a rule. Fetches nothing, ever.
//!
//! **Invariants.** A check that could not be finished failed. No text that leaves this room repeats a value, or a member
//! name that the schema does not name itself.

mod advertise;
mod bounds;
mod compare;
mod compile;
mod keywords;
mod params;
mod tape;
mod tool;
mod violation;

pub use advertise::advertise;
pub use compare::{Effect, effect};
pub use compile::{Role, Schema, SchemaFault};
pub use params::{ParamHeader, ParamKind};
pub use tool::{ToolFault, ToolSchemas};
pub use violation::{VIOLATIONS_MAX, Violation, overruns};

#[cfg(test)]
mod tests;
