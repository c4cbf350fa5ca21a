//! Which guardrails apply to whom: by organization, server, tool, stage, and project of the key (contract §5, §7).

use std::{collections::HashSet, sync::Arc};

use super::{Compiler, Rule};
use crate::{
    conf::{Fault, FileSpan},
    model::records::{GuardStage, Records, Server},
    policy::{
        guard::{GuardPlan, GuardRule},
        snapshot::Guards,
    },
};

/// Of what a scope speaks, where a rule may list names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whom<'s> {
    /// Of any: every list covers it.
    #[default]
    Any,
    /// Of one that has no name: only an empty list covers it.
    Nameless,
    /// Of this one: an empty list covers it, and one that has its name.
    Named(&'s str),
}

/// Whose rules are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardScope<'s> {
    /// The server's slug.
    pub server: Whom<'s>,
    /// The server's own name of the tool; what is passed through beside tools is nameless.
    pub tool: Whom<'s>,
    /// The project of the key.
    pub project: Whom<'s>,
}

impl Whom<'_> {
    fn is_in(self, list: &[String]) -> bool {
        match self {
            Self::Any => true,
            Self::Nameless => list.is_empty(),
            Self::Named(name) => list.is_empty() || list.iter().any(|item| item == name),
        }
    }
}

impl GuardScope<'_> {
    fn has(&self, (written, compiled): &Rule, stage: GuardStage) -> bool {
        compiled.applies_at(stage)
            && self.server.is_in(&written.servers)
            && self.tool.is_in(&written.tools)
            && self.project.is_in(&written.projects)
    }
}

/// The rules of an organization that a scope has, compiled as for calls.
///
/// # Errors
/// The rules that do not compile.
pub fn guard_plan(
    (records, organization): (&Records, &str),
    scope: &GuardScope<'_>,
    stage: GuardStage,
) -> Result<GuardPlan, Vec<Fault>> {
    let mut faults = Vec::new();
    let rules = rules(records, organization, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(GuardPlan { rules: rules.into_iter().filter(|rule| scope.has(rule, stage)).map(|(_, rule)| rule).collect() })
}

/// The organization's guardrails in order; a rule that does not compile is a fault.
pub(super) fn rules(records: &Records, organization: &str, faults: &mut Vec<Fault>) -> Vec<Rule> {
    let mut rules = Vec::new();
    for rule in records.guardrails.iter().filter(|rule| rule.value.organization == organization) {
        match GuardRule::compile(&rule.value) {
            Ok(compiled) => rules.push((rule.value.clone(), compiled)),
            Err(why) => {
                let text = format!("guardrail `{}`: {why}", rule.value.name);
                faults.push(Fault::error(FileSpan::of(&rule.origin), text));
            }
        }
    }
    rules
}

impl Compiler<'_, '_> {
    /// The rules of a tool and stage, by the project of the key; without a tool those that name none.
    pub(super) fn guards(&mut self, server: &Server, tool: Option<&str>, rules: &[Rule], stage: GuardStage) -> Guards {
        let scope = |project| GuardScope {
            server: Whom::Named(&server.slug),
            tool: tool.map_or(Whom::Nameless, Whom::Named),
            project,
        };
        let of_any = scope(Whom::Any);
        let chosen = rules.iter().filter(|rule| of_any.has(rule, stage));
        let projects: HashSet<&String> = chosen.flat_map(|(rule, _)| &rule.projects).collect();
        let mut plan_for = |project| {
            let scope = scope(project);
            let list = rules.iter().enumerate().filter(|(_, rule)| scope.has(rule, stage)).map(|(i, _)| i).collect();
            self.plan(&server.organization, rules, list)
        };
        let default = plan_for(Whom::Nameless);
        let by_project = projects.iter().map(|name| (name.as_str().into(), plan_for(Whom::Named(name)))).collect();
        Guards { default, by_project: Arc::new(by_project) }
    }

    fn plan(&mut self, organization: &str, rules: &[Rule], list: Vec<usize>) -> Arc<GuardPlan> {
        let key = (organization.into(), list);
        if let Some(plan) = self.plans.get(&key) {
            return Arc::clone(plan);
        }
        let chosen = key.1.iter().filter_map(|i| rules.get(*i)).map(|(_, rule)| Arc::clone(rule)).collect();
        let plan = Arc::new(GuardPlan { rules: chosen });
        self.plans.insert(key, Arc::clone(&plan));
        plan
    }
}
