//! The list of groups as a file: all groups, in the order of the list.

use std::{collections::HashMap, sync::Arc};

use super::{
    order, spent,
    view::{GroupObject, GroupSpent},
};
use crate::{
    api_error::ApiError,
    pages::{
        csv_file::{self, CsvLine, CsvList, number, text, texts},
        list_order::{ListOrder, READ},
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest},
    },
};

struct GroupList;

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    csv_file::answer(request, GroupList).await
}

impl CsvList for GroupList {
    const FILE: &'static str = "groups.csv";
    const HEAD: &'static [&'static str] = &[
        "id",
        "name",
        "description",
        "visibility",
        "members",
        "keys",
        "default_keys",
        "offered_models",
        "channels",
        "models",
        "sale_multiplier",
        "routing",
        "requests_month",
        "usd_month",
        "rpm",
        "tpm",
        "concurrency",
        "created_at",
    ];

    async fn page(&self, request: &PageRequest, after: Option<&str>) -> Result<ApiPage<CsvLine>, ApiError> {
        if let Some(by) = ListOrder::of(request, &order::SORTS).chosen()
            && let Some((groups, spent)) = order::sorted(request, by).await?
        {
            return Ok(ApiPage { items: groups.iter().map(|group| line(group, &spent)).collect(), next: None });
        }
        let found = order::page(request, READ, after).await?;
        let spent = spent(request, !found.items.is_empty()).await?;
        Ok(ApiPage { items: found.items.iter().map(|group| line(group, &spent)).collect(), next: found.next })
    }
}

fn line(group: &GroupObject, spent: &HashMap<String, GroupSpent>) -> CsvLine {
    let spent = spent.get(&group.name);
    let limit = |limit: u64| number(Some(limit).filter(|limit| *limit > 0));
    vec![
        group.id.clone(),
        text(&group.name),
        text(group.description.as_deref().unwrap_or_default()),
        group.visibility.clone(),
        number(group.member_count),
        number(group.key_count),
        number(group.default_key_count),
        number(group.model_count),
        texts(&group.channels),
        texts(&group.models),
        group.sale_multiplier.clone(),
        group.routing.clone(),
        number(Some(spent.map_or(0, |spent| spent.requests))),
        spent.map_or_else(|| "0".to_owned(), |spent| spent.sale.clone()),
        limit(group.rpm),
        limit(group.tpm),
        limit(group.concurrency),
        group.created_at.clone(),
    ]
}
