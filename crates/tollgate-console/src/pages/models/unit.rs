//! The number of tokens that prices are shown for: a million or a thousand. The choice is in the address, and the browser keeps it.

use http::HeaderMap;

use crate::{
    identity::cookies::cookie,
    pages::{
        form::FormData,
        locale::Locale,
        money::{self, Amount},
    },
};

const COOKIE: &str = "tollgate_unit";
const YEAR_S: u32 = 31_536_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TokenUnit {
    #[default]
    Million,
    Thousand,
}

impl TokenUnit {
    pub(crate) const ALL: [Self; 2] = [Self::Million, Self::Thousand];

    /// The requested unit, else the one chosen before.
    pub(super) fn of(query: &FormData, headers: &HeaderMap) -> Self {
        let word = query.filled("unit").or_else(|| cookie(headers, COOKIE)).unwrap_or_default();
        Self::ALL.into_iter().find(|unit| unit.word() == word).unwrap_or_default()
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Million => "1m",
            Self::Thousand => "1k",
        }
    }

    pub(crate) fn label(self, t: Locale) -> String {
        let currency = [("currency", t.currency.code)];
        match self {
            Self::Million => t.say_with("unit.per_million", &currency),
            Self::Thousand => t.say_with("unit.per_thousand", &currency),
        }
    }

    /// `Set-Cookie` that keeps the choice.
    pub(super) fn keep(self) -> String {
        format!("{COOKIE}={}; Path=/; SameSite=Lax; Max-Age={YEAR_S}", self.word())
    }

    /// A price as text. Kinds that are not counted in tokens have no unit.
    pub(crate) fn show(self, t: Locale, kind: &str, decimal: &str) -> Amount {
        let is_of_tokens = !matches!(kind, "per_request" | "web_search" | "server_tools");
        match self {
            Self::Thousand if is_of_tokens => money::exact(t, &thousandth(decimal)),
            Self::Thousand | Self::Million => money::exact(t, decimal),
        }
    }
}

/// A decimal divided by 1,000, exactly.
fn thousandth(decimal: &str) -> String {
    let (sign, unsigned) = decimal.strip_prefix('-').map_or(("", decimal), |rest| ("-", rest));
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let padded = format!("{whole:0>4}");
    let (before, after) = padded.split_at(padded.len() - 3);
    format!("{sign}{before}.{after}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_of_a_thousand_tokens_is_exact() {
        for (million, thousand) in
            [("2.4", "$0.0024"), ("0.000001", "$0.000000001"), ("1234.5", "$1.2345"), ("0", "$0.00"), ("12", "$0.012")]
        {
            assert_eq!(TokenUnit::Thousand.show(Locale::EN, "input", million).text, thousand, "{million}");
        }
        assert_eq!(TokenUnit::Thousand.show(Locale::EN, "per_request", "0.01").text, "$0.01");
        assert_eq!(TokenUnit::Million.show(Locale::EN, "input", "2.4").text, "$2.40");
    }

    #[test]
    fn unit_in_the_address_takes_precedence_over_the_cookie() {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", http::HeaderValue::from_static("tollgate_unit=1k"));
        assert_eq!(TokenUnit::of(&FormData::parse(b""), &headers), TokenUnit::Thousand);
        assert_eq!(TokenUnit::of(&FormData::parse(b"unit=1m"), &headers), TokenUnit::Million);
        assert_eq!(TokenUnit::of(&FormData::parse(b"unit=%00"), &HeaderMap::new()), TokenUnit::Million);
    }
}
