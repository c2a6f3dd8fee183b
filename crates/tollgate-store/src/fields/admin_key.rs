//! The fields of an admin key.

use serde_json::Value;
use tollgate_core::Timestamp;

use super::{
    Access, FieldValue, Kind, field, table,
    value::{NAME, not_an_id},
};
use crate::{AdminKeySpec, AdminScope};

impl FieldValue for AdminScope {
    const KIND: Kind = Kind::Word(&["operator", "admin"]);

    fn show(&self) -> Value {
        self.as_str().into()
    }

    fn read(value: &Value) -> Result<Self, String> {
        match value.as_str() {
            Some("operator") => Ok(Self::Operator),
            Some("admin") => Ok(Self::Admin),
            Some(_) | None => Err("expected operator or admin".to_owned()),
        }
    }
}

table!(
    AdminKeySpec,
    "AdminKey",
    AdminKeySpec::default(),
    &[
        field!("name", name: String, "Unique among the admin keys that are not revoked.")
            .kind(NAME)
            .access(Access::Fixed)
            .rule(not_an_id),
        field!("scope", scope: AdminScope, "What it may do: all but members, admin keys, ledger and settings, or everything.")
            .access(Access::Fixed),
        field!("expires_at", expires_at: Option<Timestamp>, "When it ends.").access(Access::CreateOnly).default_text("never"),
    ]
);
