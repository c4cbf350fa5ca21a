//! Traces over OTLP, by OpenTelemetry's conventions for MCP: a span for each request, and one below it for its call to the server.
//!
//! Compiled with the cargo feature `otlp`, and on where `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) is set; without either, this
//! is nothing. The other variables of the OpenTelemetry specification for exporter, batches and resource hold as well.
//!
//! Floor 2. Spans are made at the end of a request from what is known then, and queued for a thread that exports them in batches: a call
//! waits for nobody, and spans that find no room are dropped. No argument, result or key is in them. A span goes on the caller's trace
//! where it named one, and the caller decides whether it is sampled; other requests begin a trace.

use std::{net::IpAddr, time::Duration};

use crate::model::trace::TraceContext;

/// What is told of a request at its end.
#[derive(Clone, Debug)]
pub struct Told<'r> {
    /// The JSON-RPC method as in the metrics.
    pub method: &'static str,
    /// The tool's own name; never one that the organization does not know.
    pub tool: Option<&'r str>,
    /// The server's slug.
    pub server: Option<&'r str>,
    /// As `outcome` of the metrics.
    pub outcome: &'r str,
    /// HTTP status.
    pub status: u16,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// `X-Request-Id` of the answer.
    pub request_id: &'r str,
    /// The key's id.
    pub key_id: Option<&'r str>,
    /// The trace that it is on, if that is known.
    pub trace: Option<&'r TraceContext>,
    /// The whole request.
    pub total: Duration,
    /// Its call, if it was sent.
    pub call: Option<CallTold<'r>>,
}

/// What is told of a call to a server.
#[derive(Clone, Debug)]
pub struct CallTold<'r> {
    /// From the call going out to the end of its answer.
    pub took: Duration,
    /// Which the server was told as the parent of its own spans.
    pub span_id: u64,
    /// The protocol revision that the server is spoken to in.
    pub revision: &'static str,
    /// Host of the server.
    pub host: &'r str,
    /// Port of the server.
    pub port: u16,
}

/// The exporter, if there is one.
#[derive(Debug, Default)]
pub struct Traces {
    #[cfg(feature = "otlp")]
    exporter: Option<otlp::Exporter>,
}

#[cfg(not(feature = "otlp"))]
impl Traces {
    /// No exporter.
    ///
    /// # Errors
    /// None.
    pub fn start() -> Result<Self, String> {
        Ok(Self {})
    }

    /// None: nobody would see it.
    #[must_use]
    pub const fn begin(&self) -> Option<TraceContext> {
        None
    }

    /// Nothing.
    pub fn record<'r>(&self, _tell: impl FnOnce() -> Told<'r>) {}

    /// Nothing.
    pub fn flush(&self, _within: Duration) {}
}

#[cfg(feature = "otlp")]
impl Traces {
    /// The exporter that the environment asks for.
    ///
    /// # Errors
    /// It asks for one that cannot be made.
    pub fn start() -> Result<Self, String> {
        let asked = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        let exporter = if asked { Some(otlp::Exporter::start()?) } else { None };
        Ok(Self { exporter })
    }

    /// A new trace for a request whose caller named none, if it is to be recorded.
    #[must_use]
    pub fn begin(&self) -> Option<TraceContext> {
        self.exporter.as_ref().map(|_| TraceContext::begin(rand::random()))
    }

    /// Queues the spans of a request; what is told is not even asked for when nobody exports it.
    pub fn record<'r>(&self, tell: impl FnOnce() -> Told<'r>) {
        if let Some(exporter) = &self.exporter {
            exporter.record(&tell());
        }
    }

    /// Exports what is queued. For shutdown only: it blocks its thread.
    pub fn flush(&self, within: Duration) {
        if let Some(exporter) = &self.exporter {
            exporter.end(within);
        }
    }
}

#[cfg(feature = "otlp")]
mod otlp {
    use std::time::{Duration, SystemTime};

    use opentelemetry::{
        InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId,
        trace::{SpanContext, SpanKind, Status, TraceState},
    };
    use opentelemetry_sdk::{
        Resource,
        trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor},
    };

    use super::{Told, TraceContext};

    #[derive(Debug)]
    pub(super) struct Exporter {
        processor: BatchSpanProcessor,
        scope: InstrumentationScope,
    }

    /// Where a span stands.
    struct Place {
        trace: TraceId,
        flags: TraceFlags,
        span: SpanId,
        parent: SpanId,
        is_remote: bool,
    }

    impl Exporter {
        pub(super) fn start() -> Result<Self, String> {
            let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build();
            let exporter = exporter.map_err(|why| format!("the OTLP exporter: {why}"))?;
            let mut processor = BatchSpanProcessor::builder(exporter).build();
            let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty());
            let resource = Resource::builder();
            let resource = if named { resource } else { resource.with_service_name("toolgate") };
            let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
            processor.set_resource(&resource.with_attribute(version).build());
            let scope = InstrumentationScope::builder("toolgate").with_version(env!("CARGO_PKG_VERSION")).build();
            Ok(Self { processor, scope })
        }

        pub(super) fn record(&self, told: &Told<'_>) {
            let begun;
            let context = match told.trace {
                Some(trace) => trace,
                None => {
                    begun = TraceContext::begin(rand::random());
                    &begun
                }
            };
            if !context.is_sampled() {
                return;
            }
            let (trace, parent) = (TraceId::from(context.trace), SpanId::from(context.parent));
            let flags = TraceFlags::SAMPLED;
            let own = SpanId::from(rand::random::<u64>());
            let now = SystemTime::now();
            let server = Place { trace, flags, span: own, parent, is_remote: true };
            self.end_span(server, told, (SpanKind::Server, now - told.total, now), attributes(told));
            if let Some(call) = &told.call {
                let span = SpanId::from(call.span_id);
                let place = Place { trace, flags, span, parent: own, is_remote: false };
                let mut attributes = subject(told);
                attributes.push(KeyValue::new("mcp.protocol.version", call.revision));
                attributes.push(KeyValue::new("server.address", call.host.to_owned()));
                attributes.push(KeyValue::new("server.port", i64::from(call.port)));
                self.end_span(place, told, (SpanKind::Client, now - call.took, now), attributes);
            }
        }

        fn end_span(
            &self,
            place: Place,
            told: &Told<'_>,
            (span_kind, start_time, end_time): (SpanKind, SystemTime, SystemTime),
            attributes: Vec<KeyValue>,
        ) {
            let name = match told.tool {
                Some(tool) => format!("{} {tool}", told.method),
                None => told.method.to_owned(),
            };
            let failed = told.outcome != "ok";
            self.processor.on_end(SpanData {
                span_context: SpanContext::new(place.trace, place.span, place.flags, false, TraceState::NONE),
                parent_span_id: place.parent,
                parent_span_is_remote: place.is_remote && place.parent != SpanId::INVALID,
                span_kind,
                name: name.into(),
                start_time,
                end_time,
                attributes,
                dropped_attributes_count: 0,
                events: SpanEvents::default(),
                links: SpanLinks::default(),
                status: if failed { Status::error(told.outcome.to_owned()) } else { Status::Unset },
                instrumentation_scope: self.scope.clone(),
            });
        }

        pub(super) fn end(&self, within: Duration) {
            if let Err(why) = self.processor.shutdown_with_timeout(within) {
                tracing::warn!("the last traces could not be exported: {why}");
            }
        }
    }

    /// What both spans say: the method, the tool, and how it failed.
    fn subject(told: &Told<'_>) -> Vec<KeyValue> {
        let mut all = vec![
            KeyValue::new("mcp.method.name", told.method),
            KeyValue::new("network.transport", "tcp"),
            KeyValue::new("network.protocol.name", "http"),
        ];
        if told.method == "tools/call" {
            all.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
        }
        let texts = [("gen_ai.tool.name", told.tool), ("toolgate.server", told.server)];
        all.extend(texts.into_iter().filter_map(|(name, text)| Some(KeyValue::new(name, text?.to_owned()))));
        if told.outcome != "ok" {
            all.push(KeyValue::new("error.type", told.outcome.to_owned()));
        }
        all
    }

    fn attributes(told: &Told<'_>) -> Vec<KeyValue> {
        let mut all = subject(told);
        all.push(KeyValue::new("http.response.status_code", i64::from(told.status)));
        all.push(KeyValue::new("toolgate.request_id", told.request_id.to_owned()));
        all.extend(told.client.map(|address| KeyValue::new("client.address", address.to_string())));
        all.extend(told.key_id.map(|id| KeyValue::new("toolgate.key_id", id.to_owned())));
        all
    }
}
