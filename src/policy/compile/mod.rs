//! Conf and records to a snapshot: collects every fault, compiles every schema, rule and route; fails closed (architecture 1.7).
//!
//! What cannot be compiled for one tool or server isolates that one; what makes the policy ambiguous or unsafe is a fault, and
//! the running snapshot stays. Reads no file, no clock and no store.

mod clash;
mod guards;
mod handles;
mod issuers;
mod tools;
mod users;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::AtomicU64},
};

pub use self::{
    guards::{GuardScope, Whom, guard_plan},
    handles::Handles,
};
use super::{
    guard::{self, GuardPlan, GuardRule},
    snapshot::{OrganizationPolicy, ServerPolicy, Settings, Snapshot, ToolPolicy},
    users::UserSecret,
    views,
};
use crate::{
    budget::Scope,
    conf::{Conf, Fault, FaultCode, FileSpan},
    model::{
        mcp::Revision,
        records::{Approval, Detector, GuardStage, Guardrail, Origin, Owned, Protocol, Records, Server, ToolRecord},
    },
    upstream::{
        egress::{EgressRules, UrlFault, judge_url},
        engine::Engine,
        target::{Credential, CredentialFault, Target, TlsOptions},
    },
};

/// What a server's secrets resolved to; read by the control plane, never kept in a record.
#[derive(Clone, Debug, Default)]
pub struct ServerSecrets {
    /// Header name and value.
    pub credential: Vec<(String, Vec<u8>)>,
    /// TLS material.
    pub tls: TlsOptions,
    /// Why some of it could not be read, in words without any value.
    pub faults: Vec<String>,
}

/// Everything that a snapshot is compiled from.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The conf.
    pub conf: &'a Conf,
    /// The policy.
    pub records: &'a Records,
    /// By organization and slug.
    pub secrets: &'a HashMap<(String, String), ServerSecrets>,
    /// Credentials of users, by organization and slug.
    pub users: &'a HashMap<(String, String), Vec<Arc<UserSecret>>>,
    /// The store's key for `requestState`.
    pub state_key: [u8; 32],
    /// The revision of the store.
    pub revision: u64,
    /// Seconds since 1970.
    pub created: i64,
    /// Milliseconds of the clock of breakers.
    pub now_ms: u64,
}

/// Compiles a snapshot; the warnings go along with it.
///
/// # Errors
/// Every fault, if any is an error.
pub fn compile(inputs: &Inputs<'_>, handles: &mut Handles) -> Result<(Snapshot, Vec<Fault>), Vec<Fault>> {
    if let Err(why) = guard::warm() {
        return Err(vec![Fault::error(None, format!("the shipped guardrail rules: {why}"))]);
    }
    let mut pins: HashMap<ToolKey<'_>, HashMap<&str, &Approval>> = HashMap::new();
    for Owned { value: pin, .. } in &inputs.records.approvals {
        pins.entry((&pin.organization, &pin.server)).or_default().insert(&pin.tool, pin);
    }
    let discovered = inputs.records.discoveries.iter();
    let discovered =
        discovered.filter_map(|d| Some(((d.organization.as_str(), d.server.as_str()), d.revision?))).collect();
    let mut compiler = Compiler { inputs, handles, faults: Vec::new(), plans: HashMap::new(), pins, discovered };
    let settings = Arc::new(settings(inputs));
    let organizations = compiler.organizations();
    let keys = views::keys(inputs.records, &organizations, &mut compiler.handles.buckets);
    let mut faults = compiler.faults;
    let (issuers, more) = issuers::issuers(inputs, handles);
    faults.extend(more);
    if inputs.conf.rate_limits.url.is_some() {
        faults.extend(views::small_limits(inputs.records));
    }
    if faults.iter().any(Fault::is_error) {
        return Err(faults);
    }
    handles.definitions.retain(|_, kept| matches!(&kept.schemas, Ok(schemas) if Arc::strong_count(schemas) > 1));
    handles.engines.retain(|_, engine| Arc::strong_count(engine) > 1);
    handles.users.retain(|_, access| Arc::strong_count(access) > 1);
    handles.buckets.sweep();
    let snapshot = Snapshot {
        revision: inputs.revision,
        created: inputs.created,
        settings,
        issuers,
        by_id: issuers::by_id(inputs, &keys),
        keys,
        organizations,
        list_cache_bytes: AtomicU64::new(0),
    };
    Ok((snapshot, faults))
}

/// The rules by which a conf lets servers be reached.
#[must_use]
pub fn egress_rules(conf: &Conf) -> EgressRules {
    let gateway = conf.gateway.listen.iter().map(|listen| &listen.address);
    let own = gateway.chain(conf.ops.listen.as_ref()).filter_map(|address| match address {
        crate::conf::Address::Tcp(address) => Some(*address),
        crate::conf::Address::Unix(_) => None,
    });
    EgressRules {
        allow_http: conf.egress.allow_http,
        allow_networks: conf.egress.allow_networks.clone(),
        own_addresses: own.chain(conf.admin.listen).collect(),
    }
}

/// Why a server cannot be spoken to.
#[derive(Debug, thiserror::Error)]
pub enum TargetFault {
    /// Its URL.
    #[error(transparent)]
    Url(#[from] UrlFault),
    /// A header of its credential.
    #[error(transparent)]
    Credential(#[from] CredentialFault),
}

/// How a server is spoken to, by the conf's egress rules.
///
/// # Errors
/// [`TargetFault`]
pub fn target_of(server: &Server, secrets: &ServerSecrets, conf: &Conf) -> Result<Target, TargetFault> {
    let rules = Arc::new(egress_rules(conf));
    let endpoint = judge_url(&server.url, &rules)?;
    let headers = secrets.credential.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    Ok(Target {
        endpoint,
        rules,
        credential: Credential::new(headers, &conf.attribution.prefix)?,
        tls: Arc::new(secrets.tls.clone()),
        connect_timeout: conf.timeouts.connect.0,
        timeout: server.timeout.unwrap_or(conf.timeouts.call).0,
        http2: server.http2,
    })
}

/// What the line needs of a conf.
#[must_use]
pub fn settings(inputs: &Inputs<'_>) -> Settings {
    let conf = inputs.conf;
    Settings {
        product: conf.gateway.product.clone(),
        console: conf.gateway.console.clone(),
        base_path: conf.gateway.base_path.trim_end_matches('/').to_owned(),
        allowed_origins: conf.gateway.allowed_origins.clone(),
        trusted_proxies: conf.gateway.trusted_proxies.clone(),
        attribution_prefix: conf.attribution.prefix.to_ascii_lowercase(),
        attribution_prefix_written: conf.attribution.prefix.clone(),
        arguments_bytes_max: conf.limits.arguments.0,
        body_bytes_max: conf.limits.request_body.0,
        headers_bytes_max: conf.limits.headers.0,
        in_flight_max: u64::from(conf.limits.in_flight),
        list_cache_bytes_max: conf.limits.list_cache.0,
        request_body_timeout: conf.timeouts.request_body.0,
        request_header_timeout: conf.timeouts.request_header.0,
        keep_alive_timeout: conf.timeouts.keep_alive.0,
        connect_timeout: conf.timeouts.connect.0,
        drain_timeout: conf.timeouts.drain.0,
        failed_auth: conf.rate_limits.failed_auth,
        discovery_interval: conf.discovery.interval.0,
        discovery_max_age: conf.discovery.max_age.0,
        state_key: inputs.state_key,
        resource: issuers::resource(conf),
    }
}

type ToolKey<'a> = (&'a str, &'a str);
/// A guardrail as written and as compiled.
type Rule = (Guardrail, Arc<GuardRule>);

struct Compiler<'c, 'i> {
    inputs: &'i Inputs<'i>,
    handles: &'c mut Handles,
    faults: Vec<Fault>,
    /// Plans that are the same list of rules are one plan.
    plans: HashMap<(Arc<str>, Vec<usize>), Arc<GuardPlan>>,
    /// The files' pins, by server and then by tool.
    pins: HashMap<ToolKey<'i>, HashMap<&'i str, &'i Approval>>,
    /// What discovery settled, by server.
    discovered: HashMap<ToolKey<'i>, Revision>,
}

impl Compiler<'_, '_> {
    fn organizations(&mut self) -> HashMap<Arc<str>, Arc<OrganizationPolicy>> {
        let records = self.inputs.records;
        let mut tools: HashMap<ToolKey<'_>, Vec<&ToolRecord>> = HashMap::new();
        for tool in &records.tools {
            tools.entry((&tool.organization, &tool.server)).or_default().push(tool);
        }
        let mut servers: HashMap<&str, Vec<&Owned<Server>>> = HashMap::new();
        for server in &records.servers {
            servers.entry(&server.value.organization).or_default().push(server);
        }
        let mut organizations = HashMap::new();
        for organization in &records.organizations {
            let name = organization.value.id.as_str();
            let id: Arc<str> = name.into();
            let rules = guards::rules(self.inputs.records, &id, &mut self.faults);
            let engines = self.engines(name);
            let mut list = servers.remove(name).unwrap_or_default();
            list.sort_by(|a, b| a.value.slug.cmp(&b.value.slug));
            let isolated = clash::find(&list, &tools);
            let mut policy =
                OrganizationPolicy { id: Arc::clone(&id), servers: HashMap::new(), exposed: HashMap::new(), engines };
            for server in list {
                let known = tools.remove(&(name, server.value.slug.as_str())).unwrap_or_default();
                let Some(server) = self.server(&id, server, &known, (&rules, &isolated)) else { continue };
                let server = Arc::new(server);
                for tool in server.tools.values() {
                    policy
                        .exposed
                        .entry(Arc::clone(&tool.exposed))
                        .and_modify(|held: &mut (Arc<ServerPolicy>, Arc<ToolPolicy>)| {
                            // The isolated one of two that clash never takes the name.
                            if isolated.contains(&(held.0.slug.to_string(), held.1.name.to_string())) {
                                *held = (Arc::clone(&server), Arc::clone(tool));
                            }
                        })
                        .or_insert_with(|| (Arc::clone(&server), Arc::clone(tool)));
                }
                policy.servers.insert(Arc::clone(&server.slug), server);
            }
            organizations.insert(id, Arc::new(policy));
        }
        organizations
    }

    /// The organization's external engines; an address that the egress rules do not let through is a fault.
    fn engines(&mut self, organization: &str) -> HashMap<Arc<str>, Arc<Engine>> {
        let conf = self.inputs.conf;
        let rules = Arc::new(egress_rules(conf));
        let mut engines = HashMap::new();
        for rule in self.inputs.records.guardrails.iter().filter(|rule| rule.value.organization == organization) {
            let Detector::Engine { url, timeout } = &rule.value.detector else { continue };
            let endpoint = match judge_url(url, &rules) {
                Ok(endpoint) => endpoint,
                Err(fault) => {
                    let text = format!("guardrail `{}`: url: {fault}", rule.value.name);
                    self.faults.push(Fault::error(FileSpan::of(&rule.origin), text));
                    continue;
                }
            };
            let target = Target {
                endpoint,
                rules: Arc::clone(&rules),
                credential: Credential::default(),
                tls: Arc::new(TlsOptions::default()),
                connect_timeout: conf.timeouts.connect.0.min(timeout.0),
                timeout: timeout.0,
                http2: false,
            };
            let key = (organization.to_owned(), rule.value.name.clone());
            let known = self.handles.engines.get(&key).filter(|engine| engine.is_at(&target, timeout.0)).cloned();
            let engine = known.unwrap_or_else(|| Arc::new(Engine::new(target, timeout.0, self.inputs.now_ms)));
            self.handles.engines.insert(key, Arc::clone(&engine));
            engines.insert(rule.value.name.as_str().into(), engine);
        }
        engines
    }

    fn server(
        &mut self,
        organization: &Arc<str>,
        owned: &Owned<Server>,
        known: &[&ToolRecord],
        (rules, isolated): (&[Rule], &HashSet<(String, String)>),
    ) -> Option<ServerPolicy> {
        let server = &owned.value;
        let secrets = self.inputs.secrets.get(&(server.organization.clone(), server.slug.clone()));
        let secrets = secrets.cloned().unwrap_or_default();
        let target = self.target(owned, &secrets)?;
        let mask = self.mask(owned, &secrets)?;
        let full_name: Arc<str> = format!("{organization}/{}", server.slug).into();
        let upstream = self.handles.upstreams.obtain(full_name, target, self.inputs.now_ms);
        let scope = || Scope::Server(organization.to_string(), server.slug.clone());
        let rate = server.rate_limit.map(|rate| self.handles.buckets.obtain(scope(), rate));
        let name: ToolKey<'_> = (&server.organization, &server.slug);
        let discovered = self.discovered.get(&name).copied();
        let pins = self.pins.get(&name).cloned().unwrap_or_default();
        let mut tools = HashMap::new();
        for record in known {
            let clash = isolated.contains(&(server.slug.clone(), record.name.clone()));
            let tool = self.tool(server, record, pins.get(record.name.as_str()).copied(), (rules, clash, &mask));
            tools.insert(Arc::clone(&tool.name), Arc::new(tool));
        }
        let conf = self.inputs.conf;
        Some(ServerPolicy {
            organization: Arc::clone(organization),
            slug: server.slug.as_str().into(),
            enabled: server.enabled,
            revision: match server.protocol {
                Protocol::Fixed(revision) => Some(revision),
                Protocol::Auto => discovered,
            },
            session: server.session,
            timeout: server.timeout.unwrap_or(conf.timeouts.call).0,
            result_bytes_max: server.result_limit.unwrap_or(conf.limits.result).0,
            rate,
            max_in_flight: server.max_in_flight,
            mask,
            passthrough: server.passthrough.clone(),
            passing: [GuardStage::Input, GuardStage::Output].map(|stage| self.guards(server, None, rules, stage)),
            users: self.users(owned, &upstream.target),
            upstream,
            tools,
        })
    }

    /// How the server is spoken to. A URL that the egress rules do not let through is a fault of a file; a server of the API is
    /// left out then. A secret that cannot be read is a warning, and the server refuses the calls that need it.
    fn target(&mut self, owned: &Owned<Server>, secrets: &ServerSecrets) -> Option<Target> {
        let (server, conf) = (&owned.value, self.inputs.conf);
        let origin = FileSpan::of(&owned.origin);
        for why in &secrets.faults {
            self.faults.push(Fault::warning(origin.clone(), format!("server `{}`: {why}", server.slug)));
        }
        match target_of(server, secrets, conf) {
            Ok(target) => Some(target),
            Err(TargetFault::Credential(why)) => {
                let fault = server_fault(owned, format!("server `{}`: {why}", server.slug));
                self.faults.push(fault.of(FaultCode::InvalidCredential));
                target_of(server, &ServerSecrets { tls: secrets.tls.clone(), ..ServerSecrets::default() }, conf).ok()
            }
            Err(TargetFault::Url(why)) => {
                let hint = "`egress.allow_http` and `egress.allow_networks` open private servers";
                let fault = server_fault(owned, format!("server `{}`: url: {why}", server.slug)).hint(hint);
                self.faults.push(fault.of(FaultCode::InvalidUrl));
                None
            }
        }
    }
}

/// A fault of a server that cannot be compiled: an error in a file; what the API made is left out with a warning.
fn server_fault(owned: &Owned<Server>, message: String) -> Fault {
    match owned.origin {
        Origin::File { .. } => Fault::error(FileSpan::of(&owned.origin), message),
        Origin::Api => Fault::warning(None, message),
    }
}
