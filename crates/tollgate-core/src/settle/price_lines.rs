//! An amount of money line by line: the tokens of each kind at their price. Settlement, the simulator and everything that explains a
//! bill take the lines from [`price_lines`], so that they cannot disagree.

use crate::{Multiplier, NanoUsd, Price, Tokens};

/// Kinds of tokens, `web_search` and `per_request`.
const LINES: usize = 10;

/// The lines of an amount, and the rules that give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceLines {
    /// Bound of the tier that the prompt exceeds, in tokens; `None`: the base prices apply.
    pub tier: Option<u64>,
    pub multiplier: Multiplier,
    /// All kinds of tokens, then `web_search` and `per_request`.
    pub lines: [PriceLine; LINES],
}

/// A factor of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceLine {
    /// A kind of token as in the price list, `web_search`, or `per_request`.
    pub kind: &'static str,
    /// Tokens, or searches; 1 for `per_request`.
    pub count: u64,
    /// Nano-USD per million tokens, for `web_search` and `per_request` nano-USD; before the multiplier.
    pub unit_price: i64,
    /// `count` · `unit_price` · multiplier; `None` if it does not fit into 128 bits.
    pub amount: Option<ExactAmount>,
}

/// An amount before rounding, in 10^-12 nano-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactAmount(pub i128);

/// The lines of these tokens at a price list, with the tier of their prompt size.
pub fn price_lines(tokens: &Tokens, price: &Price, multiplier: Multiplier) -> PriceLines {
    const PER_MILLION: i128 = 1;
    const EACH: i128 = 1_000_000;
    let rates = price.rates(tokens.prompt());
    let line = |kind, count: u64, unit_price: i64, scale: i128| {
        // A product of 64-bit numbers fits into 128 bits, and so does the factor; only their product may not. Most lines are zero, and skip
        // the checked multiplication, which is slow for 128 bits.
        let product = || (i128::from(count) * i128::from(unit_price)).checked_mul(scale * i128::from(multiplier.0));
        let amount = if count == 0 || unit_price == 0 { Some(0) } else { product() };
        PriceLine { kind, count, unit_price, amount: amount.map(ExactAmount) }
    };
    let written_1h = tokens.cache_write_1h.min(tokens.cache_write);
    let lines = [
        line("input", tokens.input, rates.input, PER_MILLION),
        line("cache_read", tokens.cache_read, rates.cache_read, PER_MILLION),
        line("cache_write", tokens.cache_write - written_1h, rates.cache_write, PER_MILLION),
        line("cache_write_1h", written_1h, rates.cache_write_1h, PER_MILLION),
        line("image", tokens.image, rates.image, PER_MILLION),
        line("audio", tokens.audio, rates.audio, PER_MILLION),
        line("output", tokens.output, rates.output, PER_MILLION),
        line("thinking", tokens.thinking, rates.thinking, PER_MILLION),
        line("web_search", tokens.web_searches, rates.web_search, EACH),
        line("per_request", 1, rates.per_request, EACH),
    ];
    PriceLines { tier: price.tier_bound(tokens.prompt()), multiplier, lines }
}

/// True if the price of a kind is per unit instead of per million tokens.
pub fn is_counted_by_piece(kind: &str) -> bool {
    matches!(kind, "web_search" | "per_request")
}

impl PriceLines {
    /// The lines of the amount, without kinds that did not occur, and without `per_request` and `web_search` if they have no price.
    pub fn charged(&self) -> impl Iterator<Item = &PriceLine> {
        self.lines.iter().filter(|line| line.count > 0 && (line.unit_price != 0 || !is_counted_by_piece(line.kind)))
    }

    /// The sum of the lines; `None` if it does not fit into 128 bits.
    pub fn sum(&self) -> Option<ExactAmount> {
        self.lines.iter().try_fold(0i128, |sum, line| sum.checked_add(line.amount?.0)).map(ExactAmount)
    }

    /// The sum, rounded once, half up, to nano-USD. `None` when it exceeds [`NanoUsd::MAX_PER_REQUEST`], which the record reports as
    /// an error.
    pub fn total(&self) -> Option<NanoUsd> {
        self.sum()?.rounded().filter(|amount| *amount <= NanoUsd::MAX_PER_REQUEST)
    }
}

impl ExactAmount {
    const PER_NANO_USD: i128 = 1_000_000_000_000;
    /// Digits after the point of an amount in USD.
    const DECIMALS: usize = 21;

    /// Rounded half up.
    fn rounded(self) -> Option<NanoUsd> {
        let rounded = self.0.checked_add(Self::PER_NANO_USD / 2)?.div_euclid(Self::PER_NANO_USD);
        i64::try_from(rounded).ok().map(NanoUsd)
    }

    /// Exact amount in USD, shortest form: `0.0001505`.
    pub fn to_decimal(self) -> String {
        let digits = format!("{:0width$}", self.0.unsigned_abs(), width = Self::DECIMALS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - Self::DECIMALS);
        let sign = if self.0 < 0 { "-" } else { "" };
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PriceTier, samples::price};

    #[test]
    fn lines_add_up_to_the_worked_example_of_the_documentation() {
        let list = Price { cache_read: Some(30_000_000), ..price("0.30", "2.40") };
        let tokens = Tokens { input: 2_000, cache_read: 10_000, output: 181, thinking: 120, ..Tokens::default() };
        let lines = price_lines(&tokens, &list, Multiplier(1_250_000));
        let shown: Vec<_> = lines.charged().map(|line| (line.kind, line.count, line.amount.unwrap().to_decimal())).collect();
        let expected = [
            ("input", 2_000, "0.00075".to_owned()),
            ("cache_read", 10_000, "0.000375".to_owned()),
            ("output", 181, "0.000543".to_owned()),
            ("thinking", 120, "0.00036".to_owned()),
        ];
        assert_eq!(shown, expected);
        assert_eq!((lines.total(), lines.sum().unwrap().to_decimal()), (Some(NanoUsd(2_028_000)), "0.002028".to_owned()));
    }

    #[test]
    fn price_lines_name_the_tier_and_sum_before_rounding() {
        let long = PriceTier { above: 100, price: price("0.000003", "0") };
        let list = Price { per_request: Some(1), tiers: vec![long], ..price("1", "1") };
        let lines = |input| price_lines(&Tokens { input, ..Tokens::default() }, &list, Multiplier(500_000));
        assert_eq!((lines(100).tier, lines(101).tier), (None, Some(100)));
        let last = lines(101);
        assert_eq!(last.sum().unwrap().to_decimal(), "0.0000000006515");
        assert_eq!(last.total(), Some(NanoUsd(1)));
        assert_eq!(last.charged().map(|line| line.kind).collect::<Vec<_>>(), ["input", "per_request"]);
    }

    #[test]
    fn each_search_is_charged() {
        let list = Price { web_search: Some(10_000_000), ..price("1", "1") };
        let tokens = Tokens { input: 5, web_searches: 8, ..Tokens::default() };
        let lines = price_lines(&tokens, &list, Multiplier(1_500_000));
        let shown: Vec<_> = lines.charged().map(|line| (line.kind, line.count, line.unit_price)).collect();
        assert_eq!(shown, [("input", 5, 1_000_000_000), ("web_search", 8, 10_000_000)]);
        assert_eq!(lines.total(), Some(NanoUsd(120_000_000 + 7_500)));
        assert_eq!(price_lines(&tokens, &price("1", "1"), Multiplier::ONE).charged().count(), 1, "it has no price");
    }

    #[test]
    fn overflowing_amounts_have_no_total() {
        let all = Tokens { input: u64::MAX, output: u64::MAX, ..Tokens::default() };
        let lines = price_lines(&all, &price("100000", "100000"), Multiplier(i64::MAX));
        assert_eq!((lines.sum(), lines.total()), (None, None));
        assert_eq!(ExactAmount(-1).to_decimal(), "-0.000000000000000000001");
        assert_eq!(ExactAmount(3_000_000_000_000_000_000_000).to_decimal(), "3");
    }
}
