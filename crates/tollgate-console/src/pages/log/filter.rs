//! The filter of the usage log as an address holds it.

mod fields;

use tollgate_core::Timestamp;
use tollgate_store::fields::nearest;
use url::form_urlencoded::Serializer;

pub(super) use self::fields::FilterField;
pub(in crate::pages) use self::fields::NOT_COMPLETED;
use self::fields::{FIELDS, FOR_OPERATORS, FURTHER_OUTCOMES, SESSION, expected, label};
use crate::{
    api_error::ApiError,
    pages::{
        form::FormData,
        locale::Locale,
        page_cursors::{AFTER, BACK, CursorPairs, PageCursors},
        period::{self, Period, chosen_width},
    },
    time::{parse_rfc3339, rfc3339},
};

const DEFAULT_RANGE: &str = "24h";
pub(super) const LONGEST_RANGE: &str = "30d";

/// Further parameters of the address.
const FURTHER: [&str; 11] = ["range", "since", "until", "bars", AFTER, BACK, FOLLOW, "open", REQUEST, LIST, CUSTOM];
/// Unknown parameters that are named.
const MAX_UNKNOWN: usize = 5;
/// Set to `1` by the link to the fields for a fixed time, which are in a part of the form that is closed otherwise.
pub(super) const CUSTOM: &str = "custom";
/// The id of a request to search for.
pub(super) const REQUEST: &str = "request";
/// The query of the list that the search was started from.
pub(super) const LIST: &str = "list";
/// Set to `1` while new records are followed.
const FOLLOW: &str = "follow";

/// A filter whose value cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterFault {
    /// The field of the form.
    pub(super) field: &'static str,
    /// The field and its valid values, as a sentence.
    pub(super) text: String,
    /// The field before it has the same fault.
    pub(super) is_repeated: bool,
}

#[derive(Clone, Debug)]
pub(super) struct LogFilter {
    /// The chosen range until now; `None` for a fixed time.
    pub(super) range: Option<&'static str>,
    since: String,
    until: Option<String>,
    values: Vec<(&'static str, String)>,
    pub(super) cursors: PageCursors,
    /// The chosen width of bars.
    bars: Option<&'static str>,
    /// Whether the list follows new records.
    follows: bool,
    is_operator: bool,
}

/// A time of the address. Fields of the form leave out seconds and the zone, which is UTC.
fn at(text: &str) -> String {
    let is_of_field = text.len() == 16 && text.as_bytes().get(10) == Some(&b'T');
    if is_of_field { format!("{text}:00Z") } else { text.to_owned() }
}

impl LogFilter {
    pub(super) fn of(query: &FormData, now: Timestamp, is_operator: bool) -> Self {
        let fixed = query.filled("since").map(at);
        let range = period::words().find(|word| *word == query.value("range")).or(Some(DEFAULT_RANGE)).filter(|_| fixed.is_none());
        let begin = range.map(|word| rfc3339(period::begin_of(word, now)));
        let fields = FIELDS.into_iter().filter(|field| is_operator || !FOR_OPERATORS.contains(field));
        // The part of a bar adds its outcome to an address that may have one already: the last one counts.
        let value = |field: &'static str| query.all(field).map(str::trim).filter(|value| !value.is_empty()).last();
        Self {
            range,
            since: fixed.or(begin).unwrap_or_default(),
            until: query.filled("until").map(at),
            values: fields.filter_map(|field| Some((field, value(field)?.to_owned()))).collect(),
            cursors: PageCursors::of(query),
            bars: chosen_width(query),
            follows: query.value(FOLLOW) == "1",
            is_operator,
        }
    }

    fn value(&self, field: &str) -> &str {
        self.values.iter().find(|(known, _)| *known == field).map_or("", |(_, value)| value)
    }

    /// Whether the filter selects by more than the time.
    pub(super) fn is_set(&self) -> bool {
        !self.values.is_empty()
    }

    /// The parameters of the admin API without the time. Each occurs once: a code that is chosen takes precedence over one that is
    /// typed.
    fn parameters(&self) -> Vec<(&str, String)> {
        let mut pairs: Vec<(&str, String)> = Vec::new();
        let further = FURTHER_OUTCOMES.iter().find(|(word, _)| *word == self.value("outcome")).map(|(_, pair)| *pair);
        let session = Some(self.value(SESSION)).filter(|session| !session.is_empty()).map(|session| format!("{SESSION}={session}"));
        for (field, value) in &self.values {
            match (*field, further) {
                (SESSION | "tags", _) | ("outcome", Some(_)) | ("reason", Some(("reason", _))) => {}
                (field, _) => pairs.push((field, value.clone())),
            }
        }
        pairs.extend(further.map(|(name, value)| (name, value.to_owned())));
        let typed = Some(self.value("tags")).filter(|tags| !tags.is_empty()).map(str::to_owned);
        let tags: Vec<String> = typed.into_iter().chain(session).collect();
        if !tags.is_empty() {
            pairs.push(("tags", tags.join(",")));
        }
        pairs
    }

    /// The parameters of the admin API.
    pub(super) fn api_query(&self) -> Vec<(&str, String)> {
        let mut pairs = self.parameters();
        pairs.push(("since", self.since.clone()));
        pairs.extend(self.until.clone().map(|until| ("until", until)));
        pairs
    }

    /// The same with a fixed time, so that a later export has the records that the page shows.
    pub(super) fn fixed_query(&self) -> String {
        Serializer::new(String::new()).extend_pairs(self.api_query()).finish()
    }

    /// The query that selects new records.
    pub(super) fn live_query(&self) -> String {
        Serializer::new(String::new()).extend_pairs(self.parameters()).finish()
    }

    /// The query of the first page's address; with a cursor that of the page after it.
    pub(super) fn query(&self, next: Option<&str>) -> String {
        self.address(&self.time_pairs(), &next.map(|next| self.cursors.next_page(next)).unwrap_or_default())
    }

    /// The query of the page before this one.
    pub(super) fn newer(&self) -> Option<String> {
        Some(self.address(&self.time_pairs(), &self.cursors.previous_page()?))
    }

    /// The page with another range until now.
    pub(super) fn with_range(&self, word: &str) -> String {
        self.address(&[("range", word.to_owned())], &CursorPairs::new())
    }

    /// The page with the same time as a fixed one, which the form shows.
    pub(super) fn with_fixed(&self, now: Timestamp) -> String {
        let until = self.until.clone().unwrap_or_else(|| rfc3339(now));
        self.address(&[("since", self.since.clone()), ("until", until), (CUSTOM, "1".to_owned())], &CursorPairs::new())
    }

    /// The page with bars of another width.
    pub(super) fn with_bars(&self, bars: Option<&'static str>) -> String {
        Self { bars, ..self.clone() }.query(None)
    }

    /// The time of the chart; without an end it ends now.
    pub(super) fn period(&self, now: Timestamp) -> Period {
        let since = parse_rfc3339(&self.since).unwrap_or(now);
        let until = self.until.as_deref().and_then(parse_rfc3339).unwrap_or(now);
        Period::fixed(since.0, until.0).with_bars(self.bars)
    }

    /// The page with the time of one bar of the histogram.
    pub(super) fn within(&self, at: &str, width_s: i64) -> String {
        let begin = at.parse::<jiff::Timestamp>().map(|at| Timestamp(at.as_microsecond()));
        let until = begin.map(|begin| rfc3339(begin.plus_ms(width_s * 1_000))).unwrap_or_default();
        self.address(&[("since", at.to_owned()), ("until", until)], &CursorPairs::new())
    }

    fn time_pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = match self.range {
            Some(DEFAULT_RANGE) => Vec::new(),
            Some(word) => vec![("range", word.to_owned())],
            None => vec![("since", self.since.clone())],
        };
        pairs.extend(self.until.clone().map(|until| ("until", until)));
        pairs
    }

    fn address(&self, time: &[(&str, String)], cursors: &CursorPairs) -> String {
        let mut query = Serializer::new(String::new());
        query.extend_pairs(time).extend_pairs(self.bars.map(|bars| ("bars", bars))).extend_pairs(&self.values);
        query.extend_pairs(cursors);
        query.extend_pairs(self.follows.then_some((FOLLOW, "1")));
        query.finish()
    }

    /// Hidden fields of the form, which keep the rest of the query.
    pub(super) fn hidden(&self) -> Vec<(&'static str, String)> {
        let range = self.time_pairs().into_iter().filter(|(name, _)| *name == "range");
        let bars = self.bars.map(|bars| ("bars", bars.to_owned()));
        range.chain(bars).chain(self.follows.then(|| (FOLLOW, "1".to_owned()))).collect()
    }

    /// The faults of an error that the admin API answered, beside the fields of the form.
    pub(super) fn faults(&self, t: Locale, error: &ApiError) -> Vec<FilterFault> {
        error.each().iter().flat_map(|fault| self.fault(t, fault)).collect()
    }

    fn fault(&self, t: Locale, error: &ApiError) -> Vec<FilterFault> {
        let param = error.param().unwrap_or_default();
        let is_time = |text: &str| parse_rfc3339(text).is_some();
        if param == "since" && is_time(&self.since) && self.until.as_deref().is_some_and(is_time) {
            let (since, until) = (label(t, "since"), label(t, "until"));
            let text = t.say_with("log.expected.order", &[("since", since), ("until", until)]);
            return ["since", "until"].map(|field| FilterFault { field, text: text.clone(), is_repeated: field == "until" }).into();
        }
        // A session is sent as a tag, and some choices of outcomes as reasons.
        let field = match param {
            "tags" if self.value("tags").is_empty() => SESSION,
            _ => FIELDS.into_iter().chain(["since", "until", AFTER]).find(|known| *known == param).unwrap_or_default(),
        };
        let name = label(t, field);
        let said = match expected(t, field) {
            _ if error.status == http::StatusCode::NOT_FOUND => Some(t.say("log.expected.name")),
            Some(expected) => Some(expected),
            // Several keys have the name.
            None if field == "key" => Some(t.say("log.expected.key")),
            None => None,
        };
        let text = match said {
            Some(said) => t.say_with("log.expected.of_field", &[("field", name), ("text", said)]),
            None => t.say_with("log.wrong_filter", &[("field", name)]),
        };
        vec![FilterFault { field, text, is_repeated: false }]
    }

    /// The unknown parameters of an address, with the ones that were probably meant.
    pub(super) fn unknown(t: Locale, query: &FormData) -> Vec<String> {
        let known = || FIELDS.into_iter().chain(FURTHER);
        let others = query.pairs().map(|(name, _)| name).filter(|name| known().all(|known| known != *name));
        let say = |name: &str| {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
            match nearest(name, known().filter(|known| ![CUSTOM, BACK, LIST].contains(known))) {
                Some(near) => t.say_with("log.unknown_filter_near", &[("name", &shown), ("near", near)]),
                None => t.say_with("log.unknown_filter", &[("name", &shown)]),
            }
        };
        others.take(MAX_UNKNOWN).map(say).collect()
    }

    /// Beginning and end of a fixed time as the form's fields hold them, in UTC; empty without one.
    pub(super) fn fixed(&self) -> (String, String) {
        let field = |at: &str| at.trim_end_matches('Z').chars().take(16).collect::<String>();
        let since = if self.range.is_none() { field(&self.since) } else { String::new() };
        (since, self.until.as_deref().map(field).unwrap_or_default())
    }

    pub(super) fn fields(&self, t: Locale, faults: &[FilterFault]) -> Vec<FilterField> {
        let field = |name: &'static str| {
            let fault = faults.iter().find(|fault| fault.field == name).map(|fault| fault.text.clone());
            FilterField::of(t, name, self.value(name), fault)
        };
        FIELDS.into_iter().filter(|name| self.is_operator || !FOR_OPERATORS.contains(name)).map(field).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_219_200_000_000);

    fn of(query: &str, is_operator: bool) -> LogFilter {
        LogFilter::of(&FormData::parse(query.as_bytes()), NOW, is_operator)
    }

    #[test]
    fn address_keeps_the_filter_and_the_range() {
        let filter = of("range=1h&model=a%26b&outcome=refused&unknown=x&after=req_1", true);
        assert_eq!(filter.query(None), "range=1h&model=a%26b&outcome=refused");
        assert_eq!(filter.query(Some("req_2")), "range=1h&model=a%26b&outcome=refused&back=req_1&after=req_2");
        assert_eq!(filter.newer().as_deref(), Some("range=1h&model=a%26b&outcome=refused"));
        assert_eq!(of("model=a&back=req_1&after=req_2", true).newer().as_deref(), Some("model=a&after=req_1"));
        assert_eq!(of("model=a", true).newer(), None);
        assert_eq!(filter.with_range("7d"), "range=7d&model=a%26b&outcome=refused");
        assert_eq!(of("group=echo", false).query(None), "group=echo");
        assert!(filter.fixed_query().ends_with("&since=2026-11-20T23%3A00%3A00Z"), "{}", filter.fixed_query());
        assert_eq!(of("", true).query(None), "", "the default range needs no address");
        assert_eq!(of("range=forever", true).range, Some("24h"));
        let month = of("range=month&model=m", false);
        assert_eq!(month.query(None), "range=month&model=m");
        assert_eq!(month.api_query().last(), Some(&("since", "2026-11-01T00:00:00Z".to_owned())));
        assert_eq!(month.with_fixed(NOW), "since=2026-11-01T00%3A00%3A00Z&until=2026-11-21T00%3A00%3A00Z&custom=1&model=m");
    }

    #[test]
    fn every_wrong_value_is_a_fault_of_its_field() {
        let filter = of("status=abc&min_tokens=x&since=2026-11-02T00:00&until=2026-11-01T00:00&session=,", true);
        let errors = [
            ApiError::value("status", "x"),
            ApiError::value("min_tokens", "x"),
            ApiError::value("since", "x"),
            ApiError::value("tags", "x"),
            ApiError::not_found("member").about("member"),
            ApiError::value("model", "x"),
        ];
        let error = ApiError::first_of(errors.to_vec()).unwrap_err();
        let faults = filter.faults(Locale::EN, &error);
        let said: Vec<_> = faults.iter().map(|fault| (fault.field, fault.text.as_str())).collect();
        assert_eq!(said[0], ("status", "Status: Enter a status such as 429, or a class of them such as 5xx."));
        assert_eq!(said[1], ("min_tokens", "Tokens at least: Enter a whole number such as 1000."));
        assert_eq!(said[2], ("since", "“From” is after “Until”: swap the two."));
        assert_eq!((said[3].0, said[3].1), ("until", said[2].1));
        assert_eq!(
            (said[4].0, said[5].0, said[6]),
            (SESSION, "member", ("model", "The filter “Model” has a value that cannot be."))
        );
        let fields = filter.fields(Locale::EN, &faults);
        let marked: Vec<_> = fields.iter().filter(|field| field.fault.is_some()).map(|field| field.name).collect();
        assert_eq!(marked, ["model", "status", SESSION, "min_tokens", "member"]);
        let unreadable = of("since=yesterday", true).faults(Locale::EN, &ApiError::value("since", "x"));
        assert_eq!(unreadable[0].text, "From: Enter a time such as 2027-01-31T08:00.");
    }

    #[test]
    fn unknown_parameters_are_named_with_what_was_meant() {
        let unknown = |query: &str| LogFilter::unknown(Locale::EN, &FormData::parse(query.as_bytes()));
        assert!(unknown("range=1h&model=a&channel=c&open=req_1&custom=1&since=x&follow=1&after=x&back=y&request=z").is_empty());
        assert_eq!(unknown("tag=x"), ["“tag” is no filter of this page and was left out. Did you mean “tags”?"]);
        assert_eq!(unknown("zzzzzzzz=x"), ["“zzzzzzzz” is no filter of this page and was left out."]);
        assert_eq!(unknown("a=1&b=1&c=1&d=1&e=1&f=1&g=1").len(), MAX_UNKNOWN);
    }

    #[test]
    fn bar_links_to_its_time_range() {
        let filter = of("model=m", false);
        assert_eq!(
            filter.within("2026-11-21T00:00:00Z", 300),
            "since=2026-11-21T00%3A00%3A00Z&until=2026-11-21T00%3A05%3A00Z&model=m"
        );
        let fixed = of("since=2026-11-21T00:00:00Z&until=2026-11-21T00:05:00Z", false);
        assert_eq!((fixed.range, fixed.hidden().len()), (None, 0));
        assert_eq!(fixed.fixed(), ("2026-11-21T00:00".to_owned(), "2026-11-21T00:05".to_owned()));
        let typed = of("range=1h&since=2026-11-21T00:00&until=", false);
        assert_eq!((typed.range, typed.api_query().last()), (None, Some(&("since", "2026-11-21T00:00:00Z".to_owned()))));
    }

    #[test]
    fn bar_width_is_kept_in_the_address() {
        let filter = of("range=7d&model=m&bars=day", false);
        assert_eq!(filter.query(None), "range=7d&bars=day&model=m");
        assert_eq!(
            (filter.with_bars(Some("hour")), filter.with_bars(None)),
            ("range=7d&bars=hour&model=m".to_owned(), "range=7d&model=m".to_owned())
        );
        assert!(filter.hidden().contains(&("bars", "day".to_owned())));
        assert_eq!(filter.period(NOW).bars_or("60"), ("width", "day"));
        assert_eq!(of("range=15m&bars=day", false).period(NOW).bars_or("60"), ("buckets", "60"));
    }

    #[test]
    fn follow_is_kept_in_the_address_and_not_sent_to_the_api() {
        let filter = of("model=m&follow=1&open=req_1", false);
        assert_eq!(filter.query(None), "model=m&follow=1");
        assert_eq!(filter.with_range("1h"), "range=1h&model=m&follow=1");
        assert_eq!(filter.live_query(), "model=m");
        assert!(filter.hidden().contains(&("follow", "1".to_owned())) && !filter.fixed_query().contains("follow"));
        assert!(!of("follow=yes", false).query(None).contains("follow"));
    }

    #[test]
    fn outcome_choices_that_are_not_outcomes_become_their_own_parameters() {
        let asked = |query: &str| of(query, true).live_query();
        assert_eq!(asked("outcome=empty&model=m"), "model=m&empty=true");
        assert_eq!(asked("outcome=failed_over"), "failed_over=true");
        assert_eq!(asked("outcome=blocked&reason=E40"), "reason=E67");
        assert_eq!(asked("outcome=not_completed"), "outcome=caller_left%2Crefused%2Cupstream_broke%2Cgateway_stopped");
        assert_eq!(asked("outcome=not_completed&model=m&outcome=refused"), "model=m&outcome=refused", "a part of a bar");
        assert_eq!(asked("outcome=refused&reason=E40"), "outcome=refused&reason=E40");
        assert_eq!(asked("session=s1&tags=a%3Db&stream=true"), "stream=true&tags=a%3Db%2Csession%3Ds1");
        assert_eq!(of("outcome=empty&session=s", true).query(None), "outcome=empty&session=s", "the address keeps what was chosen");
    }

    #[test]
    fn members_have_no_filter_fields_for_hidden_columns() {
        assert!(of("channel=c&member=m", false).values.is_empty());
        assert!(of("", false).fields(Locale::EN, &[]).iter().all(|field| field.name != "channel"));
        assert_eq!(of("channel=c&member=m", true).values.len(), 2);
        let tried = "account=c%2Fa&tried_channel=c&tried_account=c%2Fa&tried_failed=true&unknown_model=m";
        assert!(of(tried, false).values.is_empty());
        let filter = of(tried, true);
        assert_eq!((filter.query(None), filter.live_query()), (tried.to_owned(), tried.to_owned()));
        assert!(filter.fixed_query().starts_with(tried), "{}", filter.fixed_query());
        let fields = filter.fields(Locale::EN, &[]);
        let field = |name: &str| fields.iter().find(|field| field.name == name).unwrap();
        assert_eq!((field("account").value.as_str(), field("tried_account").is_common), ("c/a", false));
        assert_eq!(field("tried_failed").options, [("true", "Failed".to_owned(), true)]);
        let chosen: Vec<_> = filter.fields(Locale::EN, &[]).into_iter().filter_map(FilterField::chosen).collect();
        assert_eq!(chosen.len(), 5, "shown beside the time");
        assert_eq!((&chosen[0], &chosen[3]), (&("Account", "c/a".to_owned()), &("Result of the attempt", "Failed".to_owned())));
        let needs = ApiError::value("tried_failed", "x");
        assert_eq!(filter.faults(Locale::EN, &needs)[0].text, "Result of the attempt: Enter the tried channel or account, too.");
    }
}
