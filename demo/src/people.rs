//! Addresses, invites and money of members.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context as _, Result};
use tollgate_core::{InviteId, MemberId, NanoUsd, Role, Secret, Timestamp};
use tollgate_store::{
    Change, IdentityChange, Invite, InviteSpec, InviteState, KeyHash, NewKey, Posting, PostingKind, RandomSource, Store,
};

/// Members and their addresses.
const ADDRESSES: &[(&str, &str)] = &[
    ("mira", "mira@example.com"),
    ("jonas", "jonas@example.com"),
    ("lin", "lin@example.com"),
    ("northwind", "billing@northwind.example"),
    ("fabrikam", "it@fabrikam.example"),
];

pub(crate) fn addresses() -> Vec<Change> {
    let change = |(member, address): &(&str, &str)| {
        Change::Identity(Box::new(IdentityChange::SetEmail { member: (*member).to_owned(), email: Some((*address).to_owned()) }))
    };
    ADDRESSES.iter().map(change).collect()
}

/// An open invite that `author` makes now. Its link is not kept.
pub(crate) fn invite(store: &Store, author: &str, note: &str, groups: &[&str], now: Timestamp) -> Change {
    let random = RandomSource::system();
    let secret = Secret::new(NewKey::generate_invite(&random).expose_once());
    let hash: KeyHash = store.hasher.hash(secret.expose());
    let spec = InviteSpec {
        role: Role::Member,
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        note: note.to_owned(),
        created_by: author.to_owned(),
        state: InviteState::Open,
    };
    let invite = Invite { id: InviteId::from_parts(now, random.bytes()), expires_at: now.plus_ms(7 * 86_400_000), spec };
    Change::Identity(Box::new(IdentityChange::MakeInvite { invite: Box::new(invite), hash }))
}

/// The address of a person, from the ranges for documentation (RFC 5737).
pub(crate) fn address_of(person: &str) -> IpAddr {
    let number = person.bytes().fold(7_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    Ipv4Addr::new(203, 0, 113, number).into()
}

/// Posts a top-up, or an adjustment if the amount is negative, in cents.
pub(crate) async fn post(store: &Store, member: &str, cents: i64, note: &str, actor: &str, now: Timestamp) -> Result<()> {
    let found = store.identity.find_login(member).await?.with_context(|| format!("there is no member {member}"))?;
    let member: MemberId = found.id;
    let kind = if cents > 0 { PostingKind::TopUp } else { PostingKind::Adjust };
    let amount = NanoUsd(cents * 10_000_000);
    let address = Some(address_of(actor));
    let posting = Posting { member, kind, amount, idempotency_key: None, note: note.to_owned(), actor: actor.to_owned(), address };
    store.ledger.post(&posting, now).await?;
    Ok(())
}
