//! The disk space of the gateway, on the page of the system.

use serde::Deserialize;

use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{format, locale::Locale, operations, request::PageRequest},
};

#[derive(Debug, Deserialize)]
struct StorageObject {
    database: DatabaseObject,
    journal: Option<JournalObject>,
}

#[derive(Debug, Deserialize)]
struct DatabaseObject {
    kind: String,
    bytes: u64,
    log_bytes: Option<u64>,
    schema: u64,
}

#[derive(Debug, Deserialize)]
struct JournalObject {
    bytes: u64,
    unbooked: u64,
}

/// Label, text, and the exact number as title.
pub(super) type StorageFact = (&'static str, String, String);

/// The facts; empty while the database does not answer.
pub(super) async fn load(request: &PageRequest) -> Result<Vec<StorageFact>, ApiError> {
    match request.read::<StorageObject>(operations::GET_STORAGE, ApiCall::default()).await {
        Ok(storage) => Ok(facts(request.t(), &storage)),
        Err(error) if error.code() == "server_overloaded" => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn facts(t: Locale, storage: &StorageObject) -> Vec<StorageFact> {
    let exact = |bytes: u64| t.say_with("unit.bytes", &[("count", &format::integer(bytes))]);
    let size = |label, bytes: u64| (label, format::bytes(t, bytes), exact(bytes));
    let DatabaseObject { kind, bytes, log_bytes, schema } = &storage.database;
    let name = match kind.as_str() {
        "postgresql" => "PostgreSQL",
        "memory" => t.say("system.in_memory"),
        _ => "SQLite",
    };
    let mut facts = vec![(t.say("system.database"), name.to_owned(), String::new())];
    if kind != "memory" {
        facts.push(size(t.say("system.database_size"), *bytes));
    }
    facts.extend(log_bytes.map(|bytes| size(t.say("system.log_size"), bytes)));
    facts.push((t.say("fact.schema"), schema.to_string(), String::new()));
    if let Some(journal) = &storage.journal {
        facts.push(size(t.say("system.journal_size"), journal.bytes));
        facts.push((t.say("system.unbooked"), format::integer(journal.unbooked), String::new()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_database_has_its_facts() {
        let of = |json: &str| {
            facts(Locale::EN, &serde_json::from_str(json).unwrap())
                .into_iter()
                .map(|(label, text, _)| (label, text))
                .collect::<Vec<_>>()
        };
        let sqlite = of(
            r#"{"database":{"kind":"sqlite","bytes":3145728,"log_bytes":1048576,"schema":4},"journal":{"bytes":2048,"unbooked":7}}"#,
        );
        let texts: Vec<&str> = sqlite.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["SQLite", "3.0 MiB", "1.0 MiB", "4", "2.0 KiB", "7"]);
        let memory = of(r#"{"database":{"kind":"memory","bytes":0,"log_bytes":null,"schema":4},"journal":null}"#);
        assert_eq!(memory.len(), 2, "{memory:?}");
        let postgres = of(r#"{"database":{"kind":"postgresql","bytes":9,"log_bytes":null,"schema":4},"journal":null}"#);
        assert_eq!(postgres[0].1, "PostgreSQL");
    }
}
