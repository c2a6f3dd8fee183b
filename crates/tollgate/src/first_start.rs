//! Rows created on the first start without a catalog file: the echo channel, the group `default` and the key `first` of the
//! member `owner`. They are ordinary rows and are not created again once deleted.

use tollgate_core::{
    AccountSpec, ChannelSpec, Glob, KeyStatus, Limits, ModelMapping, ModelSpec, Multiplier, Price, PriceSchedule, Provider,
    ScheduledPrice, Visibility,
};
use tollgate_protocol::{Profile, Protocol};
use tollgate_store::{Actor, Change, ChangeOrigin, GroupSpec, KeySpec, NewKey, RandomSource, Store};

use crate::{compose, failure::Failure};

/// The member that every new database contains.
const OWNER: &str = "owner";
const ECHO: &str = "echo";
const GROUP: &str = "default";
const KEY: &str = "first";

/// Creates the rows and returns the key in clear text.
pub(crate) async fn create_echo(store: &Store) -> Result<String, Failure> {
    let new = NewKey::draw(&RandomSource::system());
    let changes = [
        Change::PutChannel(Box::new(channel())),
        Change::PutAccount { channel: ECHO.to_owned(), account: account(), credential: None },
        Change::PutModel(Box::new(model())),
        Change::PutGroup(Box::new(group())),
        Change::PutKey { key: Box::new(key()), secret: Some(new.secret(&store.hasher)) },
    ];
    store.catalog.apply(&changes, &actor(), compose::now()).await?;
    Ok(new.expose_once())
}

fn actor() -> Actor {
    Actor { origin: ChangeOrigin::Gateway, name: "first start".to_owned() }
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
    AccountSpec { name: ECHO.to_owned(), on: true, concurrency: 0, rpm: 0, tpm: 0, cost_multiplier: Multiplier::ONE }
}

fn model() -> ModelSpec {
    ModelSpec {
        name: ECHO.to_owned(),
        price: Some(free()),
        description: Some("Answers with the text of the request.".to_owned()),
        ..ModelSpec::default()
    }
}

fn group() -> GroupSpec {
    GroupSpec {
        name: GROUP.to_owned(),
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
        status: KeyStatus::Active,
        expires_at: None,
        groups: vec![GROUP.to_owned()],
        models: vec![Glob("*".to_owned())],
        ip_allow: Vec::new(),
        limits: Limits::default(),
        budgets: Vec::new(),
        price_limit: None,
        signatures_in_ids: None,
    }
}

/// A price of 0, as opposed to "not priced".
fn free() -> PriceSchedule {
    let price = Price { input: Some(0), output: Some(0), ..Price::default() };
    PriceSchedule(vec![ScheduledPrice { valid_from: None, price }])
}
