//! Server-sent events, read incrementally by the WHATWG rules.
