//! The management API and its command line (contract §9), through the unix socket of the real binary.

pub mod api;
mod apply;
mod bad_inputs;
mod cli;
mod codes;
mod console;
mod crash;
mod explain;
mod files;
mod keys;
mod many;
mod openapi;
mod review;
mod roles;
mod store;
mod trifecta;
mod users;
mod walk;
