//! Validation against the vendors' schemas in `fixtures/schemas`.

use std::{collections::HashMap, fs, path::Path};

use jsonschema::Validator;
use serde_json::Value;

/// All schemas by name, such as `openai-error.closed`.
pub(crate) struct Schemas(HashMap<String, Validator>);

impl Schemas {
    /// Reads and compiles every schema.
    pub(crate) fn load() -> Self {
        let folder = folder();
        let mut schemas = HashMap::new();
        for entry in fs::read_dir(&folder).expect("the folder is part of the crate") {
            let path = entry.expect("readable").path();
            let file = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
            let Some(name) = file.strip_suffix(".schema.json") else { continue };
            let schema: Value = serde_json::from_str(&fs::read_to_string(&path).expect("readable")).expect("a schema is JSON");
            schemas.insert(name.to_owned(), jsonschema::validator_for(&schema).expect("a valid schema"));
        }
        Self(schemas)
    }

    /// Validation errors of `body` under the schema `name`.
    pub(crate) fn errors(&self, name: &str, body: &Value) -> Vec<String> {
        let schema = self.0.get(name).unwrap_or_else(|| panic!("no schema {name}"));
        schema.iter_errors(body).map(|fault| format!("{} at {}", fault, fault.instance_path())).collect()
    }

    /// Asserts that `body` is JSON and valid under the schema `name`.
    pub(crate) fn check(&self, name: &str, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        let value = serde_json::from_slice(body).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"));
        assert_eq!(self.errors(name, &value), Vec::<String>::new(), "{name}: {text}");
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Folder of the schemas.
pub(crate) fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/schemas")
}

/// The JSON texts of an event stream, without the terminator.
pub(crate) fn events(stream: &str) -> Vec<String> {
    let joined = |event: &str| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    stream.split("\n\n").map(joined).filter(|data| !data.is_empty() && data != "[DONE]").collect()
}
