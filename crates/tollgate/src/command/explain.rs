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

/// A candidate that is not tried.
struct Excluded {
    channel: String,
    account: Option<String>,
    code: &'static str,
    detail: Option<String>,
    remedy: &'static str,
}

impl From<&tollgate_core::Excluded> for Excluded {
    fn from(it: &tollgate_core::Excluded) -> Self {
        Self {
            channel: it.channel.name.clone(),
            account: it.account().map(|account| account.name.clone()),
            code: it.why.code(),
            detail: it.why.detail(),
            remedy: it.why.remedy(),
        }
    }
}

/// What a request would meet.
struct Explained {
    group: Option<String>,
    revision: Revision,
    refusal: Option<(&'static str, String)>,
    planned: Vec<TraceEntry>,
    excluded: Vec<Excluded>,
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
        match route(&input, &mut || u32::MAX / 2) {
            Ok(plan) => {
                explained.planned = plan.trace().into_iter().filter(|entry| entry.code == "planned").collect();
                explained.excluded = plan.excluded.iter().map(Excluded::from).collect();
            }
            Err(none) => {
                let id = if none.price_limit_alone() { "E41" } else { "E40" };
                explained.refusal = Some((id, format!("no account is usable: {}", none.cause().as_str())));
                explained.excluded = none.excluded.iter().map(Excluded::from).collect();
            }
        }
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
        let planned: Vec<Value> = explained.planned.iter().map(|entry| json!(entry)).collect();
        let excluded = explained.excluded.iter().map(
            |it| json!({"channel": it.channel, "account": it.account, "code": it.code, "detail": it.detail, "remedy": it.remedy}),
        );
        say::json(&json!({
            "model": arguments.model,
            "protocol": arguments.protocol,
            "group": explained.group,
            "revision": explained.revision,
            "refusal": explained.refusal.as_ref().map(|(id, text)| json!({"error": id, "text": text})),
            "planned": planned,
            "excluded": excluded.collect::<Vec<_>>(),
        }));
        return;
    }
    if let Some(group) = &explained.group {
        say::line(&format!("group {group} serves {} (catalog revision {})", arguments.model, explained.revision.0));
    }
    if let Some((id, text)) = &explained.refusal {
        say::line(&format!("refused with {id}: {text}"));
    }
    let mut rows = vec![["", "channel", "account", "why", "what would change it"].map(str::to_owned).to_vec()];
    for (number, entry) in explained.planned.iter().enumerate() {
        rows.push(row(&(number + 1).to_string(), &entry.channel, entry.account.as_ref(), entry.code.clone(), ""));
    }
    for it in &explained.excluded {
        let detail = it.detail.as_ref().map_or_else(String::new, |detail| format!(": {detail}"));
        rows.push(row("–", &it.channel, it.account.as_ref(), format!("{}{detail}", it.code), it.remedy));
    }
    if rows.len() > 1 {
        say::table(&rows);
    }
}

fn row(number: &str, channel: &str, account: Option<&String>, why: String, remedy: &str) -> Vec<String> {
    let account = account.cloned().unwrap_or_else(|| "–".to_owned());
    vec![number.to_owned(), channel.to_owned(), account, why, remedy.to_owned()]
}
