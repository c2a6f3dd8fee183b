//! Reading TOML tables as rows. Values are checked by the tables of [`crate::fields`]; every problem is reported with its
//! position, instead of stopping at the first.

use std::{cell::RefCell, ops::Range, path::Path};

use serde_json::{Map, Value};
use tollgate_core::Secret;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{FileError, FilePosition, Sources};
use crate::{
    FieldProblem,
    fields::{self, Fault, Problem, Row, Step, WriteMode, hint, nearest},
};

pub(super) struct FileProblems<'t> {
    text: &'t str,
    /// Offsets of the lines: every row needs its position, and files have tens of thousands.
    lines: Vec<usize>,
    found: RefCell<Vec<FileError>>,
}

impl<'t> FileProblems<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, lines, found: RefCell::new(Vec::new()) }
    }

    pub(super) fn position(&self, offset: usize) -> FilePosition {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.lines.partition_point(|start| *start <= offset);
        FilePosition { line, column: self.text[self.lines[line - 1]..offset].chars().count() + 1 }
    }

    pub(super) fn add(&self, offset: usize, message: String) {
        self.found.borrow_mut().push(self.position(offset).error(message));
    }

    pub(super) fn sorted(self) -> Vec<FileError> {
        let mut found = self.found.into_inner();
        found.sort();
        found.dedup();
        found
    }
}

pub(super) struct TableReader<'a> {
    fields: &'a DeTable<'a>,
    span: Range<usize>,
    /// Its kind, for messages: `[[channel]]`.
    what: &'static str,
    problems: &'a FileProblems<'a>,
}

pub(super) struct ReadRow<R> {
    pub(super) row: R,
    /// The fields whose values could not be read.
    pub(super) bad: Vec<String>,
}

impl<R> ReadRow<R> {
    pub(super) fn is_bad(&self, field: &str) -> bool {
        self.bad.iter().any(|bad| bad == field)
    }
}

impl<'a> TableReader<'a> {
    pub(super) const fn new(
        fields: &'a DeTable<'a>,
        span: Range<usize>,
        what: &'static str,
        problems: &'a FileProblems<'a>,
    ) -> Self {
        Self { fields, span, what, problems }
    }

    pub(super) fn position(&self) -> FilePosition {
        self.problems.position(self.span.start)
    }

    /// Position of a field; of the table when it is absent.
    pub(super) fn position_of(&self, field: &str) -> FilePosition {
        self.problems.position(self.fields.get(field).map_or(self.span.start, |value| value.span().start))
    }

    pub(super) fn problem(&self, message: impl Into<String>) {
        self.problems.add(self.span.start, message.into());
    }

    /// A field as it stands, unchecked.
    pub(super) fn value(&self, field: &str) -> Option<Value> {
        self.fields.get(field).map(|value| json(value.get_ref()))
    }

    /// Reports fields that are none of these.
    pub(super) fn only(&self, known: &[&str]) {
        for (name, _) in self.fields.iter().filter(|(name, _)| !known.contains(&name.get_ref().as_ref())) {
            let hint = hint(name.get_ref(), known.iter().copied());
            self.problems.add(name.span().start, format!("{} has no field '{}'{hint}", self.what, name.get_ref()));
        }
    }

    pub(super) fn tables(&self, field: &str, what: &'static str) -> Vec<TableReader<'a>> {
        let Some(value) = self.fields.get(field) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            let found = fields::article(&json(value.get_ref()));
            self.problems.add(value.span().start, format!("{field} in {}: expected {what}, found {found}", self.what));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            if let Some(fields) = item.get_ref().as_table() {
                tables.push(TableReader::new(fields, item.span(), what, self.problems));
            } else {
                let found = fields::article(&json(item.get_ref()));
                self.problems.add(item.span().start, format!("{field} in {}: expected a table, found {found}", self.what));
            }
        }
        tables
    }

    /// Reads the table into a row that has its defaults. Tables named in `nested` are read by themselves.
    pub(super) fn read<R: Row>(&self, mut row: R, nested: &[&str], sources: &Sources<'_>) -> ReadRow<R> {
        let mut members = Map::new();
        let mut problems = Vec::new();
        for (name, value) in self.fields.iter().filter(|(name, _)| !nested.contains(&name.get_ref().as_ref())) {
            let name = name.get_ref().as_ref();
            let mut value = json(value.get_ref());
            if R::OBJECT.field(name).is_some_and(|field| field.secret || field.sourced)
                && let Some(text) = value.as_str()
            {
                match secret(text, sources) {
                    Ok(secret) => value = secret.expose().into(),
                    Err(message) => {
                        problems.push(Problem::at(name, Fault::Value(message)));
                        continue;
                    }
                }
            }
            members.insert(name.to_owned(), value);
        }
        let missing_secret =
            |problem: &Problem| problem.fault == Fault::Missing && problems.iter().any(|it: &Problem| it.path == problem.path);
        let mut found = Vec::new();
        fields::check_object(R::OBJECT, &members, WriteMode::File, &mut Vec::new(), &mut found);
        found.retain(|problem| !missing_secret(problem));
        problems.extend(found);
        fields::assign(&mut row, &members, &mut problems);
        let mut bad = Vec::new();
        for problem in problems {
            if let Some(Step::Member(name)) = problem.path.first() {
                bad.push(name.clone());
            }
            self.report(&problem, nested);
        }
        ReadRow { row, bad }
    }

    /// Reports the faults of a row as a whole, at the fields at fault. Fields that were already reported are skipped.
    pub(super) fn review<R: Row>(&self, read: &ReadRow<R>) {
        for FieldProblem { field, message } in read.row.problems() {
            if !read.is_bad(field) {
                self.report(&Problem::at(field, Fault::Value(message)), &[]);
            }
        }
    }

    fn report(&self, problem: &Problem, nested: &[&str]) {
        let members: Vec<&str> =
            problem.path.iter().filter_map(|step| if let Step::Member(name) = step { Some(name.as_str()) } else { None }).collect();
        let field = members.last().copied().unwrap_or_default();
        let what = members.iter().rev().nth(1).copied().unwrap_or(self.what);
        let parent = &problem.path[..problem.path.len().saturating_sub(1)];
        let (at, message) = match &problem.fault {
            Fault::Unknown(instead) => {
                let instead = if instead.is_empty() && members.len() == 1 {
                    nearest(field, nested.iter().copied()).map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
                } else {
                    instead.clone()
                };
                (self.key_offset(parent, field), format!("{what} has no field '{field}'{instead}"))
            }
            Fault::Missing => {
                let article = if field.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
                (self.offset(parent), format!("{what} needs {article} {field}"))
            }
            Fault::CreateOnly | Fault::ReadOnly => (self.key_offset(parent, field), format!("{field} in {what} cannot be set")),
            Fault::Type { expected, found } => {
                (self.offset(&problem.path), format!("{field} in {what}: expected {expected}, found {found}"))
            }
            Fault::Value(message) => (self.offset(&problem.path), format!("{field} in {what}: {message}")),
        };
        self.problems.add(at, message);
    }

    /// The target of a path: a table of a list, or the value of the last field.
    fn offset(&self, path: &[Step]) -> usize {
        let mut at = self.span.start;
        let mut value = None;
        for step in path {
            value = match step {
                Step::Member(name) => self.table(value).and_then(|table| table.get(name.as_str())),
                Step::Item(i) => value.and_then(|value: &Spanned<DeValue<'_>>| value.get_ref().as_array()?.get(*i)),
            };
            let Some(value) = value else { break };
            if matches!(step, Step::Member(_)) || value.get_ref().is_table() {
                at = value.span().start;
            }
        }
        at
    }

    /// Position of a key in the table at a path.
    fn key_offset(&self, path: &[Step], key: &str) -> usize {
        let mut value = None;
        for step in path {
            value = match step {
                Step::Member(name) => self.table(value).and_then(|table| table.get(name.as_str())),
                Step::Item(i) => value.and_then(|value: &Spanned<DeValue<'_>>| value.get_ref().as_array()?.get(*i)),
            };
        }
        let table = self.table(value).into_iter().flatten();
        table.into_iter().find(|(name, _)| name.get_ref() == key).map_or_else(|| self.offset(path), |(name, _)| name.span().start)
    }

    /// `value` as a table; this reader's own table if there is no value.
    fn table(&self, value: Option<&'a Spanned<DeValue<'a>>>) -> Option<&'a DeTable<'a>> {
        value.map_or(Some(self.fields), |value| value.get_ref().as_table())
    }
}

/// A secret: the text itself, or where to find it. Messages never hold it.
fn secret(text: &str, sources: &Sources<'_>) -> Result<Secret, String> {
    let secret = if let Some(name) = text.strip_prefix("env:") {
        (sources.env)(name).ok_or_else(|| format!("the environment variable {name} is not set"))?
    } else if let Some(path) = text.strip_prefix("file:") {
        let read = (sources.read_file)(Path::new(path)).map_err(|error| format!("cannot read {path}: {error}"))?;
        read.trim_end_matches(['\n', '\r']).to_owned()
    } else {
        text.to_owned()
    };
    if secret.is_empty() { Err("the secret is empty".to_owned()) } else { Ok(Secret::new(secret)) }
}

/// A TOML value as JSON. Values without a JSON form, such as dates, become text.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => number.into(),
            Err(_) => number.as_str().parse::<f64>().map_or_else(|_| number.as_str().into(), Value::from),
        },
        DeValue::Float(number) => {
            let finite = number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            finite.map_or_else(|| number.as_str().into(), Value::Number)
        }
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(members) => {
            members.iter().map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref()))).collect::<Map<_, _>>().into()
        }
    }
}
