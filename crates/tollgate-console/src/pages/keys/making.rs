//! Making keys: one, or several at once; by operators for any member, by members for themselves where their groups allow it.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{form, key_page, list_page, view::KeyObject};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, Control, ControlSection},
        csv_file,
        drawer::{DrawerFrame, NEW, OPEN},
        form::{FormData, FormState},
        further_faults::with_further_faults,
        groups,
        layout::{Layout, Script},
        locale::Locale,
        models::group_label,
        operations,
        playground::{OwnGroup, groups_for_keys},
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of, read_answer},
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
    fields: NewKeyFields,
}

/// The same form beside the list of keys.
#[derive(Debug, Template)]
#[template(path = "parts/key_new_drawer.html")]
pub(super) struct NewKeyDrawer {
    layout: Layout,
    t: Locale,
    frame: DrawerFrame,
    banner: Option<String>,
    fields: NewKeyFields,
    /// The list with the form beside it, which shows it again if it is refused.
    here: String,
}

#[derive(Debug)]
struct NewKeyFields {
    name: Control,
    /// For operators.
    member: Option<Control>,
    /// The groups to choose from.
    groups: Option<Control>,
    count: Control,
    section: ControlSection,
    is_refused: bool,
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
    let state = match request.query.filled("from") {
        Some(from) => copy_of(&request, from).await?,
        None => FormState::default(),
    };
    if request.wants_part() {
        return PageReply::ok(&NewKeyDrawer::of(&request, &state).await?);
    }
    new_page(&request, &state).await
}

/// The form with the values of another key.
async fn copy_of(request: &PageRequest, from: &str) -> Result<FormState, ApiError> {
    let call = ApiCall { path: path_of(&[("key", from)]), ..ApiCall::default() };
    let key: KeyObject = request.read(operations::GET_KEY, call).await?;
    let name = request.t().say_with("keys.copy_of", &[("name", &key.name)]);
    Ok(FormState::of(form::values(&key).with("name", &name).with("member", &key.member)))
}

async fn new_page(request: &PageRequest, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let template = NewKeyPage {
        layout: request.layout(t.say("keys.new")).below("/keys", t.say("nav.keys")).with(Script::Order),
        t,
        banner: state.banner(),
        fields: NewKeyFields::of(request, state).await?,
    };
    PageReply::page(state.status(), &template)
}

impl NewKeyDrawer {
    async fn of(request: &PageRequest, state: &FormState) -> Result<Self, PageFailure> {
        let t = request.t();
        Ok(Self {
            layout: request.layout(t.say("nav.keys")),
            t,
            frame: DrawerFrame {
                id: NEW.to_owned(),
                title: t.say("keys.new").to_owned(),
                mark: None,
                page: request.url("/keys/new"),
                back: request.beside("/keys", None),
            },
            banner: state.banner(),
            fields: NewKeyFields::of(request, state).await?,
            here: request.beside("/keys", Some(NEW)),
        })
    }

    /// The form that was refused, or the one that the address of the list opens; none for members who may make no key.
    pub(super) async fn opened(request: &PageRequest, refused: Option<&FormState>) -> Result<Option<Self>, PageFailure> {
        if let Some(state) = refused {
            return Self::of(request, state).await.map(Some);
        }
        if request.query.filled(OPEN) != Some(NEW) || groups_for_keys(request).await?.is_empty() {
            return Ok(None);
        }
        Self::of(request, &FormState::default()).await.map(Some)
    }
}

impl NewKeyFields {
    async fn of(request: &PageRequest, state: &FormState) -> Result<Self, PageFailure> {
        let t = request.t();
        let own = groups_for_keys(request).await?;
        if own.is_empty() {
            return Err(ApiError::no_self_service("default").into());
        }
        let groups = if request.is_operator() {
            choice_of_all(request, state).await?
        } else {
            let has_default = own.iter().any(|group| group.default);
            let own: Vec<form::KnownGroup> = own.into_iter().map(|group| choice(t, group)).collect();
            if has_default { form::group_choice(t, state, &own) } else { form::group_choice_without_default(t, state, &own) }
        };
        let member = || state.text("member", t.say("keys.member")).hint(t.say("keys.member_hint"));
        let shape = form::Shape { names_groups: groups.is_none(), ..form::Shape::new(request.is_operator()) };
        Ok(Self {
            name: state.text("name", t.say("keys.name")).hint(t.say("keys.name_hint")).max(100).required().focus(),
            member: request.is_operator().then(member),
            groups,
            count: state.number("count", t.say("keys.how_many")).hint(t.say("keys.how_many_hint")),
            section: form::section(t, state, shape),
            is_refused: state.banner().is_some(),
        })
    }

    /// Whether the fields with more options are shown.
    fn is_open(&self) -> bool {
        self.is_refused || self.section.has_fault() || self.count.has_fault()
    }
}

/// Whether the form is that beside the list of keys.
fn is_beside(request: &PageRequest) -> bool {
    request.address.split('?').next() == Some("/keys")
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = &request.form;
    let count = count(form);
    let faults = [count.clone().err(), groups::check_price_limit(form).err()];
    let mut body = form::body(form, request.state.gateway.now());
    if request.is_operator() {
        let own = request.signed_in.as_ref().map(|signed_in| signed_in.member.name.clone()).unwrap_or_default();
        body.insert("member".to_owned(), form.filled("member").map_or(own, str::to_owned).into());
    }
    let name = form.value("name").trim();
    let count = count.unwrap_or_default();
    body.insert("name".to_owned(), if count > 1 { format!("{name}-1") } else { name.to_owned() }.into());
    if let Err(error) = ApiError::first_of(faults.into_iter().flatten().collect()) {
        return refuse(&request, body, error).await;
    }
    if count <= 1 {
        return match request.call(operations::MAKE_KEY, ApiCall { body: body.clone(), ..ApiCall::default() }).await {
            Ok(answer) => key_page(&request, &FormState::default(), Some(&read_answer(answer)?)).await,
            Err(error) => refuse(&request, body, error).await,
        };
    }
    let (mut made, mut problem) = (Vec::new(), None);
    for number in 1..=count {
        body.insert("name".to_owned(), format!("{name}-{number}").into());
        match request.call(operations::MAKE_KEY, ApiCall { body: body.clone(), ..ApiCall::default() }).await {
            Ok(answer) => made.push(MadeKey::of(&read_answer(answer)?)),
            Err(error) if made.is_empty() => return refuse(&request, body, error).await,
            // The keys that were made are shown even if the rest failed, because their secrets are shown only once.
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

/// How many keys are made.
fn count(form: &FormData) -> Result<u64, ApiError> {
    let count = control::whole_number(form, "count")?;
    if count > MAX_AT_ONCE {
        return Err(ApiError::value("count", "expected at most 100").because("too_many_keys"));
    }
    Ok(count)
}

/// The groups that an operator can choose for a key; `None` if there are too many.
pub(super) async fn choice_of_all(request: &PageRequest, state: &FormState) -> Result<Option<Control>, ApiError> {
    #[derive(Deserialize)]
    struct Group {
        name: String,
        description: Option<String>,
        sale_multiplier: String,
        model_multipliers: Map<String, Value>,
    }
    let found: ApiPage<Group> = request.read(operations::LIST_GROUPS, get(&[("limit", "1000")])).await?;
    let t = request.t();
    let choice = |group: Group| {
        let label = group_label(t, &group.name, &group.sale_multiplier, !group.model_multipliers.is_empty());
        form::KnownGroup { name: group.name, label, about: group.description }
    };
    if found.next.is_some() {
        return Ok(None);
    }
    let all: Vec<form::KnownGroup> = found.items.into_iter().map(choice).collect();
    Ok(form::group_choice(t, state, &all))
}

/// A group of the reader's.
fn choice(t: Locale, group: OwnGroup) -> form::KnownGroup {
    let label = if group.default { format!("{} · {}", group.label, t.say("keys.default_group")) } else { group.label };
    form::KnownGroup { name: group.name, label, about: group.description }
}

/// The form with every fault, those of the body included.
async fn refuse(request: &PageRequest, body: Map<String, Value>, error: ApiError) -> Result<PageReply, PageFailure> {
    let own = request.signed_in.as_ref().map(|signed_in| signed_in.member.name.clone()).unwrap_or_default();
    // Names and members at fault are replaced by valid ones: a name that no key has, and the reader.
    let free = format!("key of {}", request.meta.id);
    let stand_ins = [("name", free.as_str()), ("member", own.as_str())];
    let call = ApiCall { body, ..ApiCall::default() };
    let error = with_further_faults(request, operations::MAKE_KEY, call, error, &stand_ins).await;
    let state = form::refused(request.t(), &request.form, error)?;
    if is_beside(request) { list_page(request, Some(&state)).await } else { new_page(request, &state).await }
}

impl MadeKey {
    fn of(made: &Value) -> Self {
        let text = |field: &str| made[field].as_str().unwrap_or_default().to_owned();
        Self { id: text("id"), name: text("name"), member: text("member"), key: text("key") }
    }
}

fn csv(made: &[MadeKey]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = ["name", "id", "member", "key"].map(str::to_owned);
    let text = csv_file::text;
    let rows = made.iter().map(|key| [text(&key.name), key.id.clone(), text(&key.member), key.key.clone()]);
    for row in [head].into_iter().chain(rows) {
        // Writing to memory does not fail.
        let _ = writer.write_record(row);
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_keys_is_bounded() {
        let count = |text: &str| count(&FormData::of(&[("count", text)]));
        assert_eq!((count("").ok(), count("100").ok()), (Some(0), Some(100)));
        assert_eq!(count("101").unwrap_err().reason(), Some("too_many_keys"));
        assert_eq!(count("-1").unwrap_err().reason(), Some("whole_number"));
    }

    #[test]
    fn created_keys_are_written_as_csv() {
        let key = |name: &str, member: &str| MadeKey {
            id: "key_1".into(),
            name: name.into(),
            member: member.into(),
            key: "sk-tg-x".into(),
        };
        assert_eq!(csv(&[key("a,\"b\"", "ann")]), "name,id,member,key\n\"a,\"\"b\"\"\",key_1,ann,sk-tg-x\n");
        let formulas = csv(&[key("@x", "=HYPERLINK(1)")]);
        assert_eq!(formulas, "name,id,member,key\n'@x,key_1,'=HYPERLINK(1),sk-tg-x\n", "no spreadsheet takes names for formulas");
    }
}
