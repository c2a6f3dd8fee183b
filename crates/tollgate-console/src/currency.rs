//! The currency in which pages show amounts. Amounts are stored in USD, and programs get them in USD.

use tollgate_core::Multiplier;

/// Currencies that pages can show amounts in, by their ISO 4217 codes.
pub const CURRENCIES: &[&str] = &[
    "USD", "EUR", "GBP", "CNY", "HKD", "TWD", "JPY", "KRW", "INR", "IDR", "MYR", "PHP", "SGD", "THB", "VND", "AUD", "NZD", "CAD",
    "MXN", "BRL", "CHF", "CZK", "DKK", "HUF", "NOK", "PLN", "SEK", "RUB", "UAH", "TRY", "KZT", "AED", "ILS", "SAR", "ZAR",
];

/// A currency with its fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DisplayCurrency {
    /// One of [`CURRENCIES`].
    pub code: &'static str,
    /// Units of the currency for one USD.
    pub per_usd: Multiplier,
}

impl DisplayCurrency {
    pub const USD: Self = Self { code: "USD", per_usd: Multiplier::ONE };

    /// The currency of the settings. Without a rate, or with an unknown code, it is the USD.
    pub fn of(code: &str, per_usd: &str) -> Self {
        let rate = Multiplier::parse(per_usd).ok().filter(|rate| rate.0 > 0);
        let code = CURRENCIES.iter().copied().find(|known| *known == code && *known != Self::USD.code);
        code.zip(rate).map_or(Self::USD, |(code, per_usd)| Self { code, per_usd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currency_without_a_valid_rate_falls_back_to_usd() {
        let yuan = DisplayCurrency::of("CNY", "7.1234");
        assert_eq!((yuan.code, yuan.per_usd), ("CNY", Multiplier(7_123_400)));
        for (code, rate) in [("CNY", ""), ("CNY", "0"), ("USD", "7"), ("XXX", "7"), ("CNY", "x")] {
            assert_eq!(DisplayCurrency::of(code, rate), DisplayCurrency::USD, "{code} {rate}");
        }
    }
}
