//! The test of the OpenID provider: its stages with their findings.

use std::{convert::Infallible, sync::Arc};

use askama::Template as _;
use futures_util::stream;
use serde::Deserialize;

use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        locale::Locale,
        operations, problem,
        reply::{PageFailure, PageReply},
        request::PageRequest,
        stages::{Stage, StagesPage, html, in_parts, mark},
    },
};

/// The setting whose page the test belongs to.
pub(super) const SETTING: &str = "oidc.issuer";

#[derive(Debug, Deserialize)]
struct TestObject {
    passed: bool,
    callback: String,
    stages: Vec<StageObject>,
}

#[derive(Debug, Deserialize)]
struct StageObject {
    stage: String,
    passed: bool,
    detail: String,
    took_ms: f64,
}

pub(super) async fn run(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    if request.path_param("name") != SETTING {
        return Err(ApiError::no_path().into());
    }
    let tested = request.read::<TestObject>(operations::TEST_OIDC, ApiCall::default()).await;
    let page = StagesPage {
        layout: request.layout(t.say("oidc.test_title")).below("/settings", t.say("nav.settings")).returns_to("/settings"),
        t,
        about: t.say("oidc.test_about").to_owned(),
        note: "",
        back: (request.url("/settings?q=oidc"), t.say("oidc.back")),
    };
    let icons = page.layout.icons();
    let items = match tested {
        Ok(tested) => items(t, &icons, tested),
        Err(error) => vec![item(&icons, t, false, t.say("oidc.test_title").to_owned(), problem::say(t, &error))],
    };
    Ok(in_parts(&page.render()?, stream::iter([Ok::<_, Infallible>(html(&items))])))
}

fn item(icons: &str, t: Locale, has_passed: bool, step: String, detail: String) -> Stage {
    let (tone, icon) = mark(has_passed);
    Stage { t, icons: icons.to_owned(), tone, icon, step, detail, took: String::new(), is_end: false }
}

fn items(t: Locale, icons: &str, tested: TestObject) -> Vec<Stage> {
    let stage = |it: StageObject| {
        let took = format!("{:.0} ms", it.took_ms);
        Stage { took, ..item(icons, t, it.passed, name(t, &it.stage), it.detail) }
    };
    let mut items: Vec<Stage> = tested.stages.into_iter().map(stage).collect();
    let result = if tested.passed { t.say("test.passed") } else { t.say("oidc.test_failed") };
    let end = item(icons, t, tested.passed, result.to_owned(), t.say_with("oidc.callback", &[("address", &tested.callback)]));
    items.push(Stage { is_end: true, ..end });
    items
}

/// The name of a stage.
fn name(t: Locale, stage: &str) -> String {
    let name = match stage {
        "discovery" => t.say("oidc.stage_discovery"),
        "issuer" => t.say("oidc.stage_issuer"),
        "endpoints" => t.say("oidc.stage_endpoints"),
        "keys" => t.say("oidc.stage_keys"),
        "clock" => t.say("oidc.stage_clock"),
        "redirect" => t.say("oidc.stage_redirect"),
        "client" => t.say("oidc.stage_client"),
        _ => stage,
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oidc::OidcStage;

    #[test]
    fn every_stage_has_a_name_and_the_end_shows_the_result() {
        for t in [Locale::EN, Locale::ZH_CN] {
            for word in OidcStage::WORDS {
                assert_ne!(name(t, word), *word, "{word}");
            }
        }
        let stage = StageObject { stage: "keys".to_owned(), passed: false, detail: "no keys".to_owned(), took_ms: 1.6 };
        let tested = TestObject { passed: false, callback: "https://x/callback".to_owned(), stages: vec![stage] };
        let items = items(Locale::EN, "", tested);
        assert_eq!((items[0].tone, items[0].detail.as_str(), items[0].took.as_str()), ("bad", "no keys", "2 ms"));
        assert!(items[1].is_end && items[1].detail.contains("https://x/callback"));
    }
}
