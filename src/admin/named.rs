//! What stands below a server in a path: its tools, the credentials of its users. How it is named, and where its list is.

use super::{call::Call, pages, reply::Refused};
use crate::{
    control::{
        Catalog,
        change::{ServerName, ToolName},
    },
    model::records::Server,
};

/// The server of a path and `?organization=`.
///
/// # Errors
/// 404; 400: several organizations have it.
pub(super) fn server<'c>(call: &Call, catalog: &'c Catalog, slug: &str) -> Result<&'c Server, Refused> {
    Ok(&catalog.find::<Server>(call.organization(), slug)?.value)
}

/// The same by its name: whether it is there is judged with the change.
pub(super) fn server_name(call: &Call, slug: &str) -> ServerName {
    ServerName { organization: call.organization().map(str::to_owned), slug: slug.to_owned() }
}

/// The tool of a path and `?organization=`.
pub(super) fn tool(call: &Call, (server, tool): (String, String)) -> ToolName {
    ToolName { organization: call.organization().map(str::to_owned), server, tool }
}

/// Where what is below a server is listed.
pub(super) fn list(server: &Server, name: &str) -> String {
    format!("/v1/servers/{}/{name}", pages::encoded(&server.slug))
}
