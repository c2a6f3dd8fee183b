//! Warnings about the catalog and faults of the journal in the reader's language. The doctor and the verification say them in English: each
//! of their sentences is one of the English texts of pages.

use tollgate_core::UnlistedAddress;

use crate::pages::{
    failure_text,
    locale::{Language, Locale},
    price_text,
    sentences::{Said, translated, translated_with},
};

/// Warnings are separated by semicolons, and most have one themselves: the second part says what to do.
const MAX_PARTS: usize = 2;

/// The warnings that the doctor lists, each by itself. Those that are not in the texts of pages stay together and in English.
pub(super) fn catalog_warnings(t: Locale, text: &str) -> Vec<Said> {
    let parts: Vec<&str> = text.split("; ").collect();
    let (mut said, mut at): (Vec<Said>, usize) = (Vec::new(), 0);
    while let Some(part) = parts.get(at) {
        let parts_at = |count: usize| parts.get(at..at.saturating_add(count)).map(|parts| parts.join("; "));
        let known = (1..=MAX_PARTS).find_map(|count| Some((count, catalog_warning(t, &parts_at(count)?)?)));
        if let Some((count, text)) = known {
            said.push(Said::new(text));
            at += count;
            continue;
        }
        match said.last_mut().filter(|last| last.is_english) {
            Some(last) => last.text = format!("{}; {part}", last.text),
            None => said.push(Said::english(*part)),
        }
        at += 1;
    }
    said
}

fn catalog_warning(t: Locale, text: &str) -> Option<String> {
    if let Some(warning) = unlisted_address(t, text) {
        return Some(warning);
    }
    let kind_of_tokens = |name: &str, value: &str| {
        let (kind, prices) = value.split_once(' ').filter(|_| name == "figures" && t.language != Language::En)?;
        Some(format!("{} {prices}", price_text::label(t, kind)))
    };
    translated_with(t, text, warnings, kind_of_tokens)
}

/// The warning about a channel whose address a list excludes.
fn unlisted_address(t: Locale, text: &str) -> Option<String> {
    let (channel, why) = text.strip_prefix("channel '")?.split_once("': ")?;
    UnlistedAddress::ALL.iter().find(|known| why == format!("{known}; {}", known.remedy()))?;
    Some(t.say_with("catalog_warning.of_channel", &[("channel", channel), ("why", &failure_text::say(t, why))]))
}

/// The warnings of `catalog_warnings` of the core that concern no key, and the end of the doctor's list. A longer one comes before one
/// that it could be taken for.
fn warnings(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("catalog_warning.private"),
        t.say("catalog_warning.version_twice"),
        t.say("catalog_warning.endpoint"),
        t.say("catalog_warning.no_path"),
        t.say("catalog_warning.test_model"),
        t.say("catalog_warning.account_variable"),
        t.say("catalog_warning.no_account"),
        t.say("catalog_warning.accounts_off"),
        t.say("catalog_warning.no_group"),
        t.say("catalog_warning.cost_without_output"),
        t.say("catalog_warning.below_cost"),
        t.say("catalog_warning.no_price"),
        t.say("catalog_warning.pattern_elsewhere"),
        t.say("catalog_warning.pattern_unused"),
        t.say("catalog_warning.multiplier_unused"),
        t.say("catalog_warning.price_without_output"),
        t.say("catalog_warning.unserved"),
        t.say("catalog_warning.unserved_more"),
        t.say("catalog_warning.unserved_many"),
        t.say("catalog_warning.more"),
    ]
}

/// A part of the journal that cannot be read.
pub(super) fn journal_fault(t: Locale, text: &str) -> Said {
    let detail = |name: &str, value: &str| translated(t, value, damages).filter(|_| name == "detail");
    translated_with(t, text, journal_faults, detail).map_or_else(|| Said::english(text), Said::new)
}

/// The errors of reading a journal.
fn journal_faults(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("journal_fault.damaged"),
        t.say("journal_fault.newer"),
        t.say("journal_fault.in_use"),
        t.say("journal_fault.unreadable"),
    ]
}

/// The damages of a journal.
fn damages(t: Locale) -> Vec<&'static str> {
    vec![
        t.say("journal_fault.mark"),
        t.say("journal_fault.header"),
        t.say("journal_fault.frame"),
        t.say("journal_fault.changed"),
        t.say("journal_fault.entry"),
        t.say("journal_fault.tail"),
    ]
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use tollgate_core::{
        Account, AccountId, AccountSpec, Budget, BudgetAction, Catalog, Channel, ChannelId, ChannelSpec, Glob, Group, GroupId,
        Model, ModelMapping, ModelSpec, Multiplier, NanoUsd, Owner, Price, PriceSchedule, Revision, SaleMultipliers, Secret,
        Timestamp, Window, parse_usd,
    };
    use tollgate_protocol::Profile;
    use tollgate_store::JournalError;

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn price(input: &str, output: Option<&str>) -> PriceSchedule {
        let usd = |text: &str| parse_usd(text).unwrap();
        PriceSchedule::constant(Price { input: Some(usd(input)), output: output.map(usd), ..Price::default() })
    }

    fn account(credential: &str, on: bool) -> Arc<Account> {
        Arc::new(Account {
            id: AccountId::from_parts(NOW, [1; 10]),
            spec: AccountSpec { name: "main".to_owned(), on, ..AccountSpec::default() },
            credential: Some(Secret::new(credential.to_owned())),
        })
    }

    /// A channel that serves the model of its name.
    fn channel(number: u8, base_url: &str, accounts: Vec<Arc<Account>>) -> Channel {
        let name = format!("c{number}");
        let mapping = ModelMapping {
            model: format!("m{number}"),
            upstream: "up".to_owned(),
            cost: Some(price("1", (number > 1).then_some("1"))),
            profile: Profile::default(),
        };
        Channel {
            id: ChannelId::from_parts(NOW, [number; 10]),
            owner: Owner::Database,
            spec: ChannelSpec { name, base_url: base_url.to_owned(), serves: vec![mapping], ..ChannelSpec::default() },
            proxy: None,
            client_key: None,
            needs_private_network: false,
            accounts,
        }
    }

    fn model(name: &str, price: Option<PriceSchedule>) -> Model {
        Model { spec: ModelSpec { name: name.to_owned(), price, ..ModelSpec::default() }, ..Model::default() }
    }

    fn group(number: u8, channels: &[&Channel]) -> Group {
        Group::new(
            GroupId::from_parts(NOW, [number; 10]),
            &format!("g{number}"),
            channels.iter().map(|channel| channel.id).collect(),
        )
    }

    /// A catalog with every mistake that the doctor warns about.
    fn catalog() -> Catalog {
        let sound = || vec![account("secret", true)];
        let mut private = channel(1, "http://127.0.0.1:1/v1", sound());
        private.needs_private_network = true;
        private.spec.test_model = Some("other".to_owned());
        let twice = channel(2, "https://api.example.com/v1/v1", vec![account("$KEY", true)]);
        let endpoint = channel(3, "https://api.example.com/v1/chat/completions", Vec::new());
        let no_path = channel(4, "https://api.example.com", vec![account("secret", false)]);
        let alone = channel(5, "https://api.example.com/v1", sound());
        let budget = Budget { amount: NanoUsd(1), window: Window::Month, action: BudgetAction::Block };
        let mut with_patterns = Group { budgets: vec![budget], ..group(1, &[&private, &twice]) };
        with_patterns.models = ["m1", "m2", "m3", "missing"].map(|pattern| Glob(pattern.to_owned())).into();
        with_patterns.multipliers = SaleMultipliers::new(Multiplier(500_000), [(Glob("none".to_owned()), Multiplier(1))]);
        let rest = group(2, &[&endpoint, &no_path]);
        let names = ["u1", "u2", "u3", "u4", "u5", "u6"];
        let mut models: Vec<Model> = names.into_iter().map(|name| model(name, Some(price("1", Some("1"))))).collect();
        models.extend([model("m1", Some(price("1", None))), model("m2", None)]);
        Catalog::from_parts(Revision(1), vec![private, twice, endpoint, no_path, alone], vec![with_patterns, rest], models)
    }

    #[test]
    fn every_warning_of_the_doctor_is_translated() {
        let mut warnings = tollgate_core::catalog_warnings(&catalog(), &[], NOW);
        for unserved in [1, 2] {
            let models = (0..unserved).map(|number| model(&format!("u{number}"), Some(price("1", Some("1"))))).collect();
            let catalog = Catalog::from_parts(Revision(1), Vec::new(), Vec::new(), models);
            warnings.extend(tollgate_core::catalog_warnings(&catalog, &[], NOW));
        }
        warnings.extend(UnlistedAddress::ALL.map(|why| format!("channel 'c1': {why}; {}", why.remedy())));
        warnings.push("and 3 more, which `tollgate check` lists".to_owned());
        let text = warnings.join("; ");
        let english: Vec<String> = catalog_warnings(Locale::EN, &text).into_iter().map(|said| said.text).collect();
        assert_eq!(english, warnings, "each is a sentence of its own");
        let chinese = catalog_warnings(Locale::ZH_CN, &text);
        let in_english: Vec<_> = chinese.iter().filter(|said| said.is_english).collect();
        assert!(in_english.is_empty() && chinese.len() == warnings.len(), "{in_english:?}");
        let known = super::warnings(Locale::EN);
        let is_found =
            |sentence: &&'static str| warnings.iter().any(|text| translated(Locale::EN, text, |_| vec![*sentence]).is_some());
        let missing: Vec<_> = known.into_iter().filter(|sentence| !is_found(sentence)).collect();
        assert!(missing.is_empty(), "no longer said, or not in this test: {missing:?}");
        assert!(chinese.iter().any(|said| said.text.contains("输入 0.50")), "{chinese:?}");
    }

    #[test]
    fn unknown_warnings_stay_together_in_english() {
        let said = catalog_warnings(Locale::ZH_CN, "a; b; and 2 more, which `tollgate check` lists; c");
        let said: Vec<_> = said.iter().map(|said| (said.text.as_str(), said.is_english)).collect();
        assert_eq!((said[0], said[1].1, said[2]), (("a; b", true), false, ("c", true)));
    }

    #[test]
    fn faults_of_the_journal_are_translated() {
        let path = || PathBuf::from("/data/journal/0-1.seg");
        let damaged = |detail: &str| JournalError::Damaged { path: path(), offset: 40, detail: detail.to_owned() };
        let faults = [
            damaged("the checksum of its closing mark does not match"),
            damaged("it does not begin with TGJ2"),
            damaged("the checksum of a frame does not match"),
            damaged("it changed while it was read"),
            damaged("an entry cannot be read: eof"),
            damaged("its last 12 bytes with 1 of 3 entries are missing"),
            JournalError::Newer { path: path(), version: 9 },
            JournalError::InUse(path()),
            JournalError::File { action: "read", path: path(), source: std::io::Error::other("broken") },
        ];
        for fault in faults {
            let (text, said) = (fault.to_string(), journal_fault(Locale::ZH_CN, &fault.to_string()));
            let has_prose = [" the ", " it ", " its ", " by "].iter().any(|word| said.text.contains(word));
            assert!(!said.is_english && said.text.contains("/data/journal") && !has_prose, "{said:?}");
            assert_eq!(journal_fault(Locale::EN, &text).text, text);
        }
        assert!(journal_fault(Locale::ZH_CN, "something new").is_english);
    }
}
