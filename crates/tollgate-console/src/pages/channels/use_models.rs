//! Makes the channel serve the models that passed a test: first a preview of the changes, then saving them.

use std::{collections::HashSet, sync::Arc};

use askama::Template;

use super::{
    served::{add_models, import_prices, same_name},
    state::{ChannelObject, one, path},
    test_models, test_results,
};
use crate::pages::{
    form::{FormData, FormState},
    layout::Layout,
    locale::Locale,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::PageRequest,
};

#[derive(Debug, Template)]
#[template(path = "channel_use_models.html")]
struct UsePage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    here: String,
    changes: ModelChanges,
    kept: String,
    /// The results of the test as fields: name and value.
    results: Vec<(String, String)>,
}

/// What would change.
#[derive(Debug, PartialEq, Eq)]
struct ModelChanges {
    added: Vec<String>,
    /// Served models that were tested and are not used.
    removed: Vec<String>,
}

impl ModelChanges {
    /// The form of the results has the tested models and the chosen ones.
    fn of_results(form: &FormData, channel: &ChannelObject) -> Self {
        let served: HashSet<&str> = channel.serves.iter().map(|served| served.model.as_str()).collect();
        let used: HashSet<&str> = form.all("use").collect();
        let tested = |is_wanted: &dyn Fn(&str) -> bool| {
            let mut seen = HashSet::new();
            form.all("tested").filter(|model| seen.insert(*model) && is_wanted(model)).map(str::to_owned).collect()
        };
        Self {
            added: tested(&|model| used.contains(model) && !served.contains(model)),
            removed: tested(&|model| !used.contains(model) && served.contains(model)),
        }
    }

    /// The form of this page has the models that are still chosen.
    fn of_ticks(form: &FormData) -> Self {
        let ticked = |name| form.all(name).map(str::to_owned).collect();
        Self { added: ticked("add"), removed: ticked("remove") }
    }
}

/// Shows the changes. Nothing is saved.
pub(super) async fn preview(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let channel = one(&request).await?;
    let changes = ModelChanges::of_results(&request.form, &channel);
    page(&request, &channel, changes, &FormState::default())
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let changes = ModelChanges::of_ticks(form);
    let added: Vec<(String, String)> = changes.added.iter().map(|model| same_name(model)).collect();
    let removed: HashSet<&str> = changes.removed.iter().map(String::as_str).collect();
    let saved = match add_models(&request, &added, &removed).await {
        Ok(()) if form.has("prices") && !added.is_empty() => import_prices(&request, &added).await,
        other => other,
    };
    match saved {
        Ok(()) => {
            let models = format!("{}/models", path(request.path_param("name")));
            Ok(PageReply::redirect(&request.url(&models)).toast(Toast::Saved))
        }
        Err(error) => {
            let state = FormState::refused(request.t(), form, &error, &[])?;
            page(&request, &one(&request).await?, changes, &state)
        }
    }
}

fn page(request: &PageRequest, channel: &ChannelObject, changes: ModelChanges, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let kept = channel.serves.iter().filter(|served| !changes.removed.contains(&served.model)).count();
    let template = UsePage {
        layout: test_models::layout(request, &channel.name),
        t,
        banner: form.banner(),
        here: request.url(&format!("{}/test", path(&channel.name))),
        kept: t.say_count("test.kept_one", "test.kept", u64::try_from(kept).unwrap_or(u64::MAX)),
        changes,
        results: test_results::fields_of(&request.form),
    };
    PageReply::page(form.status(), &template)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tested_models_are_added_or_removed_and_others_stay() {
        let channel: ChannelObject = serde_json::from_value(json!({
            "id": "chn_1", "name": "main", "provider": "openai", "status": "on", "base_url": "", "priority": 0, "weight": 1,
            "owner": "database", "revision": 1, "tags": [], "test_model": null,
            "serves": [{"model": "works", "upstream": "works"}, {"model": "fails", "upstream": "fails"}, {"model": "other", "upstream": "o"}],
        }))
        .unwrap();
        let form = FormData::parse(b"tested=works&use=works&tested=fails&tested=new&use=new&tested=new-fails&use=never-tested");
        let changes = ModelChanges::of_results(&form, &channel);
        assert_eq!(changes, ModelChanges { added: vec!["new".to_owned()], removed: vec!["fails".to_owned()] });
    }
}
