//! Benchmark catalogs with many accounts for one model.

use std::{collections::HashSet, sync::Arc};

use tollgate_core::{
    Account, AccountId, AccountSpec, Billing, Catalog, Channel, ChannelId, ChannelSpec, Group, GroupId, Key, KeyId, KeyStatus,
    Limits, Member, MemberId, MemberStatus, ModelMapping, Multiplier, Owner, Provider, Revision, Role, Routing, StreamBreak,
    Timestamp, TranslationPolicy, Visibility,
};
use tollgate_protocol::{Method, RequestSummary, SplicePoints};

pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// Ten bytes derived from the number, outside the version and variant bits of a UUID.
pub(crate) fn random(n: usize) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[3..7].copy_from_slice(&u32::try_from(n).expect("a small number").to_le_bytes());
    bytes
}

pub(crate) fn account(n: usize) -> Arc<Account> {
    Arc::new(Account {
        id: AccountId::from_parts(NOW, random(n)),
        spec: AccountSpec { name: format!("a{n}"), ..AccountSpec::default() },
        credential: None,
    })
}

pub(crate) fn channel(n: usize, accounts: Vec<Arc<Account>>) -> Channel {
    Channel {
        id: ChannelId::from_parts(NOW, random(n)),
        owner: Owner::Database,
        spec: ChannelSpec {
            name: format!("c{n:04}"),
            provider: Provider::OpenAi,
            base_url: "https://upstream.invalid/v1".to_owned(),
            weight: 1 + u32::try_from(n % 3).unwrap_or(0),
            serves: vec![ModelMapping { model: "m".to_owned(), upstream: "m".to_owned(), ..ModelMapping::default() }],
            ..ChannelSpec::default()
        },
        needs_private_network: false,
        proxy: None,
        accounts,
    }
}

pub(crate) fn catalog(channels: Vec<Channel>) -> Catalog {
    let group = Group {
        id: GroupId::from_parts(NOW, random(1)),
        name: "default".to_owned(),
        owner: Owner::Database,
        visibility: Visibility::Public,
        channels: channels.iter().map(|it| it.id).collect(),
        models: Vec::new(),
        sale_multiplier: Multiplier::ONE,
        translation: TranslationPolicy::Strict,
        signatures_in_ids: true,
        stream_break: StreamBreak::Delivered,
        price_limit: None,
        never_below_cost: false,
        routing: Routing::Weighted,
        hedge: None,
        trace: false,
        limits: Limits::default(),
        budgets: Vec::new(),
    };
    let accounts: HashSet<AccountId> = channels.iter().flat_map(|it| &it.accounts).map(|it| it.id).collect();
    assert_eq!(accounts.len(), channels.iter().map(|it| it.accounts.len()).sum::<usize>(), "every account is its own");
    Catalog::from_parts(Revision(1), channels, vec![group], Vec::new())
}

pub(crate) fn key() -> Arc<Key> {
    Arc::new(Key {
        id: KeyId::from_parts(NOW, random(1)),
        name: "bench".to_owned(),
        owner: Owner::Database,
        prefix: String::new(),
        suffix: String::new(),
        status: KeyStatus::Active,
        expires_at: None,
        groups: Vec::new(),
        models: Vec::new(),
        ip_allow: Vec::new(),
        limits: Limits::default(),
        budgets: Vec::new(),
        price_limit: None,
        signatures_in_ids: None,
        created_at: NOW,
        member: Member {
            id: MemberId::from_parts(NOW, random(1)),
            name: "bench".to_owned(),
            role: Role::Member,
            status: MemberStatus::Active,
            granted: Vec::new(),
            default_group: None,
            billing: Billing::Postpaid,
            limits: Limits::default(),
            budgets: Vec::new(),
        },
    })
}

pub(crate) fn summary(affinity: Option<u64>) -> RequestSummary {
    RequestSummary {
        model: "m".to_owned(),
        method: Method::Chat,
        stream: false,
        include_usage: false,
        max_output: None,
        candidates: 1,
        fields: vec!["temperature".to_owned(), "max_tokens".to_owned()],
        text_bytes: 400,
        turns: 0,
        images: 0,
        audio_bytes: 0,
        document_bytes: 0,
        tools: 0,
        extras: tollgate_protocol::RequestExtras::default(),
        affinity,
        splices: SplicePoints::default(),
    }
}
