//! The fields of an account.

use serde_json::Value;
use tollgate_core::{AccountSpec, Multiplier, Secret};

use super::{
    Access, Field, FieldShape, Kind, field, table,
    value::{NAME, ON_OFF, not_an_id, read_on, show_on},
};
use crate::credential;

/// An account in a request or file: the row and its credential.
#[derive(Clone, Debug, Default)]
pub struct AccountInput {
    pub spec: AccountSpec,
    /// The provider's key. `None` keeps the stored one.
    pub credential: Option<Secret>,
}

table!(
    AccountInput,
    "Account",
    AccountInput::default(),
    &[
        field!("name", spec.name: String, "Unique in its channel.").kind(NAME).access(Access::Fixed).rule(not_an_id),
        Field {
            shape: FieldShape::new(
                "credential",
                Kind::Text { min: 1, max: 10_000 },
                "The provider's key; a new account needs one, except under the provider `compatible`.",
            )
            .with(Access::WriteOnly),
            get: |_: &Self| Value::Null,
            set: |account: &mut Self, value| {
                let credential = value.as_str().unwrap_or_default();
                if !credential::can_be_sent(credential) {
                    return Err(credential::CANNOT_BE_SENT.to_owned());
                }
                account.credential = Some(Secret::new(credential.to_owned()));
                Ok(())
            },
        }
        .secret(),
        Field {
            shape: FieldShape::new("status", ON_OFF, "`off`: disabled by an operator."),
            get: |account: &Self| show_on(account.spec.on),
            set: |account: &mut Self, value| {
                account.spec.on = read_on(value)?;
                Ok(())
            },
        },
        field!("rpm", spec.rpm: u32, "Requests per minute; 0: unlimited."),
        field!("tpm", spec.tpm: u64, "Tokens per minute; 0: unlimited."),
        field!("concurrency", spec.concurrency: u32, "Concurrent requests; 0: unlimited."),
        field!("cost_multiplier", spec.cost_multiplier: Multiplier, "Factor on the channel's cost prices."),
    ]
);
