//! The list of alerts as a file: all alerts of the filter, in its order, with their sentences in the language of the reader.

use std::sync::Arc;

use super::{AlertObject, filter, read_rules};
use crate::{
    api_error::ApiError,
    pages::{
        alert_text,
        csv_file::{self, CsvLine, CsvList, optional, text},
        form::FormData,
        locale::Locale,
        operations,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
    },
};

/// Alerts that are read at once.
const PAGE: &str = "1000";

/// The filter of the list.
struct AlertList(FormData);

pub(super) async fn csv(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let rules = read_rules(&request).await?;
    let list = AlertList(FormData::of(&filter(&request.query, &rules)));
    csv_file::answer(request, list).await
}

impl CsvList for AlertList {
    const FILE: &'static str = "alerts.csv";
    const HEAD: &'static [&'static str] =
        &["rule", "state", "raised_at", "ended_at", "subject", "text", "node", "messages_sent", "messages_failed"];

    async fn page(&self, request: &PageRequest, after: Option<&str>) -> Result<ApiPage<CsvLine>, ApiError> {
        let mut query: Vec<(&str, &str)> = self.0.pairs().collect();
        query.push(("limit", PAGE));
        query.extend(after.map(|after| ("after", after)));
        let found: ApiPage<AlertObject> = request.read(operations::LIST_ALERTS, get(&query)).await?;
        Ok(ApiPage { items: found.items.iter().map(|alert| line(request.t(), alert)).collect(), next: found.next })
    }
}

fn line(t: Locale, alert: &AlertObject) -> CsvLine {
    let messages = |state: &str| alert.messages.iter().filter(|message| message.state == state).count().to_string();
    vec![
        alert.rule.clone(),
        alert.state.clone(),
        alert.raised_at.clone(),
        optional(alert.ended_at.as_ref()),
        text(&alert.subject),
        text(&alert_text::sentence(t, &alert.rule, &alert.detail, &alert.node, &alert.text)),
        text(&alert.node),
        messages("sent"),
        messages("failed"),
    ]
}
