//! Where a schema holds schemas, and where it holds data: the same in every dialect that is known.

/// What stands below a member of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// A schema, an array of schemas, or something that no dialect knows.
    Schema,
    /// An object whose members have names that the author chose, and are schemas.
    Named,
    /// A value that only looks like a schema.
    Data,
}

/// What stands below the member `name` of a schema.
pub(super) fn below(name: &str) -> Below {
    match name {
        "const" | "enum" | "default" | "examples" | "example" => Below::Data,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies" => {
            Below::Named
        }
        _ => Below::Schema,
    }
}
