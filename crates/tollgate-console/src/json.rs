//! Strict JSON parsing: an object with a duplicate key is rejected, because validation and use could otherwise see different
//! values. Nesting is bounded by `serde_json` (128 levels).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Whole numbers below are exact as floating-point numbers: 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Parses a document.
/// The error is the reason, worded as the end of a sentence.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice::<UniqueKeyValue>(bytes).map(|strict| strict.0).map_err(|error| error.to_string())
}

struct UniqueKeyValue(Value);

impl<'de> Deserialize<'de> for UniqueKeyValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueKeyVisitor)
    }
}

struct UniqueKeyVisitor;

impl<'de> Visitor<'de> for UniqueKeyVisitor {
    type Value = UniqueKeyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<UniqueKeyValue, E> {
        Ok(UniqueKeyValue(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<UniqueKeyValue, E> {
        Ok(UniqueKeyValue(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<UniqueKeyValue, E> {
        Ok(UniqueKeyValue(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<UniqueKeyValue, E> {
        Ok(UniqueKeyValue(value.into()))
    }

    /// `5.0` is a whole number, as JSON Schema has it: some clients know no other numbers.
    fn visit_f64<E: Error>(self, value: f64) -> Result<UniqueKeyValue, E> {
        #[expect(clippy::cast_possible_truncation, reason = "it is a whole number of 53 bits")]
        let whole = (value.fract() == 0.0 && value.abs() < EXACT).then_some(value as i64);
        Ok(UniqueKeyValue(whole.map_or_else(|| value.into(), Value::from)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<UniqueKeyValue, E> {
        Ok(UniqueKeyValue(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeyValue, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueKeyValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(UniqueKeyValue(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<UniqueKeyValue, A::Error> {
        let mut object = Map::new();
        while let Some((name, UniqueKeyValue(value))) = members.next_entry::<String, UniqueKeyValue>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the member '{name}' occurs twice")));
            }
            object.insert(name, value);
        }
        Ok(UniqueKeyValue(object.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse;

    #[test]
    fn values_are_preserved() {
        let text = r#"{"a":[1,-2,0.5,null,true,"x"],"b":{"c":18446744073709551615}}"#;
        assert_eq!(
            parse(text.as_bytes()),
            Ok(json!({"a": [1, -2, 0.5, null, true, "x"], "b": {"c": 18_446_744_073_709_551_615_u64}}))
        );
    }

    #[test]
    fn whole_numbers_may_have_a_fraction_of_zero() {
        let text = r#"{"a":[60.0,-2.0e3,0.0,9007199254740992.0,0.25,-0.5]}"#;
        assert_eq!(parse(text.as_bytes()), Ok(json!({"a": [60, -2_000, 0, 9_007_199_254_740_992.0, 0.25, -0.5]})));
    }

    #[test]
    fn duplicate_keys_and_invalid_json_are_rejected() {
        assert!(parse(br#"{"scope":"operator","scope":"admin"}"#).unwrap_err().contains("'scope' occurs twice"));
        for bad in ["", "{", "{\"a\":NaN}", "{} x", "{\"a\":1,}", "\u{0}", &"[".repeat(5_000)] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
