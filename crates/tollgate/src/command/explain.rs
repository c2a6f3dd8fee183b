//! `explain`: which accounts a request would use, in order, and why not the others. The same functions decide here
//! and on the path; health comes from the database, what a running gateway knows besides from its data folder.

use std::{collections::HashMap, sync::Arc};

use tollgate_core::{AccountHealth, AccountId, HealthView, parse_max_price};
use tollgate_gateway::{Explanation, Question, Sight};
use tollgate_protocol::Protocol;

use crate::{
    cli::{Common, Explain},
    command::key,
    compose,
    failure::Failure,
    say, traffic_notes,
};

/// Health as the store remembers it.
struct Remembered(HashMap<AccountId, AccountHealth>);

impl HealthView for Remembered {
    fn of(&self, account: AccountId) -> AccountHealth {
        self.0.get(&account).copied().unwrap_or_default()
    }
}

/// Explains a model for a key.
pub(crate) fn run(common: &Common, arguments: &Explain) -> Result<(), Failure> {
    let question = question(arguments)?;
    let data = compose::settings(common, &[])?.data;
    let explanation = compose::block_on(async {
        let store = compose::open(common).await?;
        let catalog = store.catalog.load().await?;
        let key = key::find(&store, &arguments.key).await?;
        let health = Remembered(store.health.load_health().await?.into_iter().collect());
        let now = compose::now();
        let known = traffic_notes::read(&data, now);
        let sight = Sight { catalog: &catalog, health: &health, known: &known, now };
        tollgate_gateway::explain(&question, Arc::new(key), &sight).map_err(|fault| Failure::Usage(format!("--model: {fault}")))
    })?;
    if common.json {
        say::json(&serde_json::to_value(&explanation).expect("an explanation is plain data"));
    } else {
        print(&explanation);
    }
    Ok(())
}

fn question(arguments: &Explain) -> Result<Question, Failure> {
    let from = match Protocol::parse(&arguments.protocol) {
        Some(protocol @ (Protocol::OpenAi | Protocol::Gemini)) => protocol,
        Some(Protocol::Anthropic) | None => {
            return Err(Failure::Usage(format!("--protocol takes openai or gemini, not '{}'", arguments.protocol)));
        }
    };
    let max_price = arguments.max_price.as_deref().map(parse_max_price).transpose();
    let max_price = max_price.map_err(|fault| Failure::Usage(format!("--max-price: {fault}")))?;
    Ok(Question { model: arguments.model.clone(), from, fields: arguments.fields.clone(), max_price })
}

fn print(explained: &Explanation) {
    if let Some(group) = &explained.group {
        say::line(&format!("group {group} serves {} (catalog revision {})", explained.model, explained.revision.0));
    }
    if let Some(refusal) = &explained.refusal {
        let waits = if refusal.retryable { "; waiting helps" } else { "" };
        say::line(&format!("refused with {}: {}{waits}", refusal.error, refusal.text));
    }
    let mut rows = vec![["", "channel", "account", "priority", "why", "what would change it"].map(str::to_owned).to_vec()];
    for (number, it) in explained.planned.iter().enumerate() {
        let why = with(it.code, it.detail.as_ref());
        rows.push(row(&(number + 1).to_string(), &it.channel, Some(&it.account), &it.priority.to_string(), why, ""));
    }
    for it in &explained.excluded {
        rows.push(row("–", &it.channel, it.account.as_ref(), "", with(it.code, it.detail.as_ref()), it.remedy));
    }
    if rows.len() > 1 {
        say::table(&rows);
    }
    for it in &explained.learned {
        say::line(&format!(
            "{} ({}) lately refused the field {}; tried again after {}",
            it.channel, it.upstream_model, it.field, it.until
        ));
    }
}

fn with(code: &str, detail: Option<&String>) -> String {
    detail.map_or_else(|| code.to_owned(), |detail| format!("{code}: {detail}"))
}

fn row(number: &str, channel: &str, account: Option<&String>, priority: &str, why: String, remedy: &str) -> Vec<String> {
    let account = account.cloned().unwrap_or_else(|| "–".to_owned());
    vec![number.to_owned(), channel.to_owned(), account, priority.to_owned(), why, remedy.to_owned()]
}
