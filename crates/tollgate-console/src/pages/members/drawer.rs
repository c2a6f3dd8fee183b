//! A member beside the list of members: state, usage of this month, groups, limits, and links to more.

use std::slice;

use askama::Template;

use super::{
    balances, spent,
    view::{MemberObject, MemberRow},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        budgets,
        drawer::{DrawerFrame, OPEN},
        layout::Layout,
        locale::Locale,
        operations,
        reply::PageFailure,
        request::{PageRequest, path_of},
    },
};

#[derive(Debug, Template)]
#[template(path = "parts/member_drawer.html")]
pub(super) struct MemberDrawer {
    layout: Layout,
    t: Locale,
    frame: DrawerFrame,
    row: MemberRow,
    default_group: Option<String>,
    limits: Vec<String>,
    budgets: Vec<String>,
    is_admin: bool,
}

impl MemberDrawer {
    pub(super) async fn of(request: &PageRequest, member: &MemberObject) -> Result<Self, ApiError> {
        let (t, members) = (request.t(), slice::from_ref(member));
        let (spent, balances) = (spent(request, members).await?, balances(request, members).await?);
        let of = (t, request.state.gateway.now());
        let row = MemberRow::of(of, member, spent.get(&member.id), balances.get(&member.id));
        Ok(Self {
            layout: request.layout(t.say("nav.members")),
            t,
            frame: DrawerFrame {
                id: member.id.clone(),
                title: member.name.clone(),
                mark: Some(row.mark.clone()),
                page: request.url(&format!("/members/{}", member.id)),
                back: request.beside("/members", None),
            },
            row,
            default_group: member.default_group.clone(),
            limits: budgets::limit_lines(t, (member.rpm, member.tpm, member.concurrency)),
            budgets: budgets::lines(t, &member.budget),
            is_admin: request.is_admin(),
        })
    }

    /// The member that the address of the list opens; `None` if there is no such member.
    pub(super) async fn opened(request: &PageRequest) -> Result<Option<Self>, PageFailure> {
        let Some(id) = request.query.filled(OPEN) else { return Ok(None) };
        let call = ApiCall { path: path_of(&[("name", id)]), ..ApiCall::default() };
        match request.read::<MemberObject>(operations::GET_MEMBER, call).await {
            Ok(member) => Ok(Some(Self::of(request, &member).await?)),
            Err(error) if error.status.is_client_error() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
