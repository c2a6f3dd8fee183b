//! `usage tail`: the newest records, and with `--follow` those that are booked later, from the live tail of the log.

use std::{collections::HashSet, time::Duration};

use http::Method;
use serde_json::Value;

use super::{filter::with_filter, print_records};
use crate::{
    admin::{Admin, AdminError, ApiPath, LineStream},
    cli::{Common, UsageFilter as FilterArgs},
    failure::Failure,
    output,
};

/// Pages that are read to find the newest records of a rare filter.
const MAX_SEARCHED_PAGES: usize = 20;
/// Attempts in a row to continue a tail that broke off.
const MAX_ATTEMPTS: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn tail(common: &Common, admin: &Admin, args: &FilterArgs, lines: usize, follow: bool) -> Result<(), Failure> {
    let target = with_filter(ApiPath::of(&["usage"]), args)?;
    // Opened before the newest records are read, so that none is missed.
    let live = if follow { Some(LiveTail::open(admin, with_filter(ApiPath::of(&["usage", "tail"]), args)?).await?) } else { None };
    let mut records = newest(admin, &target, lines).await?;
    records.reverse();
    if !print_records(common, &records, true) {
        return Ok(());
    }
    let Some(mut live) = live else { return Ok(()) };
    let mut printed: HashSet<String> = records.iter().filter_map(|record| record["id"].as_str().map(str::to_owned)).collect();
    loop {
        match live.next().await? {
            TailEvent::Record(record) => {
                let is_known = record["id"].as_str().is_some_and(|id| printed.remove(id));
                if !is_known && !print_records(common, &[record], false) {
                    return Ok(());
                }
            }
            TailEvent::LeftOut => output::remark("records were left out: `tollgate usage list` shows them"),
        }
    }
}

/// The newest records. A rare filter needs several pages, because a page ends early when it has read many records; if the pages do
/// not suffice, the last searched time is printed.
async fn newest(admin: &Admin, target: &ApiPath, count: usize) -> Result<Vec<Value>, Failure> {
    let (mut records, mut after, mut searched) = (Vec::new(), None::<String>, None::<String>);
    for _ in 0..MAX_SEARCHED_PAGES {
        let limit = (count - records.len()).to_string();
        let page = admin.get(&target.clone().with("limit", &limit).maybe("after", after.as_deref())).await?;
        records.extend(page["items"].as_array().into_iter().flatten().cloned());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || records.len() >= count {
            return Ok(records);
        }
        let Some(time) = page["searched_until"].as_str() else { return Ok(records) };
        searched = Some(time.to_owned());
    }
    if let Some(time) = searched {
        output::remark(&format!("older records than {time} were not searched: set --until {time} to continue"));
    }
    Ok(records)
}

#[derive(Debug, PartialEq)]
enum TailEvent {
    Record(Value),
    /// Records after the position were skipped, because the order of records booked so long ago is no longer known.
    LeftOut,
}

/// The live tail, over several connections if they break.
struct LiveTail<'a> {
    admin: &'a Admin,
    target: ApiPath,
    lines: LineStream,
    events: EventReader,
}

impl<'a> LiveTail<'a> {
    /// Returns once the gateway has reported where the tail begins.
    async fn open(admin: &'a Admin, target: ApiPath) -> Result<Self, Failure> {
        let mut lines = admin.lines(Method::GET, &target, None).await?;
        let mut events = EventReader::default();
        while events.position.is_none() {
            match lines.next().await? {
                Some(line) => drop(events.read(&line)),
                None => return Err(broken_off()),
            }
        }
        Ok(Self { admin, target, lines, events })
    }

    async fn next(&mut self) -> Result<TailEvent, Failure> {
        let mut attempts = 0;
        loop {
            let failure = match self.lines.next().await {
                Ok(Some(line)) => match self.events.read(&line) {
                    Some(event) => return Ok(event),
                    None => continue,
                },
                Ok(None) => broken_off(),
                Err(failure) => failure,
            };
            attempts = self.reconnect(failure, attempts).await?;
        }
    }

    /// Reconnects and continues after the last event. Returns the number of attempts so far, or the failure after too many.
    async fn reconnect(&mut self, mut failure: Failure, mut attempts: u32) -> Result<u32, Failure> {
        loop {
            if !matches!(failure, Failure::Unreachable(_)) || attempts == MAX_ATTEMPTS {
                return Err(failure);
            }
            attempts += 1;
            tokio::time::sleep(RETRY_PAUSE).await;
            let target = self.target.clone().maybe("after", self.events.position.as_deref());
            match self.admin.lines(Method::GET, &target, None).await {
                Ok(lines) => {
                    self.lines = lines;
                    return Ok(attempts);
                }
                Err(AdminError::Failed(again)) => failure = again,
                Err(refused) => return Err(refused.into()),
            }
        }
    }
}

fn broken_off() -> Failure {
    Failure::Unreachable("the live tail broke off".to_owned())
}

/// Reads server-sent events line by line.
#[derive(Debug, Default)]
struct EventReader {
    /// The id of the last event.
    position: Option<String>,
}

impl EventReader {
    fn read(&mut self, line: &[u8]) -> Option<TailEvent> {
        let line = std::str::from_utf8(line).unwrap_or_default().trim_end_matches(['\r', '\n']);
        if let Some(id) = line.strip_prefix("id: ") {
            self.position = Some(id.to_owned());
        } else if line == "event: left_out" {
            return Some(TailEvent::LeftOut);
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).unwrap_or_default();
            return data["id"].is_string().then_some(TailEvent::Record(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_read_line_by_line() {
        let stream = "id: 7-4294967295\nevent: begin\ndata: {}\n\nid: 8-1\nevent: record\ndata: {\"id\":\"req_1\"}\n\n\
                      event: left_out\ndata: {}\n\nid: 9-0\n: no new records\n\n";
        let mut reader = EventReader::default();
        let events: Vec<_> = stream.split_inclusive('\n').filter_map(|line| reader.read(line.as_bytes())).collect();
        assert_eq!(events, [TailEvent::Record(json!({"id": "req_1"})), TailEvent::LeftOut]);
        assert_eq!(reader.position.as_deref(), Some("9-0"));
    }
}
