//! Lists that are limited to some members, for pages that show more about the members they list.

use std::collections::HashSet;

use tollgate_core::MemberId;
use tollgate_store::fields::{FieldShape, Kind};

use super::{request_context::RequestContext, schema::both};
use crate::api_error::ApiError;

/// Most members that can be named.
const MAX_MEMBERS: usize = 100;

pub(super) const MEMBERS: FieldShape =
    both("members", Kind::Text { min: 1, max: 4_000 }, "Only of these members, by id, separated by commas: at most 100.");

/// The members that a request names; empty if it does not limit them.
pub(super) fn read(context: &RequestContext) -> Result<HashSet<MemberId>, ApiError> {
    context.query.text("members").map_or(Ok(HashSet::new()), parse)
}

fn parse(text: &str) -> Result<HashSet<MemberId>, ApiError> {
    let ids: Option<HashSet<MemberId>> = text.split(',').map(|id| MemberId::parse(id.trim())).collect();
    let refused = || ApiError::value("members", format_args!("expected at most {MAX_MEMBERS} ids of members, separated by commas"));
    ids.filter(|ids| ids.len() <= MAX_MEMBERS).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;

    #[test]
    fn up_to_100_member_ids_are_parsed_and_other_text_is_refused() {
        let id = |number: u8| MemberId::from_parts(Timestamp(0), [number; 10]);
        let listed = |count: u8| (0..count).map(|number| id(number).to_string()).collect::<Vec<_>>().join(", ");
        assert_eq!(parse(&listed(2)).unwrap(), HashSet::from([id(0), id(1)]));
        assert_eq!(parse(&listed(100)).unwrap().len(), 100);
        for wrong in [listed(101), "ann".to_owned(), String::new(), format!("{},", listed(1))] {
            assert!(parse(&wrong).is_err(), "{wrong}");
        }
    }
}
