//! Embedding vectors as JSON arrays and as base64 of little-endian `f32`.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;

use crate::{json_text::compact, lenient::text_of, neutral::media::standard_base64};

/// A vector as a compact JSON array of numbers, from such an array or from base64. `None` for anything else.
pub(crate) fn read(raw: &RawValue) -> Option<String> {
    if let Some(text) = text_of(raw) {
        let bytes = STANDARD.decode(standard_base64(&text)?).ok()?;
        let (floats, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return None;
        }
        let floats: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        // JSON has no infinities and no NaN.
        return floats.iter().all(|float| float.is_finite()).then(|| serde_json::to_string(&floats).ok())?;
    }
    serde_json::from_str::<Vec<f64>>(raw.get()).ok()?;
    compact(raw)
}

/// A vector of [`read`] as base64.
pub(crate) fn base64(vector: &str) -> String {
    let floats: Vec<f32> = serde_json::from_str(vector).unwrap_or_default();
    let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_base64_are_equivalent() {
        let raw = |json: &'static str| serde_json::from_str::<&RawValue>(json).unwrap();
        assert_eq!(read(raw("[ 0.1, -2, 1e-3 ]")).as_deref(), Some("[0.1,-2,1e-3]"));
        let encoded = base64("[0.5,-2]");
        assert_eq!(encoded, "AAAAPwAAAMA=");
        assert_eq!(read(raw("\"AAAAPwAAAMA=\"")).as_deref(), Some("[0.5,-2.0]"));
        for bad in ["[\"x\"]", "{}", "\"AAA=\"", "\"AACAfw==\"", "null"] {
            assert_eq!(read(raw(bad)), None, "{bad}");
        }
    }
}
