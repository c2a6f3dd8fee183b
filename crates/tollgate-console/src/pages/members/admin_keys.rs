//! Keys of the admin API: the list, a new key that is shown once, and each key with its revocation.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_core::Timestamp;

use super::{MembersTab, form::roles, tabs, view::role};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, ControlSection, Danger, FormView, Pager, Tab, check_typed_name},
        form::{FormData, FormState},
        format::{self, TimeText},
        keys::{Expiry, expires_at, expiry},
        layout::Layout,
        locale::Locale,
        mark::{self, Mark},
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of, read_answer},
    },
    time::parse_rfc3339,
};

const PATH: &str = "/members/admin-keys";
/// Keys on a page.
const PAGE: &str = "100";

#[derive(Debug, Template)]
#[template(path = "admin_keys.html")]
struct AdminKeysPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    banner: Option<String>,
    /// The key that was just made, shown only once.
    made: Option<MadeAdminKey>,
    form: FormView,
    /// Whether revoked keys are listed, too.
    has_revoked: bool,
    rows: Vec<AdminKeyRow>,
    pager: Pager,
}

#[derive(Debug, Template)]
#[template(path = "admin_key.html")]
struct AdminKeyPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    row: AdminKeyRow,
    /// `None` for a key that is revoked.
    danger: Option<Danger>,
}

#[derive(Debug, Deserialize)]
struct AdminKeyObject {
    id: String,
    name: String,
    scope: String,
    member: Option<String>,
    expires_at: Option<String>,
    prefix: String,
    suffix: String,
    created_at: String,
    revoked_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct MadeAdminKey {
    name: String,
    key: String,
}

#[derive(Debug)]
struct AdminKeyRow {
    id: String,
    name: String,
    /// The first and the last characters of the key.
    shown: String,
    mark: Mark,
    scope: &'static str,
    member: Option<String>,
    expires: Option<Expiry>,
    created: Option<TimeText>,
    revoked: Option<TimeText>,
}

impl AdminKeyRow {
    fn of(t: Locale, key: &AdminKeyObject, now: Timestamp) -> Self {
        let is_expired = key.expires_at.as_deref().and_then(parse_rfc3339).is_some_and(|at| at <= now);
        let state = match &key.revoked_at {
            Some(_) => "revoked",
            None if is_expired => "expired",
            None => "active",
        };
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            shown: format!("{}••••{}", key.prefix, key.suffix),
            mark: mark::of_key(t, state),
            scope: role(t, &key.scope),
            member: key.member.clone(),
            expires: Expiry::of(t, key.expires_at.as_deref(), now),
            created: format::time(t, &key.created_at),
            revoked: key.revoked_at.as_deref().and_then(|at| format::time(t, at)),
        }
    }
}

/// The initial values of the form. A forgotten key expires by itself, after an alert.
fn defaults() -> FormState {
    FormState::of(FormData::of(&[("scope", "operator"), ("valid_for", "90")]))
}

pub(super) async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    keys_page(&request, &defaults(), None).await
}

/// The list with the form; with `made` just after a key was made.
async fn keys_page(request: &PageRequest, state: &FormState, made: Option<MadeAdminKey>) -> Result<PageReply, PageFailure> {
    let (t, now) = (request.t(), request.state.gateway.now());
    let has_revoked = request.query.value("revoked") == "true";
    let mut filter = vec![("limit", PAGE)];
    filter.extend(has_revoked.then_some(("revoked", "true")));
    filter.extend(request.query.filled("after").map(|after| ("after", after)));
    let found = match request.read::<ApiPage<AdminKeyObject>>(operations::LIST_ADMIN_KEYS, get(&filter)).await {
        // The new key is shown on this page only.
        Err(_) if made.is_some() => ApiPage::empty(),
        found => found?,
    };
    let rows: Vec<AdminKeyRow> = found.items.iter().map(|key| AdminKeyRow::of(t, key, now)).collect();
    let count = t.say_count("admin_keys.one", "admin_keys.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let template = AdminKeysPage {
        layout: request.layout(t.say("nav.members")).wide(),
        t,
        tabs: tabs(request, MembersTab::AdminKeys),
        banner: state.banner(),
        made,
        form: FormView::new(request.url(PATH), vec![section(request, state)], t.say("admin_keys.make")),
        has_revoked,
        rows,
        pager: request.pager(PATH, count, found.next.as_deref()),
    };
    PageReply::page(state.status(), &template)
}

fn section(request: &PageRequest, state: &FormState) -> ControlSection {
    let t = request.t();
    let mut controls = vec![
        state.text("name", t.say("keys.name")).hint(t.say("admin_keys.name_hint")).max(100).required(),
        state.choice("scope", t.say("admin_keys.scope"), roles(t)).hint(t.say("admin_keys.scope_hint")),
        state.text("member", t.say("keys.member")).hint(t.say("admin_keys.member_hint")).max(100),
    ];
    controls.extend(expiry(t, state));
    controls.extend(request.has_password().then(|| state.current_password("password", t.say("form.own_password"))));
    ControlSection::new(t.say("admin_keys.new"), controls).about(t.say("admin_keys.about"))
}

/// The fields as the admin API takes them.
fn body(form: &FormData, now: Timestamp) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("name".to_owned(), form.value("name").trim().into());
    for field in ["scope", "member"] {
        body.extend(form.filled(field).map(|value| (field.to_owned(), value.into())));
    }
    body.insert("expires_at".to_owned(), expires_at(form, now));
    if form.has("password") {
        body.insert("password".to_owned(), form.value("password").into());
    }
    body
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let body = body(&request.form, request.state.gateway.now());
    match request.call(operations::MAKE_ADMIN_KEY, ApiCall { body, ..ApiCall::default() }).await {
        Ok(answer) => {
            let made = read_answer(answer)?;
            keys_page(&request, &defaults(), Some(made)).await
        }
        Err(error) => keys_page(&request, &refused(request.t(), &request.form, error)?, None).await,
    }
}

fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    // The scope `member` needs a member, and a typed name may be unknown.
    let of_member = if form.filled("member").is_some() { "unknown_member" } else { "member_needed" };
    let places = [
        ("name", "name", "name"),
        ("already_exists", "name", "exists"),
        ("scope", "scope", ""),
        ("member", "member", of_member),
        ("expires_at", "expires", "past"),
        ("password", "password", "wrong_password"),
        ("typed_name", "typed_name", "typed_name"),
    ];
    control::refused(t, form, error, &places)
}

fn of_key(request: &PageRequest) -> ApiCall {
    ApiCall { path: path_of(&[("admin_key", request.path_param("admin_key"))]), ..ApiCall::default() }
}

async fn read_key(request: &PageRequest) -> Result<AdminKeyObject, ApiError> {
    request.read(operations::GET_ADMIN_KEY, of_key(request)).await
}

pub(super) async fn detail(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let key = read_key(&request).await?;
    key_page(&request, &key, &FormState::default())
}

fn key_page(request: &PageRequest, key: &AdminKeyObject, state: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let danger = key.revoked_at.is_none().then(|| {
        let words = (t.say("keys.revoke_for_good"), t.say("keys.revoke_about").to_owned(), t.say("keys.revoke"));
        Danger::new(t, state, request.url(&format!("{PATH}/{}/revoke", key.id)), words)
    });
    let template = AdminKeyPage {
        layout: request.layout(key.name.clone()).below("/members", t.say("nav.members")).below(PATH, t.say("admin_keys.title")),
        t,
        banner: state.banner(),
        row: AdminKeyRow::of(t, key, request.state.gateway.now()),
        danger,
    };
    PageReply::page(state.status(), &template)
}

pub(super) async fn revoke(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let key = read_key(&request).await?;
    let revoked = match check_typed_name(&request.form, &key.name) {
        Ok(()) => {
            let call = ApiCall { path: path_of(&[("admin_key", &key.id)]), ..ApiCall::default() };
            request.call(operations::REVOKE_ADMIN_KEY, call).await
        }
        Err(error) => Err(error),
    };
    match revoked {
        Ok(_) => Ok(PageReply::redirect(&request.url(PATH)).toast(Toast::KeyRevoked)),
        Err(error) => key_page(&request, &key, &refused(request.t(), &request.form, error)?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// 2026-11-20T12:00:00Z.
    const NOW: Timestamp = Timestamp(1_795_176_000_000_000);

    #[test]
    fn form_becomes_the_body_of_the_admin_api() {
        let form = FormData::parse(b"name=+ops+&scope=member&member=ann&valid_for=&expires=2030-01-31");
        let expected = json!({"name": "ops", "scope": "member", "member": "ann", "expires_at": "2030-01-31T23:59:59Z"});
        assert_eq!(Value::Object(body(&form, NOW)), expected);
        let form = FormData::parse(b"name=ops&scope=admin&member=&valid_for=never&expires=2030-01-31&password=+p");
        let expected = json!({"name": "ops", "scope": "admin", "expires_at": null, "password": " p"});
        assert_eq!(Value::Object(body(&form, NOW)), expected);
    }

    #[test]
    fn states_of_keys_are_shown() {
        let key = |expires: Value, revoked: Value| -> AdminKeyObject {
            serde_json::from_value(json!({
                "id": "adm_1", "name": "ops", "scope": "operator", "member": null, "expires_at": expires, "prefix": "tga-xlFPFN",
                "suffix": "MsPy", "created_at": "2026-11-01T00:00:00Z", "revoked_at": revoked, "revision": 1,
            }))
            .unwrap()
        };
        for (expires, revoked, word) in [
            (Value::Null, Value::Null, "Active"),
            (json!("2026-11-20T12:00:00Z"), Value::Null, "Expired"),
            (json!("2026-11-20T12:00:01Z"), Value::Null, "Active"),
            (json!("2026-11-02T00:00:00Z"), json!("2026-11-01T10:00:00Z"), "Revoked"),
        ] {
            let row = AdminKeyRow::of(Locale::EN, &key(expires, revoked), NOW);
            assert_eq!((row.mark.word.as_str(), row.scope, row.shown.as_str()), (word, "Operator", "tga-xlFPFN••••MsPy"));
        }
    }

    #[test]
    fn missing_and_unknown_members_are_distinguished() {
        let fault = |sent: &[u8]| {
            let error = ApiError::value("member", "is needed for the scope `member`");
            let state = refused(Locale::EN, &FormData::parse(sent), error).unwrap();
            state.fault("member").unwrap().to_owned()
        };
        assert_eq!(
            fault(b"name=a&scope=member&member=+"),
            "A key of this scope needs a member: it sees what belongs to the member."
        );
        assert_eq!(fault(b"name=a&scope=member&member=eve"), "There is no such member.");
    }
}
