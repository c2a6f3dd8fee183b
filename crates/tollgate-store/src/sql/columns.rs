//! The columns of the usage log's tables, in the order in which rows are written and read.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// 16, 32 and 64 bits on PostgreSQL.
    Small,
    Int,
    Big,
    Text,
    Bytes,
}

impl ColumnKind {
    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::Small | Self::Int | Self::Big)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: ColumnKind,
}

pub(super) const fn small(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Small }
}

pub(super) const fn int(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Int }
}

pub(super) const fn big(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Big }
}

pub(super) const fn text(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Text }
}

pub(super) const fn bytes(name: &'static str) -> Column {
    Column { name, kind: ColumnKind::Bytes }
}

/// The names, separated by commas.
pub(super) fn column_list(columns: &[Column]) -> String {
    columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
}

/// One row per request: written by `append/tables.rs`, read by `usage_rows.rs`.
pub(super) const USAGE: &[Column] = &[
    bytes("id"),
    small("at_us"),
    int("key"),
    int("member"),
    int("grp"),
    int("model"),
    int("channel"),
    int("account"),
    small("protocol_in"),
    small("method"),
    small("stream"),
    small("finish"),
    small("status"),
    small("outcome"),
    int("reason"),
    big("tokens_input"),
    big("tokens_output"),
    big("tokens_cache_read"),
    big("tokens_cache_write"),
    big("tokens_cache_write_1h"),
    big("tokens_thinking"),
    big("tokens_image"),
    big("tokens_audio"),
    big("cost"),
    big("sale"),
    big("ttft_us"),
    big("duration_us"),
    big("booked"),
    text("address"),
    text("client_request_id"),
    text("client"),
    small("attempts"),
    text("upstream_request_id"),
    bytes("packed"),
    text("extra"),
    text("tags"),
];

/// Attempts that are not in the row of their request.
pub(super) const ATTEMPTS: &[Column] = &[
    bytes("request"),
    small("position"),
    int("channel"),
    int("account"),
    int("upstream_model"),
    small("protocol"),
    big("at"),
    small("status"),
    small("result"),
    int("error"),
    big("tokens_input"),
    big("tokens_output"),
    big("tokens_cache_read"),
    big("tokens_cache_write"),
    big("tokens_cache_write_1h"),
    big("tokens_thinking"),
    big("tokens_image"),
    big("tokens_audio"),
    small("tokens_source"),
    int("web_searches"),
    big("cost"),
    big("first_byte_us"),
    big("duration_us"),
    text("upstream_request_id"),
    small("beside"),
    big("cost_multiplier"),
    text("message"),
    big("sent_us"),
];

pub(super) const NAMES: &[Column] = &[int("ref"), small("kind"), text("id"), text("name")];
