//! The management API and its command line (contract §9), through the unix socket of the real binary.

mod api;
mod bad_inputs;
mod cli;
mod codes;
mod crash;
mod explain;
mod files;
mod keys;
mod openapi;
mod review;
mod roles;
mod trifecta;
mod users;
