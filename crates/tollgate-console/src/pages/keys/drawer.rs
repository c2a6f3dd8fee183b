//! A key beside the list of keys: its state, its usage, the rest of its budgets, and the actions on it.

use askama::Template;

use super::{
    KeyObject, allowance, budget_rows,
    figures::KeyFigures,
    row_menu::RowMenu,
    view::{BudgetRow, KeyDetail},
};
use crate::{
    dispatch::ApiCall,
    pages::{
        drawer::{DrawerFrame, NEW, OPEN},
        format::TimeText,
        layout::Layout,
        locale::Locale,
        operations,
        playground::groups_for_keys,
        reply::PageFailure,
        request::{PageRequest, path_of},
    },
};

#[derive(Debug, Template)]
#[template(path = "parts/key_drawer.html")]
pub(super) struct KeyDrawer {
    layout: Layout,
    t: Locale,
    frame: DrawerFrame,
    key: KeyDetail,
    figures: Option<KeyFigures>,
    budgets: Vec<BudgetRow>,
    gateway_renewals: Vec<Option<TimeText>>,
    menu: RowMenu,
    may_make: bool,
    /// The list with this key beside it, to which the actions return.
    here: String,
}

impl KeyDrawer {
    pub(super) async fn of(request: &PageRequest, key: &KeyObject) -> Result<Self, PageFailure> {
        let t = request.t();
        let allowance = allowance(request, &key.id).await?;
        let detail = KeyDetail::of(t, key, allowance.as_ref(), request.state.gateway.now());
        Ok(Self {
            layout: request.layout(t.say("nav.keys")),
            t,
            frame: DrawerFrame {
                id: key.id.clone(),
                title: key.name.clone(),
                mark: Some(detail.mark.clone()),
                page: request.url(&format!("/keys/{}", key.id)),
                back: request.beside("/keys", None),
            },
            key: detail,
            figures: KeyFigures::read(request, key).await?,
            budgets: budget_rows(request, allowance.as_ref()),
            gateway_renewals: allowance.map_or_else(Vec::new, |allowance| allowance.gateway_renewals(t)),
            menu: RowMenu::of(key, request.is_operator()),
            may_make: !groups_for_keys(request).await?.is_empty(),
            here: request.beside("/keys", Some(&key.id)),
        })
    }

    /// The key that the address of the list opens; `None` if it does not exist or the reader may not see it.
    pub(super) async fn opened(request: &PageRequest) -> Result<Option<Self>, PageFailure> {
        let Some(id) = request.query.filled(OPEN).filter(|id| *id != NEW) else { return Ok(None) };
        let call = ApiCall { path: path_of(&[("key", id)]), ..ApiCall::default() };
        match request.read::<KeyObject>(operations::GET_KEY, call).await {
            Ok(key) => Ok(Some(Self::of(request, &key).await?)),
            Err(error) if error.status.is_client_error() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
