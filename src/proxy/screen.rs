//! External guardrail engines: asked between the checks and the sending, or between the release and the answer.
//!
//! The only asynchronous step of the line, and only of calls that such a rule applies to. All engines are asked at once; the
//! strongest action wins, as with the detectors of our own.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;

use super::context::{Context, Gateway};
use crate::{
    call::input::{Asking, Note},
    model::records::{GuardAction, OnEngineError},
    policy::snapshot::ServerPolicy,
    refusal::{Refusal, Side},
    upstream::engine::EngineQuestion,
};

impl Gateway {
    /// Asks the engines about the texts of one side of a call.
    ///
    /// # Refuses
    /// - [`Refusal::GuardrailBlocked`], then [`Refusal::GuardrailUnavailable`]. A redacting rule blocks: an engine's matches have no
    ///   place in the document.
    pub(super) async fn ask_engines(
        &self,
        ctx: &mut Context,
        (server, tool): (&Arc<ServerPolicy>, &str),
        asking: &Asking,
        (side, left): (Side, Duration),
    ) -> Result<(), Refusal> {
        let now_ms = self.nanos() / 1_000_000;
        let engines = ctx.key.as_ref().map(|key| Arc::clone(&key.organization));
        let questions = asking.rules.iter().map(|rule| {
            let engine =
                engines.as_ref().and_then(|organization| organization.engines.get(rule.name.as_str()).cloned());
            async move {
                let question = EngineQuestion {
                    stage: if side == Side::Input { "input" } else { "output" },
                    organization: &server.organization,
                    server: &server.slug,
                    tool,
                    rule: &rule.name,
                    texts: &asking.texts,
                };
                match engine {
                    Some(engine) => engine.ask(&self.0.client, &question, (left, now_ms)).await.ok(),
                    None => None,
                }
            }
        });
        let answers = join_all(questions).await;
        let (mut blocked, mut unavailable) = (None, None);
        for (rule, answer) in asking.rules.iter().zip(answers) {
            match answer {
                Some(false) => {}
                Some(true) => {
                    ctx.notes.push(Note { rule: rule.name.as_str().into(), action: rule.action, side });
                    if rule.action != GuardAction::Observe {
                        blocked.get_or_insert(Refusal::GuardrailBlocked { side, detector: rule.detector });
                    }
                }
                None => {
                    tracing::warn!(rule = %rule.name, server = %server.slug, "a guardrail engine failed");
                    if rule.on_engine_error == OnEngineError::Block {
                        unavailable.get_or_insert(Refusal::GuardrailUnavailable(side));
                    }
                }
            }
        }
        blocked.or(unavailable).map_or(Ok(()), Err)
    }
}
