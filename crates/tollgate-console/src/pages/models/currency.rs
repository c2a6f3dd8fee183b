//! The currency of the prices of the model square: that of the gateway, or USD, in which they are charged. The choice is in the address,
//! and the browser keeps it.

use super::UnitChoice;
use crate::{
    currency::DisplayCurrency,
    identity::cookies::cookie,
    pages::{locale::Locale, request::PageRequest},
};

/// The parameter of the address.
const PARAMETER: &str = "currency";
const COOKIE: &str = "tollgate_currency";
const YEAR_S: u32 = 31_536_000;

/// The locale of the request with the requested currency, else the one chosen before.
pub(super) fn locale(request: &PageRequest) -> Locale {
    let chosen = request.query.filled(PARAMETER).or_else(|| cookie(&request.headers, COOKIE));
    match chosen {
        Some(code) if code == DisplayCurrency::USD.code => request.t().with_currency(DisplayCurrency::USD),
        Some(_) | None => request.t(),
    }
}

/// The currencies to choose from; none if the gateway shows USD.
pub(super) fn choices(request: &PageRequest, chosen: Locale, link: impl Fn(&'static str, &str) -> String) -> Vec<UnitChoice> {
    let own = request.t().currency;
    if own == DisplayCurrency::USD {
        return Vec::new();
    }
    let choice = |currency: DisplayCurrency| UnitChoice {
        label: currency.code.to_owned(),
        link: link(PARAMETER, currency.code),
        is_chosen: currency == chosen.currency,
    };
    [own, DisplayCurrency::USD].map(choice).into()
}

/// `Set-Cookie` that keeps the choice, if the address has one.
pub(super) fn keep(request: &PageRequest, chosen: Locale) -> Option<String> {
    let code = chosen.currency.code;
    request.query.has(PARAMETER).then(|| format!("{COOKIE}={code}; Path=/; SameSite=Lax; Max-Age={YEAR_S}"))
}
