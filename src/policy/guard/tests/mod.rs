//! Tests of the room: case files for each detector, evasions, redaction, budget and panics.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]

mod cases;
mod cost;
mod credential;
mod detectors;
mod evasion;
mod screening;

use crate::model::records::{Detector, GuardAction, GuardStage, Guardrail, OnEngineError};

use super::{GuardPlan, GuardRule};

/// A rule of both stages and any scope.
fn rule(detector: Detector, action: GuardAction) -> Guardrail {
    Guardrail {
        name: format!("{}-{action:?}", detector.name()),
        organization: "acme".to_owned(),
        stage: GuardStage::Both,
        detector,
        action,
        servers: Vec::new(),
        tools: Vec::new(),
        projects: Vec::new(),
        on_engine_error: OnEngineError::Block,
    }
}

fn secrets() -> Detector {
    Detector::Secrets { types: Vec::new() }
}

fn personal() -> Detector {
    Detector::PersonalData { types: Vec::new() }
}

fn plan(rules: &[Guardrail]) -> GuardPlan {
    GuardPlan { rules: rules.iter().map(|rule| GuardRule::compile(rule).unwrap()).collect() }
}
