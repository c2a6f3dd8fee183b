//! What a row must be by itself, wherever it comes from. Fields are named as a catalog file spells them.

use tollgate_core::{Budget, KeyStatus, NanoUsd, Price, PriceLimit, PriceLimitMode, PriceSchedule, Provider};
use url::Url;

use crate::{AccountSpec, AdminKeySpec, ChannelSpec, FieldProblem, GroupSpec, KeySpec, MemberSpec, ModelSpec, ServesSpec};

/// Dearest price per million tokens, nano-USD: 100,000 USD, a hundred times what any provider asks.
const MOST_PER_MILLION: i64 = 100_000_000_000_000;

/// A row that can be checked by itself.
pub(crate) trait Check {
    /// What is wrong with it, field by field.
    fn check(&self) -> Vec<FieldProblem>;
}

/// Collects problems.
#[derive(Default)]
struct FieldProblems(Vec<FieldProblem>);

impl FieldProblems {
    fn add(&mut self, field: &'static str, message: impl Into<String>) {
        self.0.push(FieldProblem { field, message: message.into() });
    }

    fn unless(&mut self, good: bool, field: &'static str, message: &str) {
        if !good {
            self.add(field, message);
        }
    }

    fn name(&mut self, field: &'static str, name: &str, longest: usize) {
        self.unless(!name.is_empty(), field, "must not be empty");
        self.unless(name.len() <= longest, field, &format!("is longer than {longest} bytes"));
        self.unless(!name.chars().any(char::is_control), field, "holds control characters");
        self.unless(name.trim() == name, field, "begins or ends with a blank");
        self.unless(!name.chars().any(is_unseen), field, "holds characters that nobody sees");
        self.unless(field != "name" || !looks_like_id(name), field, "looks like an id, which would be taken for that row's");
    }

    fn budgets(&mut self, budgets: &[Budget]) {
        self.unless(budgets.iter().all(|budget| budget.amount.0 >= 0), "budget", "an amount is below zero");
        let twice = budgets
            .iter()
            .enumerate()
            .any(|(i, one)| budgets[..i].iter().any(|two| two.window == one.window && two.action == one.action));
        self.unless(!twice, "budget", "two budgets have the same window and action");
        self.unless(budgets.len() <= 8, "budget", "more than 8 budgets");
    }

    fn schedule(&mut self, field: &'static str, schedule: Option<&PriceSchedule>) {
        let Some(PriceSchedule(prices)) = schedule else { return };
        self.unless(!prices.is_empty(), field, "an empty list of prices");
        let ordered = prices.windows(2).all(|pair| pair[0].valid_from < pair[1].valid_from);
        self.unless(ordered, field, "valid_from must rise from entry to entry, and only the first may leave it out");
        for price in prices {
            let tiers = &price.price.tiers;
            self.unless(tiers.windows(2).all(|pair| pair[0].above < pair[1].above), field, "the bounds of its tiers must rise");
            self.unless(tiers.iter().all(|tier| tier.price.tiers.is_empty()), field, "a tier has tiers of its own");
            let fits = fits(&price.price) && tiers.iter().all(|tier| fits(&tier.price));
            self.unless(fits, field, "a figure is below 0, above 100,000 USD per million tokens or above 10,000 USD per request");
        }
    }

    fn price_limit(&mut self, limit: Option<&PriceLimit>) {
        match limit.map(|limit| limit.mode) {
            Some(PriceLimitMode::Ceiling { max_input: None, max_output: None }) => {
                self.add("price_limit", "a ceiling needs max_input, max_output or both");
            }
            Some(PriceLimitMode::MinMargin(margin)) => {
                self.unless((0..=1_000_000).contains(&margin), "price_limit", "min_margin must lie between 0 and 1");
            }
            Some(PriceLimitMode::Ceiling { .. } | PriceLimitMode::PricedOnly) | None => {}
        }
    }
}

/// Characters that make two names look alike, or turn the direction of what stands behind them.
const fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Rows are found by id or by name, so that a name of this form could never be found.
fn looks_like_id(name: &str) -> bool {
    const PREFIXES: [&str; 8] = ["chn_", "acc_", "mdl_", "grp_", "mbr_", "key_", "adm_", "req_"];
    let digits = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    digits.is_some_and(|digits| digits.len() == 26 && digits.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Whether every figure can be meant: one that is mistyped by some zeros would be booked with all that follows.
fn fits(price: &Price) -> bool {
    let Price { input, output, cache_read, cache_write, thinking, image, audio, per_request, tiers: _ } = price;
    let per_million = [input, output, cache_read, cache_write, thinking, image, audio];
    per_million.into_iter().flatten().all(|figure| (0..=MOST_PER_MILLION).contains(figure))
        && per_request.is_none_or(|figure| (0..=NanoUsd::MAX_PER_REQUEST.0).contains(&figure))
}

impl Check for ChannelSpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 100);
        if self.provider == Provider::Echo {
            problems.unless(self.base_url.is_empty(), "base_url", "the echo channel has no address");
        } else if let Err(message) = check_url(&self.base_url, &["http", "https"]) {
            problems.add("base_url", message);
        }
        if let Some(proxy) = &self.proxy
            && let Err(message) = check_url(proxy, &["http", "socks5"])
        {
            problems.add("proxy", message);
        }
        problems.unless((1..=1_000_000).contains(&self.weight), "weight", "must lie between 1 and 1,000,000");
        for (field, value) in [
            ("connect_timeout_ms", self.timeouts.connect_ms),
            ("first_byte_timeout_ms", self.timeouts.first_byte_ms),
            ("idle_timeout_ms", self.timeouts.idle_ms),
        ] {
            problems.unless((1..=86_400_000).contains(&value), field, "must lie between 1 and 86,400,000 (a day)");
        }
        problems.unless(
            self.probe_interval_s == 0 || (10..=86_400).contains(&self.probe_interval_s),
            "probe_interval_s",
            "must be 0 (off) or lie between 10 and 86,400 (a day)",
        );
        problems.unless(self.headers.len() <= 32, "headers", "more than 32 headers");
        for (i, (name, value)) in self.headers.iter().enumerate() {
            let twice = self.headers[..i].iter().any(|(before, _)| before.eq_ignore_ascii_case(name));
            problems.unless(!twice, "headers", &format!("'{name}' stands twice"));
            if let Err(message) = check_header(name, value) {
                problems.add("headers", message);
            }
        }
        problems.budgets(&self.budgets);
        for (i, serves) in self.serves.iter().enumerate() {
            problems.0.extend(serves.check());
            let twice = self.serves[..i].iter().any(|before| before.model == serves.model);
            problems.unless(!twice, "serves", &format!("model '{}' is served twice", serves.model));
        }
        problems.0
    }
}

impl Check for ServesSpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("model", &self.model, 256);
        problems.name("upstream", &self.upstream, 256);
        problems.schedule("cost", self.cost.as_ref());
        problems.0
    }
}

impl Check for AccountSpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 100);
        problems.unless(self.cost_multiplier.0 >= 0, "cost_multiplier", "is below zero");
        problems.0
    }
}

impl Check for ModelSpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 256);
        problems.schedule("price", self.price.as_ref());
        problems.unless(self.context != Some(0), "context", "must be above 0");
        problems.unless(self.max_output != Some(0), "max_output", "must be above 0");
        problems.unless(
            self.description.as_ref().is_none_or(|text| text.len() <= 1_000),
            "description",
            "is longer than 1,000 bytes",
        );
        problems.0
    }
}

impl Check for GroupSpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 100);
        problems.unless(self.sale_multiplier.0 >= 0, "sale_multiplier", "is below zero");
        problems.price_limit(self.price_limit.as_ref());
        problems.unless(self.hedge.is_none_or(|hedge| hedge.cost_cap.0 > 0), "hedge", "cost_cap must be above 0");
        problems.budgets(&self.budgets);
        problems.0
    }
}

impl Check for MemberSpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 100);
        problems.budgets(&self.budgets);
        problems.0
    }
}

impl Check for KeySpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 100);
        problems.unless(self.status != KeyStatus::Revoked, "status", "a key is revoked by a change of its own, for good");
        problems.price_limit(self.price_limit.as_ref());
        problems.budgets(&self.budgets);
        problems.0
    }
}

impl Check for AdminKeySpec {
    fn check(&self) -> Vec<FieldProblem> {
        let mut problems = FieldProblems::default();
        problems.name("name", &self.name, 100);
        problems.0
    }
}

fn check_url(text: &str, schemes: &[&str]) -> Result<(), String> {
    if text.is_empty() {
        return Err("is needed for this provider".to_owned());
    }
    let url = Url::parse(text).map_err(|error| format!("is not an address: {error}"))?;
    if !schemes.contains(&url.scheme()) {
        return Err(format!("must begin with {}://", schemes.join(":// or ")));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("names no host".to_owned());
    }
    if url.port() == Some(0) {
        return Err("names the port 0, where nothing listens".to_owned());
    }
    if schemes.contains(&"https") && (!url.username().is_empty() || url.password().is_some()) {
        return Err("must not hold a user name or password; the credential belongs to an account".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must not have a query or fragment".to_owned());
    }
    Ok(())
}

/// Headers that are the connection's or the credential's, never a channel's.
const OWN_HEADERS: [&str; 12] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

fn check_header(name: &str, value: &str) -> Result<(), String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!("'{name}' is not a header name"));
    }
    if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("'{name}' is set by the gateway itself"));
    }
    if !value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
        return Err(format!("the value of '{name}' holds characters that a header cannot"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tollgate_core::{PriceTier, ScheduledPrice};

    use super::*;

    fn url(text: &str) -> Option<String> {
        check_url(text, &["http", "https"]).err()
    }

    #[test]
    fn names_are_seen_and_are_no_ids() {
        let faults = |name: &str| GroupSpec { name: name.to_owned(), ..GroupSpec::default() }.check().len();
        for good in ["default", "größe 組 😀", "a/b", "..", "grp_short", "👨\u{200d}👩\u{200d}👧"] {
            assert_eq!(faults(good), 0, "{good:?}");
        }
        for bad in ["a\u{202e}b", "a\u{200b}", "\u{feff}a", "a\u{2066}b", "grp_01m7zpcfdnf1frvedh0bp3pf6m", "a\nb", " a", ""] {
            assert!(faults(bad) > 0, "{bad:?}");
        }
    }

    #[test]
    fn a_header_stands_once_however_it_is_written() {
        let headers = ["X-A", "x-a"].map(|name| (name.to_owned(), "1".to_owned())).to_vec();
        let spec = ChannelSpec { name: "c".to_owned(), base_url: "https://x/v1".to_owned(), headers, ..ChannelSpec::default() };
        assert!(spec.check().iter().any(|it| it.field == "headers" && it.message.contains("twice")));
    }

    #[test]
    fn a_base_url_is_an_http_address_and_nothing_more() {
        assert_eq!(url("http://127.0.0.1:4010/v1"), None);
        assert_eq!(url("https://api.openai.com/v1"), None);
        for bad in ["", "http://x:0/v1", "api.openai.com/v1", "ftp://x/v1", "https://me:secret@x/v1", "https://x/v1?key=1"] {
            assert!(url(bad).is_some(), "{bad}");
        }
        assert!(!url("https://me:secret@x/v1").unwrap().contains("secret"));
    }

    #[test]
    fn channel_headers_cannot_touch_framing_or_credentials() {
        assert_eq!(check_header("anthropic-version", "2023-06-01"), Ok(()));
        for (name, value) in [("Host", "x"), ("Authorization", "x"), ("a b", "x"), ("x", "a\r\nb: c"), ("", "")] {
            assert!(check_header(name, value).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn a_price_that_cannot_be_meant_is_refused() {
        let problems = |price| {
            let mut problems = FieldProblems::default();
            problems.schedule("price", Some(&PriceSchedule(vec![ScheduledPrice { valid_from: None, price }])));
            problems.0.len()
        };
        let dear = Price { output: Some(MOST_PER_MILLION), per_request: Some(10_000_000_000_000), ..Price::default() };
        assert_eq!(problems(dear.clone()), 0);
        assert_eq!(problems(Price { audio: Some(MOST_PER_MILLION + 1), ..dear.clone() }), 1);
        assert_eq!(problems(Price { per_request: Some(10_000_000_000_001), ..dear.clone() }), 1);
        let tier = PriceTier { above: 1, price: Price { input: Some(-1), ..Price::default() } };
        assert_eq!(problems(Price { tiers: vec![tier], ..dear }), 1);
    }

    #[test]
    fn every_problem_of_a_row_is_reported() {
        let channel = ChannelSpec { name: " x".to_owned(), base_url: "nowhere".to_owned(), weight: 0, ..ChannelSpec::default() };
        let fields: Vec<_> = channel.check().iter().map(|problem| problem.field).collect();
        assert_eq!(fields, ["name", "base_url", "weight"]);
    }
}
