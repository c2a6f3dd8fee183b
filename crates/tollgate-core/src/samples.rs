//! Sample catalog rows and records for tests, to be adapted by struct update.

use std::sync::Arc;

use tollgate_protocol::{Method, Profile, Protocol, RequestSummary};

use crate::{
    Account, AccountId, AccountSpec, AttemptRecord, AttemptResult, Catalog, Channel, ChannelId, ChannelSpec, Group, GroupId, Key,
    KeyId, Member, MemberId, Model, ModelMapping, ModelSpec, Multiplier, Outcome, Owner, Price, PriceSchedule, RequestId, Revision,
    Tags, Timestamp, Tokens, UsageRecord, price_effect::plain_key,
};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// Ten bytes derived from the name.
fn random(name: &str) -> [u8; 10] {
    let mut state = 0xCBF2_9CE4_8422_2325u64;
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&state.to_le_bytes());
    bytes
}

pub(crate) fn account_id(name: &str) -> AccountId {
    AccountId::from_parts(NOW, random(name))
}

pub(crate) fn channel_id(name: &str) -> ChannelId {
    ChannelId::from_parts(NOW, random(name))
}

pub(crate) fn group_id(name: &str) -> GroupId {
    GroupId::from_parts(NOW, random(name))
}

/// USD per million tokens for input and output.
pub(crate) fn price(input: &str, output: &str) -> Price {
    let usd = |text| Some(crate::parse_usd(text).expect("a price in a test"));
    Price { input: usd(input), output: usd(output), ..Price::default() }
}

pub(crate) fn always(price: Price) -> PriceSchedule {
    PriceSchedule::constant(price)
}

pub(crate) fn mapping(model: &str) -> ModelMapping {
    ModelMapping { model: model.to_owned(), upstream: format!("{model}-up"), cost: None, profile: Profile::default() }
}

/// An account named `<channel>/<n>`.
pub(crate) fn account(channel: &str, n: usize) -> Account {
    let name = format!("{channel}/{n}");
    Account { id: account_id(&name), spec: AccountSpec { name, ..AccountSpec::default() }, credential: None }
}

/// A chat channel with one account, serving these models.
pub(crate) fn channel(name: &str, models: &[&str]) -> Channel {
    Channel {
        id: channel_id(name),
        owner: Owner::File,
        spec: ChannelSpec {
            name: name.to_owned(),
            base_url: "http://127.0.0.1:1/v1".to_owned(),
            private_network: true,
            serves: models.iter().map(|model| mapping(model)).collect(),
            ..ChannelSpec::default()
        },
        needs_private_network: false,
        proxy: None,
        client_key: None,
        accounts: vec![Arc::new(account(name, 0))],
    }
}

/// A public group that offers everything these channels serve.
pub(crate) fn group(name: &str, channels: &[&str]) -> Group {
    let channels = channels.iter().map(|name| channel_id(name)).collect();
    Group { owner: Owner::File, ..Group::new(group_id(name), name, channels) }
}

pub(crate) fn member() -> Member {
    Member { id: MemberId::from_parts(NOW, random("ada")), name: "ada".to_owned(), ..plain_key(Vec::new(), NOW).member }
}

pub(crate) fn key(groups: &[&str]) -> Key {
    Key {
        id: KeyId::from_parts(NOW, random("ci")),
        name: "ci".to_owned(),
        owner: Owner::File,
        prefix: "sk-tg-abcd".to_owned(),
        suffix: "wxyz".to_owned(),
        member: member(),
        ..plain_key(groups.iter().map(|name| group_id(name)).collect(), NOW)
    }
}

/// A model row with a sale price of 1 and 2 USD.
pub(crate) fn model(name: &str) -> Model {
    let price = Some(always(price("1", "2")));
    Model { owner: Some(Owner::File), spec: ModelSpec { name: name.to_owned(), price, ..ModelSpec::default() } }
}

pub(crate) fn catalog(channels: Vec<Channel>, groups: Vec<Group>, models: Vec<Model>) -> Catalog {
    Catalog::from_parts(Revision(7), channels, groups, models)
}

pub(crate) fn summary(model: &str, method: Method) -> RequestSummary {
    RequestSummary { text_bytes: 40, ..RequestSummary::minimal(model, method) }
}

/// A completed request of [`key`] for the model `m`, without tokens, money and attempts.
pub(crate) fn record() -> UsageRecord {
    let key = key(&[]);
    UsageRecord {
        id: RequestId::from_parts(NOW, [1; 10]),
        at: NOW,
        key: key.id,
        key_name: key.name.into(),
        member: key.member.id,
        group: None,
        group_name: None,
        protocol_in: Protocol::OpenAi,
        protocol_out: None,
        method: Method::Chat,
        model: Some("m".into()),
        stream: false,
        status: 200,
        outcome: Outcome::Completed,
        reason: None,
        detail: None,
        tokens: Tokens::default(),
        cost: None,
        sale: None,
        price_version: Revision(1),
        ttft_us: None,
        duration_us: 1,
        address: None,
        client_request_id: None,
        dropped: Vec::new(),
        trace: Vec::new(),
        tags: Tags::default(),
        sale_multiplier: Multiplier::ONE,
        finish: None,
        client: None,
        request_bytes: 0,
        attempts: Vec::new(),
    }
}

/// An answered attempt of a request for `m` on the account of a [`channel`], without tokens and money.
pub(crate) fn attempt(channel: &str) -> AttemptRecord {
    let account = format!("{channel}/0");
    AttemptRecord {
        channel: channel_id(channel),
        channel_name: channel.into(),
        account: account_id(&account),
        account_name: (&account).into(),
        protocol: Protocol::OpenAi,
        upstream_model: "m-up".into(),
        at: NOW,
        status: Some(200),
        result: AttemptResult::Answered,
        error: None,
        tokens: Tokens::default(),
        cost: None,
        first_byte_us: None,
        duration_us: 1,
        upstream_request_id: None,
        hedged: false,
        cost_multiplier: Multiplier::ONE,
        message: None,
        sent_us: None,
    }
}
