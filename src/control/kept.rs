//! The objects that the management API makes, one trait for all: where they stand in the records, what they are called, how they
//! are written in the store. Knows no change and no rule.

use serde_json::Value as Json;

use crate::{
    conf::{Fault, policy as written},
    model::records::{Grant, Guardrail, Key, Organization, Owned, Project, Records, Server},
    store::StoredObject,
};

/// An object that the management API can make.
pub trait Kept: Clone + PartialEq + Sized {
    /// What it is called in a policy file, in the store and in messages.
    const KIND: &'static str;
    /// Where it stands.
    fn list(records: &Records) -> &Vec<Owned<Self>>;
    /// Where it stands, to be changed.
    fn list_mut(records: &mut Records) -> &mut Vec<Owned<Self>>;
    /// Its organization; empty for what has none of its own.
    fn home(&self) -> &str;
    /// Its name: unique of its kind in its organization; a grant's is `server/key`.
    fn name(&self) -> String;
    /// Reads the written shape.
    ///
    /// # Errors
    /// Every fault.
    fn read(json: &Json) -> Result<Self, Vec<Fault>>;
    /// The written shape.
    fn write(&self) -> Json;
    /// Whether its name is unique across organizations, so that the store keeps it under none.
    const IS_GLOBAL: bool = false;

    /// As the store keeps it.
    fn stored(&self) -> StoredObject {
        let organization = if Self::IS_GLOBAL { String::new() } else { self.home().to_owned() };
        StoredObject { kind: Self::KIND.to_owned(), organization, id: self.name(), json: self.write().to_string() }
    }
}

macro_rules! kept {
    ($($name:ident $kind:literal $list:ident $global:literal $read:ident $write:ident, $home:expr, $called:expr;)+) => {$(
        impl Kept for $name {
            const KIND: &'static str = $kind;
            const IS_GLOBAL: bool = $global;
            fn list(records: &Records) -> &Vec<Owned<Self>> {
                &records.$list
            }
            fn list_mut(records: &mut Records) -> &mut Vec<Owned<Self>> {
                &mut records.$list
            }
            fn home(&self) -> &str {
                let home: fn(&Self) -> &str = $home;
                home(self)
            }
            fn name(&self) -> String {
                let called: fn(&Self) -> String = $called;
                called(self)
            }
            fn read(json: &Json) -> Result<Self, Vec<Fault>> {
                written::$read(json)
            }
            fn write(&self) -> Json {
                written::$write(self)
            }
        }
    )+};
}

kept! {
    Organization "organization" organizations true organization_from_json organization_to_json, |_| "", |o| o.id.clone();
    Project "project" projects false project_from_json project_to_json, |p| &p.organization, |p| p.id.clone();
    Server "server" servers false server_from_json server_to_json, |s| &s.organization, |s| s.slug.clone();
    Key "key" keys true key_from_json key_to_json, |k| &k.organization, |k| k.id.clone();
    Grant "grant" grants true grant_from_json grant_to_json, |_| "", |g| format!("{}/{}", g.server, g.key);
    Guardrail "guardrail" guardrails false guardrail_from_json guardrail_to_json, |g| &g.organization, |g| g.name.clone();
}
