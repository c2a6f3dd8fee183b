//! Interface between the console and the process it runs in.

use std::{fmt, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;
use tollgate_core::{
    AccountHealth, AccountId, AccountStanding, Budget, Catalog, ChannelId, Key, NanoUsd, PriceLimit, Revision, Subject, Timestamp,
    Tokens, Window,
};
use tollgate_protocol::Protocol;
use tollgate_store::{AlertDestination, IdleTimes, StoreError};

use crate::{appearance::Appearance, currency::DisplayCurrency, registration::Registration};

/// The process that the console controls: a running gateway, or a command that works on its data folder.
#[async_trait]
pub trait GatewayHandle: Send + Sync + fmt::Debug {
    fn now(&self) -> Timestamp;

    /// Counts a wrong key from an address, in the same counter as model requests.
    /// The error is the number of seconds to wait after too many.
    fn wrong_key(&self, from: Option<IpAddr>) -> Result<(), u32>;

    /// The service key that a caller presents from this address, looked up and checked as for a model request.
    async fn service_key(&self, presented: &str, from: Option<IpAddr>) -> Result<Arc<Key>, KeyRefusal>;

    /// Metrics as content type and text.
    fn metrics(&self) -> (&'static str, String);

    /// Money spent and reserved in the current period.
    /// Fails when spending is not loaded yet and the store fails.
    async fn spent(&self, subject: Subject, window: Window) -> Result<NanoUsd, StoreError>;

    /// The catalog in force.
    async fn catalog(&self) -> Result<Arc<Catalog>, StoreError>;

    /// Budgets of the whole gateway.
    fn budgets(&self) -> Vec<Budget>;

    /// Every setting with its value in force and its source, secrets masked.
    fn settings(&self) -> Vec<EffectiveSetting>;

    /// Whether contents are stored of the requests whose group or key asks for it.
    fn stores_contents(&self) -> bool {
        self.settings().iter().any(|setting| setting.name == "contents.store" && setting.value.as_deref() == Some("true"))
    }

    /// Checks a value that is to be stored for a setting.
    fn check_setting(&self, name: &str, value: &str) -> Result<CheckedSetting, SettingRefusal>;

    /// Returns once a change that made this revision of the catalog is in force on this node, or after two seconds: the change is
    /// stored, and the node applies it later. Only a command fails here: it reads the stored settings again.
    async fn until_in_force(&self, revision: Revision) -> Result<(), StoreError>;

    /// The destination of alerts that the settings have.
    fn configured_destination(&self) -> Option<AlertDestination>;

    /// Sends a test message to a destination of alerts. The error says what went wrong.
    async fn test_destination(&self, destination: &AlertDestination) -> Result<(), String>;

    /// Current health of an account.
    fn health(&self, account: AccountId) -> AccountHealth;

    /// Whether requests may use an account, and since when.
    fn standing(&self, channel: ChannelId, account: AccountId) -> AccountStanding;

    /// The journal of this node; `None` in a command, which has none.
    fn journal(&self) -> Option<JournalUse> {
        None
    }

    /// Requests in progress on this node.
    fn in_flight(&self) -> u64;

    /// Usage of the limits of an account on this node. Accounts without limits are not counted.
    fn account_use(&self, account: AccountId) -> CapacityUse;

    /// Usage of the limits of a channel, which are of all its accounts together, on this node. Channels without limits are not counted.
    fn channel_use(&self, channel: ChannelId) -> CapacityUse;

    /// Whether visitors without a key see the model square.
    fn is_square_public(&self) -> bool;

    /// The currency in which pages show amounts.
    fn currency(&self) -> DisplayCurrency;

    /// Name, logo, announcement and default preferences of the pages.
    fn appearance(&self) -> Appearance;

    /// How long members stay signed in.
    fn session_times(&self) -> SessionTimes;

    /// How people become members.
    fn registration(&self) -> Registration;

    /// Counts a request for a feed of the model square from an address.
    /// The error is the number of seconds to wait after too many.
    fn square_request(&self, from: Option<IpAddr>) -> Result<(), u32>;

    /// The accounts a request would use, in order, and why others are excluded: the object that `explain --json` prints.
    /// The outer error: the catalog is not loaded yet and the store fails; the inner one: the model name is invalid.
    async fn explain(&self, question: &ExplainRequest) -> Result<Result<Value, String>, StoreError>;

    /// Sends a real request through accounts of a channel and reports each step to `on_event`. A passed test ends the
    /// account's cooldown.
    async fn test(&self, test: ChannelTest<'_>, on_event: OnTestEvent<'_>) -> Result<Vec<AccountTestResult>, ChannelTestError>;

    /// Connects through the proxy of a channel to its upstream, without a request.
    async fn test_proxy(&self, channel: &str) -> Result<ProxyTestResult, ChannelTestError>;

    /// The models that the provider of a channel lists for the credential of an account (by name or id), or of its first one.
    async fn upstream_models(&self, channel: &str, account: Option<&str>) -> Result<Vec<String>, ChannelTestError>;

    /// Sends a request of the console itself, to an OpenID provider. Bounded in time and size; follows no redirect, and reaches private
    /// addresses only if the settings allow it. The error says what failed.
    async fn fetch(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, String>;

    /// Ends cooling and rest of accounts of a channel, as a passed test does. Returns their names.
    async fn end_cooling(&self, channel: &str, account: Option<&str>) -> Result<Vec<String>, ChannelTestError>;
}

/// The journal of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalUse {
    /// Bytes on disk.
    pub bytes: u64,
    /// Requests that are not booked yet, those in progress included.
    pub unbooked: u64,
}

/// Usage of the limits of an account or a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapacityUse {
    /// Requests in progress.
    pub running: u64,
    /// Requests and tokens of the last minute.
    pub requests: u64,
    pub tokens: u64,
}

/// How long a session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTimes {
    /// Sessions end after this time without a request, unless they are remembered.
    pub idle_ms: i64,
    /// Sessions end after this time at the latest. A change applies to sessions that begin later.
    pub max_ms: i64,
    /// Whether members may choose to be remembered.
    pub can_remember: bool,
}

impl SessionTimes {
    /// The times without a request that end sessions. When members may not be remembered any more, the sessions of those who are
    /// end as others do.
    pub(crate) const fn idle(self) -> IdleTimes {
        let remembered_ms = if self.can_remember { self.max_ms } else { self.idle_ms };
        IdleTimes { idle_ms: self.idle_ms, remembered_ms }
    }
}

/// Why a service key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// Unknown, or malformed.
    Invalid,
    Expired,
    /// Disabled or revoked.
    Disabled,
    /// It may not be used from this address.
    AddressBlocked,
    /// Its member is suspended.
    Suspended,
    /// Too many wrong keys came from this address. Seconds to wait.
    TooManyWrong(u32),
    /// It cannot be looked up at the moment.
    Unavailable,
}

/// A setting with its effective value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Section and name, such as `server.listen`.
    pub name: &'static str,
    /// Value as text, `***` for a secret; `None` if not set.
    pub value: Option<String>,
    /// Default as text; `None` if there is none.
    pub default: Option<String>,
    /// `default`, `database`, `file`, `environment` or `flag`.
    pub source: &'static str,
    /// Environment variable for this setting.
    pub variable: String,
    /// Whether the value is masked.
    pub secret: bool,
    /// Type and bounds.
    pub kind: SettingKind,
    /// Unit of the value, such as `ms`.
    pub unit: Option<&'static str>,
    /// Whether a change takes effect with the next start only.
    pub needs_restart: bool,
    /// Whether it can be changed at run time: nothing overrides the stored value.
    pub writable: bool,
    /// Description.
    pub doc: &'static str,
}

/// Type and bounds of a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SettingKind {
    Text,
    /// One line of text of at most this many characters.
    Line(u64),
    /// An `http` or `https` address, without a query.
    HttpUrl,
    /// A small image as a `data:` URL.
    Image,
    /// Name of a time zone, such as `Europe/Berlin`.
    TimeZone,
    /// A regular expression that does not match the empty text.
    Pattern,
    /// A socket address.
    Address,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Number(u64, u64),
    /// A number from 0 to 1.
    Share,
    /// Networks such as `10.0.0.0/8`, or addresses, separated by commas.
    Networks,
    /// Origins of web pages such as `https://app.example.com`, separated by commas, or `*`.
    Origins,
    /// One of these values.
    OneOf(&'static [&'static str]),
    /// An amount in USD, not below zero.
    Usd,
    /// A number above zero, at most a million, with at most six decimals.
    Rate,
    /// Whole percentages of 1 to 100, separated by commas.
    Percents,
}

/// A value that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedSetting {
    pub name: &'static str,
    /// The value in the form in which it is stored.
    pub value: String,
}

/// Why a value cannot be stored, as a sentence without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingRefusal {
    Unknown {
        /// The setting that was probably meant.
        nearest: Option<&'static str>,
    },
    /// It is read at the start, or is a secret; with where to set it.
    NeedsRestart(String),
    /// A flag, the environment or the settings file overrides the stored value.
    SetElsewhere(String),
    /// The value is invalid; with a description of valid ones.
    Invalid(String),
}

/// A hypothetical request whose routing is to be explained.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// Key of the caller.
    pub key: Key,
    /// Model name as sent by a caller.
    pub model: String,
    pub protocol: Protocol,
    /// Optional fields the request would contain.
    pub fields: Vec<String>,
    /// Value of `x-tollgate-max-price`.
    pub max_price: Option<PriceLimit>,
    /// Estimated input in tokens; `None`: the default estimate.
    pub input_tokens: Option<u64>,
    /// Requested output limit in tokens.
    pub output_tokens: Option<u64>,
}

/// Scope of a channel test: one account (by name or id) or all, with a model or the first one served.
#[derive(Clone, Copy, Debug)]
pub struct ChannelTest<'a> {
    pub channel: &'a str,
    pub account: Option<&'a str>,
    pub model: TestedModel<'a>,
}

/// The model of a channel test.
#[derive(Clone, Copy, Debug)]
pub enum TestedModel<'a> {
    /// The channel's test model, or the first one that it serves.
    Usual,
    /// A served model by its public name.
    Served(&'a str),
    /// A model of the provider, which the channel need not serve.
    OfProvider(&'a str),
}

/// Receives the progress of a channel test.
pub type OnTestEvent<'a> = &'a mut (dyn for<'e> FnMut(ChannelTestEvent<'e>) + Send);

/// Progress of a channel test.
#[derive(Clone, Copy, Debug)]
pub enum ChannelTestEvent<'a> {
    /// A step of an account's test passed.
    Step { account: &'a str, model: &'a str, step: &'a TestStep },
    /// An account's test is finished.
    End(&'a AccountTestResult),
}

/// Result of testing one account.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountTestResult {
    /// Account name.
    pub account: String,
    /// Model used for the test.
    pub model: String,
    /// Steps that passed, in order.
    pub steps: Vec<TestStep>,
    /// Failure of the step after them.
    pub error: Option<String>,
    /// Duration of the whole test.
    pub took_ms: f64,
    /// From sending the request, which includes connecting, to the first byte of the answer.
    pub first_byte_ms: Option<f64>,
    /// Tokens that the provider counted.
    pub tokens: Option<Tokens>,
    /// Their cost at the channel's price; `None`: without tokens or price.
    pub cost: Option<NanoUsd>,
}

/// Result of testing the proxy of a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ProxyTestResult {
    /// Steps that passed, in order.
    pub steps: Vec<TestStep>,
    /// Failure of the step after them.
    pub error: Option<String>,
}

/// A passed step of a channel test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestStep {
    /// Name, such as `TLS`.
    pub step: &'static str,
    /// Duration in milliseconds.
    pub took_ms: f64,
    /// Details, such as the TLS version.
    pub detail: String,
}

/// Error of a channel test that could not start.
#[derive(Debug)]
pub enum ChannelTestError {
    /// No such channel, account or served model.
    NotFound(&'static str),
    /// The channel is built in: it has no upstream.
    BuiltIn,
    /// The channel has no proxy.
    NoProxy,
    /// The provider's answer was not as expected; with its message.
    Upstream(String),
    /// The catalog cannot be read, or health cannot be saved.
    Store(StoreError),
}
