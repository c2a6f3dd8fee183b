//! Tools of a chat body.

use crate::{
    scan::{Fault, Kind, Scanner, Value},
    shape::Path,
    survey::{MAX_TOOLS, Survey},
};

/// Reads `tools`: an array of objects, function tools with a name.
pub(super) fn tools(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    if scanner.peek() == Kind::Null {
        return scanner.skip().map(drop);
    }
    let (count, raw) = survey.list(scanner, &Path::Root.member("tools"), MAX_TOOLS, tool)?;
    survey.tools(count, raw);
    Ok(())
}

/// Reads the deprecated `functions`; its shape is the upstream's to judge.
pub(super) fn functions(scanner: &mut Scanner<'_>, survey: &mut Survey) -> Result<(), Fault> {
    if scanner.peek() != Kind::Array {
        return scanner.skip().map(drop);
    }
    let path = Path::Root.member("functions");
    let (count, raw) = survey.list(scanner, &path, MAX_TOOLS, |_, scanner, _| scanner.skip().map(drop))?;
    survey.tools(count, raw);
    Ok(())
}

/// What stands under `function`.
enum Function {
    Absent,
    NotAnObject,
    /// Its name, if that is given at all.
    Object(Option<bool>),
}

fn tool(survey: &mut Survey, scanner: &mut Scanner<'_>, path: &Path<'_>) -> Result<(), Fault> {
    if scanner.peek() != Kind::Object {
        survey.faults.wrong_type(path, "an object");
        return scanner.skip().map(drop);
    }
    let mut is_function = false;
    let mut function = Function::Absent;
    scanner.object(|scanner, name| {
        match &*name.decode() {
            "type" => is_function = scanner.words()?.is_some_and(|kind| kind.decode() == "function"),
            "function" => function = read_function(scanner)?,
            _ => {
                scanner.skip()?;
            }
        }
        Ok(())
    })?;
    if is_function {
        let at = path.member("function");
        match function {
            Function::Absent => survey.faults.missing(&at),
            Function::NotAnObject => survey.faults.wrong_type(&at, "an object"),
            Function::Object(None) => survey.faults.missing(&at.member("name")),
            Function::Object(Some(false)) => survey.faults.wrong_type(&at.member("name"), "a string"),
            Function::Object(Some(true)) => {}
        }
    }
    Ok(())
}

fn read_function(scanner: &mut Scanner<'_>) -> Result<Function, Fault> {
    match scanner.peek() {
        Kind::Object => {}
        Kind::Null => {
            scanner.skip()?;
            return Ok(Function::Absent);
        }
        Kind::Bool | Kind::Number | Kind::Text | Kind::Array => {
            scanner.skip()?;
            return Ok(Function::NotAnObject);
        }
    }
    let mut named = None;
    scanner.object(|scanner, name| {
        if name.decode() != "name" {
            return scanner.skip().map(drop);
        }
        named = match scanner.value()?.0 {
            Value::Null => None,
            Value::Text(_) => Some(true),
            Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => Some(false),
        };
        Ok(())
    })?;
    Ok(Function::Object(named))
}
