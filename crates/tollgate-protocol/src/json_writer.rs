//! Writes JSON from a small tree, in which free-form values stay raw text.

use bytes::{BufMut, Bytes, BytesMut};

use crate::json_text::{write_separator, write_string};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Json {
    /// JSON text, written unchanged.
    Raw(String),
    Text(String),
    Bool(bool),
    Int(i64),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn object<const N: usize>(members: [(&'static str, Self); N]) -> Self {
        Self::Object(members.into())
    }

    pub(crate) fn texts<S: AsRef<str>>(items: &[S]) -> Self {
        Self::List(items.iter().map(|item| Self::text(item.as_ref())).collect())
    }

    pub(crate) fn value(value: &serde_json::Value) -> Self {
        Self::Raw(value.to_string())
    }

    pub(crate) fn number(number: &serde_json::Number) -> Self {
        Self::Raw(number.to_string())
    }

    /// An unsigned whole number; values above 2^63 - 1 are written as raw text.
    pub(crate) fn uint(number: u64) -> Self {
        i64::try_from(number).map_or_else(|_| Self::Raw(number.to_string()), Self::Int)
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.write(&mut out);
        out.freeze()
    }

    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Raw(text) => out.put_slice(text.as_bytes()),
            Self::Text(text) => write_string(out, text),
            Self::Bool(value) => out.put_slice(if *value { b"true" } else { b"false" }),
            Self::Int(value) => out.put_slice(value.to_string().as_bytes()),
            Self::List(items) => {
                out.put_u8(b'[');
                for (index, item) in items.iter().enumerate() {
                    write_separator(out, index);
                    item.write(out);
                }
                out.put_u8(b']');
            }
            Self::Object(members) => {
                out.put_u8(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    write_separator(out, index);
                    write_string(out, name);
                    out.put_u8(b':');
                    value.write(out);
                }
                out.put_u8(b'}');
            }
        }
    }
}

/// An object under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonObject(pub(crate) Vec<(&'static str, Json)>);

impl JsonObject {
    pub(crate) fn put(&mut self, name: &'static str, value: Json) {
        self.0.push((name, value));
    }

    pub(crate) fn put_some(&mut self, name: &'static str, value: Option<Json>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    pub(crate) fn some(self) -> Option<Json> {
        (!self.0.is_empty()).then_some(Json::Object(self.0))
    }

    pub(crate) fn json(self) -> Json {
        Json::Object(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_values_are_written_unchanged() {
        let json = Json::object([
            ("a", Json::Raw("1.0".into())),
            ("b", Json::List(vec![Json::text("x\"\n"), Json::Bool(true), Json::Int(-1)])),
            ("c", Json::uint(u64::MAX)),
        ]);
        assert_eq!(&json.to_bytes()[..], br#"{"a":1.0,"b":["x\"\n",true,-1],"c":18446744073709551615}"#);
    }
}
