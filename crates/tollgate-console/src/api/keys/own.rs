//! The groups that keys of a member may have, and the key of the member's playground.

use serde_json::{Map, Value, json};
use tollgate_core::{KeyId, KeyStatus, MemberId, Timestamp, Visibility};
use tollgate_store::{
    AdminScope, Change, GroupSpec, KeySecret, KeySpec, MemberSpec, NewKey, PLAYGROUND_KEY_NAME, RandomSource, RowFilter, RowKind,
    StoredRow,
    fields::{FieldValue as _, KeyInput, Kind, Object, Row as _},
};

use super::{KEY, Standing, self_service::DEFAULT_GROUP, show};
use crate::{
    api::{
        request_context::RequestContext,
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{NAME, TEXT, both, read},
    },
    api_error::ApiError,
    response::ApiResponse,
};

/// Groups that are read at most.
const MAX_GROUPS: u32 = 1_000;
/// For how long the key of a member's playground is valid.
const PLAYGROUND_MS: i64 = 12 * 3_600_000;

static GROUP: Object = Object::of(
    "OwnGroup",
    &[
        read("name", NAME, "Group name."),
        read("description", TEXT, "What the group is for, in its operator's words.").or_null(),
        read("multiplier", Kind::Factor { max: i64::MAX }, "Factor of the group on prices."),
        read(
            "multiplier_varies",
            Kind::Flag,
            "Whether the group has other factors for some models; `/models.json` has each price.",
        ),
        read("self_service", Kind::Flag, "Whether members make and change their own keys of the group."),
        read("default", Kind::Flag, "Whether it is the group of keys that name no group."),
    ],
);
static PLAYGROUND_KEY: Object = Object::of(
    "PlaygroundKey",
    &[both("group", NAME, "Group whose models are tried; default: the group of keys that name no group.")],
);

const RESOURCE: Resource = Resource { tag: "keys", needs: Needs::Scope(AdminScope::Member) };

pub(in crate::api) static ROUTES: &[Route] = &[
    RESOURCE
        .route(Method::Get, "/admin/v1/me/groups", "list_own_groups", "Groups that keys of this member may have.", handler!(groups))
        .returns(ResponseSchema::Page(&GROUP)),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/me/playground-key",
            "make_playground_key",
            "Makes or renews the key of this member's playground, valid for 12 hours, and shows it, only once.",
            handler!(make_playground_key),
        )
        .takes_optional(&PLAYGROUND_KEY)
        .returns(ResponseSchema::Object(&KEY)),
];

/// The member of a request with the groups that its keys may have.
struct Own {
    id: MemberId,
    name: String,
    groups: Vec<GroupSpec>,
    default_group: String,
}

impl Own {
    async fn of(context: &RequestContext) -> Result<Self, ApiError> {
        let no_member =
            || ApiError::conflict("needs_session", "Own keys belong to a member: sign in, or use an admin key of a member.");
        let (id, name) = context.principal.member().ok_or_else(no_member)?;
        let member: MemberSpec = rows::find(context, RowKind::Member, None, &id.to_string()).await?.read()?;
        let rows = context.with_query_timeout(context.state.store.listing.page(&RowFilter::of(RowKind::Group, MAX_GROUPS))).await?;
        let mut groups = Vec::new();
        for row in rows {
            let group: GroupSpec = row.read()?;
            if group.visibility == Visibility::Public || member.groups.contains(&group.name) {
                groups.push(group);
            }
        }
        let default_group = member.default_group.unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        Ok(Self { id, name: name.to_owned(), groups, default_group })
    }

    /// Checks that the sender may make a key of these groups; of the default group if the list is empty.
    fn check(&self, context: &RequestContext, groups: &[String]) -> Result<(), ApiError> {
        let default = [self.default_group.clone()];
        let asked = if groups.is_empty() { &default[..] } else { groups };
        for name in asked {
            let unknown = || ApiError::value("groups", format_args!("there is no group '{name}' for keys of this member"));
            let group = self.groups.iter().find(|group| group.name == *name).ok_or_else(unknown)?;
            if !group.self_service && context.principal.scope() < AdminScope::Operator {
                return Err(ApiError::no_self_service(name));
            }
        }
        Ok(())
    }
}

async fn groups(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let own = Own::of(&context).await?;
    let entry = |group: &GroupSpec| {
        json!({
            "name": group.name, "description": group.description, "multiplier": group.sale_multiplier.show(),
            "multiplier_varies": !group.model_multipliers.is_empty(), "self_service": group.self_service,
            "default": group.name == own.default_group,
        })
    };
    let items: Vec<Value> = own.groups.iter().map(entry).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

async fn make_playground_key(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let own = Own::of(&context).await?;
    let groups: Vec<String> = context.body.text("group").map(str::to_owned).into_iter().collect();
    own.check(&context, &groups)?;
    let until = context.now().plus_ms(PLAYGROUND_MS);
    let named = RowFilter {
        parent: Some(own.id.to_string()),
        name: Some(PLAYGROUND_KEY_NAME.to_owned()),
        ..RowFilter::of(RowKind::Key, 1)
    };
    let before = context.with_query_timeout(context.state.store.listing.page(&named)).await?.pop();
    let new = NewKey::generate(&RandomSource::system());
    let secret = new.secret(&context.state.store.hasher);
    let changes = match before {
        None => {
            let mut spec = KeyInput::blank().spec;
            (spec.name, spec.member) = (PLAYGROUND_KEY_NAME.to_owned(), own.name.clone());
            (spec.groups, spec.expires_at) = (groups, Some(until));
            let key = Box::new(spec);
            let expected = Change::ExpectNew { kind: RowKind::Key, parent: own.name.clone(), name: PLAYGROUND_KEY_NAME.to_owned() };
            vec![expected, Change::PutKey { key, secret: Some(secret) }]
        }
        Some(row) => renewal(&row, groups, until, secret)?,
    };
    context.apply_as(&context.actor(), &changes).await?;
    let (row, shown) = with_secret(&context, &own, PLAYGROUND_KEY_NAME, new).await?;
    Ok(ApiResponse::ok(Value::Object(shown)).revision(row.revision))
}

/// Keeps the limits that operators gave the key and its status. The secret of another tab stays valid, too.
fn renewal(row: &StoredRow, groups: Vec<String>, until: Timestamp, secret: KeySecret) -> Result<Vec<Change>, ApiError> {
    let before: KeySpec = row.read()?;
    if before.status != KeyStatus::Active {
        return Err(ApiError::conflict("key_disabled", "An operator disabled the key of your playground."));
    }
    let key = KeyId::parse(&row.id).ok_or_else(ApiError::internal)?;
    let spec = KeySpec { groups, expires_at: Some(until), ..before };
    Ok(vec![
        Change::ExpectRow { kind: RowKind::Key, id: row.id.clone(), revision: row.revision },
        Change::PutKey { key: Box::new(spec), secret: None },
        Change::RotateKey { key, secret, until },
    ])
}

/// The key as it is now, with its secret.
async fn with_secret(
    context: &RequestContext,
    own: &Own,
    name: &str,
    new: NewKey,
) -> Result<(StoredRow, Map<String, Value>), ApiError> {
    let row = rows::written(context, RowKind::Key, Some(&own.id.to_string()), name).await?;
    let mut shown = show(&row, &row.read()?, &Standing::of(context, &[&row]).await?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok((row, shown))
}
