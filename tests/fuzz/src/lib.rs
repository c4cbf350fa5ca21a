//! The rooms of Toolgate that decide over bytes that strangers send, compiled without the servers around them: they know no socket, so
//! a fuzz target builds in minutes where the whole gateway takes half an hour under a sanitizer.
#![allow(missing_docs, dead_code)]

#[path = "../../../src/model/mod.rs"]
pub mod model;
#[path = "../../../src/refusal.rs"]
pub mod refusal;

/// Schemas and guardrails.
#[path = "../../../src/policy"]
pub mod policy {
    pub mod guard;
    pub mod schema;
}

/// Which addresses a server may have.
#[path = "../../../src/upstream"]
pub mod upstream {
    pub mod egress;
}

/// Which HTTP is accepted.
#[path = "../../../src/proxy"]
pub mod proxy {
    pub mod framing;
}

/// Envelope, headers and attribution.
#[path = "../../../src/call"]
pub mod call {
    pub mod attribution;
    pub mod headers;
    pub mod parse;
}
