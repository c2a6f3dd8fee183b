//! Amounts of money as pages show them: in the display currency of the settings, at its fixed rate. An amount whose text is not
//! exact in USD has the exact amount in USD as its title. Forms, exports and everything that programs read are in USD.

use std::fmt;

use askama::filters::HtmlSafe;
use tollgate_core::NanoUsd;

use super::{format, locale::Locale};
use crate::currency::DisplayCurrency;

/// Digits that are shown of an amount among many.
const DIGITS: usize = 6;
/// Decimals of an amount that is converted: those of a price for a thousand tokens.
const DECIMALS: usize = 12;
/// The same with the decimals of a rate.
const CONVERTED_DECIMALS: usize = DECIMALS + 6;

/// An amount as a page shows it. As HTML it has the exact amount in USD as its title, unless its text is that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) text: String,
    title: Option<String>,
}

impl Amount {
    /// A text without a title, such as a number that is not an amount.
    pub(crate) const fn plain(text: String) -> Self {
        Self { text, title: None }
    }

    /// A dash, in place of a missing amount.
    pub(crate) fn none() -> Self {
        Self::plain("–".to_owned())
    }

    /// The amount with a text before it, such as a sign.
    pub(crate) fn after(self, before: &str) -> Self {
        Self { text: format!("{before}{}", self.text), ..self }
    }

    /// Text and title in one text, for use outside HTML.
    pub(crate) fn with_title(&self) -> String {
        match &self.title {
            Some(title) => format!("{} ({title})", self.text),
            None => self.text.clone(),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.title {
            Some(title) => write!(f, "<span title=\"{title}\">{}</span>", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Its parts are digits, signs and symbols of currencies.
impl HtmlSafe for Amount {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// All digits in USD. A converted amount has no exact digits, and is shown with the significant ones.
    All,
    /// Six significant digits.
    Significant,
    /// Without more than its cents if it is at least a whole unit.
    Cents,
    /// The same, cut off instead of rounded.
    CentsBelow,
    /// With its cents, so that the amounts of a column align.
    Column,
}

/// An amount with all its digits.
pub(crate) fn exact(t: Locale, decimal: &str) -> Amount {
    amount(t, decimal, Shown::All)
}

/// An amount that is shown among many: six significant digits.
pub(crate) fn short(t: Locale, decimal: &str) -> Amount {
    amount(t, decimal, Shown::Significant)
}

/// An amount without more than its cents where it has a whole unit or more.
pub(crate) fn rounded(t: Locale, decimal: &str) -> Amount {
    amount(t, decimal, Shown::Cents)
}

/// The same, rounded down, so that an amount below a bound does not read as the bound.
pub(crate) fn rounded_down(t: Locale, decimal: &str) -> Amount {
    amount(t, decimal, Shown::CentsBelow)
}

/// An amount of a column, with its cents.
pub(crate) fn cents(t: Locale, decimal: &str) -> Amount {
    amount(t, decimal, Shown::Column)
}

/// Nano-USD as the decimal text that this module takes.
pub(crate) fn decimal(nano: u64) -> String {
    NanoUsd(i64::try_from(nano).unwrap_or(i64::MAX)).to_usd_string()
}

fn amount(t: Locale, decimal: &str, shown: Shown) -> Amount {
    let Some(parts) = Parts::read(decimal) else { return Amount::none() };
    let (is_usd, title) = (t.currency == DisplayCurrency::USD, format::usd(decimal));
    let text = if is_usd { parts.text(t, shown) } else { parts.converted(t.currency).text(t, shown.of_converted()) };
    Amount { title: Some(title).filter(|title| *title != text), text }
}

impl Shown {
    const fn of_converted(self) -> Self {
        match self {
            Self::All | Self::Significant => Self::Significant,
            Self::Cents | Self::CentsBelow | Self::Column => self,
        }
    }
}

/// The symbol before an amount.
pub(crate) fn symbol(t: Locale) -> &'static str {
    Symbol::of(t).text
}

/// A figure beside the lines of a chart, for an amount in billionths of the display currency.
pub(crate) fn of_scale(t: Locale, nano: u64) -> String {
    let (whole, rest) = (nano / 1_000_000_000, nano % 1_000_000_000);
    if whole >= 1_000 || (whole >= 2 && rest == 0) {
        return format!("{}{}", symbol(t), format::compact(t, whole));
    }
    Parts::read(&decimal(nano)).map_or_else(String::new, |parts| parts.text(t, Shown::Significant))
}

/// Nano-USD in billionths of the display currency, for charts.
pub(crate) fn converted_nano(t: Locale, nano: u64) -> u64 {
    let rate = u128::from(t.currency.per_usd.0.unsigned_abs());
    u64::try_from(u128::from(nano) * rate / 1_000_000).unwrap_or(u64::MAX)
}

/// The digits of a decimal.
#[derive(Debug)]
struct Parts {
    is_negative: bool,
    whole: String,
    fraction: String,
}

impl Parts {
    /// `None` if the text is not a decimal.
    fn read(decimal: &str) -> Option<Self> {
        let unsigned = decimal.strip_prefix('-').unwrap_or(decimal);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let whole = Some(whole.trim_start_matches('0')).filter(|whole| !whole.is_empty()).unwrap_or("0");
        Some(Self {
            is_negative: decimal.starts_with('-'),
            whole: whole.to_owned(),
            fraction: fraction.trim_end_matches('0').to_owned(),
        })
    }

    /// The amount in another currency. Decimals beyond those of any amount are cut off.
    fn converted(&self, to: DisplayCurrency) -> Self {
        let digits: String = self.whole.chars().chain(self.fraction.chars().chain(std::iter::repeat('0')).take(DECIMALS)).collect();
        let exact = digits.parse::<u128>().unwrap_or(u128::MAX).saturating_mul(u128::from(to.per_usd.0.unsigned_abs()));
        let digits = format!("{exact:0>width$}", width = CONVERTED_DECIMALS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - CONVERTED_DECIMALS);
        Self { is_negative: self.is_negative, whole: whole.to_owned(), fraction: fraction.trim_end_matches('0').to_owned() }
    }

    /// Whole part and fraction with so many decimals, rounded half up.
    fn rounded(&self, decimals: usize) -> (String, String) {
        let kept = decimals.min(self.fraction.len());
        let mut digits: Vec<u8> = self.whole.bytes().chain(self.fraction.bytes().take(kept)).collect();
        if self.fraction.as_bytes().get(kept).is_some_and(|next| *next >= b'5') {
            let nines = digits.iter().rev().take_while(|digit| **digit == b'9').count();
            let at = digits.len() - nines;
            digits[at..].fill(b'0');
            match at.checked_sub(1) {
                Some(at) => digits[at] += 1,
                None => digits.insert(0, b'1'),
            }
        }
        let mut whole = String::from_utf8_lossy(&digits).into_owned();
        let fraction = whole.split_off(whole.len() - kept);
        (whole, fraction)
    }

    /// The same with the further decimals cut off.
    fn cut(&self, decimals: usize) -> (String, String) {
        (self.whole.clone(), self.fraction.chars().take(decimals).collect())
    }

    fn text(&self, t: Locale, shown: Shown) -> String {
        let symbol = Symbol::of(t);
        let is_below_one = self.whole == "0";
        let zeros = self.fraction.len() - self.fraction.trim_start_matches('0').len();
        let least = symbol.decimals;
        let kept = match shown {
            Shown::All => self.fraction.len(),
            // An amount that would round to zero in its column shows its first digits.
            Shown::Column if is_below_one && zeros >= least => zeros + 2,
            Shown::Column => least,
            _ if is_below_one => zeros + DIGITS,
            Shown::Significant => DIGITS.saturating_sub(self.whole.len()).max(symbol.decimals),
            Shown::Cents | Shown::CentsBelow => symbol.decimals,
        };
        let is_cut = shown == Shown::CentsBelow && !self.is_negative;
        let (whole, fraction) = if is_cut { self.cut(kept) } else { self.rounded(kept) };
        let fraction = format!("{:0<width$}", fraction.trim_end_matches('0'), width = least);
        let whole = whole.parse().map_or(whole, format::integer);
        let sign = if self.is_negative { "−" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{sign}{}{whole}{point}{fraction}", symbol.text)
    }
}

/// The symbol before an amount, and the minimum number of decimals.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    text: &'static str,
    decimals: usize,
}

impl Symbol {
    fn of(t: Locale) -> Self {
        let (_, en, zh_cn, decimals) = SYMBOLS.iter().find(|(code, ..)| *code == t.currency.code).unwrap_or(&SYMBOLS[0]);
        Self { text: t.choose(en, zh_cn), decimals: *decimals }
    }
}

/// By code: the symbol in each language, as Unicode's CLDR has it, and the decimals. A code in place of a symbol has a space after it.
const SYMBOLS: &[(&str, &str, &str, usize)] = &[
    ("USD", "$", "$", 2),
    ("EUR", "€", "€", 2),
    ("GBP", "£", "£", 2),
    ("CNY", "CN¥", "¥", 2),
    ("HKD", "HK$", "HK$", 2),
    ("TWD", "NT$", "NT$", 2),
    ("JPY", "¥", "JP¥", 0),
    ("KRW", "₩", "₩", 0),
    ("INR", "₹", "₹", 2),
    ("IDR", "IDR\u{a0}", "IDR\u{a0}", 2),
    ("MYR", "MYR\u{a0}", "MYR\u{a0}", 2),
    ("PHP", "₱", "₱", 2),
    ("SGD", "SGD\u{a0}", "SGD\u{a0}", 2),
    ("THB", "THB\u{a0}", "THB\u{a0}", 2),
    ("VND", "₫", "₫", 0),
    ("AUD", "A$", "AU$", 2),
    ("NZD", "NZ$", "NZ$", 2),
    ("CAD", "CA$", "CA$", 2),
    ("MXN", "MX$", "MX$", 2),
    ("BRL", "R$", "R$", 2),
    ("CHF", "CHF\u{a0}", "CHF\u{a0}", 2),
    ("CZK", "CZK\u{a0}", "CZK\u{a0}", 2),
    ("DKK", "DKK\u{a0}", "DKK\u{a0}", 2),
    ("HUF", "HUF\u{a0}", "HUF\u{a0}", 2),
    ("NOK", "NOK\u{a0}", "NOK\u{a0}", 2),
    ("PLN", "PLN\u{a0}", "PLN\u{a0}", 2),
    ("SEK", "SEK\u{a0}", "SEK\u{a0}", 2),
    ("RUB", "RUB\u{a0}", "RUB\u{a0}", 2),
    ("UAH", "UAH\u{a0}", "UAH\u{a0}", 2),
    ("TRY", "TRY\u{a0}", "TRY\u{a0}", 2),
    ("KZT", "KZT\u{a0}", "KZT\u{a0}", 2),
    ("AED", "AED\u{a0}", "AED\u{a0}", 2),
    ("ILS", "₪", "₪", 2),
    ("SAR", "SAR\u{a0}", "SAR\u{a0}", 2),
    ("ZAR", "ZAR\u{a0}", "ZAR\u{a0}", 2),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::currency::CURRENCIES;

    fn at(t: Locale, code: &str, rate: &str) -> Locale {
        t.with_currency(DisplayCurrency::of(code, rate))
    }

    #[test]
    fn amount_in_usd_keeps_the_digits_it_needs() {
        for (amount, all, six, cents) in [
            ("0", "$0.00", "$0.00", "$0.00"),
            ("2.5", "$2.50", "$2.50", "$2.50"),
            ("-1234.5", "−$1,234.50", "−$1,234.50", "−$1,234.50"),
            ("0.000000037", "$0.000000037", "$0.000000037", "$0.000000037"),
            ("0.123456789", "$0.123456789", "$0.123457", "$0.123457"),
            ("12.123456789", "$12.123456789", "$12.1235", "$12.12"),
            ("1234567.891234", "$1,234,567.891234", "$1,234,567.89", "$1,234,567.89"),
        ] {
            let t = Locale::EN;
            assert_eq!([exact(t, amount).text, short(t, amount).text, rounded(t, amount).text], [all, six, cents], "{amount}");
            assert_eq!(exact(t, amount).to_string(), all, "an exact text has no title");
        }
        assert_eq!(short(Locale::EN, "0.123456789").to_string(), "<span title=\"$0.123456789\">$0.123457</span>");
    }

    #[test]
    fn converted_amount_has_the_exact_usd_amount_as_its_title() {
        let (en, zh) = (at(Locale::EN, "CNY", "7.1"), at(Locale::ZH_CN, "CNY", "7.1"));
        assert_eq!(exact(zh, "2.40").to_string(), "<span title=\"$2.40\">¥17.04</span>");
        assert_eq!(short(en, "-1234.567891234").to_string(), "<span title=\"−$1,234.567891234\">−CN¥8,765.43</span>");
        // A price for a thousand tokens.
        assert_eq!(exact(zh, "0.000000000024").text, "¥0.0000000001704");
        assert_eq!(exact(zh, "0").text, "¥0.00");
        assert_eq!(rounded(zh, "100.123").with_title(), "¥710.87 ($100.123)");
        assert_eq!(exact(at(Locale::EN, "JPY", "150"), "2").text, "¥300");
        assert_eq!(exact(at(Locale::EN, "JPY", "150"), "0.0001").text, "¥0.015");
        assert_eq!(exact(at(Locale::EN, "CHF", "0.8"), "1").text, "CHF\u{a0}0.80");
    }

    #[test]
    fn amounts_are_rounded_not_truncated() {
        for (amount, short_text, cents_text) in [
            ("31.0181", "$31.0181", "$31.02"),
            ("401.429", "$401.429", "$401.43"),
            ("9.999999999", "$10.00", "$10.00"),
            ("999.999", "$999.999", "$1,000.00"),
            ("-0.6", "−$0.60", "−$0.60"),
            ("-0.00024402", "−$0.00024402", "−$0.00024"),
            ("0.000012345", "$0.000012345", "$0.000012"),
            ("0", "$0.00", "$0.00"),
        ] {
            let t = Locale::EN;
            assert_eq!([short(t, amount).text, cents(t, amount).text], [short_text, cents_text]);
        }
        assert_eq!(cents(Locale::EN, "31.0181").to_string(), "<span title=\"$31.0181\">$31.02</span>");
        assert_eq!(cents(at(Locale::EN, "JPY", "150"), "0.01").text, "¥2");
    }

    #[test]
    fn rounded_down_amount_never_reaches_a_bound_above_it() {
        for (amount, text) in [("9.999999999", "$9.99"), ("10", "$10.00"), ("0.9999999999", "$0.999999"), ("-0.6", "−$0.60")] {
            assert_eq!(rounded_down(Locale::EN, amount).text, text, "{amount}");
        }
        assert_eq!(rounded_down(at(Locale::EN, "JPY", "150"), "9.9999").text, "¥1,499");
    }

    #[test]
    fn malformed_amount_is_shown_as_none() {
        for text in ["", "<b>", "1.2.3", "-", ".5", "1e3", "1\""] {
            assert_eq!(exact(Locale::EN, text), Amount::none(), "{text}");
        }
    }

    #[test]
    fn largest_amounts_are_converted() {
        let t = at(Locale::EN, "VND", "1000000");
        assert_eq!(exact(t, &decimal(u64::MAX)).text, "₫9,223,372,036,854,776");
        assert_eq!(converted_nano(t, u64::MAX), u64::MAX);
    }

    #[test]
    fn chart_has_figures_of_the_currency() {
        let yuan = at(Locale::ZH_CN, "CNY", "7.1");
        assert_eq!(converted_nano(yuan, 1_000_000_000), 7_100_000_000);
        assert_eq!([150_000_000_000, 20_000_000, 0].map(|nano| of_scale(yuan, nano)), ["¥150", "¥0.02", "¥0.00"]);
        assert_eq!([150_000_000_000, 20_000_000, 0].map(|nano| of_scale(Locale::EN, nano)), ["$150", "$0.02", "$0.00"]);
        let scale = [5_000_000_000, 2_500_000_000, 12_500_000_000, 2_500_000_000_000].map(|nano| of_scale(Locale::EN, nano));
        assert_eq!(scale, ["$5", "$2.50", "$12.50", "$2.5k"], "the middle of a scale is not cut off");
    }

    #[test]
    fn every_currency_has_a_symbol() {
        assert_eq!(SYMBOLS.iter().map(|(code, ..)| *code).collect::<Vec<_>>(), CURRENCIES);
    }
}
