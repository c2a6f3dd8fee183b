//! A request that is not made, as choosing looks at it.

use serde_json::json;
use tollgate_core::{AccountBounds, AccountId, AccountLoad, CandidateView, Channel, ChannelBudget, Serves};
use tollgate_protocol::{FieldPath, Framing, Method, Outline, Protocol, Target, codec, neutral::Request, specimen};

use super::{Asked, Question};
use crate::translate::{inexpressible, is_lenient};

/// What input is estimated at: a token for two bytes.
const BYTES_A_TOKEN: u64 = 2;

/// The outline of the smallest request of a protocol, with these fields beside and of this size.
pub(super) fn outline_of(question: &Question) -> Result<Outline, String> {
    let model = &question.model;
    let (method, named, body) = match question.from {
        Protocol::Gemini => (Method::Generate, Some(model.clone()), json!({"contents": [{"parts": [{"text": "-"}]}]})),
        Protocol::OpenAi | Protocol::Anthropic => {
            (Method::Chat, None, json!({"model": model, "messages": [{"role": "user", "content": "-"}]}))
        }
    };
    let target = Target { method, model: named, framing: Framing::Sse };
    let mut outline = codec(question.from).outline(&target, body.to_string().as_bytes()).map_err(|fault| fault.to_string())?;
    outline.affinity = None;
    outline.fields.extend(question.fields.iter().cloned());
    // Where speed counts for the order, it is that of streams.
    outline.stream = true;
    outline.turns = 0;
    outline.text_bytes = question.input_tokens.saturating_mul(BYTES_A_TOKEN);
    outline.max_output = question.output_tokens;
    Ok(outline)
}

/// Candidates as the request would meet them.
pub(super) struct View<'a> {
    asked: &'a Asked<'a>,
    /// Requests that carry one of the fields each.
    carrying: Vec<Request>,
    lenient: bool,
}

impl<'a> View<'a> {
    pub(super) fn of(asked: &'a Asked<'a>) -> Self {
        let Question { from, fields, .. } = asked.question;
        let kept = fields.iter().filter(|field| !asked.offer.drop_fields.contains(field));
        Self { asked, carrying: kept.filter_map(|field| specimen(*from, field)).collect(), lenient: is_lenient(asked.offer) }
    }
}

impl CandidateView for View<'_> {
    fn account_load(&self, account: AccountId, bounds: AccountBounds) -> AccountLoad {
        let sight = self.asked.sight;
        sight.known.load(account, bounds, self.asked.tokens(), sight.now)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        self.asked.sight.known.budget(channel, self.asked.sight.now)
    }

    fn learned(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        if !channel.learn_unsupported {
            return Vec::new();
        }
        let (sight, outline) = (self.asked.sight, self.asked.outline);
        let learned = sight.known.learned(channel.id, &serves.upstream);
        learned.map(|learned| learned.refused(self.asked.question.from, &outline.fields, sight.now)).unwrap_or_default()
    }

    fn untranslatable(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
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
