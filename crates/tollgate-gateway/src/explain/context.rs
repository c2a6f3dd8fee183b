//! The summary and candidate view of an explained request.

use tollgate_core::{
    AccountId, CandidateView, CapacityLimits, CapacityLoad, Channel, ChannelBudget, ChannelId, ModelMapping, inexpressible_fields,
    is_lenient,
};
use tollgate_protocol::{FieldPath, Framing, RequestSummary, Target, codec, minimal_body, minimal_request, neutral::Request};

use super::{ExplainContext, ExplainRequest};
use crate::state::runtime_state::budget_of;

/// Bytes of text per estimated token.
const BYTES_PER_TOKEN: u64 = 2;

/// The summary of a minimal request with the given fields and size.
pub(super) fn summary_of(question: &ExplainRequest) -> Result<RequestSummary, String> {
    let model = &question.model;
    let body = serde_json::Value::Object(minimal_body(question.from, model, "-"));
    let method = question.from.spec().generate_method;
    let target = Target { method, model: Some(model.clone()), framing: Framing::Sse };
    let mut summary = codec(question.from).summarise(&target, body.to_string().as_bytes()).map_err(|fault| fault.to_string())?;
    summary.affinity = None;
    summary.fields.extend(question.fields.iter().cloned());
    // Latency-based ordering uses the latency of streams.
    summary.stream = true;
    summary.turns = 0;
    summary.text_bytes = question.input_tokens.saturating_mul(BYTES_PER_TOKEN);
    summary.max_output = question.output_tokens;
    Ok(summary)
}

/// The candidates' state as the request would see it.
pub(super) struct ExplainView<'a> {
    context: &'a ExplainContext<'a>,
    /// One minimal request for each field.
    field_requests: Vec<Request>,
    lenient: bool,
}

impl<'a> ExplainView<'a> {
    pub(super) fn of(context: &'a ExplainContext<'a>) -> Self {
        let ExplainRequest { from, fields, .. } = context.question;
        let kept = fields.iter().filter(|field| !context.offer.drop_fields.contains(field));
        Self {
            context,
            field_requests: kept.filter_map(|field| minimal_request(*from, field)).collect(),
            lenient: is_lenient(&context.offer.group, &context.offer.model),
        }
    }
}

impl CandidateView for ExplainView<'_> {
    fn account_load(&self, account: AccountId, limits: CapacityLimits) -> CapacityLoad {
        let input = self.context.input;
        input.state.load(input.state.in_use(account), limits, self.context.tokens(), input.now)
    }

    fn channel_load(&self, channel: ChannelId, limits: CapacityLimits) -> CapacityLoad {
        let input = self.context.input;
        input.state.load(input.state.channel_in_use(channel), limits, self.context.tokens(), input.now)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        let input = self.context.input;
        budget_of(channel, input.now, |budget| input.state.spent(channel.id, budget.window))
    }

    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        if !channel.spec.learn_unsupported {
            return Vec::new();
        }
        let (input, summary) = (self.context.input, self.context.summary);
        let learned = input.state.learned(channel.id, &serves.upstream);
        let (from, by) = (self.context.question.from, self.context.caller.key.requester());
        learned.map(|learned| learned.unsupported_in(from, &summary.fields, by, input.now)).unwrap_or_default()
    }

    fn untranslatable_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        let mut fields: Vec<FieldPath> = Vec::new();
        for request in &self.field_requests {
            for field in inexpressible_fields(channel, serves, request, self.lenient) {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
        fields
    }
}
