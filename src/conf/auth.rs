//! OAuth as the conf names it: the issuers whose tokens are taken beside keys, and what the gateway is called in them.

use super::{
    codec::{Id, Opt, Text},
    fault::Fault,
    net::{Urls, WebAddress},
    options::Conf,
    read::{Form, Member, Reader, members},
    sections::Sections,
};
use crate::model::units::shown;

/// An issuer of tokens (JWTs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIssuer {
    /// `iss`, byte for byte.
    pub issuer: String,
    /// Where its public keys are.
    pub jwks_url: String,
    /// The only organization whose keys its tokens may stand for.
    pub organization: String,
    /// What `aud` must hold; none: `auth.resource`.
    pub audience: Option<String>,
    /// The claim whose value is the id of a key.
    pub claim: String,
}

impl Form for TokenIssuer {
    const MEMBERS: &'static [Member<Self>] = members! {
        issuer: WebAddress, required;
        jwks_url: Urls, required;
        organization: Id, required;
        audience: Opt<Text>;
        claim: Text;
    };
    fn blank() -> Self {
        let empty = String::new;
        Self { issuer: empty(), jwks_url: empty(), organization: empty(), audience: None, claim: "sub".into() }
    }
}

/// Issuers are told apart by name, and tell clients what they ask tokens for.
pub(super) fn check(reader: &mut Reader<'_>, conf: &Conf, places: &Sections) {
    let issuers = &conf.auth.issuers;
    let at = |index| places.of("auth").and_then(|places| places.item("issuers", index)).unwrap_or_default();
    for (index, one) in issuers.iter().enumerate() {
        if issuers.iter().take(index).any(|other| other.issuer == one.issuer) {
            reader.fault(&at(index), format!("`auth.issuers` names `{}` twice", shown(&one.issuer)));
        }
    }
    match &conf.auth.resource {
        None if !issuers.is_empty() => reader.fault(&at(0), "`auth.issuers` needs `auth.resource` beside it"),
        Some(resource) if !resource.ends_with(conf.gateway.base_path.as_str()) || resource.ends_with('/') => {
            let place = places.of("auth").and_then(|places| places.of("resource"));
            let origin = place.and_then(|place| reader.origin(&place));
            let base = &conf.gateway.base_path;
            let message = format!(
                "`auth.resource` does not end in `gateway.base_path` (`{base}`): clients compare it with the address that they call"
            );
            reader.faults.push(Fault::warning(origin, message));
        }
        _ => {}
    }
}
