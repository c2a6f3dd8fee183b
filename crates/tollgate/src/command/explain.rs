//! `explain`: which accounts a request would use, in order, and why not the others. The same functions decide here
//! and on the path.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};
use tollgate_core::{
    AccountHealth, AccountId, Caller, HealthView, NotOffered, Offer, Revision, RouteInput, TraceEntry, Unloaded, resolve, route,
};
use tollgate_protocol::{Framing, Method, Outline, Protocol, Target, codec};

use crate::{
    cli::{Common, Explain},
    command::key,
    compose,
    failure::Failure,
    say,
};

/// Health as the store remembers it.
struct Remembered(HashMap<AccountId, AccountHealth>);

impl HealthView for Remembered {
    fn of(&self, account: AccountId) -> AccountHealth {
        self.0.get(&account).copied().unwrap_or_default()
    }
}

/// What a request would meet.
struct Explained {
    group: Option<String>,
    revision: Revision,
    refusal: Option<(&'static str, String)>,
    planned: Vec<TraceEntry>,
    excluded: Vec<TraceEntry>,
}

/// Explains a model for a key.
pub(crate) fn run(common: &Common, arguments: &Explain) -> Result<(), Failure> {
    let from = match Protocol::parse(&arguments.protocol) {
        Some(protocol @ (Protocol::OpenAi | Protocol::Gemini)) => protocol,
        Some(Protocol::Anthropic) | None => {
            return Err(Failure::Usage(format!("--protocol takes openai or gemini, not '{}'", arguments.protocol)));
        }
    };
    let explained = compose::block_on(async {
        let store = compose::open(common).await?;
        let catalog = store.catalog.load().await?;
        let key = key::find(&store, &arguments.key).await?;
        let health = Remembered(store.health.load_health().await?.into_iter().collect());
        let caller = Caller::of(&catalog, Arc::new(key));
        let outline = plain_outline(from, &arguments.model)?;
        let now = compose::now();
        let mut explained =
            Explained { group: None, revision: catalog.revision, refusal: None, planned: Vec::new(), excluded: Vec::new() };
        let offer: Offer = match resolve(&catalog, &caller, &outline, from, now) {
            Ok(offer) => offer,
            Err(reason) => {
                explained.refusal = Some(not_offered(&reason));
                return Ok(explained);
            }
        };
        explained.group = Some(offer.group.name.clone());
        let input = RouteInput {
            catalog: &catalog,
            caller: &caller,
            offer: &offer,
            outline: &outline,
            from,
            health: &health,
            view: &Unloaded,
            now,
            request_limit: None,
            translates: true,
        };
        // The order among equals is by dice on the path; here the middle of the range stands for it.
        let trace = match route(&input, &mut || u32::MAX / 2) {
            Ok(plan) => plan.trace(),
            Err(none) => {
                let cause = none.cause().as_str();
                explained.refusal = Some(("E40", format!("no account is usable: {cause}")));
                none.trace()
            }
        };
        (explained.planned, explained.excluded) = trace.into_iter().partition(|entry| entry.code == "planned");
        Ok(explained)
    })?;
    print(common, arguments, &explained);
    Ok(())
}

/// The outline of the smallest request of a protocol.
fn plain_outline(from: Protocol, model: &str) -> Result<Outline, Failure> {
    let (method, named, body) = match from {
        Protocol::Gemini => (Method::Generate, Some(model.to_owned()), json!({"contents": [{"parts": [{"text": "-"}]}]})),
        Protocol::OpenAi | Protocol::Anthropic => {
            (Method::Chat, None, json!({"model": model, "messages": [{"role": "user", "content": "-"}]}))
        }
    };
    let target = Target { method, model: named, framing: Framing::Sse };
    codec(from).outline(&target, body.to_string().as_bytes()).map_err(|fault| Failure::Usage(format!("--model: {fault}")))
}

fn not_offered(reason: &NotOffered) -> (&'static str, String) {
    match reason {
        NotOffered::Unknown => ("E13", "no channel serves a model of this name".to_owned()),
        NotOffered::OutsideGroup => ("E14", "the model exists, but in no group of this key, or the key may not use it".to_owned()),
        NotOffered::Method { supports } => ("E15", format!("the model is offered for {} only", supports.join(", "))),
        NotOffered::Unsupported { fields } => ("E17", format!("unsupported fields: {}", fields.join(", "))),
    }
}

fn print(common: &Common, arguments: &Explain, explained: &Explained) {
    if common.json {
        let entries = |entries: &[TraceEntry]| -> Vec<Value> { entries.iter().map(|entry| json!(entry)).collect() };
        say::json(&json!({
            "model": arguments.model,
            "protocol": arguments.protocol,
            "group": explained.group,
            "revision": explained.revision,
            "refusal": explained.refusal.as_ref().map(|(id, text)| json!({"error": id, "text": text})),
            "planned": entries(&explained.planned),
            "excluded": entries(&explained.excluded),
        }));
        return;
    }
    if let Some(group) = &explained.group {
        say::line(&format!("group {group} serves {} (catalog revision {})", arguments.model, explained.revision.0));
    }
    if let Some((id, text)) = &explained.refusal {
        say::line(&format!("refused with {id}: {text}"));
    }
    let mut rows = vec![["", "channel", "account", "why"].map(str::to_owned).to_vec()];
    for (number, entry) in explained.planned.iter().enumerate() {
        rows.push(row(&(number + 1).to_string(), entry));
    }
    for entry in &explained.excluded {
        rows.push(row("–", entry));
    }
    if rows.len() > 1 {
        say::table(&rows);
    }
}

fn row(number: &str, entry: &TraceEntry) -> Vec<String> {
    let detail = entry.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
    vec![
        number.to_owned(),
        entry.channel.clone(),
        entry.account.clone().unwrap_or_else(|| "–".to_owned()),
        format!("{}{detail}", entry.code),
    ]
}
