//! The caller's place in a distributed trace (W3C Trace Context, `traceparent`), and the ids of the gateway's own spans.
//!
//! A trace that begins at the gateway has the 128 bits of the request id as its id, so that each can be found from the other. The
//! ids of spans are computed from the request id as well: it is random enough, and no request draws further random numbers.

use tollgate_core::RequestId;

use crate::header_fields::HeaderFields;

const HEADER: &str = "traceparent";
/// Longest header that is read; version 00 has 55 characters.
const MAX_HEADER: usize = 256;

pub(crate) type TraceId = [u8; 16];
pub(crate) type SpanId = [u8; 8];

/// The span of the caller that the request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParentSpan {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    /// Whether the caller records the trace.
    pub(crate) sampled: bool,
}

impl ParentSpan {
    /// The parent that the request's headers name; `None` without exactly one valid `traceparent`.
    pub(crate) fn of(headers: &HeaderFields) -> Option<Self> {
        let mut values = headers.get_all(HEADER);
        let (value, None) = (values.next()?, values.next()) else { return None };
        Self::parse(value.as_bytes())
    }

    /// Parses `VERSION-TRACE-SPAN-FLAGS`. Versions after 00 may have further fields.
    fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_HEADER {
            return None;
        }
        let (fields, rest) = text.split_at_checked(55)?;
        let [version, trace, span, flags] = [0..2, 3..35, 36..52, 53..55].map(|range| &fields[range]);
        let [version] = hex_bytes::<1>(version)?;
        let dashes = [2, 35, 52].into_iter().all(|at| fields[at] == b'-');
        let ends = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        let (trace, span, [flags]) = (hex_bytes(trace)?, hex_bytes(span)?, hex_bytes(flags)?);
        let is_valid = dashes && ends && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }
}

/// Lower-case hex digits only, as the specification requires.
fn hex_bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// Trace id of a request without a parent.
pub(crate) fn own_trace(id: RequestId) -> TraceId {
    id.uuid().into_bytes()
}

/// Id of the request's span for 0, and of its attempts from 1 on.
pub(crate) fn span_id(id: RequestId, number: u64) -> SpanId {
    let (_, seed) = id.uuid().as_u64_pair();
    // The finaliser of splitmix64: a bijection, so the spans of a request differ.
    let mut mixed = seed.wrapping_add(number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    // All zeros is not an id.
    mixed.max(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use tollgate_core::Timestamp;

    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn parsed(text: &str) -> Option<ParentSpan> {
        ParentSpan::parse(text.as_bytes())
    }

    #[test]
    fn valid_parents_are_read() {
        let parent = parsed(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!((hex::encode(parent.trace), hex::encode(parent.span), parent.sampled), (TRACE.into(), SPAN.into(), true));
        for (flags, sampled) in [("00", false), ("03", true), ("fe", false), ("ff", true)] {
            assert_eq!(parsed(&format!("00-{TRACE}-{SPAN}-{flags}")).unwrap().sampled, sampled, "{flags}");
        }
        for later in [format!("01-{TRACE}-{SPAN}-01"), format!("cc-{TRACE}-{SPAN}-01-what-the-future-has")] {
            assert_eq!(parsed(&later), Some(parent), "{later}");
        }
    }

    #[test]
    fn invalid_parents_are_ignored() {
        let (zero_trace, zero_span, upper) = ("0".repeat(32), "0".repeat(16), TRACE.to_uppercase());
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("01-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{upper}-{SPAN}-01"),
            format!("00-{zero_trace}-{SPAN}-01"),
            format!("00-{TRACE}-{zero_span}-01"),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("01-{TRACE}-{SPAN}-01-{}", "x".repeat(MAX_HEADER)),
        ] {
            assert_eq!(parsed(&text), None, "{text}");
        }
        let mut headers = HeaderFields::default();
        assert_eq!(ParentSpan::of(&headers), None);
        headers.append(HEADER, HeaderValue::try_from(format!("00-{TRACE}-{SPAN}-01")).unwrap());
        assert!(ParentSpan::of(&headers).is_some());
        headers.append(HEADER, HeaderValue::try_from(format!("00-{TRACE}-{SPAN}-01")).unwrap());
        assert_eq!(ParentSpan::of(&headers), None, "two parents count as none");
    }

    #[test]
    fn spans_of_a_request_have_different_ids() {
        let id = RequestId::from_parts(Timestamp(1_795_000_000_000_000), [7; 10]);
        let other = RequestId::from_parts(Timestamp(1_795_000_000_000_000), [8; 10]);
        let mut ids: Vec<SpanId> = (0..9).flat_map(|number| [span_id(id, number), span_id(other, number)]).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 18);
        assert!(!ids.contains(&[0; 8]));
        assert_eq!(span_id(id, 0), span_id(id, 0));
    }
}
