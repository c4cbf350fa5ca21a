//! One tool, compiled: its definition once for as long as it is approved, and the rules that apply to it.

use std::sync::Arc;

use super::{Compiler, Rule, clash::CLASH};
use crate::{
    model::{
        jsonrpc::Document,
        name,
        records::{Approval, Definition, GuardStage, Server, ToolRecord},
    },
    policy::{
        approval::{self, ToolState},
        guard::{CredentialMask, apply_edits},
        schema::ToolSchemas,
        snapshot::{Listed, ToolPolicy},
    },
};

/// A definition, compiled.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) schemas: Result<Arc<ToolSchemas>, String>,
    pub(super) listed: Option<Arc<Listed>>,
}

impl Compiler<'_, '_> {
    pub(super) fn tool(
        &mut self,
        server: &Server,
        record: &ToolRecord,
        pin: Option<&Approval>,
        (rules, clash, mask): (&[Rule], bool, &CredentialMask),
    ) -> ToolPolicy {
        let exposed = name::exposed(&server.slug, &record.name);
        let state = approval::state(record, pin);
        let fault = if clash { Some(CLASH.to_owned()) } else { record.fault.clone() };
        let (schemas, listed) = match (&fault, record.approved.as_ref()) {
            (Some(fault), _) => (Err(fault.clone()), None),
            (None, Some(definition)) if state == ToolState::Approved => {
                let compiled = self.definition(definition, &exposed);
                (compiled.schemas.clone(), masked(definition, &exposed, mask).or_else(|| compiled.listed.clone()))
            }
            _ => (Err("the tool is not approved".to_owned()), None),
        };
        ToolPolicy {
            name: record.name.as_str().into(),
            class: approval::terms(record, pin).map(|(class, _)| class),
            state,
            fault: fault.as_deref().map(Into::into),
            schemas,
            listed,
            input: self.guards(server, Some(&record.name), rules, GuardStage::Input),
            output: self.guards(server, Some(&record.name), rules, GuardStage::Output),
            exposed: exposed.into(),
        }
    }

    /// Compiles a definition once for as long as it is approved under that name.
    fn definition(&mut self, definition: &Definition, exposed: &str) -> Arc<Compiled> {
        let key = (definition.sha256, exposed.to_owned());
        if let Some(compiled) = self.handles.definitions.get(&key) {
            return Arc::clone(compiled);
        }
        let compiled = Arc::new(compile_definition(definition, exposed));
        self.handles.compiled += 1;
        self.handles.definitions.insert(key, Arc::clone(&compiled));
        compiled
    }
}

/// What is listed of a definition in which its server repeats the credential that we hold; none: it does not.
fn masked(definition: &Definition, exposed: &str, mask: &CredentialMask) -> Option<Arc<Listed>> {
    if mask.is_empty() {
        return None;
    }
    let mut scratch = Vec::new();
    let document = Document::parse(definition.json.as_bytes(), &mut scratch).ok()?;
    let root = document.spanned_root();
    let edits = mask.edits(&document, &root);
    if edits.is_empty() {
        return None;
    }
    let bytes = apply_edits(document.raw(), root.span.clone(), &edits);
    let shown = Definition { sha256: definition.sha256, json: String::from_utf8(bytes).ok()?.into() };
    compile_definition(&shown, exposed).listed
}

fn compile_definition(definition: &Definition, exposed: &str) -> Compiled {
    let unusable = |why: String| Compiled { schemas: Err(why), listed: None };
    let Ok(value) = serde_json::from_str(&definition.json) else {
        return unusable("its definition is not valid JSON".to_owned());
    };
    let schemas = match ToolSchemas::compile(&value) {
        Ok(schemas) => Arc::new(schemas),
        Err(fault) => return unusable(fault.to_string()),
    };
    let mut scratch = Vec::new();
    if Document::parse(definition.json.as_bytes(), &mut scratch).is_err() {
        return unusable("its definition is not strict JSON".to_owned());
    }
    let own = value.get("name").and_then(serde_json::Value::as_str).unwrap_or("");
    let listed = Arc::new(Listed::new(Arc::clone(&definition.json), exposed, own));
    Compiled { schemas: Ok(schemas), listed: Some(listed) }
}
