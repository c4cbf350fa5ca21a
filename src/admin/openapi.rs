//! The OpenAPI document: of the same list of handlers that serves, with what all calls have in common filled in.

use serde_json::Value as Json;
use utoipa::{
    OpenApi,
    openapi::{
        ContentBuilder, InfoBuilder, OpenApi as Document, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::{router, shapes};

/// The document, as it is served and kept as a golden.
#[must_use]
pub fn document() -> Json {
    let (_, mut document) = router::api().split_for_parts();
    for item in document.paths.paths.values_mut() {
        for operation in
            [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter().flatten()
        {
            add_refusals(operation);
        }
    }
    serde_json::to_value(&document).unwrap_or_default()
}

/// What the document begins with.
pub(super) fn head() -> Document {
    let mut document = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Toolgate management API")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(DESCRIPTION))
                .build(),
        )
        .build();
    document.merge(Parts::openapi());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(BEARER)).build();
    if let Some(components) = document.components.as_mut() {
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
    let needs_no_token: [&str; 0] = [];
    document.security = Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", needs_no_token)]);
    document
}

/// Shapes that no handler names.
#[derive(OpenApi)]
#[openapi(components(schemas(shapes::Error)))]
struct Parts;

/// Every call may be refused in these ways; which code means what is in the description.
fn add_refusals(operation: &mut Operation) {
    for (status, what) in [
        ("400", "The call cannot be taken, or the change is refused; `error.code` says why."),
        ("401", "On the TCP listener: no valid token."),
        ("403", "`role_required`: the token's role is not enough."),
        ("404", "`not_found`"),
        ("409", "`managed_by_file` or `revision_conflict`"),
        ("413", "`request_too_large`: a body over 1 MiB."),
        ("415", "`unsupported_media_type`: the body is not JSON."),
        ("429", "Too many failed attempts of this address."),
        ("500", "The gateway failed."),
        ("503", "The store cannot be written; nothing was changed."),
    ] {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Error"))).build();
        let response = ResponseBuilder::new().description(what).content("application/json", content).build();
        operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
    }
}

const BEARER: &str = "On the TCP listener. The unix socket needs none: its file mode lets in.";
const DESCRIPTION: &str = "\
Objects have the shape of the policy files. Objects that a file owns (`managed_by: file`) are changed in the file; `block`, `revoke` \
and re-affirming a pin work on them all the same. A change is live and on disk when it is answered; answers carry the revision as \
`ETag`, and a change made for another revision (`If-Match` or `?expected_revision=`) is refused with 409 `revision_conflict`. \
Lists give a page where `?limit=` is given, and the path of the next one as `next`. \
Codes of 400: `invalid_request`, `invalid_mcp_server_url`, `invalid_mcp_credential`, `mcp_discovery_failed`, `mcp_server_slug_taken`, \
`mcp_tool_name_clash`, `mcp_tool_definition_stale`, `mcp_tool_removed`, `mcp_tool_not_approved`, `mcp_trifecta_unconfirmed`, \
`key_revoked`.";
