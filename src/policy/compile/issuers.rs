//! The issuers of the conf, and what clients are told of them. An issuer whose description did not change keeps its keys.

use std::{collections::HashMap, sync::Arc};

use serde_json::json;
use url::Url;

use super::{Handles, Inputs, egress_rules};
use crate::{
    conf::{Conf, Fault},
    model::{id::KeyDigest, units::shown},
    policy::{
        issuers::Issuer,
        snapshot::{Resource, Token, WELL_KNOWN},
    },
    upstream::{
        egress::judge_url,
        target::{Credential, Target, TlsOptions},
    },
};

/// The issuers; one whose address the egress rules do not let through, or whose organization is not there, is left out and told of.
pub(super) fn issuers(inputs: &Inputs<'_>, handles: &mut Handles) -> (Vec<Arc<Issuer>>, Vec<Fault>) {
    let conf = inputs.conf;
    let (mut issuers, mut faults) = (Vec::new(), Vec::new());
    for one in &conf.auth.issuers {
        if !inputs.records.organizations.iter().any(|owned| owned.value.id == one.organization) {
            let text = format!("auth.issuers: there is no organization `{}`", shown(&one.organization));
            faults.push(Fault::warning(None, text));
        }
        let rules = Arc::new(egress_rules(conf));
        let endpoint = match judge_url(&one.jwks_url, &rules) {
            Ok(endpoint) => endpoint,
            Err(why) => {
                let text = format!("auth.issuers: `{}`: jwks_url: {why}", shown(&one.issuer));
                faults.push(Fault::error(None, text));
                continue;
            }
        };
        let target = Target {
            endpoint,
            rules,
            credential: Credential::default(),
            tls: Arc::new(TlsOptions::default()),
            connect_timeout: conf.timeouts.connect.0,
            timeout: conf.timeouts.call.0,
            http2: false,
        };
        let audience = one.audience.clone().or_else(|| conf.auth.resource.clone()).unwrap_or_default();
        let known = handles.issuers.iter().find(|known| known.is_of(one, &audience, &target)).cloned();
        issuers.push(known.unwrap_or_else(|| Arc::new(Issuer::new(one.clone(), audience, Arc::new(target)))));
    }
    handles.issuers.clone_from(&issuers);
    (issuers, faults)
}

/// The keys by id, where tokens of issuers may stand for them.
pub(super) fn by_id(inputs: &Inputs<'_>, keys: &HashMap<KeyDigest, Token>) -> HashMap<Arc<str>, Token> {
    if inputs.conf.auth.issuers.is_empty() {
        return HashMap::new();
    }
    let of_key = |key: &crate::model::records::Key| {
        keys.get(&key.sha256).map(|token| (Arc::clone(&token.key.id), token.clone()))
    };
    inputs.records.keys.iter().filter_map(|owned| of_key(&owned.value)).collect()
}

/// What the gateway says of itself as a protected resource (RFC 9728); none without issuers.
pub(super) fn resource(conf: &Conf) -> Option<Resource> {
    let resource = conf.auth.resource.as_deref().filter(|_| !conf.auth.issuers.is_empty())?;
    let url = Url::parse(resource).ok()?;
    let path = url.path().trim_end_matches('/');
    let metadata_url = format!("{}{WELL_KNOWN}{path}", url.origin().ascii_serialization());
    let servers: Vec<&str> = conf.auth.issuers.iter().map(|one| one.issuer.as_str()).collect();
    let document = json!({
        "resource": resource,
        "resource_name": conf.gateway.product,
        "authorization_servers": servers,
        "bearer_methods_supported": ["header"],
    });
    Some(Resource { metadata_url, document: document.to_string() })
}
