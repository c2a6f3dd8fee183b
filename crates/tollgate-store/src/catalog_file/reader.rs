//! Reading TOML tables field by field, collecting every problem with its place instead of stopping at the first.

use std::{cell::RefCell, ops::Range, path::Path};

use tollgate_core::Secret;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{FileError, FilePosition, Sources, nearest::hint};
use crate::FieldProblem;

/// A value with its place.
pub(super) type SpannedValue<'i> = Spanned<DeValue<'i>>;

/// The problems found so far.
pub(super) struct FileProblems<'t> {
    text: &'t str,
    /// Where each line begins: every row is asked for its place, and files have tens of thousands.
    lines: Vec<usize>,
    found: RefCell<Vec<FileError>>,
}

impl<'t> FileProblems<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, lines, found: RefCell::new(Vec::new()) }
    }

    pub(super) fn place(&self, offset: usize) -> FilePosition {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.lines.partition_point(|start| *start <= offset);
        FilePosition { line, column: self.text[self.lines[line - 1]..offset].chars().count() + 1 }
    }

    pub(super) fn add(&self, offset: usize, message: String) {
        self.found.borrow_mut().push(self.place(offset).error(message));
    }

    pub(super) fn sorted(self) -> Vec<FileError> {
        let mut found = self.found.into_inner();
        found.sort();
        found.dedup();
        found
    }
}

/// One table being read. Fields that were never asked for are unknown ones.
pub(super) struct TableReader<'a> {
    fields: &'a DeTable<'a>,
    span: Range<usize>,
    /// What it is, for messages: `[[channel]]`.
    what: &'static str,
    asked: RefCell<Vec<&'static str>>,
    /// Fields with a problem already.
    bad: RefCell<Vec<&'static str>>,
    problems: &'a FileProblems<'a>,
}

impl<'a> TableReader<'a> {
    pub(super) const fn new(
        fields: &'a DeTable<'a>,
        span: Range<usize>,
        what: &'static str,
        problems: &'a FileProblems<'a>,
    ) -> Self {
        Self { fields, span, what, asked: RefCell::new(Vec::new()), bad: RefCell::new(Vec::new()), problems }
    }

    /// Where it begins.
    pub(super) fn place(&self) -> FilePosition {
        self.problems.place(self.span.start)
    }

    /// Where a field stands; where the table begins when it is absent.
    pub(super) fn place_of(&self, field: &str) -> FilePosition {
        self.problems.place(self.fields.get(field).map_or(self.span.start, |value| value.span().start))
    }

    /// A problem of the table itself.
    pub(super) fn problem(&self, message: impl Into<String>) {
        self.problems.add(self.span.start, message.into());
    }

    /// A problem of a field.
    pub(super) fn field_problem(&self, field: &'static str, message: &str) {
        self.bad.borrow_mut().push(field);
        let at = self.fields.get(field).map_or(self.span.start, |value| value.span().start);
        self.problems.add(at, format!("{field} in {}: {message}", self.what));
    }

    /// Whether no field had a problem so far.
    pub(super) fn is_sound(&self) -> bool {
        self.bad.borrow().is_empty()
    }

    /// Problems that the row as a whole has, at the fields they name; a field with a problem already is passed over.
    pub(super) fn row_problems(&self, problems: Vec<FieldProblem>) {
        for FieldProblem { field, message } in problems {
            if !self.bad.borrow().contains(&field) {
                self.field_problem(field, &message);
            }
        }
    }

    /// Reports the fields nobody asked for.
    pub(super) fn finish(&self) {
        let asked = self.asked.borrow();
        for (name, _) in self.fields.iter().filter(|(name, _)| !asked.contains(&name.get_ref().as_ref())) {
            let hint = hint(name.get_ref(), asked.iter().copied());
            self.problems.add(name.span().start, format!("{} has no field '{}'{hint}", self.what, name.get_ref()));
        }
    }

    pub(super) fn get(&self, field: &'static str) -> Option<&'a SpannedValue<'a>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&field) {
            asked.push(field);
        }
        self.fields.get(field)
    }

    fn wrong<T>(&self, field: &'static str, expected: &str, found: &DeValue<'_>) -> Option<T> {
        self.field_problem(field, &format!("expected {expected}, found {}", article(found)));
        None
    }

    pub(super) fn text(&self, field: &'static str) -> Option<String> {
        let value = self.get(field)?.get_ref();
        let Some(text) = value.as_str() else { return self.wrong(field, "a string", value) };
        Some(text.to_owned())
    }

    /// The name every row has.
    pub(super) fn name(&self, field: &'static str) -> String {
        if self.get(field).is_none() {
            self.problem(format!("{} needs a {field}", self.what));
            self.bad.borrow_mut().push(field);
        }
        self.text(field).unwrap_or_default()
    }

    pub(super) fn flag(&self, field: &'static str) -> Option<bool> {
        let value = self.get(field)?.get_ref();
        value.as_bool().or_else(|| self.wrong(field, "true or false", value))
    }

    /// A whole number that fits into `T`.
    pub(super) fn whole<T: TryFrom<i64>>(&self, field: &'static str) -> Option<T> {
        let value = self.get(field)?.get_ref();
        let Some(number) = value.as_integer() else { return self.wrong(field, "a whole number", value) };
        let number = i64::from_str_radix(number.as_str(), number.radix()).ok().and_then(|number| T::try_from(number).ok());
        number.or_else(|| self.wrong_number(field))
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(&self, field: &'static str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(field)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let hint = hint(&text, known.iter().copied());
            self.field_problem(field, &format!("'{text}' is none of {}{hint}", known.join(", ")));
        }
        found
    }

    /// A decimal: a string as it is, a number in its shortest form.
    pub(super) fn decimal<T>(&self, field: &'static str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let value = self.get(field)?.get_ref();
        let text = if let Some(text) = value.as_str() {
            text.to_owned()
        } else if let Some(number) = value.as_integer() {
            let Ok(number) = i64::from_str_radix(number.as_str(), number.radix()) else { return self.wrong_number(field) };
            number.to_string()
        } else if let Some(number) = value.as_float() {
            let number = number.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
            let Some(number) = number else { return self.wrong_number(field) };
            number.to_string()
        } else {
            return self.wrong(field, "a decimal string or a number", value);
        };
        match read(&text) {
            Ok(value) => Some(value),
            Err(message) => {
                self.field_problem(field, &message);
                None
            }
        }
    }

    fn wrong_number<T>(&self, field: &'static str) -> Option<T> {
        self.field_problem(field, "the number is out of range");
        None
    }

    /// A point in time: a string or a TOML date-time, with its offset.
    pub(super) fn time(&self, field: &'static str) -> Option<tollgate_core::Timestamp> {
        let value = self.get(field)?.get_ref();
        let text = match (value.as_str(), value.as_datetime()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(time)) => time.to_string(),
            (None, None) => return self.wrong(field, "a time like \"2027-01-01T00:00:00Z\"", value),
        };
        let Ok(time) = text.parse::<jiff::Timestamp>() else {
            self.field_problem(field, &format!("'{text}' is not a time like 2027-01-01T00:00:00Z, with its offset"));
            return None;
        };
        Some(tollgate_core::Timestamp(time.as_microsecond()))
    }

    /// A list of strings.
    pub(super) fn texts(&self, field: &'static str) -> Option<Vec<String>> {
        let value = self.get(field)?.get_ref();
        let Some(values) = value.as_array() else { return self.wrong(field, "a list of strings", value) };
        let mut texts = Vec::with_capacity(values.len());
        for value in values {
            let value = value.get_ref();
            let Some(text) = value.as_str() else { return self.wrong(field, "a list of strings", value) };
            texts.push(text.to_owned());
        }
        Some(texts)
    }

    /// A table in a field.
    pub(super) fn table(&self, field: &'static str) -> Option<TableReader<'a>> {
        let value = self.get(field)?;
        let Some(fields) = value.get_ref().as_table() else { return self.wrong(field, "a table", value.get_ref()) };
        Some(TableReader::new(fields, value.span(), field, self.problems))
    }

    /// An array of tables (`[[…]]`).
    pub(super) fn tables(&self, field: &'static str, what: &'static str) -> Vec<TableReader<'a>> {
        let Some(value) = self.get(field) else { return Vec::new() };
        if value.get_ref().is_array() {
            return self.one_or_more(field, what);
        }
        self.field_problem(field, &format!("expected {what}, found {}", article(value.get_ref())));
        Vec::new()
    }

    /// One table, or an array of them.
    pub(super) fn one_or_more(&self, field: &'static str, what: &'static str) -> Vec<TableReader<'a>> {
        let Some(value) = self.get(field) else { return Vec::new() };
        let values = value.get_ref().as_array().map_or(std::slice::from_ref(value), |values| &**values);
        let mut tables = Vec::new();
        for value in values {
            if let Some(fields) = value.get_ref().as_table() {
                tables.push(TableReader::new(fields, value.span(), what, self.problems));
            } else {
                let found = article(value.get_ref());
                self.field_problem(field, &format!("expected a table or a list of tables, found {found}"));
            }
        }
        tables
    }

    /// Strings by name, in order of name.
    pub(super) fn text_map(&self, field: &'static str) -> Option<Vec<(String, String)>> {
        let value = self.get(field)?.get_ref();
        let Some(fields) = value.as_table() else { return self.wrong(field, "a table of strings", value) };
        let mut map = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let value = value.get_ref();
            let Some(text) = value.as_str() else { return self.wrong(field, "a table of strings", value) };
            map.push((name.get_ref().as_ref().to_owned(), text.to_owned()));
        }
        map.sort();
        Some(map)
    }

    /// A secret: the text itself, or where to find it. Messages never hold it.
    pub(super) fn secret(&self, field: &'static str, sources: &Sources<'_>) -> Option<Secret> {
        let value = self.get(field)?.get_ref();
        let Some(text) = value.as_str() else {
            return self.wrong(field, "a string (env:NAME, file:PATH or the secret itself)", value);
        };
        let found = if let Some(name) = text.strip_prefix("env:") {
            (sources.env)(name).ok_or_else(|| format!("the environment variable {name} is not set"))
        } else if let Some(path) = text.strip_prefix("file:") {
            let read = (sources.read_file)(Path::new(path));
            read.map(|text| text.trim_end_matches(['\n', '\r']).to_owned()).map_err(|error| format!("cannot read {path}: {error}"))
        } else {
            Ok(text.to_owned())
        };
        match found {
            Ok(secret) if !secret.is_empty() => Some(Secret::new(secret)),
            Ok(_) => {
                self.field_problem(field, "the secret is empty");
                None
            }
            Err(message) => {
                self.field_problem(field, &message);
                None
            }
        }
    }
}

/// What a value is, for people.
fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date-time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
