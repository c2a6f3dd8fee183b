//! What the console asks of the running process, which it does not know otherwise.

use std::{fmt, net::IpAddr};

use async_trait::async_trait;
use serde_json::Value;
use tollgate_core::{AccountHealth, AccountId, Budget, Key, NanoUsd, PriceLimit, Subject, Timestamp, Window};
use tollgate_protocol::Protocol;

/// The running process.
#[async_trait]
pub trait Running: Send + Sync + fmt::Debug {
    /// The time it is.
    fn now(&self) -> Timestamp;

    /// Counts a wrong key from an address, together with those of model requests; `Err` with the seconds to wait when
    /// there were too many of them.
    fn wrong_key(&self, from: IpAddr) -> Result<(), u32>;

    /// The metrics and their content type.
    fn metrics(&self) -> (&'static str, String);

    /// Money spent and set aside in the period that now lies in.
    fn spent(&self, subject: Subject, window: Window) -> NanoUsd;

    /// Budgets of the whole gateway.
    fn budgets(&self) -> Vec<Budget>;

    /// What is known of an account now.
    fn health(&self, account: AccountId) -> AccountHealth;

    /// Whether an address belongs to the public internet: others are for channels with `private_network` only.
    fn is_public(&self, address: IpAddr) -> bool;

    /// Which accounts a request would use, in order, and why not the others: the object that `explain --json` prints.
    ///
    /// # Errors
    /// When the model's name cannot be one.
    fn explain(&self, question: &Question) -> Result<Value, String>;

    /// Calls accounts of a channel for real. A pass ends an account's rest.
    async fn test(&self, channel: &str, account: Option<&str>, model: Option<&str>) -> Result<Vec<Tested>, NotTested>;
}

/// What is to be explained.
#[derive(Clone, Debug)]
pub struct Question {
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
}

/// What came of testing one account.
#[derive(Clone, Debug, PartialEq)]
pub struct Tested {
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTested {
    /// There is no such channel, account or served model.
    NotFound(&'static str, String),
    /// The channel is built in.
    BuiltIn,
}
