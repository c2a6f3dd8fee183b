//! Making keys: one, or several at once; by operators for any member, by members for themselves where their groups allow it.

use std::sync::Arc;

use askama::Template;
use serde_json::Value;

use super::{form, key_page, view::KeyObject};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, Control, ControlSection},
        form::FormState,
        groups,
        layout::{Layout, Script},
        locale::Locale,
        operations,
        playground::{OwnGroup, groups_for_keys},
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of, read_answer},
    },
};

/// Keys that are made at once.
const MAX_AT_ONCE: u64 = 100;

#[derive(Debug, Template)]
#[template(path = "key_new.html")]
struct NewKeyPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    name: Control,
    /// For operators.
    member: Option<Control>,
    groups: Vec<OwnGroup>,
    count: Control,
    form: ControlSection,
}

#[derive(Debug, Template)]
#[template(path = "keys_made.html")]
struct KeysMadePage {
    layout: Layout,
    t: Locale,
    made: Vec<MadeKey>,
    count: String,
    /// Why not all were made.
    problem: Option<String>,
    csv: String,
}

/// A key that was made just now.
#[derive(Debug)]
struct MadeKey {
    id: String,
    name: String,
    member: String,
    key: String,
}

pub(super) async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let Some(from) = request.query.filled("from") else {
        return new_page(&request, &FormState::default()).await;
    };
    let call = ApiCall { path: path_of(&[("key", from)]), ..ApiCall::default() };
    let key: KeyObject = request.read(operations::GET_KEY, call).await?;
    let name = request.t().say_with("keys.copy_of", &[("name", &key.name)]);
    let values = form::values(&key).with("name", &name).with("member", &key.member);
    new_page(&request, &FormState::of(values)).await
}

async fn new_page(request: &PageRequest, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let groups = groups_for_keys(request).await?;
    if groups.is_empty() {
        return Err(ApiError::no_self_service("default").into());
    }
    let member = || state.text("member", t.say("keys.member")).hint(t.say("keys.member_hint"));
    let template = NewKeyPage {
        layout: request.layout(t.say("keys.new")).below("/keys", t.say("nav.keys")),
        t,
        banner: state.banner(),
        name: state.text("name", t.say("keys.name")).hint(t.say("keys.name_hint")).max(100).required().focus(),
        member: request.is_operator().then(member),
        groups,
        count: state.number("count", t.say("keys.how_many")).hint(t.say("keys.how_many_hint")),
        form: form::section(t, state, false, request.is_operator()),
    };
    PageReply::page(state.status(), &template)
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let read = || -> Result<_, ApiError> {
        let count = control::whole_number(form, "count")?;
        if count > MAX_AT_ONCE {
            return Err(ApiError::value("count", "expected at most 100").because("too_many_keys"));
        }
        groups::check_price_limit(form)?;
        Ok((form::body(form, true), count))
    };
    let (mut body, count) = match read() {
        Ok(read) => read,
        Err(error) => return refuse(&request, error).await,
    };
    if request.is_operator() {
        let own = request.signed_in.as_ref().map(|signed_in| signed_in.member.name.clone()).unwrap_or_default();
        body.insert("member".to_owned(), form.filled("member").map_or(own, str::to_owned).into());
    }
    let name = form.value("name").trim();
    if count <= 1 {
        body.insert("name".to_owned(), name.into());
        return match request.call(operations::MAKE_KEY, ApiCall { body, ..ApiCall::default() }).await {
            Ok(answer) => key_page(&request, &FormState::default(), Some(&read_answer(answer)?)).await,
            Err(error) => refuse(&request, error).await,
        };
    }
    let (mut made, mut problem) = (Vec::new(), None);
    for number in 1..=count {
        body.insert("name".to_owned(), format!("{name}-{number}").into());
        match request.call(operations::MAKE_KEY, ApiCall { body: body.clone(), ..ApiCall::default() }).await {
            Ok(answer) => made.push(MadeKey::of(&read_answer(answer)?)),
            Err(error) if made.is_empty() => return refuse(&request, error).await,
            // The keys that were made are shown whatever stopped the rest: their secrets are shown only this once.
            Err(error) => {
                problem = Some(crate::pages::problem::say(request.t(), &error));
                break;
            }
        }
    }
    let t = request.t();
    let template = KeysMadePage {
        layout: request.layout(t.say("keys.made")).below("/keys", t.say("nav.keys")).with(Script::Download).returns_to("/keys"),
        t,
        csv: csv(&made),
        count: t.say_count("keys.one", "keys.count", u64::try_from(made.len()).unwrap_or(u64::MAX)),
        made,
        problem,
    };
    PageReply::ok(&template)
}

async fn refuse(request: &PageRequest, error: ApiError) -> Result<PageReply, PageFailure> {
    new_page(request, &form::refused(request.t(), &request.form, error)?).await
}

impl MadeKey {
    fn of(made: &Value) -> Self {
        let text = |field: &str| made[field].as_str().unwrap_or_default().to_owned();
        Self { id: text("id"), name: text("name"), member: text("member"), key: text("key") }
    }
}

fn csv(made: &[MadeKey]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = [["name", "id", "member", "key"]];
    let rows = made.iter().map(|key| [key.name.as_str(), &key.id, &key.member, &key.key]);
    for row in head.into_iter().chain(rows) {
        // Writing to memory does not fail.
        let _ = writer.write_record(row);
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_keys_are_written_as_csv() {
        let key = |name: &str| MadeKey { id: "key_1".into(), name: name.into(), member: "ann".into(), key: "sk-tg-x".into() };
        assert_eq!(csv(&[key("a,\"b\"")]), "name,id,member,key\n\"a,\"\"b\"\"\",key_1,ann,sk-tg-x\n");
    }
}
