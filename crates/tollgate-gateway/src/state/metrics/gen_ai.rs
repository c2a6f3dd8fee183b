//! Metrics in the names of OpenTelemetry's semantic conventions for generative AI. They are only exported over OTLP, and only counted
//! if that is on: Prometheus has no dots in names.
//!
//! Attempts are counted as operations of a client of providers, requests as operations of a server for its callers. The model is
//! the one that the caller requested if it is in the catalog, else `other`, so that the catalog bounds the number of series.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder, text},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use tollgate_core::{AttemptRecord, TokenSource, Tokens, UsageRecord};
use tollgate_protocol::Method;

use super::seconds;
use crate::gen_ai::{OWN_PROVIDER, attempt_error, operation, request_error};

/// Boundaries that the conventions give for times, in seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Boundaries that the conventions give for tokens of an operation.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The attributes of a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attributes {
    kind: OperationKind,
    model: String,
    /// `error.type`.
    error: Option<String>,
    /// `gen_ai.token.modality`.
    modality: Option<&'static str>,
}

/// Operation and provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OperationKind {
    operation: &'static str,
    provider: &'static str,
}

impl EncodeLabelSet for Attributes {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let attributes = [
            ("gen_ai.operation.name", Some(self.kind.operation)),
            ("gen_ai.provider.name", Some(self.kind.provider)),
            ("gen_ai.request.model", Some(self.model.as_str())),
            ("error.type", self.error.as_deref()),
            ("gen_ai.token.modality", self.modality),
        ];
        for (name, value) in attributes {
            if let Some(value) = value {
                (name, value).encode(encoder.encode_label())?;
            }
        }
        Ok(())
    }
}

type Times = Family<Attributes, Histogram>;
type Count = Family<Attributes, Counter>;

/// The metrics of a process.
#[derive(Debug)]
pub(super) struct GenAiMetrics {
    registry: Registry,
    inference_duration: Times,
    embeddings_duration: Times,
    first_chunk: Times,
    inference_input: Times,
    inference_output: Times,
    embeddings_input: Times,
    input_tokens: Count,
    output_tokens: Count,
    cache_read_tokens: Count,
    cache_write_tokens: Count,
    reasoning_tokens: Count,
    request_duration: Times,
    first_token: Times,
}

fn times() -> Times {
    Family::new_with_constructor((|| Histogram::new(SECONDS)) as fn() -> Histogram)
}

fn token_sizes() -> Times {
    Family::new_with_constructor((|| Histogram::new(TOKENS)) as fn() -> Histogram)
}

impl GenAiMetrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::default();
        let mut times = |name: &str, help: &str, family: Times| {
            registry.register(name, help, family.clone());
            family
        };
        let inference_duration =
            times("gen_ai.client.inference.duration", "GenAI client inference operation duration", self::times());
        let embeddings_duration =
            times("gen_ai.client.embeddings.duration", "GenAI client embeddings operation duration", self::times());
        let first_chunk = times("gen_ai.client.inference.time_to_first_chunk", "Time to receive the first chunk", self::times());
        let inference_input = times("gen_ai.client.inference.operation.input_tokens", "Tokens of an operation", token_sizes());
        let inference_output = times("gen_ai.client.inference.operation.output_tokens", "Tokens of an operation", token_sizes());
        let embeddings_input = times("gen_ai.client.embeddings.operation.input_tokens", "Tokens of an operation", token_sizes());
        let request_duration =
            times("gen_ai.server.request.duration", "Time to the last byte of the answer to a caller", self::times());
        let first_token =
            times("gen_ai.server.time_to_first_token", "Time to the first content of a streamed answer", self::times());
        let mut count = |name: &str, help: &str| {
            let family = Count::default();
            registry.register(format!("gen_ai.client.inference.usage.{name}"), help, family.clone());
            family
        };
        Self {
            inference_duration,
            embeddings_duration,
            first_chunk,
            inference_input,
            inference_output,
            embeddings_input,
            request_duration,
            first_token,
            input_tokens: count("input_tokens", "Input tokens used, including cached tokens"),
            output_tokens: count("output_tokens", "Output tokens used, including reasoning tokens"),
            cache_read_tokens: count("cache_read.input_tokens", "Input tokens read from a provider's cache"),
            cache_write_tokens: count("cache_write.input_tokens", "Input tokens written to a provider's cache"),
            reasoning_tokens: count("reasoning.output_tokens", "Output tokens used for reasoning"),
            registry,
        }
    }

    /// All series in the `OpenMetrics` text format, without its end mark.
    pub(super) fn render(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = text::encode_registry(out, &self.registry);
    }
}

/// Handles of the series of one model.
#[derive(Debug, Default)]
pub(super) struct GenAiHandles {
    durations: Vec<((OperationKind, Option<String>), Histogram)>,
    first_chunks: Vec<(OperationKind, Histogram)>,
    usage: Vec<(OperationKind, UsageHandles)>,
    requests: Vec<((OperationKind, Option<String>), Histogram)>,
    first_tokens: Vec<(OperationKind, Histogram)>,
}

/// Handles of the counters of tokens.
#[derive(Debug)]
struct UsageHandles {
    input_sizes: Histogram,
    /// `None` for embeddings, which have none of these metrics.
    inference: Option<InferenceHandles>,
}

#[derive(Debug)]
struct InferenceHandles {
    output_sizes: Histogram,
    input: Counter,
    image: Counter,
    audio: Counter,
    output: Counter,
    cache_read: Counter,
    cache_write: Counter,
    reasoning: Counter,
}

impl GenAiHandles {
    /// Counts an attempt at a provider. `model` is the model's label.
    pub(super) fn count_attempt(
        &mut self,
        metrics: &GenAiMetrics,
        model: &str,
        record: &UsageRecord,
        attempt: &AttemptRecord,
        provider: &'static str,
    ) {
        let kind = OperationKind { operation: operation(record.method, attempt.protocol), provider };
        let Some(durations) = metrics.durations_of(record) else { return };
        let duration = handle(&mut self.durations, kind, attempt_error(attempt), |error| {
            durations.get_or_create(&attributes(kind, model, error)).clone()
        });
        duration.observe(seconds(attempt.duration_us));
        let of_kind = || attributes(kind, model, None);
        if let Some(first) = attempt.first_byte_us.filter(|_| record.stream && record.method.generates()) {
            let create = || metrics.first_chunk.get_or_create(&of_kind()).clone();
            of(&mut self.first_chunks, kind, create).observe(seconds(first));
        }
        if attempt.tokens.source != TokenSource::None {
            let generates = record.method.generates();
            of(&mut self.usage, kind, || metrics.usage_of(generates, &of_kind())).count(&attempt.tokens);
        }
    }

    /// Counts a request. `provider` is that of the attempt which answered.
    pub(super) fn count_request(
        &mut self,
        metrics: &GenAiMetrics,
        model: &str,
        record: &UsageRecord,
        provider: Option<&'static str>,
    ) {
        if metrics.durations_of(record).is_none() {
            return;
        }
        let kind =
            OperationKind { operation: operation(record.method, record.protocol_in), provider: provider.unwrap_or(OWN_PROVIDER) };
        let duration = handle(&mut self.requests, kind, request_error(record.outcome, record.reason.as_deref()), |error| {
            metrics.request_duration.get_or_create(&attributes(kind, model, error)).clone()
        });
        duration.observe(seconds(record.duration_us));
        if let Some(first) = record.ttft_us.filter(|_| record.stream && record.method.generates()) {
            let create = || metrics.first_token.get_or_create(&attributes(kind, model, None)).clone();
            of(&mut self.first_tokens, kind, create).observe(seconds(first));
        }
    }
}

impl GenAiMetrics {
    /// The durations of the request's kind of operation; `None` for token counts.
    fn durations_of(&self, record: &UsageRecord) -> Option<&Times> {
        match record.method {
            Method::Chat | Method::Generate | Method::StreamGenerate | Method::Compact => Some(&self.inference_duration),
            Method::EmbedContent | Method::BatchEmbedContents | Method::Embeddings => Some(&self.embeddings_duration),
            Method::CountTokens => None,
        }
    }

    fn usage_of(&self, generates: bool, attributes: &Attributes) -> UsageHandles {
        let with = |modality| Attributes { modality: Some(modality), ..attributes.clone() };
        let count = |family: &Count, modality| family.get_or_create(&with(modality)).clone();
        let sizes = |family: &Times| family.get_or_create(attributes).clone();
        if !generates {
            return UsageHandles { input_sizes: sizes(&self.embeddings_input), inference: None };
        }
        UsageHandles {
            input_sizes: sizes(&self.inference_input),
            inference: Some(InferenceHandles {
                output_sizes: sizes(&self.inference_output),
                input: count(&self.input_tokens, "unknown"),
                image: count(&self.input_tokens, "image"),
                audio: count(&self.input_tokens, "audio"),
                output: count(&self.output_tokens, "unknown"),
                cache_read: count(&self.cache_read_tokens, "unknown"),
                cache_write: count(&self.cache_write_tokens, "unknown"),
                reasoning: count(&self.reasoning_tokens, "unknown"),
            }),
        }
    }
}

impl UsageHandles {
    fn count(&self, tokens: &Tokens) {
        self.input_sizes.observe(size(tokens.prompt()));
        let Some(inference) = &self.inference else { return };
        inference.output_sizes.observe(size(tokens.completion()));
        inference.image.inc_by(tokens.image);
        inference.audio.inc_by(tokens.audio);
        // Providers report only these two separately; the rest may be of any modality.
        inference.input.inc_by(tokens.prompt() - tokens.image - tokens.audio);
        inference.output.inc_by(tokens.completion());
        inference.cache_read.inc_by(tokens.cache_read);
        inference.cache_write.inc_by(tokens.cache_write);
        inference.reasoning.inc_by(tokens.thinking);
    }
}

#[expect(clippy::cast_precision_loss, reason = "charts need no more than 53 bits")]
fn size(tokens: u64) -> f64 {
    tokens as f64
}

fn attributes(kind: OperationKind, model: &str, error: Option<String>) -> Attributes {
    Attributes { kind, model: model.to_owned(), error, modality: None }
}

/// The handle of a kind, of which there are few.
fn of<H>(handles: &mut Vec<(OperationKind, H)>, kind: OperationKind, create: impl FnOnce() -> H) -> &H {
    let position = handles.iter().position(|(known, _)| *known == kind).unwrap_or_else(|| {
        handles.push((kind, create()));
        handles.len() - 1
    });
    &handles[position].1
}

/// The handle of a kind and an error.
fn handle<'a>(
    handles: &'a mut Vec<((OperationKind, Option<String>), Histogram)>,
    kind: OperationKind,
    error: Option<&str>,
    create: impl FnOnce(Option<String>) -> Histogram,
) -> &'a Histogram {
    let is_known = |known: &(OperationKind, Option<String>)| known.0 == kind && known.1.as_deref() == error;
    let position = handles.iter().position(|(known, _)| is_known(known)).unwrap_or_else(|| {
        let error = error.map(str::to_owned);
        handles.push(((kind, error.clone()), create(error)));
        handles.len() - 1
    });
    &handles[position].1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::usage_record;

    fn rendered(metrics: &GenAiMetrics) -> String {
        let mut text = String::new();
        metrics.render(&mut text);
        text
    }

    #[test]
    fn attempt_and_request_metrics_have_the_conventional_attributes() {
        let (metrics, mut handles) = (GenAiMetrics::new(), GenAiHandles::default());
        let mut record = usage_record("m");
        record.attempts[0].tokens.cache_read = 5;
        record.attempts[0].tokens.image = 3;
        record.attempts[0].tokens.thinking = 7;
        for _ in 0..2 {
            handles.count_attempt(&metrics, "m", &record, &record.attempts[0], "openai");
            handles.count_request(&metrics, "m", &record, Some("openai"));
        }
        record.attempts[0].error = Some("E46".to_owned());
        record.attempts[0].result = tollgate_core::AttemptResult::Failed;
        record.attempts[0].tokens = Tokens::default();
        handles.count_attempt(&metrics, "m", &record, &record.attempts[0], "openai");
        let text = rendered(&metrics);
        let common = r#"gen_ai.operation.name="chat",gen_ai.provider.name="openai",gen_ai.request.model="m""#;
        for line in [
            format!("gen_ai.client.inference.duration_count{{{common}}} 2"),
            format!("gen_ai.client.inference.duration_sum{{{common}}} 3.0"),
            format!("gen_ai.client.inference.duration_count{{{common},error.type=\"E46\"}} 1"),
            format!("gen_ai.client.inference.operation.input_tokens_sum{{{common}}} 36.0"),
            format!("gen_ai.client.inference.operation.output_tokens_sum{{{common}}} 54.0"),
            format!("gen_ai.client.inference.usage.input_tokens_total{{{common},gen_ai.token.modality=\"unknown\"}} 30"),
            format!("gen_ai.client.inference.usage.input_tokens_total{{{common},gen_ai.token.modality=\"image\"}} 6"),
            format!("gen_ai.client.inference.usage.output_tokens_total{{{common},gen_ai.token.modality=\"unknown\"}} 54"),
            format!("gen_ai.client.inference.usage.cache_read.input_tokens_total{{{common},gen_ai.token.modality=\"unknown\"}} 10"),
            format!("gen_ai.client.inference.usage.reasoning.output_tokens_total{{{common},gen_ai.token.modality=\"unknown\"}} 14"),
            format!("gen_ai.server.request.duration_count{{{common}}} 2"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("time_to_first_chunk_count"), "it was not streamed");
        record.stream = true;
        handles.count_attempt(&metrics, "m", &record, &record.attempts[0], "openai");
        handles.count_request(&metrics, "m", &record, None);
        let text = rendered(&metrics);
        assert!(text.contains("time_to_first_chunk_count"), "{text}");
        assert!(
            text.contains(r#"gen_ai.server.time_to_first_token_sum{gen_ai.operation.name="chat",gen_ai.provider.name="tollgate""#)
        );
    }

    #[test]
    fn embeddings_are_counted_separately_and_token_counts_are_not_counted() {
        let (metrics, mut handles) = (GenAiMetrics::new(), GenAiHandles::default());
        let mut record = usage_record("m");
        record.method = tollgate_protocol::Method::CountTokens;
        handles.count_attempt(&metrics, "m", &record, &record.attempts[0], "openai");
        handles.count_request(&metrics, "m", &record, Some("openai"));
        assert!(!rendered(&metrics).contains('{'), "{}", rendered(&metrics));
        record.method = tollgate_protocol::Method::Embeddings;
        handles.count_attempt(&metrics, "m", &record, &record.attempts[0], "openai");
        let text = rendered(&metrics);
        assert!(text.contains("gen_ai.client.embeddings.duration_count{"), "{text}");
        assert!(text.contains("gen_ai.client.embeddings.operation.input_tokens_sum{"), "{text}");
        assert!(!text.contains("gen_ai.client.inference.duration_count{"), "{text}");
    }
}
