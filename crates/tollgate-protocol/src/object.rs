//! Typed access to the members of an object in a caller's body, with their paths; unread members can be listed.

use std::borrow::Cow;

use serde_json::Number;

use crate::{
    Malformed, Protocol,
    neutral::{Label, Located},
    protocol::FieldNames,
    tree::{NodeKind, Tree, same_proto_name, whole},
};

/// A member found, with its path in the caller's spelling.
#[derive(Clone, Debug)]
pub(crate) struct Field<'t, 'a> {
    pub(crate) path: String,
    /// Value, never `null`.
    pub(crate) value: &'t Tree<'a>,
}

/// The members of an object, marked as they are read. Names and numbers follow the protocol's
/// [`FieldNames`].
#[derive(Debug)]
pub(crate) struct Fields<'t, 'a> {
    members: &'t [(Cow<'a, str>, Tree<'a>)],
    seen: Vec<bool>,
    prefix: String,
    from: Protocol,
}

impl<'t, 'a> Fields<'t, 'a> {
    /// The members of `object` at `path` (empty for the body itself).
    pub(crate) fn new(object: &'t Tree<'a>, path: &str, from: Protocol) -> Result<Self, Malformed> {
        let members = object.members().ok_or_else(|| Malformed::wrong_type(from, path, "an object"))?;
        let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
        Ok(Self { members, seen: vec![false; members.len()], prefix, from })
    }

    /// A member by name; the last of duplicates, `None` for `null`.
    pub(crate) fn take(&mut self, name: &str) -> Option<Field<'t, 'a>> {
        let mut found = None;
        for (index, (key, value)) in self.members.iter().enumerate() {
            let same = if self.from.spec().field_names == FieldNames::Proto3 { same_proto_name(key, name) } else { key == name };
            if same {
                self.seen[index] = true;
                found = Some((key, value));
            }
        }
        let (key, value) = found?;
        (!matches!(value.kind, NodeKind::Null)).then(|| Field { path: format!("{}{key}", self.prefix), value })
    }

    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    pub(crate) fn paths(&mut self, names: &[&str]) -> Vec<String> {
        names.iter().filter_map(|name| self.take(name)).map(|field| field.path).collect()
    }

    /// Members that only label the request, as JSON text.
    pub(crate) fn labels(&mut self, names: &[&'static str]) -> Vec<Label> {
        let label = |name| self.take(name).map(|field| Label { name, value: field.value.compact(), path: field.path });
        names.iter().copied().filter_map(label).collect()
    }

    /// Paths of the members that were not read and are not `null`.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.unread().map(|(key, _)| format!("{}{key}", self.prefix)).collect()
    }

    /// Name and value of the members that were not read and are not `null`.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (&'t str, &'t Tree<'a>)> + '_ {
        let unread = self.members.iter().zip(&self.seen).filter(|((_, value), seen)| !**seen && !value.is_null());
        unread.map(|((key, value), _)| (&**key, value))
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<Option<Located<String>>, Malformed> {
        let Some(field) = self.take(name) else { return Ok(None) };
        let value = field.value.str().ok_or_else(|| Malformed::wrong_type(self.from, &field.path, "a string"))?;
        Ok(Some(Located::new(value, field.path)))
    }

    /// The text alone; empty if absent.
    pub(crate) fn text_or_empty(&mut self, name: &str) -> Result<String, Malformed> {
        Ok(self.text(name)?.map(|text| text.value).unwrap_or_default())
    }

    pub(crate) fn required_text(&mut self, name: &str) -> Result<String, Malformed> {
        let found = self.text(name)?.map(|given| given.value);
        found.ok_or_else(|| Malformed::missing(self.from, &format!("{}{name}", self.prefix)))
    }

    pub(crate) fn bool(&mut self, name: &str) -> Result<Option<Located<bool>>, Malformed> {
        let Some(field) = self.take(name) else { return Ok(None) };
        let value = field.value.bool().ok_or_else(|| Malformed::wrong_type(self.from, &field.path, "a boolean"))?;
        Ok(Some(Located::new(value, field.path)))
    }

    /// True if the member is present and `true`.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Malformed> {
        Ok(self.bool(name)?.is_some_and(|flag| flag.value))
    }

    /// A finite number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<Located<Number>>, Malformed> {
        let Some(field) = self.take(name) else { return Ok(None) };
        let quoted = field.value.str().filter(|_| self.from.spec().field_names == FieldNames::Proto3);
        let number = quoted.map_or_else(|| field.value.number(), |text| serde_json::from_str(text.trim()).ok());
        let value = number.ok_or_else(|| Malformed::wrong_type(self.from, &field.path, "a number"))?;
        Ok(Some(Located::new(value, field.path)))
    }

    /// A finite number other than 0.
    pub(crate) fn nonzero(&mut self, name: &str) -> Result<Option<Located<Number>>, Malformed> {
        Ok(self.number(name)?.filter(|number| number.value.as_f64() != Some(0.0)))
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<Located<i64>>, Malformed> {
        let Some(field) = self.take(name) else { return Ok(None) };
        let quoted = field.value.str().filter(|_| self.from.spec().field_names == FieldNames::Proto3);
        let number = quoted.map_or_else(|| field.value.integer(), |text| whole(text.trim()));
        let value = number.ok_or_else(|| Malformed::wrong_type(self.from, &field.path, "a whole number"))?;
        Ok(Some(Located::new(value, field.path)))
    }

    pub(crate) fn at_least(&mut self, name: &str, min: i64) -> Result<Option<Located<u64>>, Malformed> {
        let Some(Located { value, path }) = self.integer(name)? else { return Ok(None) };
        let value = u64::try_from(value).ok().filter(|_| value >= min);
        let value = value.ok_or_else(|| Malformed::invalid(self.from, &path, &format!("must be at least {min}")))?;
        Ok(Some(Located { value, path }))
    }

    /// Like [`Fields::at_least`], for a number of 32 bits.
    pub(crate) fn count(&mut self, name: &str, min: i64) -> Result<Option<Located<u32>>, Malformed> {
        let Some(Located { value, path }) = self.at_least(name, min)? else { return Ok(None) };
        let value = u32::try_from(value).map_err(|_| Malformed::invalid(self.from, &path, "is too large"))?;
        Ok(Some(Located { value, path }))
    }

    pub(crate) fn list(&mut self, name: &str) -> Result<Option<(&'t [Tree<'a>], String)>, Malformed> {
        let Some(field) = self.take(name) else { return Ok(None) };
        let items = field.value.list().ok_or_else(|| Malformed::wrong_type(self.from, &field.path, "an array"))?;
        Ok(Some((items, field.path)))
    }

    /// The elements of a list with their paths; none if the list is absent.
    pub(crate) fn elements(&mut self, name: &str) -> Result<Vec<(&'t Tree<'a>, String)>, Malformed> {
        let Some((items, path)) = self.list(name)? else { return Ok(Vec::new()) };
        Ok(items.iter().enumerate().map(|(index, item)| (item, format!("{path}[{index}]"))).collect())
    }

    pub(crate) fn texts(&mut self, name: &str) -> Result<Option<Located<Vec<String>>>, Malformed> {
        let Some((items, path)) = self.list(name)? else { return Ok(None) };
        let mut value = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let text = item.str().ok_or_else(|| Malformed::wrong_type(self.from, &format!("{path}[{index}]"), "a string"))?;
            value.push(text.to_owned());
        }
        Ok(Some(Located { value, path }))
    }

    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, Malformed> {
        self.take(name).map(|field| Self::new(field.value, &field.path, self.from)).transpose()
    }

    pub(crate) fn path(&self) -> &str {
        self.prefix.trim_end_matches('.')
    }
}
