//! Benchmark catalogs with many accounts for one model.

use std::{collections::HashSet, sync::Arc};

use tollgate_core::{
    Account, AccountId, AccountSpec, Catalog, Channel, ChannelId, ChannelSpec, Group, GroupId, Key, KeyId, Member, MemberId,
    ModelMapping, Owner, Provider, Revision, Timestamp,
};
use tollgate_protocol::{Method, RequestSummary};

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
        client_key: None,
        accounts,
    }
}

pub(crate) fn catalog(channels: Vec<Channel>) -> Catalog {
    let ids = channels.iter().map(|it| it.id).collect();
    let group = Group { models: Vec::new(), ..Group::new(GroupId::from_parts(NOW, random(1)), "default", ids) };
    let accounts: HashSet<AccountId> = channels.iter().flat_map(|it| &it.accounts).map(|it| it.id).collect();
    assert_eq!(accounts.len(), channels.iter().map(|it| it.accounts.len()).sum::<usize>(), "every account is its own");
    Catalog::from_parts(Revision(1), channels, vec![group], Vec::new())
}

pub(crate) fn key() -> Arc<Key> {
    let member = Member::new(MemberId::from_parts(NOW, random(1)), "bench");
    Arc::new(Key::new(KeyId::from_parts(NOW, random(1)), "bench", member, NOW))
}

pub(crate) fn summary(affinity: Option<u64>) -> RequestSummary {
    RequestSummary {
        fields: vec!["temperature".to_owned(), "max_tokens".to_owned()],
        text_bytes: 400,
        affinity,
        ..RequestSummary::minimal("m", Method::Chat)
    }
}
