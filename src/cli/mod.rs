//! Commands: a file each.

pub mod demo_server;
