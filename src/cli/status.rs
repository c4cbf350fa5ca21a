//! `toolgate status`, `toolgate reload` and `toolgate upgrade`.

use std::process::ExitCode;

use serde_json::Value as Json;

use super::{
    client::{Api, Failure},
    print::{self, Out, cell},
};

/// Runs `status`.
pub(super) fn run(api: &Api, out: Out) -> Result<ExitCode, Failure> {
    out.value(&api.get("/v1/status")?, with_warnings)
}

/// Runs `reload`.
pub(super) fn reload(api: &Api, out: Out) -> Result<ExitCode, Failure> {
    out.value(&api.post("/v1/reload", None)?, with_warnings)
}

/// Runs `upgrade`.
pub(super) fn upgrade(api: &Api, out: Out) -> Result<ExitCode, Failure> {
    out.value(&api.post("/v1/upgrade", None)?, print::members)
}

/// The members, then a line a warning.
fn with_warnings(answer: &Json) -> String {
    let mut rest = answer.clone();
    let warnings = rest.as_object_mut().and_then(|members| members.remove("warnings")).unwrap_or_default();
    let lines: String =
        warnings.as_array().into_iter().flatten().map(|line| format!("{}\n", cell(Some(line)))).collect();
    print::members(&rest) + &lines
}
