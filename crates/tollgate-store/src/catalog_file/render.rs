//! The current catalog in the file's form, without secrets: what `pull` writes, and how a plan names fields. Fields
//! that are as they would be anyway are left out.

use std::fmt::Write as _;

use serde::Serialize;
use tollgate_core::{
    Billing, Budget, BudgetAction, Glob, KeyStatus, Limits, MemberStatus, Multiplier, NanoUsd, OnUnsupported, ParameterRule, Price,
    PriceLimit, PriceLimitMode, PriceLimitOn, PriceSchedule, Role, Routing, StreamBreak, Timestamp, TranslationPolicy, Visibility,
    Window,
};
use tollgate_protocol::Profile;

use super::price::free;
use crate::{AccountSpec, CatalogRows, ChannelSpec, GroupSpec, KeySpec, MemberSpec, ModelSpec, ServesSpec};

/// A field and its value as TOML.
pub(super) type Field = (&'static str, String);

/// A row in the file's form.
pub(super) trait FileForm {
    /// Its name.
    fn name(&self) -> &str;
    /// Its fields but the name, in the file's order.
    fn fields(&self) -> Vec<Field>;
}

/// The current catalog as a catalog file. Applying it changes nothing.
#[must_use]
pub fn render(current: &CatalogRows) -> String {
    let mut out = "# The catalog as it is. Secrets are not in it: an account or key that is there keeps its own.\n".to_owned();
    for channel in &current.channels {
        row(&mut out, "[[channel]]", "", "name", &channel.spec);
        for account in &channel.accounts {
            row(&mut out, "[[channel.account]]", "  ", "name", &account.spec);
        }
        for serves in &channel.spec.serves {
            row(&mut out, "[[channel.serves]]", "  ", "model", serves);
        }
    }
    current.models.iter().for_each(|model| row(&mut out, "[[model]]", "", "name", &model.spec));
    current.groups.iter().for_each(|group| row(&mut out, "[[group]]", "", "name", &group.spec));
    current.members.iter().for_each(|member| row(&mut out, "[[member]]", "", "name", &member.spec));
    current.keys.iter().for_each(|key| row(&mut out, "[[key]]", "", "name", &key.spec));
    out
}

fn row(out: &mut String, header: &str, indent: &str, name_field: &str, row: &impl FileForm) {
    let blank = if indent.is_empty() { "\n" } else { "" };
    write!(out, "{blank}{indent}{header}\n{indent}{name_field} = {}\n", text(row.name()))
        .expect("text does not fail to be written");
    for (field, value) in row.fields() {
        writeln!(out, "{indent}{field} = {value}").expect("text does not fail to be written");
    }
}

/// Collects the fields that differ from what they would be anyway.
#[derive(Default)]
struct Fields(Vec<Field>);

impl Fields {
    fn always(&mut self, field: &'static str, value: impl Into<String>) {
        self.0.push((field, value.into()));
    }

    fn differing<T: PartialEq>(&mut self, field: &'static str, value: &T, plain: &T, form: impl FnOnce(&T) -> String) {
        if value != plain {
            self.always(field, form(value));
        }
    }

    fn some<T>(&mut self, field: &'static str, value: Option<&T>, form: impl FnOnce(&T) -> String) {
        if let Some(value) = value {
            self.always(field, form(value));
        }
    }

    fn limits(&mut self, limits: &Limits) {
        self.differing("rpm", &limits.rpm, &0, u32::to_string);
        self.differing("tpm", &limits.tpm, &0, u64::to_string);
        self.differing("concurrency", &limits.concurrency, &0, u32::to_string);
    }

    fn budgets(&mut self, budgets: &[Budget]) {
        match budgets {
            [] => {}
            [one] => self.always("budget", budget(one)),
            several => self.always("budget", list(several, budget)),
        }
    }

    fn globs(&mut self, globs: &[Glob]) {
        let all = [Glob("*".to_owned())];
        if globs != all {
            self.always("models", list(globs, |glob| text(&glob.0)));
        }
    }

    fn multiplier(&mut self, field: &'static str, multiplier: Multiplier) {
        self.differing(field, &multiplier, &Multiplier::ONE, |it| text(&it.to_decimal()));
    }
}

impl FileForm for ChannelSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<Field> {
        let plain = Self::default();
        let mut fields = Fields::default();
        fields.always("provider", word(&self.provider));
        fields.always("protocol", text(self.protocol.as_str()));
        fields.differing("base_url", &self.base_url, &String::new(), |url| text(url));
        fields.differing("status", &self.on, &true, |_| text("off"));
        fields.differing("cooling", &self.cooling, &plain.cooling, bool::to_string);
        fields.differing("learn_unsupported", &self.learn_unsupported, &plain.learn_unsupported, bool::to_string);
        let (switches, usual) = (&self.translation, &plain.translation);
        fields.differing("hoist", &switches.hoist, &usual.hoist, bool::to_string);
        fields.differing("server_tools", &switches.server_tools, &usual.server_tools, bool::to_string);
        fields.differing("pass_user", &switches.pass_user, &usual.pass_user, bool::to_string);
        fields.differing("fetch_media", &switches.fetch_media, &usual.fetch_media, bool::to_string);
        fields.differing("private_network", &self.private_network, &plain.private_network, bool::to_string);
        fields.differing("priority", &self.priority, &plain.priority, i32::to_string);
        fields.differing("weight", &self.weight, &plain.weight, u32::to_string);
        let (timeouts, usual) = (&self.timeouts, &plain.timeouts);
        fields.differing("connect_timeout_ms", &timeouts.connect_ms, &usual.connect_ms, u64::to_string);
        fields.differing("first_byte_timeout_ms", &timeouts.first_byte_ms, &usual.first_byte_ms, u64::to_string);
        fields.differing("idle_timeout_ms", &timeouts.idle_ms, &usual.idle_ms, u64::to_string);
        fields.differing("retry_uncertain", &self.retry_uncertain, &plain.retry_uncertain, bool::to_string);
        fields.differing("probe_interval_s", &self.probe_interval_s, &plain.probe_interval_s, u32::to_string);
        fields.differing("headers", &self.headers, &Vec::new(), |headers| {
            let pairs: Vec<String> = headers.iter().map(|(name, value)| format!("{} = {}", text(name), text(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        });
        fields.some("proxy", self.proxy.as_ref(), |proxy| text(proxy));
        fields.some("ca_file", self.ca_file.as_ref(), |path| text(path));
        fields.budgets(&self.budgets);
        fields.0
    }
}

impl FileForm for ServesSpec {
    fn name(&self) -> &str {
        &self.model
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Fields::default();
        fields.differing("upstream", &self.upstream, &self.model, |upstream| text(upstream));
        fields.some("cost", self.cost.as_ref(), schedule);
        fields.differing("profile", &self.profile, &Profile::default(), |profile| {
            toml::Value::try_from(profile).expect("a profile is a table of plain values").to_string()
        });
        fields.0
    }
}

impl FileForm for AccountSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Fields::default();
        fields.differing("status", &self.on, &true, |_| text("off"));
        fields.limits(&Limits { rpm: self.rpm, tpm: self.tpm, concurrency: self.concurrency });
        fields.multiplier("cost_multiplier", self.cost_multiplier);
        fields.0
    }
}

impl FileForm for ModelSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Fields::default();
        fields.some("price", self.price.as_ref(), schedule);
        fields.some("context", self.context.as_ref(), u64::to_string);
        fields.some("max_output", self.max_output.as_ref(), u64::to_string);
        match &self.parameters {
            ParameterRule::All => {}
            ParameterRule::Only(names) => fields.always("supported_parameters", list(names, |name| text(name))),
            ParameterRule::Except(names) => fields.always("unsupported_parameters", list(names, |name| text(name))),
        }
        fields.differing("on_unsupported", &self.on_unsupported, &OnUnsupported::default(), word);
        fields.differing("visible", &self.hidden, &false, |hidden| (!hidden).to_string());
        fields.some("description", self.description.as_ref(), |description| text(description));
        fields.differing("embeddings", &self.embeddings, &false, bool::to_string);
        fields.0
    }
}

impl FileForm for GroupSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Fields::default();
        fields.differing("visibility", &self.visibility, &Visibility::default(), word);
        fields.differing("channels", &self.channels, &Vec::new(), |names| list(names, |name| text(name)));
        fields.globs(&self.models);
        fields.multiplier("sale_multiplier", self.sale_multiplier);
        fields.differing("translation", &self.translation, &TranslationPolicy::default(), word);
        fields.some("signatures_in_ids", self.signatures_in_ids.as_ref(), bool::to_string);
        fields.differing("stream_break", &self.stream_break, &StreamBreak::default(), word);
        fields.some("price_limit", self.price_limit.as_ref(), price_limit);
        fields.differing("routing", &self.routing, &Routing::default(), word);
        fields.some("hedge", self.hedge.as_ref(), |hedge| table(&[("cost_cap", usd(hedge.cost_cap.0))]));
        fields.differing("trace", &self.trace, &false, bool::to_string);
        fields.limits(&self.limits);
        fields.budgets(&self.budgets);
        fields.0
    }
}

impl FileForm for MemberSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Fields::default();
        fields.differing("role", &self.role, &Role::default(), word);
        fields.differing("status", &self.status, &MemberStatus::default(), word);
        fields.differing("groups", &self.groups, &Vec::new(), |names| list(names, |name| text(name)));
        fields.some("default_group", self.default_group.as_ref(), |name| text(name));
        fields.differing("billing", &self.billing, &Billing::default(), word);
        fields.limits(&self.limits);
        fields.budgets(&self.budgets);
        fields.0
    }
}

impl FileForm for KeySpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Fields::default();
        fields.always("member", text(&self.member));
        fields.differing("status", &self.status, &KeyStatus::Active, word);
        fields.some("expires_at", self.expires_at.as_ref(), |at| time(*at));
        fields.differing("groups", &self.groups, &Vec::new(), |names| list(names, |name| text(name)));
        fields.globs(&self.models);
        fields.differing("ip_allow", &self.ip_allow, &Vec::new(), |nets| list(nets, |net| text(&net.to_string())));
        fields.limits(&self.limits);
        fields.budgets(&self.budgets);
        fields.some("price_limit", self.price_limit.as_ref(), price_limit);
        fields.some("signatures_in_ids", self.signatures_in_ids.as_ref(), bool::to_string);
        fields.0
    }
}

// === values ===

fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

/// The word of an enum.
fn word(value: &impl Serialize) -> String {
    toml::Value::try_from(value).expect("enums without fields are words").to_string()
}

fn list<T>(values: &[T], form: impl Fn(&T) -> String) -> String {
    format!("[{}]", values.iter().map(form).collect::<Vec<_>>().join(", "))
}

fn usd(nano_usd: i64) -> String {
    text(&NanoUsd(nano_usd).to_usd_string())
}

fn time(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::MAX);
    text(&time.to_string())
}

fn table(fields: &[(&str, String)]) -> String {
    let pairs: Vec<String> = fields.iter().map(|(field, value)| format!("{field} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn budget(budget: &Budget) -> String {
    let window = match budget.window {
        Window::Day => "day",
        Window::Month => "month",
        Window::Total => "total",
    };
    let mut fields = vec![("amount", usd(budget.amount.0)), ("window", text(window))];
    if budget.action == BudgetAction::Alert {
        fields.push(("action", text("alert")));
    }
    table(&fields)
}

fn schedule(schedule: &PriceSchedule) -> String {
    let entry = |priced: &tollgate_core::ScheduledPrice| {
        let mut fields = Vec::new();
        if let Some(at) = priced.valid_from {
            fields.push(("valid_from", time(at)));
        }
        fields.extend(price(&priced.price));
        table(&fields)
    };
    match schedule.0.as_slice() {
        [one] => entry(one),
        several => list(several, entry),
    }
}

fn price(price: &Price) -> Vec<(&'static str, String)> {
    if *price == free() {
        return vec![("free", "true".to_owned())];
    }
    let mut fields = kinds(price);
    if !price.tiers.is_empty() {
        let tier = |tier: &tollgate_core::PriceTier| {
            let mut fields = vec![("above", tier.above.to_string())];
            fields.extend(kinds(&tier.price));
            table(&fields)
        };
        fields.push(("tiers", list(&price.tiers, tier)));
    }
    fields
}

fn kinds(price: &Price) -> Vec<(&'static str, String)> {
    let Price { input, output, cache_read, cache_write, thinking, image, audio, per_request, tiers: _ } = price;
    let kinds = [
        ("input", input),
        ("output", output),
        ("cache_read", cache_read),
        ("cache_write", cache_write),
        ("thinking", thinking),
        ("image", image),
        ("audio", audio),
        ("per_request", per_request),
    ];
    kinds.into_iter().filter_map(|(kind, price)| price.map(|price| (kind, usd(price)))).collect()
}

fn price_limit(limit: &PriceLimit) -> String {
    let mut fields = Vec::new();
    match limit.mode {
        PriceLimitMode::PricedOnly => fields.push(("mode", text("priced_only"))),
        PriceLimitMode::Ceiling { max_input, max_output } => {
            fields.push(("mode", text("ceiling")));
            fields.extend(max_input.map(|bound| ("max_input", usd(bound))));
            fields.extend(max_output.map(|bound| ("max_output", usd(bound))));
        }
        PriceLimitMode::MinMargin(margin) => {
            fields.push(("mode", text("min_margin")));
            fields.push(("min_margin", text(&Multiplier(margin).to_decimal())));
        }
    }
    if limit.on == PriceLimitOn::Cost {
        fields.push(("on", text("cost")));
    }
    table(&fields)
}
