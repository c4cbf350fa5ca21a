//! A change in preparation: copies of what may change, the writes that store it, the audit record that tells of it. Nothing of it
//! is live before it is committed, and dropping it undoes it.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Value as Json, json};

use super::kept::Kept;
use crate::{
    conf::{self, Conf, Fault, Policy, Sources},
    model::records::{
        Approval, DiscoveryRecord, Grant, Guardrail, Key, Organization, Origin, Owned, Project, Records, Server,
        ToolRecord, UserCredential,
    },
    policy::approval::{self, Move, Recording},
    store::{AuditRecord, StoredObject, Write},
};

/// What is kept on top of objects that files own.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides {
    /// Keys that were revoked through the API.
    pub(super) revoked: BTreeSet<String>,
    /// Keys whose trifecta was confirmed through the API.
    pub(super) confirmed: BTreeSet<String>,
}

/// The overrides' kinds in the store.
pub(super) const REVOKED: &str = "revoked";
pub(super) const CONFIRMED: &str = "trifecta";

/// An object by kind, organization and name.
type Name = (&'static str, String, String);
/// What is left out; of a guardrail, what is left of it.
pub(super) type LeftOut = HashMap<Name, Option<Guardrail>>;

/// The state to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Next {
    pub(super) conf: Arc<Conf>,
    pub(super) files: Arc<Policy>,
    pub(super) sources: Arc<Sources>,
    /// Objects that the API made; tools and discoveries stay empty here.
    pub(super) api: Records,
    /// Objects of the API that refer to what files no longer have: kept, and left out until it comes back.
    pub(super) left_out: LeftOut,
    pub(super) overrides: Overrides,
    pub(super) tools: Vec<ToolRecord>,
    pub(super) discoveries: Vec<DiscoveryRecord>,
    pub(super) users: Vec<UserCredential>,
    pub(super) writes: Vec<Write>,
    pub(super) audit: Vec<AuditRecord>,
    /// Tools that go from one state to another, by server.
    pub(super) moves: Vec<(String, Move)>,
}

impl Next {
    /// Adds an audit record.
    pub(super) fn note(
        &mut self,
        who: &str,
        what: &str,
        (home, target): (&str, &str),
        change: (Option<Json>, Option<Json>),
    ) {
        let text = |json: Option<Json>| json.map(|json| without_query(json).to_string());
        self.audit.push(AuditRecord {
            at: Timestamp::now(),
            who: who.to_owned(),
            what: what.to_owned(),
            organization: home.to_owned(),
            target: target.to_owned(),
            before: text(change.0),
            after: text(change.1),
        });
    }

    pub(super) fn put_override(&mut self, kind: &str, id: &str, json: &Json) {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        self.writes.push(Write::PutOverride(StoredObject {
            kind,
            organization: String::new(),
            id,
            json: json.to_string(),
        }));
    }

    pub(super) fn delete_override(&mut self, kind: &str, id: &str) {
        self.writes.push(Write::DeleteOverride {
            kind: kind.to_owned(),
            organization: String::new(),
            id: id.to_owned(),
        });
    }

    /// The objects of files and API together, with the overrides on top. The records are whole only if no fault is an error.
    pub(super) fn resolve(&self) -> (Records, Vec<Fault>) {
        let mut policy = Policy::clone(&self.files);
        policy.add(if self.left_out.is_empty() { self.api.clone() } else { self.without_left_out() });
        let (mut records, mut faults) = conf::resolve(policy, &self.conf, &self.sources);
        for key in records.keys.iter_mut().filter(|key| self.overrides.revoked.contains(&key.value.id)) {
            if !key.value.revoked {
                let message = format!("key `{}` was revoked through the API and stays revoked", key.value.id);
                faults.push(Fault::warning(conf::FileSpan::of(&key.origin), message));
            }
            key.value.revoked = true;
        }
        faults.extend(self.left_out.keys().map(|(kind, _, name)| {
            Fault::warning(
                None,
                format!("{kind} `{name}`, made through the API, names what no longer exists: it is left out"),
            )
        }));
        (records, faults)
    }

    /// Settles which objects of the API refer to nothing, after the files were read anew.
    pub(super) fn leave_out_dangling(&mut self) {
        self.left_out.clear();
        if is_empty(&self.api) {
            return;
        }
        // What refers to something that is left out is found in the next round.
        loop {
            let mut policy = Policy::clone(&self.files);
            policy.add(self.without_left_out());
            let known = Known::of(&conf::resolve(policy, &self.conf, &self.sources).0);
            let before = self.left_out.len();
            self.left_out.extend(known.dangling(&self.api));
            if self.left_out.len() == before {
                return;
            }
        }
    }

    /// Forgets what is no longer to be left out: an object that was deleted, or whose references exist again.
    pub(super) fn retain_left_out(&mut self, records: &Records) {
        if self.left_out.is_empty() {
            return;
        }
        let mut all = records.clone();
        all.organizations.extend(self.api.organizations.iter().cloned());
        let still = Known::of(&all).dangling(&self.api);
        self.left_out.retain(|name, rest| still.get(name).is_some_and(|now| now == rest));
    }

    fn without_left_out(&self) -> Records {
        fn kept<T: Kept>(list: &[Owned<T>], out: &LeftOut) -> Vec<Owned<T>> {
            list.iter().filter(|owned| !out.contains_key(&named(&owned.value))).cloned().collect()
        }
        let (api, out) = (&self.api, &self.left_out);
        let guardrails = api.guardrails.iter().filter_map(|owned| match out.get(&named(&owned.value)) {
            None => Some(owned.clone()),
            Some(rest) => rest.clone().map(|value| Owned { value, origin: Origin::Api }),
        });
        Records {
            organizations: kept(&api.organizations, out),
            projects: kept(&api.projects, out),
            servers: kept(&api.servers, out),
            keys: kept(&api.keys, out),
            grants: kept(&api.grants, out),
            guardrails: guardrails.collect(),
            ..Records::default()
        }
    }

    /// Makes the files' pins known to the tools' records: an edited pin is a new approval, a pinned name is a known name.
    pub(super) fn adopt_pins(&mut self, records: &Records) {
        let mut pins: HashMap<(&str, &str), Vec<&Approval>> = HashMap::new();
        for pin in &records.approvals {
            pins.entry((&pin.value.organization, &pin.value.server)).or_default().push(&pin.value);
        }
        let numbers = approval::next_recorded(&self.tools).into_iter();
        let numbers: HashMap<String, i64> = numbers.map(|(home, number)| (home.to_owned(), number)).collect();
        let mut known: HashMap<(String, String), Vec<ToolRecord>> = HashMap::new();
        for tool in self.tools.drain(..) {
            known.entry((tool.organization.clone(), tool.server.clone())).or_default().push(tool);
        }
        for ((organization, server), pins) in pins {
            let tools = known.remove(&(organization.to_owned(), server.to_owned())).unwrap_or_default();
            let recorded = numbers.get(organization).copied().unwrap_or(approval::FIRST_RECORDED);
            let applied = approval::apply_pins(tools, Recording { organization, server, recorded }, &pins);
            self.writes.extend(applied.written.iter().cloned().map(Write::PutTool));
            self.tools.extend(applied.written);
            self.tools.extend(applied.unchanged);
        }
        self.tools.extend(known.into_values().flatten());
    }
}

/// What objects can refer to.
struct Known {
    organizations: HashSet<String>,
    projects: HashSet<(String, String)>,
    servers: HashSet<(String, String)>,
    keys: HashMap<String, String>,
}

impl Known {
    fn of(records: &Records) -> Self {
        Self {
            organizations: records.organizations.iter().map(|o| o.value.id.clone()).collect(),
            projects: records.projects.iter().map(|p| (p.value.organization.clone(), p.value.id.clone())).collect(),
            servers: records.servers.iter().map(|s| (s.value.organization.clone(), s.value.slug.clone())).collect(),
            keys: records.keys.iter().map(|k| (k.value.id.clone(), k.value.organization.clone())).collect(),
        }
    }

    /// The objects of the API that refer to nothing; of a guardrail also what is left of it.
    fn dangling(&self, api: &Records) -> LeftOut {
        let pair = |home: &str, name: &str| (home.to_owned(), name.to_owned());
        let project = |home: &str, id: &str| self.projects.contains(&pair(home, id));
        let server = |home: &str, slug: &str| self.servers.contains(&pair(home, slug));
        let homeless = |home: &str| !self.organizations.contains(home);
        let mut out = LeftOut::new();
        for Owned { value: p, .. } in &api.projects {
            if homeless(&p.organization) {
                out.insert(named(p), None);
            }
        }
        for Owned { value: s, .. } in &api.servers {
            if homeless(&s.organization) || !s.projects.iter().all(|id| project(&s.organization, id)) {
                out.insert(named(s), None);
            }
        }
        for Owned { value: k, .. } in &api.keys {
            if homeless(&k.organization) || !project(&k.organization, &k.project) {
                out.insert(named(k), None);
            }
        }
        for Owned { value: g, .. } in &api.grants {
            if self.keys.get(&g.key).is_none_or(|home| !server(home, &g.server)) {
                out.insert(named(g), None);
            }
        }
        for Owned { value: g, .. } in &api.guardrails {
            let mut rest = g.clone();
            rest.servers.retain(|slug| server(&g.organization, slug));
            rest.projects.retain(|id| project(&g.organization, id));
            // A list that became empty would mean all.
            let gone = homeless(&g.organization)
                || rest.servers.is_empty() != g.servers.is_empty()
                || rest.projects.is_empty() != g.projects.is_empty();
            if gone || rest != *g {
                out.insert(named(g), (!gone).then_some(rest));
            }
        }
        out
    }
}

fn named<T: Kept>(object: &T) -> Name {
    (T::KIND, object.home().to_owned(), object.name())
}

fn is_empty(api: &Records) -> bool {
    api.projects.is_empty()
        && api.servers.is_empty()
        && api.keys.is_empty()
        && api.grants.is_empty()
        && api.guardrails.is_empty()
}

/// A URL's query may hold a secret, and an audit record never does.
fn without_query(mut json: Json) -> Json {
    if let Some(url) = json.get_mut("url")
        && let Some((before, _)) = url.as_str().and_then(|url| url.split_once('?'))
    {
        *url = Json::from(format!("{before}?…"));
    }
    json
}

/// Reads what the store keeps: objects of the API and overrides.
///
/// # Errors
/// An object that cannot be read back, in words.
pub(super) fn read_stored(
    objects: &[StoredObject],
    overrides: &[StoredObject],
) -> Result<(Records, Overrides), String> {
    let mut api = Records::default();
    for object in objects {
        match object.kind.as_str() {
            Organization::KIND => read_one::<Organization>(&mut api, object)?,
            Project::KIND => read_one::<Project>(&mut api, object)?,
            Server::KIND => read_one::<Server>(&mut api, object)?,
            Key::KIND => read_one::<Key>(&mut api, object)?,
            Grant::KIND => read_one::<Grant>(&mut api, object)?,
            Guardrail::KIND => read_one::<Guardrail>(&mut api, object)?,
            super::users::KIND => {}
            other => return Err(format!("the store holds a `{other}`, which this version does not know")),
        }
    }
    let ids = |kind: &str| overrides.iter().filter(|o| o.kind == kind).map(|o| o.id.clone()).collect();
    Ok((api, Overrides { revoked: ids(REVOKED), confirmed: ids(CONFIRMED) }))
}

fn read_one<T: Kept>(api: &mut Records, object: &StoredObject) -> Result<(), String> {
    let unreadable = |why: String| format!("the store holds a {} `{}` that cannot be read: {why}", T::KIND, object.id);
    let json: Json = serde_json::from_str(&object.json).map_err(|why| unreadable(why.to_string()))?;
    let value =
        T::read(&json).map_err(|faults| unreadable(faults.first().map_or(String::new(), |f| f.message.clone())))?;
    T::list_mut(api).push(Owned { value, origin: Origin::Api });
    Ok(())
}

/// A tool's decision as an audit record shows it.
pub(super) fn decision_json(tool: &ToolRecord, file_pin: Option<&Approval>) -> Json {
    let terms = approval::terms(tool, file_pin);
    json!({
        "status": approval::state(tool, file_pin).as_str(),
        "sha256": tool.current.as_ref().map(|d| d.sha256.to_string()),
        "approved_sha256": tool.pin.map(|pin| pin.to_string()),
        "class": terms.map(|(class, _)| class),
        "labels": terms.map(|(_, labels)| labels),
    })
}
