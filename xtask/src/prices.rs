//! `cargo xtask prices`: writes the price list that is built into the program, from the list in a wheel of LiteLLM
//! (`pip download --no-deps litellm`). Review the difference before it is committed.

use std::{
    collections::BTreeMap,
    fs,
    io::{Seek as _, Write as _},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::shell;

const FILE: &str = "crates/tollgate-core/data/prices.csv";
const IN_WHEEL: &str = "litellm/model_prices_and_context_window_backup.json";
/// Providers of the list, in LiteLLM's words.
const PROVIDERS: [&str; 12] =
    ["anthropic", "cerebras", "cohere", "cohere_chat", "deepseek", "gemini", "groq", "mistral", "moonshot", "openai", "xai", "zai"];
const MODES: [&str; 4] = ["chat", "completion", "responses", "embedding"];

#[derive(Args)]
pub(crate) struct PricesOptions {
    /// Wheel of LiteLLM, such as litellm-1.109.1-cp310-abi3-manylinux_2_28_x86_64.whl.
    wheel: PathBuf,
    /// Day on which it was downloaded, such as 2026-11-23.
    #[arg(long)]
    date: String,
}

pub(crate) fn run(options: &PricesOptions) -> Result<()> {
    let name = options.wheel.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = name.strip_prefix("litellm-").and_then(|rest| rest.split('-').next());
    let version = version.context("the name of a wheel of LiteLLM begins with litellm-VERSION-")?;
    shell::ensure_debian("unzip", "unzip")?;
    let text = shell::output(Command::new("unzip").arg("-p").arg(&options.wheel).arg(IN_WHEEL))?;
    let all: Map<String, Value> = serde_json::from_str(&text).with_context(|| IN_WHEEL.to_owned())?;
    let models = selected(&all, &options.date);
    if models.is_empty() {
        bail!("{IN_WHEEL} has no model of {}", PROVIDERS.join(", "));
    }
    let mut about = vec![
        format!("Written by `cargo xtask prices` on {} from LiteLLM {version}, https://github.com/BerriAI/litellm", options.date),
        "LiteLLM is Copyright (c) 2023 Berri AI, under the MIT licence.".to_owned(),
        "USD per million tokens; models that are not deprecated on that day. Pages of the providers, as LiteLLM names them:"
            .to_owned(),
    ];
    about.extend(pages(&models));
    let input = json!({"source": format!("LiteLLM {version}, {}", options.date), "about": about, "models": models});
    let mut file = tempfile::tempfile()?;
    file.write_all(input.to_string().as_bytes())?;
    file.rewind()?;
    let list = shell::output(shell::cargo(&["run", "--quiet", "-p", "tollgate-core", "--example", "price_list"]).stdin(file))?;
    fs::write(shell::root().join(FILE), &list)?;
    println!("{FILE} has {} lines", list.lines().count());
    Ok(())
}

/// The models of the list; those with their provider's name first.
fn selected(all: &Map<String, Value>, date: &str) -> Map<String, Value> {
    let text = |entry: &Value, member: &str| entry[member].as_str().unwrap_or_default().to_owned();
    let wanted = |name: &str, entry: &Value| {
        let end = text(entry, "deprecation_date");
        PROVIDERS.contains(&text(entry, "litellm_provider").as_str())
            && MODES.contains(&text(entry, "mode").as_str())
            && (end.is_empty() || end.as_str() > date)
            && !name.starts_with("ft:")
    };
    let mut models: Vec<(&String, &Value)> = all.iter().filter(|(name, entry)| wanted(name, entry)).collect();
    models.sort_by_key(|(name, _)| !name.contains('/'));
    models.into_iter().map(|(name, entry)| (name.clone(), entry.clone())).collect()
}

/// The page that LiteLLM names most often for each provider.
fn pages(models: &Map<String, Value>) -> Vec<String> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for entry in models.values() {
        if let (Some(provider), Some(page)) = (entry["litellm_provider"].as_str(), entry["source"].as_str()) {
            let provider = provider.strip_suffix("_chat").unwrap_or(provider);
            *counts.entry(provider).or_default().entry(page).or_default() += 1;
        }
    }
    let most = |pages: BTreeMap<&str, usize>| pages.into_iter().max_by_key(|(_, count)| *count).map(|(page, _)| page.to_owned());
    counts.into_iter().filter_map(|(provider, pages)| Some(format!("{provider}: {}", most(pages)?))).collect()
}
