//! The profile of an upstream model: the fields of [`Profile`], each read by itself so that each problem has its
//! place.

use serde::Deserialize as _;
use tollgate_protocol::Profile;
use toml::{
    Spanned,
    de::{DeTable, DeValue, ValueDeserializer},
};

use super::reader::TableReader;

/// Every field of [`Profile`], as its serialisation names them.
const FIELDS: [&str; 23] = [
    "thinking",
    "can_disable_thinking",
    "thinking_display",
    "prefill",
    "forced_tools",
    "signature_required",
    "call_ids",
    "sampling",
    "penalties",
    "top_k",
    "logprobs",
    "n_max",
    "stop_max",
    "json_schema_fields",
    "tools_with_json",
    "media_in_results",
    "part_media_resolution",
    "validated_mode",
    "max_tokens_field",
    "default_max_tokens",
    "temperature_max",
    "fetches_urls",
    "system_role",
];

pub(super) fn profile(table: &TableReader<'_>) -> Profile {
    let Some(table) = table.table("profile") else { return Profile::default() };
    let mut whole = DeTable::new();
    for field in FIELDS {
        let Some(value) = table.get(field) else { continue };
        let key = || Spanned::new(value.span(), field.into());
        let mut alone = DeTable::new();
        alone.insert(key(), value.clone());
        match read(alone, value.span()) {
            Ok(_) => {
                whole.insert(key(), value.clone());
            }
            Err(message) => table.field_problem(field, &message),
        }
    }
    table.finish();
    read(whole, 0..0).unwrap_or_default()
}

fn read(fields: DeTable<'_>, span: std::ops::Range<usize>) -> Result<Profile, String> {
    let value = Spanned::new(span, DeValue::Table(fields));
    Profile::deserialize(ValueDeserializer::from(value)).map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_fields_is_the_profiles_own() {
        let unknown = Profile::deserialize(ValueDeserializer::parse("{ no_such_field = 1 }").unwrap()).unwrap_err();
        for field in FIELDS {
            assert!(unknown.message().contains(&format!("`{field}`")), "{field} is not a field: {unknown}");
        }
        assert_eq!(unknown.message().matches('`').count(), 2 * (FIELDS.len() + 1), "a field is missing here: {unknown}");
    }
}
