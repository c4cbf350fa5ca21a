//! The policy as it is live, for those who read it: objects with their owners, tools, the conf. Published whole with each snapshot.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{
    change::{Kind, Target, ToolName},
    error::ChangeError,
    kept::Kept,
};
use crate::{
    conf::{Conf, FileSpan, Sources},
    model::{
        records::{Approval, Grant, Guardrail, Key, Organization, Origin, Owned, Project, Records, Server, ToolRecord},
        units::shown,
    },
};

/// One revision of the policy.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The store's revision.
    pub revision: u64,
    /// The conf.
    pub conf: Arc<Conf>,
    /// Everything that the snapshot was compiled from.
    pub records: Records,
    /// Keys that close the trifecta.
    pub closed: BTreeSet<String>,
    /// What a person should know of conf and policy, rendered.
    pub warnings: String,
    /// The files' texts, to name places in them.
    pub sources: Arc<Sources>,
}

impl Catalog {
    /// The object of that name; `organization` is needed only where two have it.
    ///
    /// # Errors
    /// [`ChangeError::NotFound`], [`ChangeError::Invalid`]
    pub fn find<T: Kept>(&self, organization: Option<&str>, id: &str) -> Result<&Owned<T>, ChangeError> {
        let mut found = T::list(&self.records).iter().filter(|owned| {
            owned.value.name() == id && organization.is_none_or(|organization| owned.value.home() == organization)
        });
        match (found.next(), found.next()) {
            (None, _) => Err(missing(T::KIND, id)),
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => Err(ambiguous(T::KIND, id)),
        }
    }

    /// The organization that is meant: the named one, or the only one.
    ///
    /// # Errors
    /// [`ChangeError::Invalid`]: there is no such organization, or several of which none was named.
    pub fn organization(&self, named: Option<&str>) -> Result<&str, ChangeError> {
        let all = &self.records.organizations;
        match (named, all.as_slice()) {
            (Some(named), _) => all
                .iter()
                .map(|owned| owned.value.id.as_str())
                .find(|id| *id == named)
                .ok_or_else(|| ChangeError::Invalid(format!("there is no organization `{}`", shown(named)))),
            (None, [only]) => Ok(&only.value.id),
            (None, []) => Err(ChangeError::Invalid("there is no organization yet".to_owned())),
            (None, _) => Err(ChangeError::Invalid("`organization` is needed: there are several".to_owned())),
        }
    }

    /// A tool of a server.
    ///
    /// # Errors
    /// [`ChangeError::NotFound`], [`ChangeError::Invalid`]
    pub fn tool(&self, name: &ToolName) -> Result<(&Owned<Server>, &ToolRecord), ChangeError> {
        let server = self.find::<Server>(name.organization.as_deref(), &name.server)?;
        let tool = self.tools(&server.value).find(|tool| tool.name == name.tool);
        Ok((server, tool.ok_or_else(|| missing("tool", &name.tool))?))
    }

    /// Every tool of a server.
    pub fn tools<'c>(&'c self, server: &'c Server) -> impl Iterator<Item = &'c ToolRecord> {
        let of_it = |tool: &&ToolRecord| tool.organization == server.organization && tool.server == server.slug;
        self.records.tools.iter().filter(of_it)
    }

    /// The file's pin on a tool.
    #[must_use]
    pub fn pin(&self, tool: &ToolRecord) -> Option<&Owned<Approval>> {
        self.records.approvals.iter().find(|owned| {
            let pin = &owned.value;
            pin.tool == tool.name && pin.server == tool.server && pin.organization == tool.organization
        })
    }

    /// Every server, by organization and slug.
    #[must_use]
    pub fn servers(&self) -> HashSet<(&str, &str)> {
        let servers = self.records.servers.iter().map(|owned| &owned.value);
        servers.map(|server| (server.organization.as_str(), server.slug.as_str())).collect()
    }

    /// Every file's pin, by organization, server and tool.
    #[must_use]
    pub fn pins(&self) -> HashMap<(&str, &str, &str), &Approval> {
        let pins = self.records.approvals.iter().map(|owned| &owned.value);
        pins.map(|pin| ((pin.organization.as_str(), pin.server.as_str(), pin.tool.as_str()), pin)).collect()
    }

    /// Who owns the object of that name, and in which organization it is.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn owner(&self, target: &Target) -> Result<(&Origin, &str), ChangeError> {
        fn of<T: Kept>(owned: &Owned<T>) -> (&Origin, &str) {
            (&owned.origin, owned.value.home())
        }
        let (organization, id) = (target.organization.as_deref(), target.id.as_str());
        Ok(match target.kind {
            Kind::Organization => of(self.find::<Organization>(None, id)?),
            Kind::Project => of(self.find::<Project>(organization, id)?),
            Kind::Server => of(self.find::<Server>(organization, id)?),
            Kind::Key => of(self.find::<Key>(None, id)?),
            Kind::Guardrail => of(self.find::<Guardrail>(organization, id)?),
        })
    }

    /// Where an object was written, in brackets: ` (policy.toml:3:1)`, or ` (made through the API)`.
    #[must_use]
    pub fn place(&self, origin: &Origin) -> String {
        match FileSpan::of(origin) {
            Some(at) => format!(" ({})", self.sources.place(&at)),
            None => " (made through the API)".to_owned(),
        }
    }

    /// The grants of a key.
    pub fn grants<'c>(&'c self, key: &'c str) -> impl Iterator<Item = &'c Owned<Grant>> {
        self.records.grants.iter().filter(move |owned| owned.value.key == key)
    }
}

pub(super) fn missing(kind: &str, id: &str) -> ChangeError {
    ChangeError::NotFound(format!("there is no {kind} `{}`", shown(id)))
}

fn ambiguous(kind: &str, id: &str) -> ChangeError {
    ChangeError::Invalid(format!("several organizations have a {kind} `{}`: name one with `?organization=`", shown(id)))
}
