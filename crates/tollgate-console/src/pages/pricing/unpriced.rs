//! Models that are served without a price, with their calls, and the groups that refuse them.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;

use super::{Section, tabs, view::model_query};
use crate::{
    dispatch::ApiCall,
    pages::{
        control::Tab,
        format,
        layout::Layout,
        locale::Locale,
        operations,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest},
    },
};

#[derive(Debug, Template)]
#[template(path = "pricing_unpriced.html")]
struct UnpricedPage {
    layout: Layout,
    t: Locale,
    tabs: Vec<Tab>,
    rows: Vec<UnpricedRow>,
}

#[derive(Debug, Deserialize)]
struct UnpricedObject {
    model: String,
    channels: Vec<String>,
    last_day: Traffic,
    last_7_days: Traffic,
    last_30_days: Traffic,
    served_in: Vec<String>,
    refused_in: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Traffic {
    requests: u64,
    tokens_input: u64,
    tokens_output: u64,
}

#[derive(Debug)]
struct UnpricedRow {
    model: String,
    link: String,
    channels: String,
    day: String,
    week: String,
    month: String,
    tokens: String,
    tokens_exact: String,
    served_in: String,
    refused_in: String,
}

pub(super) async fn show(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let found = request.read::<ApiPage<UnpricedObject>>(operations::LIST_UNPRICED, ApiCall::default()).await?;
    let row = |item: UnpricedObject| {
        let names = |names: &[String]| names.join(t.say("list.separator"));
        let tokens = item.last_30_days.tokens_input.saturating_add(item.last_30_days.tokens_output);
        UnpricedRow {
            link: model_query(&item.model),
            channels: names(&item.channels),
            day: format::integer(item.last_day.requests),
            week: format::integer(item.last_7_days.requests),
            month: format::integer(item.last_30_days.requests),
            tokens: format::compact(t, tokens),
            tokens_exact: format::integer(tokens),
            served_in: names(&item.served_in),
            refused_in: names(&item.refused_in),
            model: item.model,
        }
    };
    let template = UnpricedPage {
        layout: request.layout(t.say("nav.pricing")).wide(),
        t,
        tabs: tabs(&request, Section::Unpriced),
        rows: found.items.into_iter().map(row).collect(),
    };
    PageReply::ok(&template)
}
