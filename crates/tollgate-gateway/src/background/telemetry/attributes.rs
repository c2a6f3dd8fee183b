//! Attributes of spans, metrics and the resource.

use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value};

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub(super) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

pub(super) fn texts(key: &str, values: &[&str]) -> KeyValue {
    let values = values.iter().map(|value| AnyValue { value: Some(Value::StringValue((*value).to_owned())) });
    attribute(key, Value::ArrayValue(ArrayValue { values: values.collect() }))
}

pub(super) fn number(key: &str, value: impl TryInto<i64>) -> KeyValue {
    attribute(key, Value::IntValue(value.try_into().unwrap_or(i64::MAX)))
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "charts need no more than 53 bits")]
pub(super) fn seconds(key: &str, micros: u64) -> KeyValue {
    attribute(key, Value::DoubleValue(micros as f64 / 1_000_000.0))
}

pub(super) fn flag(key: &str, value: bool) -> KeyValue {
    attribute(key, Value::BoolValue(value))
}
