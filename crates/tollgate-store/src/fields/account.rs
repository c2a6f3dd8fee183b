//! The fields of an account.

use serde_json::Value;
use tollgate_core::{Multiplier, Secret};

use super::{
    Access, Field, FieldShape, Kind, field, table,
    value::{NAME, ON_OFF, not_an_id, read_on, show_on},
};
use crate::AccountSpec;

/// An account as it is written: its row, and the credential that is stored sealed beside it.
#[derive(Clone, Debug, Default)]
pub struct AccountInput {
    /// The row.
    pub spec: AccountSpec,
    /// The provider's key; `None` keeps the one that is there.
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
                Kind::Text { least: 1, most: 10_000 },
                "The provider's key; a new account needs one, except under the provider `compatible`.",
            )
            .with(Access::WriteOnly),
            get: |_: &Self| Value::Null,
            set: |account: &mut Self, value| {
                let credential = value.as_str().unwrap_or_default();
                if credential.chars().any(char::is_control) {
                    return Err("the secret holds control characters".to_owned());
                }
                account.credential = Some(Secret::new(credential.to_owned()));
                Ok(())
            },
        }
        .secret(),
        Field {
            shape: FieldShape::new("status", ON_OFF, "`off`: switched off by hand."),
            get: |account: &Self| show_on(account.spec.on),
            set: |account: &mut Self, value| {
                account.spec.on = read_on(value)?;
                Ok(())
            },
        },
        field!("rpm", spec.rpm: u32, "Requests a minute; 0: no bound."),
        field!("tpm", spec.tpm: u64, "Tokens a minute; 0: no bound."),
        field!("concurrency", spec.concurrency: u32, "Requests at once; 0: no bound."),
        field!("cost_multiplier", spec.cost_multiplier: Multiplier, "Factor on the channel's cost prices."),
    ]
);
