//! The search for the id of a request: its record is opened beside the list that was shown.

use serde::de::IgnoredAny;

use super::{filter::LIST, kept_query};
use crate::{
    dispatch::ApiCall,
    pages::{
        form::FormData,
        operations,
        reply::PageFailure,
        request::{PageRequest, path_of},
    },
};

/// What ids of requests begin with.
const PREFIX: &str = "req_";

/// The result of a search.
#[derive(Debug)]
pub(super) enum SearchedId {
    /// The address of the list with the record open.
    Found(String),
    /// Why there is no record, as a sentence.
    Missing(String),
}

/// Searches for a record among those that the reader may see.
pub(super) async fn of_id(request: &PageRequest, id: &str) -> Result<SearchedId, PageFailure> {
    let t = request.t();
    if !id.starts_with(PREFIX) {
        return Ok(SearchedId::Missing(t.say("log.no_id").to_owned()));
    }
    let call = ApiCall { path: path_of(&[("record", id)]), ..ApiCall::default() };
    match request.read::<IgnoredAny>(operations::GET_USAGE, call).await {
        Ok(_) => {
            let list = FormData::parse(request.query.value(LIST).trim_start_matches('?').as_bytes());
            let mut query = url::form_urlencoded::Serializer::new(kept_query(request, &list));
            let query = query.append_pair("open", id).finish();
            Ok(SearchedId::Found(request.url(&format!("/log?{query}"))))
        }
        Err(error) if error.status.is_client_error() => Ok(SearchedId::Missing(t.say_with("log.no_record", &[("id", id)]))),
        Err(error) => Err(error.into()),
    }
}
