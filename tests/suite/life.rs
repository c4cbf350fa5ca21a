//! The life of the process: start, drain, reload, certificates, and what operators see of it (contract §1, §10, §11).

mod certificates;
mod drain;
mod load;
mod reload;
mod series;
mod service;
