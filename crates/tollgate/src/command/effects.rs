//! What a change does beyond its own rows, told before it is saved: accounts that price limits would exclude.

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};
use tollgate_core::{PriceEffect, PriceSubject, price_effects};
use tollgate_store::{
    Current, PreviewError, Random,
    catalog_file::{CatalogFile, Mode},
    preview,
};

use crate::{command::catalog, compose, failure::Failure, say};

/// Rows for people; JSON has all.
const MOST_ROWS: usize = 40;

/// What price limits would exclude after this file that they do not exclude now.
pub(crate) async fn of(current: &Current, path: &Path, file: &CatalogFile, mode: Mode) -> Result<Vec<PriceEffect>, Failure> {
    let now = compose::now();
    let preview = preview(current, file, mode, Random::system(), now).await.map_err(|error| not_previewed(path, error))?;
    let keys: Vec<_> = preview.changed.into_iter().map(|(was, key)| (was.map(Arc::new), Arc::new(key))).collect();
    Ok(price_effects(&preview.before, &preview.after, &keys, now))
}

/// Why nothing can be said about a file.
pub(crate) fn not_previewed(path: &Path, error: PreviewError) -> Failure {
    match error {
        PreviewError::File(faults) => catalog::in_file(path, &faults),
        PreviewError::Store(error) => error.into(),
    }
}

/// For people; nothing where there is nothing.
pub(crate) fn print(effects: &[PriceEffect]) {
    if effects.is_empty() {
        return;
    }
    say::line("");
    say::line("price limits would exclude what they do not exclude now:");
    let mut rows = vec![["whose", "model", "channel", "account", "why"].map(str::to_owned).to_vec()];
    for effect in effects {
        let (whose, model) = (whose(&effect.subject), &effect.model);
        for it in &effect.accounts {
            let account = it.account.clone().unwrap_or_else(|| "all".to_owned());
            let why = it.detail.clone().unwrap_or_else(|| it.code.to_owned());
            rows.push(vec![whose.clone(), model.clone(), it.channel.clone(), account, why]);
        }
        if effect.nothing_left {
            let why = "nothing is left: callers get 503 (E41)".to_owned();
            rows.push(vec![whose, model.clone(), "–".to_owned(), "–".to_owned(), why]);
        }
    }
    let more = rows.len().saturating_sub(MOST_ROWS + 1);
    rows.truncate(MOST_ROWS + 1);
    say::table(&rows);
    if more > 0 {
        say::line(&format!("… {more} more; --json has all"));
    }
}

/// For programs.
pub(crate) fn json(effects: &[PriceEffect]) -> Value {
    let effects = effects.iter().map(|effect| {
        let (kind, name, member) = match &effect.subject {
            PriceSubject::Group(name) => ("group", name, None),
            PriceSubject::Key { member, key } => ("key", key, Some(member)),
        };
        let accounts = effect
            .accounts
            .iter()
            .map(|it| json!({"channel": it.channel, "account": it.account, "code": it.code, "detail": it.detail}));
        json!({
            "subject": kind, "name": name, "member": member, "model": effect.model, "nothing_left": effect.nothing_left,
            "excluded": accounts.collect::<Vec<_>>(),
        })
    });
    effects.collect()
}

fn whose(subject: &PriceSubject) -> String {
    match subject {
        PriceSubject::Group(name) => format!("group {name}"),
        PriceSubject::Key { member, key } => format!("key {key} of {member}"),
    }
}
