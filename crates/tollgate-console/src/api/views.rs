//! Saved views: named filters of the usage log and of lists, of a member or shared with all operators and admins.

use serde_json::{Value, json};
use tollgate_core::MemberId;
use tollgate_store::{
    AdminScope, Change, IdentityChange, MAX_SAVED_VIEWS, MemberPreferences, ObjectScope, RowKind, SavedView, ViewPage,
    fields::{FieldShape, Kind, Object, WriteMode},
};

use super::{
    preferences::own,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{NAME, both, needed, read},
};
use crate::{api_error::ApiError, response::ApiResponse};

const QUERY: Kind = Kind::Text { min: 0, max: 2_000 };

const PAGE: FieldShape = both("page", Kind::Word(&ViewPage::WORDS), "The page whose filter it is; default `log`.");

static VIEW: Object = Object::of(
    "SavedView",
    &[
        needed("name", NAME, "Its name; one of the same name and page is replaced."),
        PAGE,
        needed("query", QUERY, "The query of the page's address, such as `outcome=refused&range=7d`."),
        both("shared", Kind::Flag, "Whether all operators and admins see it, too; only they can share."),
        read("member", NAME, "The member who saved it."),
        read("own", Kind::Flag, "Whether the member of this request saved it."),
    ],
);

const RESOURCE: Resource = Resource { tag: "session", needs: Needs::Scope(AdminScope::Member) };
const ALL: &str = "/admin/v1/me/views";

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            ALL,
            "list_views",
            "The saved views of the member of this request, then those that others share, on one page.",
            handler!(list),
        )
        .query(&[both("page", Kind::Word(&ViewPage::WORDS), "Only those of this page.")])
        .returns(ResponseSchema::Page(&VIEW)),
    RESOURCE
        .route(Method::Put, ALL, "save_view", "Saves a view of the member of this request.", handler!(save))
        .takes(&VIEW, WriteMode::Create)
        .returns(ResponseSchema::Object(&VIEW)),
    RESOURCE
        .route(Method::Delete, ALL, "remove_view", "Removes a view of the member of this request.", handler!(remove))
        .query(&[needed("name", NAME, "Its name."), PAGE]),
];

/// The page that a request names; the usage log if it names none.
fn page_of(word: Option<&str>) -> ViewPage {
    word.and_then(ViewPage::of_word).unwrap_or_default()
}

fn show(view: &SavedView, member: &str, is_own: bool) -> Value {
    json!({"name": view.name, "page": view.page.as_str(), "query": view.query, "shared": view.is_shared, "member": member, "own": is_own})
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let own = own(&context).await?;
    let mut items: Vec<Value> = own.login.preferences.views.iter().map(|view| show(view, &own.name, true)).collect();
    if context.principal.scope() >= AdminScope::Operator {
        let shared = context.with_query_timeout(context.state.store.identity.shared_views()).await?;
        let others: Vec<_> = shared.into_iter().filter(|(member, _)| *member != own.id).collect();
        let ids = others.iter().map(|(member, _)| member.to_string()).collect();
        // Shared views show the names of their owners, whose rows the sender may not be allowed to see.
        let names = context.state.store.listing.names(RowKind::Member, ids, ObjectScope::Everything);
        let names = context.with_query_timeout(names).await?;
        let name_of = |member: &MemberId| names.iter().find(|name| name.id == member.to_string());
        let named = others.iter().filter_map(|(member, view)| Some((name_of(member)?, view)));
        items.extend(named.map(|(member, view)| show(view, &member.name, false)));
    }
    if let Some(page) = context.query.text("page") {
        items.retain(|view| view["page"] == page);
    }
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

async fn write(context: &RequestContext, member: String, preferences: MemberPreferences) -> Result<(), ApiError> {
    let change = IdentityChange::SetPreferences { member, preferences };
    context.apply(&[Change::Identity(Box::new(change))]).await.map(drop)
}

async fn save(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let own = own(&context).await?;
    let text = |field: &str| context.body.text(field).unwrap_or_default().to_owned();
    let page = page_of(context.body.text("page"));
    let view = SavedView { page, name: text("name"), query: text("query"), is_shared: context.body.flag("shared") };
    if view.is_shared && context.principal.scope() < AdminScope::Operator {
        return Err(ApiError::forbidden("Sharing a view", AdminScope::Operator));
    }
    let mut preferences = own.login.preferences;
    preferences.views.retain(|known| (known.page, &known.name) != (view.page, &view.name));
    if preferences.views.iter().filter(|known| known.page == view.page).count() >= MAX_SAVED_VIEWS {
        let message = format!("A member has at most {MAX_SAVED_VIEWS} saved views of a page; remove one.");
        return Err(ApiError::conflict("too_many_views", message));
    }
    preferences.views.insert(0, view.clone());
    write(&context, own.name.clone(), preferences).await?;
    Ok(ApiResponse::ok(show(&view, &own.name, true)))
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let own = own(&context).await?;
    let mut preferences = own.login.preferences;
    let (before, page) = (preferences.views.len(), page_of(context.query.text("page")));
    preferences.views.retain(|view| view.page != page || context.query.text("name") != Some(view.name.as_str()));
    if preferences.views.len() == before {
        return Err(ApiError::not_found("view"));
    }
    write(&context, own.name, preferences).await?;
    Ok(ApiResponse::no_content())
}
