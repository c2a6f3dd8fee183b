//! A request that is not made, as choosing looks at it.

use tollgate_core::{AccountId, AccountLimits, AccountLoad, CandidateView, Channel, ChannelBudget, ModelMapping};
use tollgate_protocol::{FieldPath, Framing, RequestSummary, Target, codec, minimal_body, minimal_request, neutral::Request};

use super::{ExplainContext, ExplainRequest};
use crate::path::types::request_bodies::{inexpressible, is_lenient};

/// What input is estimated at: a token for two bytes.
const BYTES_A_TOKEN: u64 = 2;

/// The summary of the smallest request of a protocol, with these fields beside and of this size.
pub(super) fn summary_of(question: &ExplainRequest) -> Result<RequestSummary, String> {
    let model = &question.model;
    let body = serde_json::Value::Object(minimal_body(question.from, model, "-"));
    let method = question.from.spec().generate_method;
    let target = Target { method, model: Some(model.clone()), framing: Framing::Sse };
    let mut summary = codec(question.from).summarise(&target, body.to_string().as_bytes()).map_err(|fault| fault.to_string())?;
    summary.affinity = None;
    summary.fields.extend(question.fields.iter().cloned());
    // Where speed counts for the order, it is that of streams.
    summary.stream = true;
    summary.turns = 0;
    summary.text_bytes = question.input_tokens.saturating_mul(BYTES_A_TOKEN);
    summary.max_output = question.output_tokens;
    Ok(summary)
}

/// Candidates as the request would meet them.
pub(super) struct ExplainView<'a> {
    asked: &'a ExplainContext<'a>,
    /// Requests that carry one of the fields each.
    carrying: Vec<Request>,
    lenient: bool,
}

impl<'a> ExplainView<'a> {
    pub(super) fn of(asked: &'a ExplainContext<'a>) -> Self {
        let ExplainRequest { from, fields, .. } = asked.question;
        let kept = fields.iter().filter(|field| !asked.offer.drop_fields.contains(field));
        Self { asked, carrying: kept.filter_map(|field| minimal_request(*from, field)).collect(), lenient: is_lenient(asked.offer) }
    }
}

impl CandidateView for ExplainView<'_> {
    fn account_load(&self, account: AccountId, bounds: AccountLimits) -> AccountLoad {
        let sight = self.asked.sight;
        sight.known.load(account, bounds, self.asked.tokens(), sight.now)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        self.asked.sight.known.budget(channel, self.asked.sight.now)
    }

    fn unsupported_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        if !channel.learn_unsupported {
            return Vec::new();
        }
        let (sight, summary) = (self.asked.sight, self.asked.summary);
        let learned = sight.known.learned(channel.id, &serves.upstream);
        learned.map(|learned| learned.unsupported_in(self.asked.question.from, &summary.fields, sight.now)).unwrap_or_default()
    }

    fn untranslatable_fields(&self, channel: &Channel, serves: &ModelMapping) -> Vec<FieldPath> {
        let mut fields: Vec<FieldPath> = Vec::new();
        for request in &self.carrying {
            for field in inexpressible(channel, serves, request, self.lenient) {
                if !fields.contains(&field) {
                    fields.push(field);
                }
            }
        }
        fields
    }
}
