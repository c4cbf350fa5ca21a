//! What is written down of a request: series and one access-log line, both from the same values.

use std::time::Duration;

use super::{
    context::{Call, Context, Gateway},
    millis,
};
use crate::{
    access_log::Line,
    model::records::GuardAction,
    refusal::{NAME_CHARS_MAX, Side, cut},
    traces::{CallTold, Told},
};

/// Counts the request and writes its line.
pub(super) fn write(gateway: &Gateway, ctx: &Context, outcome: &str) {
    let metrics = &gateway.0.metrics;
    let total = ctx.started.elapsed();
    metrics.request(ctx.endpoint, ctx.asked.method, ctx.asked.era, outcome);
    let server = ctx.asked.server.as_ref().map(|server| &server.slug).or(ctx.server_slug.as_ref());
    let upstream = upstream_time(ctx);
    if let (Some(server), Call::Sent(_)) = (server, &ctx.call) {
        metrics.call(server, total, upstream);
    }
    metrics.overhead(ctx.own);
    for note in &ctx.notes {
        metrics.guardrail(&note.rule, action(note.action), side(note.side));
    }
    gateway.0.traces.record(|| told(ctx, outcome, total));
    if outcome == "ok" && !gateway.0.log.takes_success() {
        return;
    }
    gateway.0.log.write(|| Line {
        request_id: ctx.request_id.clone(),
        trace_id: ctx.attribution.trace_id.clone(),
        client_ip: ctx.client_ip.map(|ip| ip.to_string()),
        key_id: ctx.key.as_ref().map(|key| key.id.to_string()),
        organization: ctx.key.as_ref().map(|key| key.organization.id.to_string()),
        endpoint: ctx.endpoint,
        era: ctx.asked.era.map_or("none", |era| era.as_str()),
        method: ctx.asked.method,
        server: server.map(ToString::to_string),
        tool: ctx.asked.tool.as_ref().map(|tool| cut(&tool.name, NAME_CHARS_MAX)),
        outcome: outcome.to_owned(),
        rule: ctx
            .notes
            .iter()
            .find(|note| note.action != GuardAction::Observe)
            .or(ctx.notes.first())
            .map(|note| note.rule.to_string()),
        snapshot: ctx.snapshot.as_ref().map_or(0, |snapshot| snapshot.revision),
        status: ctx.status,
        bytes_in: ctx.bytes_in,
        bytes_out: ctx.bytes_out,
        total_ms: millis(total),
        upstream_ms: upstream.map(millis),
        own_us: (ctx.own.as_secs_f64() * 1e9).round() / 1e3,
        attribution: ctx.attribution.entries.clone(),
    });
}

/// What a trace says of the request.
fn told<'c>(ctx: &'c Context, outcome: &'c str, total: Duration) -> Told<'c> {
    let sent = match &ctx.call {
        Call::Sent(sent) => Some(sent),
        Call::Reading | Call::Done(_) => None,
    };
    let call = sent.and_then(|sent| {
        let endpoint = &sent.admitted.checked.server.upstream.target.endpoint;
        Some(CallTold {
            took: sent.sent_at?.elapsed(),
            span_id: sent.span_id,
            revision: sent.spoken.as_ref()?.revision.as_str(),
            host: &endpoint.host,
            port: endpoint.port,
        })
    });
    Told {
        method: ctx.asked.method,
        tool: ctx.asked.tool.as_ref().map(|tool| &*tool.name),
        server: ctx.asked.server.as_ref().map(|server| &*server.slug).or(ctx.server_slug.as_deref()),
        outcome,
        status: ctx.status,
        client: ctx.client_ip,
        request_id: &ctx.request_id,
        key_id: ctx.key.as_ref().map(|key| &*key.id),
        trace: ctx.asked.trace.as_ref(),
        total,
        call,
    }
}

fn upstream_time(ctx: &Context) -> Option<Duration> {
    match &ctx.call {
        Call::Sent(sent) => sent.sent_at.map(|at| at.elapsed()),
        Call::Reading | Call::Done(_) => None,
    }
}

const fn action(action: GuardAction) -> &'static str {
    match action {
        GuardAction::Block => "block",
        GuardAction::Redact => "redact",
        GuardAction::Observe => "observe",
    }
}

const fn side(side: Side) -> &'static str {
    match side {
        Side::Input => "input",
        Side::Output => "output",
    }
}
