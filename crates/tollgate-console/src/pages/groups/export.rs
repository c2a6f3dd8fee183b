//! The list of groups as a file: all groups, in the order of the list.

use std::{collections::HashMap, sync::Arc};

use super::{
    found, spent,
    view::{GroupObject, GroupSpent},
};
use crate::{
    api_error::ApiError,
    pages::{
        csv_file::{self, CsvLine, CsvList, number, text, texts},
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest},
    },
};

/// Groups that are read at once.
const PAGE: &str = "1000";

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
        let mut query = vec![("limit", PAGE)];
        query.extend(after.map(|after| ("after", after)));
        let found = found(request, query).await?;
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
