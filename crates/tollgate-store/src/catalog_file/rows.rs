//! The rows of a catalog file, table by table.

use tollgate_core::{ChannelSpec, ModelMapping, Provider, Secret};

use super::{FileAccount, FileChannel, FileKey, FileRow, FileSecret, Sources, UniqueNames, reader::TableReader};
use crate::{
    RowKind,
    fields::{AccountInput, FieldValue as _, KeyInput, Row},
    provider_defaults,
};

pub(super) fn channel(table: &TableReader<'_>, sources: &Sources<'_>, names: &mut UniqueNames) -> FileChannel {
    let provider = table.value("provider").and_then(|value| Provider::read(&value).ok()).unwrap_or(Provider::Compatible);
    let (protocol, base_url) = provider_defaults(provider);
    let blank = ChannelSpec { provider, protocol, base_url: base_url.to_owned(), ..ChannelSpec::default() };
    let mut read = table.read(blank, &["account", "serves"], sources);
    // The provider determines which other fields are needed, so nothing more is checked if it is wrong.
    if !read.is_bad("provider") {
        table.review(&read);
    }
    let name = read.row.name.clone();
    names.add(table, RowKind::Channel, &name, table.position());
    let accounts = accounts(table, &name, sources, names);
    for table in table.tables("serves", "[[channel.serves]]") {
        let served = table.read(ModelMapping::blank(), &[], sources);
        table.review(&served);
        let mut mapping = served.row;
        if mapping.upstream.is_empty() {
            mapping.upstream.clone_from(&mapping.model);
        }
        names.add_word(&table, "served model", &format!("{name}/{}", mapping.model), table.position());
        read.row.serves.push(mapping);
    }
    FileChannel { row: FileRow { spec: read.row, position: table.position(), names_at: table.position() }, accounts }
}

fn accounts(channel: &TableReader<'_>, channel_name: &str, sources: &Sources<'_>, names: &mut UniqueNames) -> Vec<FileAccount> {
    let mut accounts = Vec::new();
    for table in channel.tables("account", "[[channel.account]]") {
        let read = table.read(AccountInput::blank(), &[], sources);
        let is_unreadable = read.is_bad("credential");
        let AccountInput { spec, credential } = read.row;
        let credential = secret(credential, is_unreadable);
        names.add(&table, RowKind::Account, &format!("{channel_name}/{}", spec.name), table.position());
        accounts.push(FileAccount { spec, credential, position: table.position() });
    }
    accounts
}

/// A row without rows below it; `names` is the field that names other rows.
pub(super) fn row<R: Row>(table: &TableReader<'_>, names: &str, sources: &Sources<'_>) -> FileRow<R> {
    let read = table.read(R::blank(), &[], sources);
    table.review(&read);
    FileRow { spec: read.row, position: table.position(), names_at: table.position_of(names) }
}

pub(super) fn key(table: &TableReader<'_>, sources: &Sources<'_>) -> FileKey {
    let read = table.read(KeyInput::blank(), &[], sources);
    table.review(&read);
    let is_unreadable = read.is_bad("secret");
    let KeyInput { spec, secret: given } = read.row;
    let row = FileRow { spec, position: table.position(), names_at: table.position_of("groups") };
    FileKey { row, secret: secret(given, is_unreadable) }
}

fn secret(given: Option<Secret>, is_unreadable: bool) -> FileSecret {
    if is_unreadable { FileSecret::Unreadable } else { given.map_or(FileSecret::Absent, FileSecret::Given) }
}
