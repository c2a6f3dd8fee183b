//! The current catalog in the file's form, without secrets: what `pull` writes, and how a plan names fields. Fields
//! with their default are left out.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use tollgate_core::{AccountSpec, ChannelSpec, ModelMapping, ModelSpec};

use crate::{
    CatalogRows, ChannelRow, GroupSpec, KeySpec, MemberSpec,
    fields::{AccountInput, KeyInput, Row, is_written, toml_string, toml_value, whole},
};

pub(super) type RenderedField = (&'static str, String);

/// A row in the file's form.
pub(super) trait FileForm {
    fn name(&self) -> &str;
    /// Its fields except the name, in the order of the table.
    fn fields(&self) -> Vec<RenderedField>;
}

/// The current catalog as a catalog file. Applying it changes nothing.
pub fn render(current: &CatalogRows) -> String {
    let mut out = "# The current catalog, without secrets. Existing accounts and keys keep theirs when it is applied.\n".to_owned();
    for channel in &current.channels {
        render_channel(&mut out, &channel.spec, channel.accounts.iter().map(|account| &account.spec));
    }
    current.models.iter().for_each(|model| row(&mut out, "[[model]]", "", "name", &model.spec));
    current.groups.iter().for_each(|group| row(&mut out, "[[group]]", "", "name", &group.spec));
    current.members.iter().for_each(|member| row(&mut out, "[[member]]", "", "name", &member.spec));
    current.keys.iter().for_each(|key| row(&mut out, "[[key]]", "", "name", &key.spec));
    out
}

/// Some channels of the current catalog with their accounts as a catalog file.
pub fn render_channels<'a>(channels: impl Iterator<Item = &'a ChannelRow>) -> String {
    let mut out = "# Channels of the catalog, without secrets. Existing accounts keep theirs when it is applied.\n".to_owned();
    for channel in channels {
        render_channel(&mut out, &channel.spec, channel.accounts.iter().map(|account| &account.spec));
    }
    out
}

/// A channel with its accounts and its served models.
pub(super) fn render_channel<'a>(out: &mut String, spec: &ChannelSpec, accounts: impl Iterator<Item = &'a AccountSpec>) {
    row(out, "[[channel]]", "", "name", spec);
    for account in accounts {
        row(out, "[[channel.account]]", "  ", "name", account);
    }
    for mapping in &spec.serves {
        row(out, "[[channel.serves]]", "  ", "model", mapping);
    }
}

fn row(out: &mut String, header: &str, indent: &str, name_field: &str, row: &impl FileForm) {
    let blank = if indent.is_empty() { "\n" } else { "" };
    write!(out, "{blank}{indent}{header}\n{indent}{name_field} = {}\n", toml_string(row.name()))
        .expect("writing to a string cannot fail");
    for (field, value) in row.fields() {
        writeln!(out, "{indent}{field} = {value}").expect("writing to a string cannot fail");
    }
}

/// The fields after the first, the name, that differ from those of `blank`.
fn written<R: Row>(row: &R, blank: &Map<String, Value>) -> Vec<RenderedField> {
    let mut fields = Vec::new();
    for field in R::FIELDS.iter().skip(1).filter(|field| !field.shape.secret) {
        let (shape, value) = (&field.shape, (field.get)(row));
        if is_written(shape, Some(&value), blank.get(shape.name)) {
            fields.push((shape.name, toml_value(&shape.kind, &value)));
        }
    }
    fields
}

macro_rules! file_form {
    ($spec:ty, $name:ident, |$row:ident| $fields:expr) => {
        impl FileForm for $spec {
            fn name(&self) -> &str {
                &self.$name
            }

            fn fields(&self) -> Vec<RenderedField> {
                let $row = self;
                $fields
            }
        }
    };
}
file_form!(ChannelSpec, name, |row| {
    let mut blank = whole(&Self::blank());
    // The defaults of both depend on the provider, so they are always written. Served models are written as separate
    // tables.
    blank.retain(|name, _| name != "provider" && name != "protocol");
    blank.insert("serves".to_owned(), row.serves.iter().map(crate::fields::FieldValue::show).collect());
    written(row, &blank)
});
file_form!(ModelMapping, model, |row| {
    let mut blank = whole(&Self::blank());
    blank.insert("upstream".to_owned(), row.model.as_str().into());
    written(row, &blank)
});
file_form!(AccountSpec, name, |row| written(&AccountInput { spec: row.clone(), credential: None }, &whole(&AccountInput::blank())));
file_form!(KeySpec, name, |row| written(&KeyInput { spec: row.clone(), secret: None }, &whole(&KeyInput::blank())));
file_form!(ModelSpec, name, |row| written(row, &whole(&Self::blank())));
file_form!(GroupSpec, name, |row| written(row, &whole(&Self::blank())));
file_form!(MemberSpec, name, |row| written(row, &whole(&Self::blank())));
