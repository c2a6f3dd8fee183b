//! What the console asks of the running process, which it does not know otherwise.

use std::{fmt, net::IpAddr};

use async_trait::async_trait;
use serde_json::Value;
use tollgate_core::{AccountHealth, AccountId, Budget, Key, NanoUsd, PriceLimit, Subject, Timestamp, Window};
use tollgate_protocol::Protocol;
use tollgate_store::StoreError;

/// The running process.
#[async_trait]
pub trait GatewayHandle: Send + Sync + fmt::Debug {
    /// The time it is.
    fn now(&self) -> Timestamp;

    /// Counts a wrong key from an address, together with those of model requests; `Err` with the seconds to wait when
    /// there were too many of them.
    fn wrong_key(&self, from: IpAddr) -> Result<(), u32>;

    /// The metrics and their content type.
    fn metrics(&self) -> (&'static str, String);

    /// Money spent and set aside in the period that now lies in.
    ///
    /// # Errors
    /// When what was spent has to be read first and cannot be.
    async fn spent(&self, subject: Subject, window: Window) -> Result<NanoUsd, StoreError>;

    /// Budgets of the whole gateway.
    fn budgets(&self) -> Vec<Budget>;

    /// Every setting with its value and where that comes from, secrets masked.
    fn settings(&self) -> Vec<EffectiveSetting>;

    /// What is known of an account now.
    fn health(&self, account: AccountId) -> AccountHealth;

    /// Whether an address belongs to the public internet: others are for channels with `private_network` only.
    fn is_public(&self, address: IpAddr) -> bool;

    /// Which accounts a request would use, in order, and why not the others: the object that `explain --json` prints.
    ///
    /// # Errors
    /// When the catalog has to be read first and cannot be; within, when the model's name cannot be one.
    async fn explain(&self, question: &ExplainRequest) -> Result<Result<Value, String>, StoreError>;

    /// Calls accounts of a channel for real, and tells what it sees as it sees it. A pass ends an account's rest.
    async fn test(
        &self,
        channel: &str,
        account: Option<&str>,
        model: Option<&str>,
        seen: &mut (dyn for<'a> FnMut(ChannelTestEvent<'a>) + Send),
    ) -> Result<Vec<AccountTestResult>, ChannelTestError>;
}

/// A setting of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Section and name, such as `server.listen`.
    pub name: &'static str,
    /// Its value as text, `***` for a secret; `None`: not set.
    pub value: Option<String>,
    /// Its default as text; `None`: not set.
    pub default: Option<String>,
    /// `default`, `file`, `environment` or `flag`.
    pub source: &'static str,
    /// The environment variable that sets it.
    pub variable: String,
    /// Whether its value is masked.
    pub secret: bool,
    /// What it does.
    pub doc: &'static str,
}

/// What is to be explained.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    /// For this key.
    pub key: Key,
    /// The model as a caller names it.
    pub model: String,
    /// The caller's protocol.
    pub protocol: Protocol,
    /// Fields the request would carry beside the least.
    pub fields: Vec<String>,
    /// Its `x-tollgate-max-price`.
    pub max_price: Option<PriceLimit>,
    /// What its input would be estimated at, in tokens; `None`: as usual.
    pub input_tokens: Option<u64>,
    /// The output limit it would ask for, in tokens; `None`: none.
    pub output_tokens: Option<u64>,
}

/// What a test comes to, told at once.
#[derive(Clone, Copy, Debug)]
pub enum ChannelTestEvent<'a> {
    /// A step of an account's test went well.
    Step {
        /// The account's name.
        account: &'a str,
        /// With which model.
        model: &'a str,
        /// The step.
        step: &'a TestStep,
    },
    /// An account's test ended.
    End(&'a AccountTestResult),
}

/// What came of testing one account.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountTestResult {
    /// The account's name.
    pub account: String,
    /// With which model.
    pub model: String,
    /// The steps that went well, in order.
    pub steps: Vec<TestStep>,
    /// Why it ended before the last one.
    pub error: Option<String>,
}

/// One step of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct TestStep {
    /// Its name.
    pub step: &'static str,
    /// How long it took, in milliseconds.
    pub took_ms: f64,
    /// What there is to say about it.
    pub detail: String,
}

/// Why nothing was tested.
#[derive(Debug)]
pub enum ChannelTestError {
    /// There is no such channel, account or served model.
    NotFound(&'static str, String),
    /// The channel is built in.
    BuiltIn,
    /// The catalog cannot be read.
    Store(StoreError),
}
