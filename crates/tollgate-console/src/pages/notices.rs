//! Notices to members about their own budgets and balances, on the home page and by mail.

use tollgate_core::{AlertCondition, AlertRule};
use tollgate_store::MemberPreferences;

use super::{
    locale::{Language, Locale},
    money,
};
use crate::{appearance::Appearance, currency::DisplayCurrency};

/// The parts of a mail in plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeMail {
    pub subject: String,
    pub body: String,
}

/// A budget has reached a percentage. Amounts are decimal texts in USD; `window` is `day`, `month` or `total`.
pub(crate) fn budget(t: Locale, percent: u32, (spent, amount): (&str, &str), window: &str) -> String {
    let window = match window {
        "day" => t.say("window.day"),
        "month" => t.say("window.month"),
        _ => t.say("window.total"),
    };
    let (spent, amount) = (money::rounded(t, spent).text, money::rounded(t, amount).text);
    t.say_with("notices.budget", &[("percent", &percent.to_string()), ("spent", &spent), ("amount", &amount), ("window", window)])
}

/// A prepaid balance is below an amount.
pub(crate) fn balance(t: Locale, balance: &str, least: &str) -> String {
    let (balance, least) = (money::rounded_down(t, balance).text, money::rounded(t, least).text);
    t.say_with("notices.balance", &[("balance", &balance), ("least", &least)])
}

/// The mail about the thresholds that a member has reached, in the member's language. `url` is the address of the console, if it
/// is known. `None` if members are not notified of any of the conditions.
#[must_use]
pub fn notice_mail(
    preferences: &MemberPreferences,
    (appearance, currency): (&Appearance, DisplayCurrency),
    url: Option<&str>,
    conditions: &[&AlertCondition],
) -> Option<NoticeMail> {
    let tag = preferences.language.as_deref().or(appearance.language.as_deref());
    let t = Locale { language: tag.and_then(Language::of_tag).unwrap_or(Language::En), currency };
    let lines: Vec<String> = conditions.iter().filter_map(|condition| line(t, condition)).collect();
    let subject = format!("[{}] {}", appearance.name, lines.first()?);
    let mut body = lines.join("\n");
    body.push_str("\n\n");
    body.push_str(&t.say_with("notices.why", &[("name", &appearance.name)]));
    if let Some(url) = url {
        body.push('\n');
        body.push_str(url.trim_end_matches('/'));
        body.push_str("/profile");
    }
    body.push('\n');
    Some(NoticeMail { subject, body })
}

fn line(t: Locale, condition: &AlertCondition) -> Option<String> {
    let detail = |name: &str| condition.detail.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
    if condition.rule == AlertRule::Budget {
        let amounts = (detail("spent")?, detail("amount")?);
        return Some(budget(t, detail("percent")?.parse().ok()?, amounts, detail("window")?));
    }
    if condition.rule == AlertRule::BalanceLow {
        return Some(balance(t, detail("balance")?, detail("least")?));
    }
    None
}

#[cfg(test)]
mod tests {
    use tollgate_core::{
        Budget, BudgetAction, LowBalance, MemberId, NanoUsd, Subject, Timestamp, Window, balance_conditions, budget_conditions,
    };

    use super::*;

    fn appearance() -> Appearance {
        Appearance::of(("Acme", ""), ("", "info"), "", "auto", "")
    }

    #[test]
    fn mail_is_in_the_language_of_the_member() {
        let member = MemberId::from_parts(Timestamp(0), [1; 10]);
        let budgets = [Budget { amount: NanoUsd(5_000_000_000), window: Window::Month, action: BudgetAction::Block }];
        let spent = |_| NanoUsd(4_100_000_000);
        let mut found = budget_conditions(&Subject::Member(member), "ann", &budgets, spent, &[80], Timestamp(0));
        let low = LowBalance { member, name: "ann".to_owned(), balance: NanoUsd(400_000_000) };
        found.extend(balance_conditions(std::iter::once(low), NanoUsd(1_000_000_000)));
        let found: Vec<&AlertCondition> = found.iter().collect();
        let gateway = (&appearance(), DisplayCurrency::USD);
        let english = notice_mail(&MemberPreferences::default(), gateway, Some("https://gate.example.com/"), &found).unwrap();
        assert_eq!(english.subject, "[Acme] 80 % of your budget is spent: $4.10 of $5.00 per UTC month");
        assert!(english.body.contains("Your balance is $0.40, below $1.00"), "{}", english.body);
        assert!(english.body.ends_with("\nhttps://gate.example.com/profile\n"), "{}", english.body);
        let chinese = MemberPreferences { language: Some("zh-CN".to_owned()), ..MemberPreferences::default() };
        let chinese = notice_mail(&chinese, gateway, None, &found[1..]).unwrap();
        assert!(chinese.subject.contains("余额") && !chinese.body.contains("http"), "{chinese:?}");
        assert_eq!(notice_mail(&MemberPreferences::default(), gateway, None, &[]), None);
    }
}
