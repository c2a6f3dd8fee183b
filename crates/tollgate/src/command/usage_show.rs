//! `usage show`: one request with its attempts and the accounts that were not tried.

use serde_json::Value;
use tollgate_core::RequestId;

use crate::{
    admin::{Admin, AdminError, ApiPath},
    cli::Common,
    command::resource::cell,
    failure::Failure,
    output, usage_format,
};

/// Prints the record of a request; on the gateway's machine also if it is still in the journal.
pub(crate) async fn show(common: &Common, admin: &Admin, id: &str) -> Result<(), Failure> {
    let Some(parsed) = RequestId::parse(id) else {
        return Err(Failure::Usage(
            "a request id looks like req_01k9v2m5x4r7t8w9y0z1a2b3c4, as in the answer's x-request-id".to_owned(),
        ));
    };
    // Read before the database, so that a record that is booked in between is not missed.
    let mut backlog = admin.journal_backlog(common)?;
    match admin.get(&ApiPath::of(&["usage", id])).await {
        Ok(record) => print(common, &record),
        Err(AdminError::Refused(refusal)) if refusal.status == http::StatusCode::NOT_FOUND && backlog.keep_only(parsed) => {
            let mut found = None;
            let each = |record: &tollgate_core::UsageRecord| {
                found = Some(usage_format::json(record));
                false
            };
            admin.for_each_remaining(backlog, each).await?;
            if let Some(record) = found {
                print(common, &with_member_name(admin, record).await);
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Adds the name of the record's member, as the admin API does for records in the database. Null for a removed member.
async fn with_member_name(admin: &Admin, mut record: Value) -> Value {
    let id = record["member"].as_str().unwrap_or_default().to_owned();
    let name = admin.get(&ApiPath::of(&["members", &id])).await.map_or(Value::Null, |mut member| member["name"].take());
    record["member_removed"] = name.is_null().into();
    record["member_name"] = name;
    record
}

/// The member's name, or the id if the name is not known, and whether the member was removed.
fn member(record: &Value) -> String {
    let name = record["member_name"].as_str().or(record["member"].as_str()).unwrap_or("–");
    if record["member_removed"] == true { format!("{name} (removed)") } else { name.to_owned() }
}

fn print(common: &Common, record: &Value) {
    if common.json {
        output::json(record);
        return;
    }
    output::table(&[], &facts(record));
    let table = |title: &str, columns: &[(&str, &str)], items: &Value| {
        let Some(items) = items.as_array().filter(|items| !items.is_empty()) else { return };
        output::line("");
        output::line(title);
        let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
        let row = |item: &Value| columns.iter().map(|(_, member)| shown(member, &item[*member])).collect();
        output::table(&headings, &items.iter().map(row).collect::<Vec<_>>());
    };
    let attempts = [
        ("channel", "channel"),
        ("account", "account"),
        ("upstream model", "upstream_model"),
        ("status", "status"),
        ("result", "result"),
        ("error", "error"),
        ("took", "duration_us"),
        ("cost USD", "cost"),
    ];
    table("attempts:", &attempts, &record["attempts"]);
    let lines = [("kind", "kind"), ("count", "count"), ("unit price", "unit_price"), ("amount USD", "amount")];
    for (title, priced) in priced(record) {
        table(&title, &lines, &priced["lines"]);
    }
    let trace = [("channel", "channel"), ("account", "account"), ("why", "code"), ("detail", "detail")];
    table("accounts as they were considered:", &trace, &record["trace"]);
}

/// The amounts whose lines are known, with titles.
fn priced(record: &Value) -> Vec<(String, &Value)> {
    let costs = record["pricing"]["cost"].as_array().into_iter().flatten();
    let costs = (1..).zip(costs).map(|(number, cost)| (format!("cost of attempt {number}"), &cost["lines"]));
    let all = std::iter::once(("sale".to_owned(), &record["pricing"]["sale"])).chain(costs);
    let title = |(of, priced): (String, &Value)| {
        let tier = priced["tier"].as_u64().map_or_else(String::new, |tokens| format!(", prices above {tokens} tokens"));
        let (amount, exact, multiplier) = (cell(&priced["amount"]), cell(&priced["exact"]), cell(&priced["multiplier"]));
        let factor = priced["service_tier_factor"].as_str().map_or_else(String::new, |factor| format!(" (a factor of {factor})"));
        let options: Vec<&str> = priced["options"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let options =
            if options.is_empty() { String::new() } else { format!(", unit prices of {}{factor}", options.join(" and ")) };
        format!("{of}: {amount} USD, rounded from {exact}, with the multiplier {multiplier}{tier}{options}:")
    };
    all.filter(|(_, priced)| priced.is_object()).map(|(of, priced)| (title((of, priced)), priced)).collect()
}

/// Facts of the request itself, one a row.
fn facts(record: &Value) -> Vec<Vec<String>> {
    const FACTS: [(&str, &str); 23] = [
        ("request", "id"),
        ("arrived", "at"),
        ("status", "status"),
        ("outcome", "outcome"),
        ("reason", "reason"),
        ("message to caller", "detail"),
        ("key", "key_name"),
        ("key id", "key"),
        ("member id", "member"),
        ("group", "group"),
        ("model", "model"),
        ("protocol", "protocol_in"),
        ("stream", "stream"),
        ("answer ended by", "finish"),
        ("sale USD", "sale"),
        ("cost USD", "cost"),
        ("took", "duration_us"),
        ("first content after", "ttft_us"),
        ("from address", "address"),
        ("caller's request id", "client_request_id"),
        ("client", "client"),
        ("size in bytes", "request_bytes"),
        ("left out", "dropped"),
    ];
    let mut rows: Vec<Vec<String>> =
        FACTS.iter().map(|(name, member)| vec![(*name).to_owned(), shown(member, &record[*member])]).collect();
    insert_before(&mut rows, "member id", "member", member(record));
    let counts =
        record["tokens"].as_object().into_iter().flatten().filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0));
    let counts: Vec<String> = counts.map(|(kind, count)| format!("{kind} {}", cell(count))).collect();
    let tokens = match (counts.is_empty(), record["tokens"]["source"].as_str()) {
        (true, _) | (false, None) => "–".to_owned(),
        (false, Some(source)) => format!("{} (source: {source})", counts.join(", ")),
    };
    insert_before(&mut rows, "sale USD", "tokens", tokens);
    let tags: Vec<String> =
        record["tags"].as_object().into_iter().flatten().map(|(name, value)| format!("{name}={}", cell(value))).collect();
    insert_before(&mut rows, "left out", "tags", if tags.is_empty() { "–".to_owned() } else { tags.join(", ") });
    rows
}

fn insert_before(rows: &mut Vec<Vec<String>>, next: &str, name: &str, value: String) {
    let at = rows.iter().position(|row| row[0] == next).unwrap_or(rows.len());
    rows.insert(at, vec![name.to_owned(), value]);
}

/// A value for people; durations in milliseconds.
fn shown(member: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(micros) if member.ends_with("_us") => format!("{} ms", micros / 1_000),
        Some(_) | None => cell(value),
    }
}
