//! `admin-key create|list|revoke`: keys of the admin API.

use serde_json::json;
use tollgate_core::AdminKeyId;
use tollgate_store::{AdminKeySpec, AdminScope, Change, Kind, NewKey, Random, RowFilter, Store, StoredRow};

use crate::{
    cli::{self, Common},
    command::usage,
    compose,
    failure::Failure,
    say, usage_line,
};

/// Most admin keys that are listed.
const MOST: u32 = 1_000;

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: cli::AdminKey) -> Result<(), Failure> {
    compose::block_on(async {
        match verb {
            cli::AdminKey::Create { name, scope, expires_at } => {
                let expires_at = expires_at.as_deref().map(|text| usage::time("--expires-at", text)).transpose()?;
                let scope = match scope {
                    cli::Scope::Operator => AdminScope::Operator,
                    cli::Scope::Admin => AdminScope::Admin,
                };
                // The first one may be made before the first start.
                let store = compose::open_or_make(common).await?;
                create(common, &store, AdminKeySpec { name, scope, expires_at }).await
            }
            cli::AdminKey::List => list(common, &compose::open(common).await?).await,
            cli::AdminKey::Revoke { key } => revoke(common, &compose::open(common).await?, &key).await,
        }
    })
}

async fn create(common: &Common, store: &Store, spec: AdminKeySpec) -> Result<(), Failure> {
    let new = NewKey::draw_admin(&Random::system());
    let secret = new.secret(&store.hasher);
    let (name, scope) = (spec.name.clone(), spec.scope);
    let make = Change::MakeAdminKey { key: Box::new(spec), secret };
    store.catalog.apply(&[make], &compose::actor(), compose::now()).await?;
    let text = new.expose_once();
    if common.json {
        say::json(&json!({"name": name, "scope": scope, "key": text}));
    } else {
        say::line(&text);
        if !common.quiet {
            say::remark("this admin key is shown once; send it as 'Authorization: Bearer' to /admin/v1");
        }
    }
    Ok(())
}

async fn all(store: &Store) -> Result<Vec<(StoredRow, AdminKeySpec)>, Failure> {
    let rows = store.listing.page(&RowFilter { removed: true, ..RowFilter::of(Kind::AdminKey, MOST) }).await?;
    rows.into_iter().map(|row| Ok((row.clone(), row.read()?))).collect()
}

async fn list(common: &Common, store: &Store) -> Result<(), Failure> {
    let keys = all(store).await?;
    let shown = |row: &StoredRow| row.shown.clone().unwrap_or_default();
    if common.json {
        let items: Vec<_> = keys
            .iter()
            .map(|(row, spec)| {
                let (prefix, suffix) = shown(row);
                json!({
                    "id": row.id, "name": spec.name, "scope": spec.scope, "prefix": prefix, "suffix": suffix,
                    "created_at": usage_line::time(row.created_at), "expires_at": spec.expires_at.map(usage_line::time),
                    "revoked_at": row.removed_at.map(usage_line::time),
                })
            })
            .collect();
        say::json(&json!({"items": items}));
        return Ok(());
    }
    let mut rows = vec![["name", "key", "scope", "expires", "revoked", "id"].map(str::to_owned).to_vec()];
    for (row, spec) in &keys {
        let (prefix, suffix) = shown(row);
        rows.push(vec![
            spec.name.clone(),
            format!("{prefix}…{suffix}"),
            spec.scope.as_str().to_owned(),
            spec.expires_at.map_or_else(|| "never".to_owned(), usage_line::time),
            row.removed_at.map_or_else(|| "–".to_owned(), usage_line::time),
            row.id.clone(),
        ]);
    }
    say::table(&rows);
    Ok(())
}

async fn revoke(common: &Common, store: &Store, key: &str) -> Result<(), Failure> {
    let keys = all(store).await?;
    let found = keys.iter().find(|(row, _)| row.id == key || (row.removed_at.is_none() && row.name == key));
    let id = found.and_then(|(row, _)| AdminKeyId::parse(&row.id));
    let Some(id) = id else {
        return Err(Failure::Machine(format!("there is no admin key '{key}'; `tollgate admin-key list` shows them")));
    };
    store.catalog.apply(&[Change::RevokeAdminKey { key: id }], &compose::actor(), compose::now()).await?;
    if common.json {
        say::json(&json!({"id": id, "status": "revoked"}));
    } else {
        say::line(&format!("revoked {id}"));
    }
    Ok(())
}
