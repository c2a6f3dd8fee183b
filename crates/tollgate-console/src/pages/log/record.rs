//! A record of the usage log with all that is known of it.

use tollgate_core::NanoUsd;

use super::{
    attempts::{self, AttemptObject, AttemptRow},
    record_object::{LineObject, LinesObject, RecordObject, TraceObject},
    view::{outcome_mark, speed},
};
use crate::pages::{
    channels::{explain, explain_detail, state},
    docs,
    format::{self, TimeText},
    locale::Locale,
    mark::Mark,
    money::{self, Amount},
    price_text, protocols, reasons,
};

/// A record as its page shows it.
#[derive(Debug)]
pub(super) struct RecordDetail {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) at: Option<TimeText>,
    pub(super) mark: Mark,
    pub(super) figures: Vec<(&'static str, String, String)>,
    pub(super) key: String,
    pub(super) key_name: String,
    pub(super) facts: Vec<(&'static str, String)>,
    /// The error message that the caller received.
    pub(super) problem: Option<String>,
    /// The id of that error.
    pub(super) code: Option<String>,
    /// The error that `/docs` explains.
    pub(super) explained: Option<String>,
    /// What an operator can do about it.
    pub(super) advice: Option<&'static str>,
    pub(super) attempts: Vec<AttemptRow>,
    /// Labels at the middle and the end of the time axis of the attempts.
    pub(super) half: String,
    pub(super) whole: String,
    pub(super) price: Option<PriceTable>,
    pub(super) costs: Vec<AttemptCost>,
    pub(super) trace: Vec<TraceRow>,
    /// The path to the question why a channel of the trace is not chosen for this model and key.
    pub(super) why: Option<String>,
    pub(super) catalog: String,
    pub(super) has_contents: bool,
    /// Whether the reader sees the request to the upstream, or why not.
    pub(super) has_translation: bool,
}

/// The cost of an attempt, if it is not 0.
#[derive(Debug)]
pub(super) struct AttemptCost {
    /// The attempt's number in the time line.
    pub(super) number: usize,
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) amount: Amount,
    /// `None`: the lines are not known.
    pub(super) price: Option<PriceTable>,
}

#[derive(Debug)]
pub(super) struct PriceTable {
    pub(super) lines: Vec<PriceLine>,
    /// The factor of the group or account, which is in the amounts of the lines; `None` if it is 1.
    pub(super) multiplier: Option<String>,
    /// The labels of that factor and of the amount.
    pub(super) multiplier_label: &'static str,
    pub(super) amount_label: &'static str,
    /// The service tier and its factor, which is in the unit prices.
    pub(super) service_tier: Option<(&'static str, String)>,
    pub(super) exact: Option<Amount>,
    pub(super) amount: Amount,
}

#[derive(Debug)]
pub(super) struct PriceLine {
    pub(super) kind: String,
    pub(super) count: String,
    pub(super) unit_price: Amount,
    pub(super) amount: Amount,
}

#[derive(Debug)]
pub(super) struct TraceRow {
    pub(super) channel: String,
    pub(super) account: String,
    pub(super) mark: Mark,
    pub(super) detail: String,
}

impl RecordDetail {
    /// `may_read`: the reader may read its contents, if they are stored.
    pub(super) fn of(t: Locale, record: &RecordObject, (is_operator, may_read): (bool, bool)) -> Self {
        Self {
            id: record.id.clone(),
            title: record.model.clone().unwrap_or_else(|| record.id.clone()),
            at: format::millisecond(t, &record.at),
            mark: outcome_mark(t, record),
            figures: figures(t, record),
            key: record.key.clone(),
            key_name: record.key_name.clone(),
            facts: facts(t, record, is_operator),
            problem: record.detail.clone().or_else(|| record.reason.clone()),
            code: record.reason.clone().filter(|_| record.detail.is_some()),
            explained: record.reason.clone().filter(|id| docs::is_explained(id)),
            advice: if is_operator { advice(t, record) } else { None },
            attempts: attempts::rows(t, record),
            half: format::micros(t, record.duration_us / 2),
            whole: format::micros(t, record.duration_us),
            price: record
                .pricing
                .as_ref()
                .and_then(|pricing| pricing.sale.as_ref())
                .map(|lines| price(t, lines, (t.say("record.multiplier"), t.say("record.charged")))),
            costs: costs(t, record),
            trace: trace(t, record),
            why: why(record),
            has_contents: record.contents,
            has_translation: is_operator && may_read && !record.attempts.is_empty(),
            catalog: t.say_with("record.catalog", &[("revision", &record.price_version.to_string())]),
        }
    }
}

/// `None` for a request that nothing is to be done about: it was completed, or the caller left.
fn advice(t: Locale, record: &RecordObject) -> Option<&'static str> {
    let upstream = record.attempts.last().and_then(|attempt| attempt.status);
    let reason = record.reason.as_deref().filter(|_| !matches!(record.outcome.as_str(), "completed" | "caller_left"))?;
    Some(reasons::advice_of_request(t, reason, &record.outcome, upstream))
}

fn figures(t: Locale, record: &RecordObject) -> Vec<(&'static str, String, String)> {
    let mut figures = Vec::new();
    let mut add = |label, amount: Option<&str>| {
        figures.extend(amount.map(|amount| (label, money::short(t, amount).text, format::usd(amount))));
    };
    add(t.say("log.charged"), record.sale.as_deref());
    add(t.say("log.cost"), record.cost.as_deref());
    let exact = |us: u64| format!("{} µs", format::integer(us));
    let mut time = |label, us: Option<u64>| figures.extend(us.map(|us| (label, format::micros(t, us), exact(us))));
    time(t.say("log.first"), record.ttft_us);
    time(t.say("log.total"), Some(record.duration_us));
    time(t.say("record.gateway"), record.overhead_us);
    let speed = speed(record).map(|speed| t.say_with("unit.tokens_per_s", &[("speed", &format!("{speed:.1}"))]));
    figures.extend(speed.map(|speed| (t.say("availability.speed"), speed, String::new())));
    figures
}

fn facts(t: Locale, record: &RecordObject, is_operator: bool) -> Vec<(&'static str, String)> {
    let mut asked = format!("{} · {}", record.method, protocols::label(t, &record.protocol_in));
    if let Some(out) = record.protocol_out.as_deref().filter(|out| *out != record.protocol_in) {
        asked = format!("{asked} → {}", protocols::label(t, out));
    }
    if record.stream {
        asked = format!("{asked} · {}", t.say("log.stream"));
    }
    let source = match record.tokens.source.as_str() {
        "provider" => t.say("record.source_provider"),
        "counted" => t.say("record.source_counted"),
        "estimated" => t.say("record.source_estimated"),
        _ => "–",
    };
    let separator = t.say("list.separator");
    let tags = record.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(separator);
    // Entries with a value, such as `max_tokens=100`, were set; those without one, such as `seed`, were left out.
    let listed = |is_set: bool| {
        let entries: Vec<&str> = record.dropped.iter().map(String::as_str).filter(|entry| entry.contains('=') == is_set).collect();
        Some(entries.join(separator)).filter(|names| !names.is_empty())
    };
    let known = [
        (t.say("keys.member"), record.member_name.clone().filter(|_| is_operator)),
        (t.say("log.group"), record.group.clone()),
        (t.say("record.asked"), Some(asked)),
        (t.say("log.finish"), record.finish.as_deref().map(|word| finish_label(t, word).to_owned())),
        (t.say("record.usage"), Some(source.to_owned())),
        (t.say("price.web_search"), Some(record.tokens.web_searches).filter(|count| *count > 0).map(format::integer)),
        (t.say("record.dropped"), listed(false)),
        (t.say("record.set"), listed(true)),
        (t.say("log.tags"), Some(tags).filter(|tags| !tags.is_empty())),
        (t.say("record.size"), Some(record.request_bytes).filter(|bytes| *bytes > 0).map(|bytes| format::bytes(t, bytes))),
        (t.say("log.client_request_id"), record.client_request_id.clone()),
        (t.say("record.client"), record.client.clone()),
        (t.say("profile.address"), record.address.clone()),
    ];
    known.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}

/// Why an answer ended.
pub(super) fn finish_label(t: Locale, word: &str) -> &'static str {
    match word {
        "stop" => t.say("finish.stop"),
        "length" => t.say("finish.length"),
        "tool" => t.say("finish.tool"),
        "filter" => t.say("finish.filter"),
        "fail" => t.say("finish.fail"),
        _ => t.say("finish.other"),
    }
}

/// The costs of the attempts that cost something, line by line.
fn costs(t: Locale, record: &RecordObject) -> Vec<AttemptCost> {
    let lines = |index: usize| record.pricing.as_ref()?.cost.get(index)?.lines.as_ref();
    let labels = (t.say("channels.multiplier"), t.say("log.cost"));
    let cost = |(index, attempt): (usize, &AttemptObject)| {
        let amount = attempt.cost.as_deref().filter(|amount| NanoUsd::parse(amount).is_ok_and(|amount| amount.0 != 0))?;
        Some(AttemptCost {
            number: index + 1,
            channel: attempt.channel.clone(),
            account: attempt.account.clone(),
            amount: money::exact(t, amount),
            price: lines(index).map(|lines| price(t, lines, labels)),
        })
    };
    record.attempts.iter().enumerate().filter_map(cost).collect()
}

fn price(t: Locale, lines: &LinesObject, (multiplier_label, amount_label): (&'static str, &'static str)) -> PriceTable {
    let line = |line: &LineObject| PriceLine {
        kind: price_text::label(t, &line.kind).to_owned(),
        count: format::integer(line.count),
        unit_price: money::exact(t, &line.unit_price),
        amount: line.amount.as_deref().map_or_else(Amount::none, |amount| money::exact(t, amount)),
    };
    PriceTable {
        lines: lines.lines.iter().map(line).collect(),
        multiplier: Some(lines.multiplier.clone()).filter(|factor| factor != "1"),
        multiplier_label,
        amount_label,
        service_tier: lines.service_tier_factor.clone().map(|factor| {
            let is_flex = lines.options.iter().any(|option| option == "flex");
            (if is_flex { t.say("pricing.flex") } else { t.say("pricing.priority") }, factor)
        }),
        exact: lines.exact.as_deref().map(|exact| money::exact(t, exact)),
        amount: lines.amount.as_deref().map_or_else(Amount::none, |amount| money::exact(t, amount)),
    }
}

/// The candidates: planned accounts in their order with their results, and excluded accounts with the reasons.
fn trace(t: Locale, record: &RecordObject) -> Vec<TraceRow> {
    // An account can be tried more than once: each of its attempts belongs to one entry.
    let mut remaining: Vec<&AttemptObject> = record.attempts.iter().collect();
    let row = |entry: &TraceObject| {
        let attempt =
            remaining.iter().position(|attempt| entry.is_planned() && entry.is_of(attempt)).map(|at| remaining.remove(at));
        TraceRow {
            channel: entry.channel.clone(),
            account: entry.account.clone().unwrap_or_default(),
            mark: match attempt {
                Some(attempt) => attempts::tried(t, attempt),
                None if !entry.is_planned() => Mark::new("off", "out", explain::word(t, &entry.code)),
                None if record.outcome == "completed" => Mark::new("off", "minus", t.say("record.not_needed")),
                None => Mark::new("off", "minus", t.say("record.not_tried")),
            },
            detail: entry.detail.as_ref().and_then(|detail| explain_detail::say(t, &entry.code, detail)).unwrap_or_default(),
        }
    };
    record.trace.iter().map(row).collect()
}

/// The path of the question, on the page of an excluded channel if there is one, else of the first channel.
fn why(record: &RecordObject) -> Option<String> {
    let named = || record.trace.iter().filter(|entry| !entry.channel.is_empty());
    let entry = named().find(|entry| !entry.is_planned()).or_else(|| named().next())?;
    let protocol = if record.protocol_in == "openai" { "" } else { record.protocol_in.as_str() };
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("model", record.model.as_deref()?), ("caller", record.key.as_str()), ("protocol", protocol)])
        .finish();
    Some(format!("{}?{query}#explain", state::path(&entry.channel)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selection_has_the_result_of_each_candidate() {
        let tokens = json!({"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "thinking": 0, "image": 0, "audio": 0,
            "source": "provider"});
        let attempt = |account: &str, status: Option<u16>, result: &str, ms: u64| {
            json!({"channel": "c", "account": account, "protocol": "openai", "upstream_model": "m", "at": "2026-11-23T10:00:00Z",
                "status": status, "result": result, "error": null, "tokens": tokens, "cost": null, "sent_us": null,
                "first_byte_us": null, "duration_us": ms * 1_000, "upstream_request_id": null, "beside": false, "message": null})
        };
        let entry = |account: &str, code: &str, detail: Option<&str>| json!({"channel": "c", "account": account, "code": code, "detail": detail});
        let record = |outcome: &str, attempts: serde_json::Value| -> RecordObject {
            serde_json::from_value(json!({
                "id": "req_1", "at": "2026-11-23T10:00:00Z", "outcome": outcome, "reason": null, "detail": null, "status": 200,
                "key": "key_1", "key_name": "ci", "member": "mbr_1", "member_name": null, "group": null, "protocol_in": "openai",
                "protocol_out": "openai", "method": "chat", "model": "m", "stream": false, "tokens": tokens, "sale": null,
                "cost": null, "price_version": 4, "ttft_us": null, "duration_us": 400_000, "overhead_us": 10, "address": null,
                "client_request_id": null, "client": null, "request_bytes": 0, "tags": {}, "dropped": [], "pricing": null,
                "trace": [entry("a", "planned", None), entry("b", "planned", None), entry("d", "planned", None),
                    entry("a", "cooling", Some("rate_limited until 2026-11-23T10:01:00Z"))],
                "attempts": attempts,
            }))
            .unwrap()
        };
        let words = |record: &RecordObject| -> Vec<(&'static str, String)> {
            trace(Locale::EN, record).into_iter().map(|row| (row.mark.tone, row.mark.word)).collect()
        };
        let row = |tone: &'static str, word: &str| (tone, word.to_owned());
        let answered =
            record("completed", json!([attempt("a", Some(429), "refused", 153), attempt("b", Some(200), "answered", 200)]));
        let expected = [row("warn", "tried: 429"), row("ok", "tried: answered"), row("off", "not needed"), row("off", "Cooling")];
        assert_eq!(words(&answered), expected);
        let after: Vec<_> = attempts::rows(Locale::EN, &answered).into_iter().map(|row| row.after).collect();
        let cooling = "429 refused after 153 ms, then the next account. The account cools: 429 from the provider · until \
                       23 Nov 2026, 10:01 UTC.";
        assert_eq!(after, [Some(cooling.to_owned()), None]);
        let failed = record("refused", json!([attempt("a", None, "not_sent", 2), attempt("a", Some(500), "failed", 3)]));
        let expected = [row("bad", "tried: not sent"), row("off", "not tried"), row("off", "not tried"), row("off", "Cooling")];
        assert_eq!(words(&failed), expected);
        let after: Vec<_> = attempts::rows(Locale::EN, &failed).into_iter().filter_map(|row| row.after).collect();
        assert!(after[0].starts_with("not sent after 2.00 ms, then the same account again."), "{after:?}");
        assert!(after[1].starts_with("500 failed after 3.00 ms, then no other account was tried."), "{after:?}");
        let link = why(&answered).unwrap();
        assert_eq!(link, "/channels/c?model=m&caller=key_1&protocol=#explain");
    }

    #[test]
    fn attempts_are_placed_on_the_timeline_of_the_request() {
        let tokens = json!({"input": 10, "output": 5, "cache_read": 0, "cache_write": 0, "cache_write_1h": 0, "thinking": 0, "image": 0,
            "audio": 0, "source": "provider"});
        let attempt = |at: &str, result: &str, (sent, first): (Option<u64>, Option<u64>), duration: u64| {
            json!({"channel": "c", "account": "a", "protocol": "gemini", "upstream_model": "other-model", "cost_multiplier": "0.8", "at": at, "status": 200, "result": result,
                "error": null, "tokens": tokens, "cost": "0.1", "sent_us": sent, "first_byte_us": first, "duration_us": duration,
                "upstream_request_id": null, "beside": false})
        };
        let sale = json!({"amount": "1.5", "exact": "1.5", "multiplier": "0.98", "options": [], "service_tier_factor": null,
            "lines": [{"kind": "input", "count": 10, "unit_price": "2.00", "amount": "1.5"}]});
        let record: RecordObject = serde_json::from_value(json!({
            "id": "req_1", "at": "2026-11-23T10:00:00Z", "outcome": "completed", "reason": null, "detail": null, "status": 200,
            "key": "key_1", "key_name": "ci", "member": "mbr_1", "member_name": "ann", "group": "default", "protocol_in": "openai", "protocol_out": "gemini",
            "method": "chat", "model": "m", "stream": true, "tokens": tokens, "sale": "1.5", "cost": "0.2", "price_version": 4,
            "ttft_us": 500_000, "duration_us": 1_000_000, "overhead_us": 10, "address": null, "client_request_id": null, "client": "OpenAI/Python 2.1.0", "request_bytes": 2_048,
            "tags": {"a": "b"}, "dropped": [], "trace": [{"channel": "c", "account": null, "code": "cooling", "detail": null}],
            "attempts": [attempt("2026-11-23T10:00:00Z", "refused", (None, None), 100_000),
                attempt("2026-11-23T10:00:00.2Z", "answered", (Some(100_000), Some(400_000)), 800_000)],
            "pricing": {"cost": [{"lines": null}, {"lines": sale}], "sale": sale},
        }))
        .unwrap();
        let detail = RecordDetail::of(Locale::EN, &record, (true, true));
        let places: Vec<_> =
            detail.attempts.iter().map(|row| (row.begin, row.connect, row.wait, row.stream, row.is_failed)).collect();
        assert_eq!(places, [(0, 0, 100, 0, true), (200, 100, 300, 400, false)]);
        let gaps: Vec<_> = detail.attempts.iter().map(|row| (row.gap_at(), row.gap)).collect();
        assert_eq!(gaps, [(0, 0), (100, 100)], "between the attempts the gateway waited");
        let phases = |row: &AttemptRow| row.phases.iter().map(|(class, _, time)| format!("{class} {time}")).collect::<Vec<_>>();
        assert!(phases(&detail.attempts[0]).is_empty(), "nothing came");
        assert_eq!(phases(&detail.attempts[1]), ["gap 100 ms", "connect 100 ms", "wait 300 ms", "fill 400 ms"]);
        let facts: Vec<_> = detail.attempts[1].facts.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(facts, ["other-model", "Gemini", "10 → 5", "× 0.8"]);
        assert_eq!(speed(&record), Some(10.0));
        assert!(detail.facts.iter().any(|(_, text)| text == "chat · Chat → Gemini · streamed"), "{:?}", detail.facts);
        let costs: Vec<_> =
            detail.costs.iter().map(|cost| (cost.number, cost.price.as_ref().map(|price| price.amount_label))).collect();
        assert_eq!(costs, [(1, None), (2, Some("Cost"))], "those whose lines are not known have their amount");
        assert_eq!(detail.price.unwrap().multiplier.as_deref(), Some("0.98"));
        let names_member = |is_operator| {
            let detail = RecordDetail::of(Locale::EN, &record, (is_operator, true));
            detail.facts.contains(&(Locale::EN.say("keys.member"), "ann".to_owned()))
        };
        assert!(names_member(true) && !names_member(false), "a member's own records do not repeat the name");
    }
}
