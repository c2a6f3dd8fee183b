//! `key create|list|revoke`.

use serde_json::json;
use tollgate_core::{Budget, Glob, Key, KeyStatus, Limits};
use tollgate_store::{Change, KeySpec, NewKey, Random, Store};

use crate::{
    cli::{self, Common},
    command::usage,
    compose,
    failure::Failure,
    say, usage_line,
};

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: cli::Key) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        match verb {
            cli::Key::Create { name, groups, member, models, expires_at, env } => {
                let expires_at = expires_at.as_deref().map(|text| usage::time("--expires-at", text)).transpose()?;
                let models = if models.is_empty() { vec!["*".to_owned()] } else { models };
                let spec = KeySpec {
                    name,
                    member,
                    status: KeyStatus::Active,
                    expires_at,
                    groups,
                    models: models.into_iter().map(Glob).collect(),
                    ip_allow: Vec::new(),
                    limits: Limits::default(),
                    budgets: Vec::<Budget>::new(),
                    price_limit: None,
                    signatures_in_ids: None,
                };
                create(common, &store, spec, env).await
            }
            cli::Key::List => list(common, &store).await,
            cli::Key::Revoke { key } => revoke(common, &store, &key).await,
        }
    })
}

async fn create(common: &Common, store: &Store, spec: KeySpec, env: bool) -> Result<(), Failure> {
    let (name, member) = (spec.name.clone(), spec.member.clone());
    let is_it = |key: &Key| key.name == name && key.member.name == member && key.status != KeyStatus::Revoked;
    if store.keys.list().await?.iter().any(is_it) {
        return Err(Failure::Machine(format!("there is a key '{}' already; revoke it first, or take another name", spec.name)));
    }
    let new = NewKey::draw(&Random::system());
    let secret = new.secret(&store.hasher);
    store.catalog.apply(&[Change::PutKey { key: Box::new(spec), secret: Some(secret) }], &compose::actor(), compose::now()).await?;
    let text = new.expose_once();
    if common.json {
        let id = store.keys.list().await?.into_iter().find(is_it).map(|key| key.id);
        say::json(&json!({"id": id, "name": name, "key": text}));
    } else if env {
        say::line(&format!("export OPENAI_API_KEY={text}\nexport GEMINI_API_KEY={text}"));
    } else {
        say::line(&text);
        if !common.quiet {
            say::remark("this key is shown once; it works on both protocols");
        }
    }
    Ok(())
}

async fn list(common: &Common, store: &Store) -> Result<(), Failure> {
    let keys = store.keys.list().await?;
    let catalog = store.catalog.load().await?;
    let groups = |key: &Key| -> Vec<String> {
        key.groups.iter().filter_map(|group| catalog.groups.get(group)).map(|group| group.name.clone()).collect()
    };
    if common.json {
        let items: Vec<_> = keys
            .iter()
            .map(|key| {
                json!({
                    "id": key.id, "name": key.name, "member": key.member.name, "status": key.status, "prefix": key.prefix, "suffix": key.suffix,
                    "groups": groups(key), "models": key.models, "owner": key.owner, "created_at": usage_line::time(key.created_at),
                    "expires_at": key.expires_at.map(usage_line::time),
                })
            })
            .collect();
        say::json(&json!({"items": items}));
        return Ok(());
    }
    let mut rows = vec![["name", "key", "member", "groups", "status", "owner", "expires", "id"].map(str::to_owned).to_vec()];
    for key in &keys {
        let reached = groups(key);
        rows.push(vec![
            key.name.clone(),
            format!("{}…{}", key.prefix, key.suffix),
            key.member.name.clone(),
            if reached.is_empty() { "member's default".to_owned() } else { reached.join(", ") },
            word(&key.status),
            word(&key.owner),
            key.expires_at.map_or_else(|| "never".to_owned(), usage_line::time),
            key.id.to_string(),
        ]);
    }
    say::table(&rows);
    Ok(())
}

async fn revoke(common: &Common, store: &Store, name: &str) -> Result<(), Failure> {
    let key = find(store, name).await?;
    store.catalog.apply(&[Change::RevokeKey { key: key.id }], &compose::actor(), compose::now()).await?;
    if common.json {
        say::json(&json!({"id": key.id, "status": KeyStatus::Revoked}));
    } else {
        say::line(&format!("revoked {} ({}…{})", key.name, key.prefix, key.suffix));
    }
    Ok(())
}

/// A key by id, or by name where only one has it. Revoked keys are found by id.
pub(crate) async fn find(store: &Store, name: &str) -> Result<Key, Failure> {
    let keys = store.keys.list().await?;
    if let Some(key) = keys.iter().find(|key| key.id.to_string() == name) {
        return Ok(key.clone());
    }
    let mut named: Vec<&Key> = keys.iter().filter(|key| key.name == name && key.status != KeyStatus::Revoked).collect();
    match (named.pop(), named.is_empty()) {
        (Some(key), true) => Ok(key.clone()),
        (Some(_), false) => {
            Err(Failure::Machine(format!("more than one key is called '{name}'; name it by its id (`tollgate key list`)")))
        }
        (None, _) => Err(Failure::Machine(format!("there is no key '{name}'; `tollgate key list` shows them"))),
    }
}

/// A word as catalog files write it.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
