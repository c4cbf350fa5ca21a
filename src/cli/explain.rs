//! `toolgate explain`.

use std::{fmt::Write as _, process::ExitCode};

use serde_json::{Map, Value as Json};

use super::{
    client::{Api, Failure, put},
    print::{Out, cell},
};

/// What to explain.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The key's id.
    key: String,
    /// The tool's name as a client would send it.
    tool: String,
    /// The path that a client would POST to.
    #[arg(long, default_value = "/gateway/mcp")]
    endpoint: String,
    /// The arguments, as a JSON object.
    #[arg(long)]
    arguments: Option<String>,
    /// Where the call would come from.
    #[arg(long)]
    client_ip: Option<String>,
}

/// Runs the command. A refusal that is explained is no failure.
pub(super) fn run(api: &Api, out: Out, asked: &Arguments) -> Result<ExitCode, Failure> {
    let mut body = Map::new();
    put(&mut body, "key", Some(asked.key.as_str()));
    put(&mut body, "endpoint", Some(asked.endpoint.as_str()));
    put(&mut body, "tool", Some(asked.tool.as_str()));
    put(&mut body, "client_ip", asked.client_ip.as_deref());
    if let Some(text) = &asked.arguments {
        let arguments: Json =
            serde_json::from_str(text).map_err(|why| Failure::Usage(format!("--arguments is not JSON: {why}")))?;
        body.insert("arguments".to_owned(), arguments);
    }
    out.value(&api.post("/v1/explain", Some(&body))?, show)
}

fn show(explained: &Json) -> String {
    let mut out = String::new();
    for check in explained.get("checks").and_then(Json::as_array).into_iter().flatten() {
        let of = |name: &str| cell(check.get(name));
        let mark = match check.get("verdict").and_then(Json::as_str) {
            Some("passed") => "ok",
            Some("refused") => "NO",
            _ => "--",
        };
        let by = check.get("decided_by").map_or(String::new(), |by| format!(" [{}]", cell(Some(by))));
        let _ = writeln!(out, "{mark}  {:<18}  {}{by}", of("check"), of("why"));
    }
    match explained.get("code").filter(|_| explained.get("verdict").and_then(Json::as_str) == Some("refused")) {
        Some(code) => _ = writeln!(out, "\nrefused: {}", cell(Some(code))),
        None => out.push_str("\nallowed\n"),
    }
    out
}
