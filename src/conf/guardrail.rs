//! `[[guardrail]]` as it is written: members that belong to one detector alone are refused beside another (contract §5, §7).

use std::time::Duration;

use super::{
    codec::{Id, List, Opt, Slug, Strings, Word, Words, words},
    measure::Time,
    net::{Host, Urls},
    policy::{Object, titled},
    read::{Form, Member, Places, Reader, listed, members},
};
use crate::model::{
    records::{Detector, GuardAction, GuardStage, Guardrail, OnEngineError},
    units::Span,
};

/// How long an external engine may take when its guardrail does not say.
const ENGINE_TIMEOUT: Span = Span(Duration::from_millis(300));

/// The members of a guardrail, flat.
pub(super) struct GuardrailForm {
    name: String,
    organization: String,
    stage: GuardStage,
    detector: Option<DetectorWord>,
    action: GuardAction,
    servers: Vec<String>,
    tools: Vec<String>,
    projects: Vec<String>,
    on_engine_error: OnEngineError,
    types: Option<Vec<String>>,
    words: Option<Vec<String>>,
    patterns: Option<Vec<String>>,
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
    url: Option<String>,
    timeout: Option<Span>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DetectorWord {
    Secrets,
    PersonalData,
    PromptInjection,
    InvisibleText,
    Keywords,
    Pattern,
    Urls,
    Engine,
}

impl DetectorWord {
    /// Members that this detector alone has.
    const fn members(self) -> &'static [&'static str] {
        match self {
            Self::Secrets | Self::PersonalData => &["types"],
            Self::PromptInjection | Self::InvisibleText => &[],
            Self::Keywords => &["words"],
            Self::Pattern => &["patterns"],
            Self::Urls => &["allow", "deny"],
            Self::Engine => &["url", "timeout"],
        }
    }
}

/// Every member that belongs to some detector.
const DETECTOR_MEMBERS: [&str; 7] = ["types", "words", "patterns", "allow", "deny", "url", "timeout"];

words! {
    DetectorWord {
        "secrets" = DetectorWord::Secrets,
        "personal_data" = DetectorWord::PersonalData,
        "prompt_injection" = DetectorWord::PromptInjection,
        "invisible_text" = DetectorWord::InvisibleText,
        "keywords" = DetectorWord::Keywords,
        "pattern" = DetectorWord::Pattern,
        "urls" = DetectorWord::Urls,
        "engine" = DetectorWord::Engine,
    }
    GuardStage { "input" = GuardStage::Input, "output" = GuardStage::Output, "both" = GuardStage::Both }
    GuardAction { "block" = GuardAction::Block, "redact" = GuardAction::Redact, "observe" = GuardAction::Observe }
    OnEngineError { "block" = OnEngineError::Block, "allow" = OnEngineError::Allow }
}

impl Form for GuardrailForm {
    const MEMBERS: &'static [Member<Self>] = members! {
        name: Id, required;
        organization: Id;
        stage: Word<GuardStage>, required;
        detector: Opt<Word<DetectorWord>>, required;
        action: Word<GuardAction>, required;
        servers: List<Slug>;
        tools: Strings;
        projects: List<Id>;
        on_engine_error: Word<OnEngineError>;
        types: Opt<Strings>;
        words: Opt<Strings>;
        patterns: Opt<Strings>;
        allow: Opt<List<Host>>;
        deny: Opt<List<Host>>;
        url: Opt<Urls>;
        timeout: Opt<Time<1, 60>>;
    };
    fn blank() -> Self {
        Self {
            name: String::new(),
            organization: String::new(),
            stage: GuardStage::Both,
            detector: None,
            action: GuardAction::Block,
            servers: Vec::new(),
            tools: Vec::new(),
            projects: Vec::new(),
            on_engine_error: OnEngineError::Block,
            types: None,
            words: None,
            patterns: None,
            allow: None,
            deny: None,
            url: None,
            timeout: None,
        }
    }
}

impl GuardrailForm {
    fn detector(&mut self) -> Detector {
        let list = |list: &mut Option<Vec<String>>| list.take().unwrap_or_default();
        match self.detector.unwrap_or(DetectorWord::InvisibleText) {
            DetectorWord::Secrets => Detector::Secrets { types: list(&mut self.types) },
            DetectorWord::PersonalData => Detector::PersonalData { types: list(&mut self.types) },
            DetectorWord::PromptInjection => Detector::PromptInjection,
            DetectorWord::InvisibleText => Detector::InvisibleText,
            DetectorWord::Keywords => Detector::Keywords { words: list(&mut self.words) },
            DetectorWord::Pattern => Detector::Pattern { patterns: list(&mut self.patterns) },
            DetectorWord::Urls => Detector::Urls { allow: list(&mut self.allow), deny: list(&mut self.deny) },
            DetectorWord::Engine => Detector::Engine {
                url: self.url.take().unwrap_or_default(),
                timeout: self.timeout.unwrap_or(ENGINE_TIMEOUT),
            },
        }
    }

    fn set_detector(&mut self, detector: &Detector) {
        self.detector = Some(match detector {
            Detector::Secrets { types } => {
                self.types = Some(types.clone());
                DetectorWord::Secrets
            }
            Detector::PersonalData { types } => {
                self.types = Some(types.clone());
                DetectorWord::PersonalData
            }
            Detector::PromptInjection => DetectorWord::PromptInjection,
            Detector::InvisibleText => DetectorWord::InvisibleText,
            Detector::Keywords { words } => {
                self.words = Some(words.clone());
                DetectorWord::Keywords
            }
            Detector::Pattern { patterns } => {
                self.patterns = Some(patterns.clone());
                DetectorWord::Pattern
            }
            Detector::Urls { allow, deny } => {
                (self.allow, self.deny) = (Some(allow.clone()), Some(deny.clone()));
                DetectorWord::Urls
            }
            Detector::Engine { url, timeout } => {
                (self.url, self.timeout) = (Some(url.clone()), Some(*timeout));
                DetectorWord::Engine
            }
        });
    }
}

impl Object for Guardrail {
    const KIND: &'static str = "guardrail";
    type Form = GuardrailForm;
    fn of_form(mut form: GuardrailForm, reader: &mut Reader<'_>, places: &Places) -> Self {
        check_members(&form, reader, places);
        let detector = form.detector();
        Self {
            name: form.name,
            organization: form.organization,
            stage: form.stage,
            detector,
            action: form.action,
            servers: form.servers,
            tools: form.tools,
            projects: form.projects,
            on_engine_error: form.on_engine_error,
        }
    }
    fn to_form(&self) -> GuardrailForm {
        let mut form = GuardrailForm {
            name: self.name.clone(),
            organization: self.organization.clone(),
            stage: self.stage,
            action: self.action,
            servers: self.servers.clone(),
            tools: self.tools.clone(),
            projects: self.projects.clone(),
            on_engine_error: self.on_engine_error,
            ..GuardrailForm::blank()
        };
        form.set_detector(&self.detector);
        form
    }
    fn title(&self) -> String {
        titled(Self::KIND, &self.name)
    }
    fn home(&self) -> &str {
        &self.organization
    }
    fn is_nameless(&self) -> bool {
        self.name.is_empty()
    }
}

/// A detector has its own members and no other's, and what it needs to find anything at all.
fn check_members(form: &GuardrailForm, reader: &mut Reader<'_>, places: &Places) {
    let Some(detector) = form.detector else { return };
    let words = <DetectorWord as Words>::WORDS;
    let name = words.iter().find(|(_, word)| *word == detector).map_or("", |(name, _)| *name);
    for member in DETECTOR_MEMBERS.iter().filter(|member| !detector.members().contains(member)) {
        if let Some(at) = places.of(member) {
            let owners = words.iter().filter(|(_, word)| word.members().contains(member)).map(|(name, _)| *name);
            reader.fault(&at, format!("`{member}` belongs to detector {}, not to `{name}`", listed(owners, "and")));
        }
    }
    // A member that is no list is at fault for that already.
    let some = |member| places.has(member) && places.count(member) != Some(0);
    let (needs, found) = match detector {
        DetectorWord::Keywords => ("`words`", some("words")),
        DetectorWord::Pattern => ("`patterns`", some("patterns")),
        DetectorWord::Urls => ("`allow` or `deny`", some("allow") || some("deny")),
        DetectorWord::Engine => ("`url`", places.has("url")),
        _ => return,
    };
    if !found && !reader.cut {
        reader.fault(&places.of("detector").unwrap_or_default(), format!("detector `{name}` needs {needs}"));
    }
}
