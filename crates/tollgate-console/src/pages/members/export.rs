//! The list of members as a file: all members of the filter, in its order. Only admins get balances.

use std::{collections::HashMap, sync::Arc};

use super::{
    balances,
    filter::MemberFilter,
    found, spent,
    view::{MemberObject, MemberSpent},
};
use crate::{
    api_error::ApiError,
    pages::{
        csv_file::{self, CsvLine, CsvList, number, optional, text, texts},
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest},
    },
};

/// Members that are read at once. A search sorts all members for each page.
const PAGE: &str = "1000";
/// Members whose sums and balances are read at once.
const SUMMED: usize = 50;

struct MemberList(MemberFilter);

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let list = MemberList(MemberFilter::of(&request.query));
    csv_file::answer(request, list).await
}

impl CsvList for MemberList {
    const FILE: &'static str = "members.csv";
    const HEAD: &'static [&'static str] = &[
        "id",
        "name",
        "status",
        "role",
        "groups",
        "default_group",
        "billing",
        "balance_usd",
        "requests_month",
        "usd_month",
        "rpm",
        "tpm",
        "concurrency",
        "last_used_at",
        "created_at",
    ];

    async fn page(&self, request: &PageRequest, after: Option<&str>) -> Result<ApiPage<CsvLine>, ApiError> {
        let mut pairs = self.0.pairs();
        pairs.push(("limit", PAGE));
        pairs.extend(after.map(|after| ("after", after)));
        let found = found(request, pairs).await?;
        let mut items = Vec::with_capacity(found.items.len());
        for members in found.items.chunks(SUMMED) {
            let (spent, balances) = (spent(request, members).await?, balances(request, members).await?);
            items.extend(members.iter().map(|member| line(member, &spent, &balances)));
        }
        Ok(ApiPage { items, next: found.next })
    }
}

fn line(member: &MemberObject, spent: &HashMap<String, MemberSpent>, balances: &HashMap<String, String>) -> CsvLine {
    let spent = spent.get(&member.id);
    vec![
        member.id.clone(),
        text(&member.name),
        member.status.clone(),
        member.role.clone(),
        texts(&member.groups),
        text(member.default_group.as_deref().unwrap_or_default()),
        member.billing.clone(),
        optional(balances.get(&member.id)),
        number(Some(spent.map_or(0, |spent| spent.requests))),
        spent.map_or_else(|| "0".to_owned(), |spent| spent.sale.clone()),
        number(Some(member.rpm).filter(|limit| *limit > 0)),
        number(Some(member.tpm).filter(|limit| *limit > 0)),
        number(Some(member.concurrency).filter(|limit| *limit > 0)),
        optional(member.last_used_at.as_ref()),
        member.created_at.clone(),
    ]
}
