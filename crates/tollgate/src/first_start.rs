//! Rows created on the first start without a catalog file: the echo channel, the groups `default` and `echo`, and the key `first` of
//! the member `owner`. They are ordinary rows and are not created again once deleted. The key is printed, so it is only in the group
//! `echo`, which offers only the echo channel. Channels that the operator adds to `default` need a key that the operator creates.

use tollgate_core::{AccountSpec, ChannelSpec, Glob, ModelMapping, ModelSpec, Price, PriceSchedule, Provider, Visibility};
use tollgate_protocol::{Profile, Protocol};
use tollgate_store::{
    Actor, AuditFilter, AuditKind, Change, ChangeOrigin, GroupSpec, KeySpec, NewKey, RandomSource, RowFilter, RowKind, Store,
    StoredRow,
};

use crate::{compose, failure::Failure};

/// The member that every new database contains.
const OWNER: &str = "owner";
const ECHO: &str = "echo";
const GROUP: &str = "default";
const KEY: &str = "first";
const ACTOR: &str = "first start";

/// Whether nothing was ever configured. Commands such as `init` may already have made the database, an admin or an admin
/// key.
pub(crate) async fn is_due(store: &Store) -> Result<bool, Failure> {
    for kind in [RowKind::Channel, RowKind::Group, RowKind::Key] {
        if !store.listing.page(&RowFilter { removed: true, ..RowFilter::of(kind, 1) }).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Creates the rows, without the key.
pub(crate) async fn create_echo(store: &Store) -> Result<(), Failure> {
    let changes = [
        Change::PutChannel(Box::new(channel())),
        Change::PutAccount { channel: ECHO.to_owned(), account: account(), credential: None },
        Change::PutModel(Box::new(model())),
        Change::PutGroup(Box::new(group(GROUP))),
        Change::PutGroup(Box::new(group(ECHO))),
    ];
    store.catalog.apply(&changes, &actor(), compose::now()).await?;
    Ok(())
}

/// Creates the key and returns it in clear text, unless a start did so before. Call it when everything else that can fail is done:
/// a start whose address is in use must not use up the key.
pub(crate) async fn create_key(store: &Store) -> Result<Option<String>, Failure> {
    let named = async |kind, name: &str| -> Result<Vec<StoredRow>, Failure> {
        let filter = RowFilter { name: Some(name.to_owned()), removed: true, ..RowFilter::of(kind, 1) };
        Ok(store.listing.page(&filter).await?)
    };
    let Some(group) = named(RowKind::Group, ECHO).await?.pop().filter(|group| group.removed_at.is_none()) else { return Ok(None) };
    // Other keys of this name, revoked ones too, are the operator's, or this one.
    if !named(RowKind::Key, KEY).await?.is_empty() {
        return Ok(None);
    }
    let events =
        AuditFilter { kind: Some(AuditKind::Row(RowKind::Group)), id: Some(group.id), limit: 1_001, ..AuditFilter::default() };
    let events = store.listing.audit_page(&events).await?;
    let is_from_first_start = |actor: &str, origin: &str| actor == ACTOR && origin == ChangeOrigin::Gateway.as_str();
    if !events.last().is_some_and(|(_, first)| is_from_first_start(&first.actor, &first.origin)) {
        return Ok(None);
    }
    let new = NewKey::generate(&RandomSource::system());
    let change = Change::PutKey { key: Box::new(key()), secret: Some(new.secret(&store.hasher)) };
    store.catalog.apply(&[change], &actor(), compose::now()).await?;
    Ok(Some(new.expose_once()))
}

fn actor() -> Actor {
    Actor::local(ChangeOrigin::Gateway, ACTOR)
}

fn channel() -> ChannelSpec {
    let serves =
        ModelMapping { model: ECHO.to_owned(), upstream: ECHO.to_owned(), cost: Some(free()), profile: Profile::default() };
    ChannelSpec {
        name: ECHO.to_owned(),
        provider: Provider::Echo,
        protocol: Protocol::OpenAi,
        serves: vec![serves],
        ..ChannelSpec::default()
    }
}

fn account() -> AccountSpec {
    AccountSpec { name: ECHO.to_owned(), ..AccountSpec::default() }
}

fn model() -> ModelSpec {
    ModelSpec {
        name: ECHO.to_owned(),
        price: Some(free()),
        description: Some("Answers with the text of the request.".to_owned()),
        ..ModelSpec::default()
    }
}

fn group(name: &str) -> GroupSpec {
    GroupSpec {
        name: name.to_owned(),
        visibility: Visibility::Public,
        channels: vec![ECHO.to_owned()],
        models: vec![Glob("*".to_owned())],
        ..GroupSpec::default()
    }
}

fn key() -> KeySpec {
    KeySpec {
        name: KEY.to_owned(),
        member: OWNER.to_owned(),
        groups: vec![ECHO.to_owned()],
        models: vec![Glob(ECHO.to_owned())],
        ..KeySpec::default()
    }
}

/// A price of 0, as opposed to "not priced".
fn free() -> PriceSchedule {
    let price = Price { input: Some(0), output: Some(0), ..Price::default() };
    PriceSchedule::constant(price)
}
