//! Which accounts a request would use, in order, and why not the others: the same functions as on the path, asked for
//! nobody in particular.

use std::{fmt, sync::Arc};

use serde::Serialize;
use serde_json::json;
use tollgate_core::{
    AccountBounds, AccountId, AccountLoad, Caller, CandidateView, Catalog, Channel, ChannelBudget, Excluded, HealthView, Key,
    NoRoute, NotOffered, Past, PriceLimit, Revision, RouteInput, Serves, Timestamp, rank_all, resolve,
};
use tollgate_protocol::{FieldPath, Framing, Method, Outline, Protocol, Target, codec};

use crate::Known;

/// A request that is not made.
#[derive(Clone, Debug)]
pub struct Question {
    /// Model as a caller names it.
    pub model: String,
    /// The caller's protocol.
    pub from: Protocol,
    /// Fields it would carry beside the least.
    pub fields: Vec<FieldPath>,
    /// Its `x-tollgate-max-price`.
    pub max_price: Option<PriceLimit>,
}

/// What explaining looks at.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// Health of accounts.
    pub health: &'a dyn HealthView,
    /// What the running gateway knows besides.
    pub known: &'a Known,
    /// Now.
    pub now: Timestamp,
}

impl fmt::Debug for Sight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sight").field("revision", &self.catalog.revision).field("now", &self.now).finish_non_exhaustive()
    }
}

/// What the request would meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Model as asked for.
    pub model: String,
    /// The caller's protocol.
    pub protocol: &'static str,
    /// The group that serves it.
    pub group: Option<String>,
    /// Catalog revision.
    pub revision: Revision,
    /// How it would be refused.
    pub refusal: Option<Refused>,
    /// Accounts in the order in which they would be tried. Among equals the order is drawn for each conversation.
    pub planned: Vec<Candidate>,
    /// Accounts that would not be tried.
    pub excluded: Vec<NotTried>,
    /// Fields that channels of this model lately refused.
    pub learned: Vec<RefusedField>,
}

/// A refusal to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Error id.
    pub error: &'static str,
    /// Machine-readable cause, as in `x-tollgate-cause`.
    pub cause: Option<&'static str>,
    /// Whether waiting helps of itself.
    pub retryable: bool,
    /// The same for people.
    pub text: String,
}

/// An account that may be tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Channel.
    pub channel: String,
    /// Account.
    pub account: String,
    /// Its tier; lower first.
    pub priority: i32,
    /// The channel's weight within the tier.
    pub weight: u32,
    /// `planned`: one of the attempts of a request; `spare`: after those.
    pub code: &'static str,
    /// Anything about its health.
    pub detail: Option<String>,
}

/// An account, or a whole channel, that is not tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotTried {
    /// Channel.
    pub channel: String,
    /// Account; absent: every one of the channel.
    pub account: Option<String>,
    /// The exclusion.
    pub code: &'static str,
    /// Its figures.
    pub detail: Option<String>,
    /// What would change it.
    pub remedy: &'static str,
}

/// A field that a channel's model lately refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedField {
    /// Channel.
    pub channel: String,
    /// The model's name upstream.
    pub upstream_model: String,
    /// The field, in the upstream's spelling.
    pub field: String,
    /// When it is tried again, microseconds since 1970.
    pub until: Timestamp,
}

/// Explains.
///
/// # Errors
/// When the question is none, with the reason: no model can have such a name.
pub fn explain(question: &Question, key: Arc<Key>, sight: &Sight<'_>) -> Result<Explanation, String> {
    let outline = outline_of(question)?;
    let caller = Caller::of(sight.catalog, key);
    let mut explanation = Explanation {
        model: question.model.clone(),
        protocol: question.from.as_str(),
        group: None,
        revision: sight.catalog.revision,
        refusal: None,
        planned: Vec::new(),
        excluded: Vec::new(),
        learned: Vec::new(),
    };
    let offer = match resolve(sight.catalog, &caller, &outline, question.from, sight.now) {
        Ok(offer) => offer,
        Err(reason) => {
            explanation.refusal = Some(not_offered(&reason));
            return Ok(explanation);
        }
    };
    explanation.group = Some(offer.group.name.clone());
    for served in &offer.candidates {
        let Some(channel) = sight.catalog.channel_at(served.channel) else { continue };
        let Some(serves) = channel.serves.get(served.serves as usize) else { continue };
        let learned = sight.known.learned(channel.id, &serves.upstream).into_iter().flat_map(|learned| learned.fields(sight.now));
        explanation.learned.extend(learned.map(|(field, until)| RefusedField {
            channel: channel.name.clone(),
            upstream_model: serves.upstream.clone(),
            field: field.to_owned(),
            until,
        }));
    }
    let view = View { sight, from: question.from, fields: &outline.fields };
    let input = RouteInput {
        catalog: sight.catalog,
        newer: None,
        caller: &caller,
        offer: &offer,
        outline: &outline,
        from: question.from,
        health: sight.health,
        view: &view,
        now: sight.now,
        request_limit: question.max_price,
        translates: true,
        past: &Past::default(),
    };
    // The order among equals is by dice on the path; here the middle of the range stands for it.
    match rank_all(&input, &mut || u32::MAX / 2) {
        Ok(plan) => {
            explanation.planned = plan.attempts().enumerate().map(|(at, it)| candidate(at, it, sight)).collect();
            explanation.excluded = plan.excluded.iter().map(NotTried::from).collect();
        }
        Err(none) => {
            explanation.refusal = Some(none_usable(&none));
            explanation.excluded = none.excluded.iter().map(NotTried::from).collect();
        }
    }
    Ok(explanation)
}

/// The outline of the smallest request of a protocol, with these fields beside.
fn outline_of(question: &Question) -> Result<Outline, String> {
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
    Ok(outline)
}

struct View<'a> {
    sight: &'a Sight<'a>,
    from: Protocol,
    fields: &'a [FieldPath],
}

impl CandidateView for View<'_> {
    fn account_load(&self, account: AccountId, _: AccountBounds) -> AccountLoad {
        self.sight.known.load(account, self.sight.now)
    }

    fn channel_budget(&self, channel: &Channel) -> ChannelBudget {
        self.sight.known.budget(channel.id, self.sight.now)
    }

    fn learned(&self, channel: &Channel, serves: &Serves) -> Vec<FieldPath> {
        if !channel.learn_unsupported {
            return Vec::new();
        }
        let learned = self.sight.known.learned(channel.id, &serves.upstream);
        learned.map(|learned| learned.refused(self.from, self.fields, self.sight.now)).unwrap_or_default()
    }
}

fn candidate(at: usize, planned: &tollgate_core::PlannedAttempt, sight: &Sight<'_>) -> Candidate {
    let share = sight.health.of(planned.account.id, sight.now).share;
    let failing =
        (planned.channel.cooling && share < 1_000).then(|| format!("fails lately: {}.{} % of its weight", share / 10, share % 10));
    Candidate {
        channel: planned.channel.name.clone(),
        account: planned.account.name.clone(),
        priority: planned.channel.priority,
        weight: planned.channel.weight,
        code: if at < tollgate_core::MAX_ATTEMPTS { "planned" } else { "spare" },
        detail: failing,
    }
}

impl From<&Excluded<'_>> for NotTried {
    fn from(it: &Excluded<'_>) -> Self {
        Self {
            channel: it.channel.name.clone(),
            account: it.account().map(|account| account.name.clone()),
            code: it.why.code(),
            detail: it.why.detail(),
            remedy: it.why.remedy(),
        }
    }
}

fn none_usable(none: &NoRoute<'_>) -> Refused {
    if let Some(fields) = none.all_translate() {
        let text = format!("no channel takes {}", fields.join(", "));
        return Refused { error: "E17", cause: None, retryable: false, text };
    }
    if let Some(supports) = none.only_other_protocol() {
        let text = format!("the model is offered for {} only", supports.join(", "));
        return Refused { error: "E15", cause: None, retryable: false, text };
    }
    let cause = none.cause();
    let error = if none.price_limit_alone() { "E41" } else { "E40" };
    let text = format!("no account is usable: {}", cause.as_str());
    Refused { error, cause: Some(cause.as_str()), retryable: cause.retryable(), text }
}

fn not_offered(reason: &NotOffered) -> Refused {
    let (error, text) = match reason {
        NotOffered::Unknown => ("E13", "no channel serves a model of this name".to_owned()),
        NotOffered::OutsideGroup => ("E14", "the model exists, but in no group of this key, or the key may not use it".to_owned()),
        NotOffered::Method { supports } => ("E15", format!("the model is offered for {} only", supports.join(", "))),
        NotOffered::Unsupported { fields } => ("E17", format!("unsupported fields: {}", fields.join(", "))),
    };
    Refused { error, cause: None, retryable: false, text }
}

#[cfg(test)]
mod tests;
