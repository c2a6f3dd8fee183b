//! Health over time: when accounts and channels could not be used, why, and until when.

use std::collections::HashMap;

use serde_json::{Value, json};
use tollgate_core::{
    AccountId, ChannelId, HealthReason, HealthTransition, ImpairedState, Impairment, Timestamp, TransitionCause, UptimeCell,
    uptime_cells,
};
use tollgate_store::{
    AdminScope, NODE_GONE_MS, NodeRun, RecordedTransition, RowFilter, RowKind, StoredRow, TransitionFilter, TransitionPosition,
    TransitionSubject,
    fields::{FieldShape, Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{NAME, TEXT, both, read},
};
use crate::{
    api_error::ApiError,
    response::ApiResponse,
    time::{DAY_MS, time_value},
};

const STATES: Kind = Kind::Word(&["off", "cooling", "resting", "degraded", "unavailable"]);
/// Transitions that one answer is computed from.
const MAX_TRANSITIONS: u32 = 100_000;
const DEFAULT_CELLS: i64 = 60;

static TRANSITION: Object = Object::of(
    "HealthTransition",
    &[
        read("node", TEXT, "Node that saw it."),
        read("channel_id", Kind::Id("chn_"), "Channel id."),
        read("channel", NAME, "Channel name."),
        read("account_id", Kind::Id("acc_"), "Account id; null: the channel itself.").or_null(),
        read("account", NAME, "Account name; null: the channel itself.").or_null(),
        read(
            "state",
            STATES,
            "Of accounts: off, cooling, resting. Of channels: off, degraded (some accounts cannot be used), unavailable (none can).",
        ),
        read(
            "reason",
            TEXT,
            "Reason, as in the account's health; of channels: accounts, no_account, budget_spent, private_network.",
        ),
        read("since", Kind::Time, "When it began."),
        read(
            "until",
            Kind::Time,
            "When it ends by itself: the next request then tries the account; null: it ends only with an event, such as a passed test.",
        )
        .or_null(),
        read("ended_at", Kind::Time, "When it ended; null: it has not ended.").or_null(),
        read("cause", Kind::Word(&["request", "probe", "test", "node", "operator"]), "What showed it."),
    ],
);
static CELL: Object = Object::of(
    "UptimeCell",
    &[
        read("since", Kind::Time, "Its beginning."),
        read(
            "usable",
            Kind::Number { max: 1 },
            "Share of its known time in which requests could be served, 0 to 1, over all nodes; null: unknown, as no node ran, or it did not \
             exist yet.",
        )
        .or_null(),
        read("state", STATES, "The worst state in it; null: usable all the time, or unknown.").or_null(),
    ],
);
static UPTIME: Object = Object::of(
    "Uptime",
    &[
        read("id", TEXT, "Id of the channel or account."),
        read("channel", NAME, "Channel name."),
        read("account", NAME, "Account name; null: the channel itself.").or_null(),
        read(
            "usable",
            Kind::Number { max: 1 },
            "Share of the known time in which requests could be served, 0 to 1; null: all of it is unknown.",
        )
        .or_null(),
        read("cells", Kind::List { of: &Kind::Object(&CELL), max: 200 }, "The time in equal cells."),
    ],
);

const RESOURCE: Resource = Resource { tag: "health", needs: Needs::Scope(AdminScope::Operator) };
const SINCE: FieldShape = both("since", Kind::Time, "Begin of the time; default: a day before its end.");
const UNTIL: FieldShape = both("until", Kind::Time, "End of the time; default: now.");

pub(super) static ROUTES: &[Route] = &[
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/health/history",
            "list_health_transitions",
            "When accounts and channels could not be used, why and until when, newest first.",
            handler!(list),
        )
        .query(&[
            LIMIT,
            AFTER,
            both("channel", NAME, "Only this channel, by name or id."),
            both("account", NAME, "Only this account of the channel, by name or id."),
            both("node", TEXT, "Only what this node saw."),
            SINCE,
            UNTIL,
        ])
        .returns(ResponseSchema::Page(&TRANSITION)),
    RESOURCE
        .route(
            Method::Get,
            "/admin/v1/health/uptime",
            "show_uptime",
            "How much of the time each channel could be used, or each account of one channel, in equal cells.",
            handler!(uptime),
        )
        .query(&[
            LIMIT,
            AFTER,
            both("channel", NAME, "The accounts of this channel, by name or id."),
            SINCE,
            UNTIL,
            both("cells", Kind::Integer { min: 1, max: 200 }, "Number of cells; default 60."),
        ])
        .returns(ResponseSchema::Page(&UPTIME)),
];

/// When each node that recorded transitions ran.
struct Nodes {
    runs: Vec<NodeRun>,
    now: Timestamp,
}

impl Nodes {
    fn last_seen(&self, node: &str) -> Option<Timestamp> {
        self.runs.iter().filter(|run| run.node == node).map(|run| run.seen_at).max()
    }

    /// When a run ended, as far as is known.
    fn end(&self, run: &NodeRun) -> Timestamp {
        if self.now.ms_since(run.seen_at) > NODE_GONE_MS { run.seen_at } else { self.now.max(run.seen_at) }
    }

    /// The transition with its known end: if its node has vanished and left it open, it ended when the node was last seen.
    fn known(&self, recorded: &RecordedTransition) -> HealthTransition {
        let mut transition = recorded.transition;
        let last = self.last_seen(&recorded.node).filter(|seen_at| self.now.ms_since(*seen_at) > NODE_GONE_MS);
        if let Some(last) = last {
            transition.ended_at = transition.ended_at.or(Some(last.max(transition.impairment.since)));
        }
        transition
    }

    /// The parts of the transition that its node saw: while the node did not run, the state is unknown.
    fn seen(&self, recorded: &RecordedTransition) -> impl Iterator<Item = HealthTransition> {
        let HealthTransition { impairment, ended_at, .. } = recorded.transition;
        let part = move |run: &NodeRun| {
            let since = impairment.since.max(run.since);
            let ended_at = ended_at.unwrap_or(Timestamp(i64::MAX)).min(self.end(run));
            let impairment = Impairment { since, ..impairment };
            (since < ended_at).then_some(HealthTransition { impairment, ended_at: Some(ended_at), ..recorded.transition })
        };
        self.runs.iter().filter(|run| run.node == recorded.node).filter_map(part)
    }

    /// When nodes ran within a span of time, not before something was created.
    fn observed(&self, (since, until): (Timestamp, Timestamp), created: Timestamp) -> Vec<(Timestamp, Timestamp)> {
        let within = |run: &NodeRun| (run.since.max(since).max(created), self.end(run).min(until));
        self.runs.iter().map(within).filter(|(from, to)| from < to).collect()
    }
}

/// The time that a query is about.
fn span(context: &RequestContext) -> Result<(Timestamp, Timestamp), ApiError> {
    let until = context.query.time("until").unwrap_or_else(|| context.now());
    let since = context.query.time("since").unwrap_or_else(|| until.plus_ms(-DAY_MS));
    if since < until { Ok((since, until)) } else { Err(ApiError::value("since", "it does not lie before 'until'")) }
}

async fn nodes(context: &RequestContext) -> Result<Nodes, ApiError> {
    let runs = context.with_query_timeout(context.state.store.health_history.node_runs()).await?;
    Ok(Nodes { runs, now: context.now() })
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (since, until) = span(&context)?;
    let channel = match context.query.text("channel") {
        Some(name) => Some(rows::find(&context, RowKind::Channel, None, name).await?),
        None => None,
    };
    let subject = match (context.query.text("account"), &channel) {
        (None, _) => TransitionSubject::All,
        (Some(_), None) => return Err(ApiError::value("account", "'channel' is missing: account names are those of one channel")),
        (Some(name), Some(channel)) => {
            let account = rows::find(&context, RowKind::Account, Some(&channel.id), name).await?;
            TransitionSubject::Account(account_id(&account)?)
        }
    };
    let filter = TransitionFilter {
        channel: channel.as_ref().map(channel_id).transpose()?,
        subject,
        node: context.query.text("node").map(str::to_owned),
        since: Some(since),
        until: Some(until),
        before: context.query.text("after").map(cursor).transpose()?,
        limit: context.limit() + 1,
    };
    let found = context.with_query_timeout(context.state.store.health_history.transitions(&filter)).await?;
    let nodes = nodes(&context).await?;
    Ok(rows::page(found, context.limit(), |it| cursor_text(&it.position()), |it| show(it, &nodes.known(it))))
}

fn show(recorded: &RecordedTransition, transition: &HealthTransition) -> Value {
    let HealthTransition { channel, account, impairment, cause, ended_at } = transition;
    let (state, reason): (ImpairedState, HealthReason) = (impairment.state, impairment.reason);
    json!({
        "node": recorded.node, "channel_id": channel.to_string(), "channel": recorded.channel_name,
        "account_id": account.map(|account| account.to_string()), "account": recorded.account_name,
        "state": state.as_str(), "reason": reason.as_str(), "since": time_value(impairment.since),
        "until": impairment.until.map(time_value), "ended_at": ended_at.map(time_value),
        "cause": TransitionCause::as_str(*cause),
    })
}

async fn uptime(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (since, until) = span(&context)?;
    let channel = match context.query.text("channel") {
        Some(name) => Some(rows::find(&context, RowKind::Channel, None, name).await?),
        None => None,
    };
    let shown = context.with_query_timeout(context.state.store.listing.page(&row_filter(&context, channel.as_ref())?)).await?;
    let _permit = context.acquire_heavy_permit().await?;
    let filter = TransitionFilter {
        channel: channel.as_ref().map(channel_id).transpose()?,
        subject: if channel.is_some() { TransitionSubject::All } else { TransitionSubject::Channels },
        since: Some(since),
        until: Some(until),
        limit: MAX_TRANSITIONS,
        ..TransitionFilter::default()
    };
    let found = context.with_query_timeout(context.state.store.health_history.transitions(&filter)).await?;
    if found.len() >= MAX_TRANSITIONS as usize {
        return Err(ApiError::value("since", "there are too many transitions in this time; ask for a shorter one"));
    }
    let nodes = nodes(&context).await?;
    let mut by_subject: HashMap<String, Vec<HealthTransition>> = HashMap::new();
    for recorded in &found {
        let HealthTransition { channel, account, .. } = recorded.transition;
        let id = account.map_or_else(|| channel.to_string(), |account| account.to_string());
        by_subject.entry(id).or_default().extend(nodes.seen(recorded));
    }
    let (span, now) = ((since, until), context.now());
    let cells = usize::try_from(context.query.whole("cells").unwrap_or(DEFAULT_CELLS)).unwrap_or(1);
    let show = |row: &StoredRow| {
        let transitions = by_subject.get(&row.id).map_or(&[][..], Vec::as_slice);
        let observed = nodes.observed(span, row.created_at);
        let whole = uptime_cells(transitions, &observed, span, 1, now);
        let cells: Vec<Value> = uptime_cells(transitions, &observed, span, cells, now).iter().map(show_cell).collect();
        let (of, account) = match &channel {
            Some(channel) => (&channel.name, Some(&row.name)),
            None => (&row.name, None),
        };
        json!({"id": row.id, "channel": of, "account": account, "usable": whole.first().and_then(share), "cells": cells})
    };
    Ok(rows::page(shown, context.limit(), |row| row.id.clone(), show))
}

/// A page of channels, or of the accounts of one.
fn row_filter(context: &RequestContext, channel: Option<&StoredRow>) -> Result<RowFilter, ApiError> {
    let kind = if channel.is_some() { RowKind::Account } else { RowKind::Channel };
    let filter = rows::filter(context, kind)?;
    Ok(RowFilter { parent: channel.map(|channel| channel.id.clone()), ..filter })
}

fn share(cell: &UptimeCell) -> Option<f64> {
    cell.usable.map(|usable| f64::from(usable) / 1e3)
}

fn show_cell(cell: &UptimeCell) -> Value {
    json!({"since": time_value(cell.since), "usable": share(cell), "state": cell.worst.map(ImpairedState::as_str)})
}

fn channel_id(row: &StoredRow) -> Result<ChannelId, ApiError> {
    ChannelId::parse(&row.id).ok_or_else(ApiError::internal)
}

fn account_id(row: &StoredRow) -> Result<AccountId, ApiError> {
    AccountId::parse(&row.id).ok_or_else(ApiError::internal)
}

/// The `next` of a page: `<microseconds>.<channel>.<account, if any>.<node>`.
fn cursor_text(position: &TransitionPosition) -> String {
    let TransitionPosition { since, channel, account, node } = position;
    format!("{}.{channel}.{}.{node}", since.0, account.map_or_else(String::new, |account| account.to_string()))
}

fn cursor(text: &str) -> Result<TransitionPosition, ApiError> {
    let parse = || {
        let mut parts = text.splitn(4, '.');
        let since = Timestamp(parts.next()?.parse().ok()?);
        let channel = ChannelId::parse(parts.next()?)?;
        let account = match parts.next()? {
            "" => None,
            account => Some(AccountId::parse(account)?),
        };
        Some(TransitionPosition { since, channel, account, node: parts.next()?.to_owned() })
    };
    parse().ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))
}

#[cfg(test)]
mod tests {
    use tollgate_core::CoolingReason;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_219_200_000_000);

    fn recorded(node: &str) -> RecordedTransition {
        let reason = HealthReason::Cooling(CoolingReason::Timeout);
        let impairment = Impairment { state: ImpairedState::Cooling, reason, since: NOW.plus_ms(-600_000), until: None };
        RecordedTransition {
            node: node.to_owned(),
            channel_name: "c".to_owned(),
            account_name: None,
            transition: HealthTransition {
                channel: ChannelId::from_parts(NOW, [1; 10]),
                account: None,
                impairment,
                cause: TransitionCause::Request,
                ended_at: None,
            },
        }
    }

    fn run(node: &str, since_s: i64, seen_s: i64) -> NodeRun {
        NodeRun { node: node.to_owned(), since: NOW.plus_ms(-since_s * 1_000), seen_at: NOW.plus_ms(-seen_s * 1_000) }
    }

    #[test]
    fn open_transitions_of_stopped_nodes_end_when_the_node_was_last_seen() {
        let runs = vec![run("runs", 1_000, 900), run("runs", 500, 100), run("gone", 1_000, 200), run("long gone", 1_000, 900)];
        let nodes = Nodes { runs, now: NOW };
        assert_eq!(nodes.known(&recorded("runs")).ended_at, None);
        assert_eq!(nodes.known(&recorded("gone")).ended_at, Some(NOW.plus_ms(-200_000)));
        assert_eq!(nodes.known(&recorded("long gone")).ended_at, Some(NOW.plus_ms(-600_000)), "not before it began");
        assert_eq!(nodes.known(&recorded("unknown")).ended_at, None);
    }

    #[test]
    fn state_is_known_only_while_the_node_ran_and_the_row_existed() {
        let runs = vec![run("again", 900, 550), run("again", 300, 60), run("gone", 590, 400), run("long gone", 2_000, 1_900)];
        let nodes = Nodes { runs, now: NOW };
        let at = |ago_s: i64| NOW.plus_ms(-ago_s * 1_000);
        let seen = |node: &str| -> Vec<(Timestamp, Option<Timestamp>)> {
            nodes.seen(&recorded(node)).map(|part| (part.impairment.since, part.ended_at)).collect()
        };
        assert_eq!(seen("again"), [(at(600), Some(at(550))), (at(300), Some(NOW))], "it runs: until now");
        assert_eq!(seen("gone"), [(at(590), Some(at(400)))]);
        assert_eq!(seen("long gone"), []);
        let span = (at(1_000), at(100));
        assert_eq!(nodes.observed(span, at(5_000)), [(at(900), at(550)), (at(300), at(100)), (at(590), at(400))]);
        assert_eq!(nodes.observed(span, at(500)), [(at(300), at(100)), (at(500), at(400))], "not before it was created");
    }

    #[test]
    fn cursor_round_trips_and_malformed_cursors_are_refused() {
        let of_channel = recorded("node.1").position();
        let of_account = TransitionPosition { account: Some(AccountId::from_parts(NOW, [2; 10])), ..of_channel.clone() };
        for position in [of_channel, of_account] {
            assert_eq!(cursor(&cursor_text(&position)).unwrap(), position);
        }
        for bad in ["", "7", "7.chn_x..n", "x", "7.chn_x.acc_y.n"] {
            assert!(cursor(bad).is_err(), "{bad}");
        }
    }
}
