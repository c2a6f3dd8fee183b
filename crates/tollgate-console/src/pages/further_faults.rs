//! Reports every fault of a form at once. The admin API checks each value first, and conditions on the clock or other rows only once all
//! values are valid, so one call may not report every fault.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::request::PageRequest;
use crate::{api_error::ApiError, dispatch::ApiCall};

/// Checks of one form, at most.
const MAX_CHECKS: usize = 8;

/// An error with the further faults of its body: the fields at fault are left out, or replaced by `stand_ins` where a row needs them, and
/// the rest is checked again without being saved. The route has to have a dry run.
pub(super) async fn with_further_faults(
    request: &PageRequest,
    route: &'static str,
    ApiCall { path, mut body, .. }: ApiCall,
    mut error: ApiError,
    stand_ins: &[(&'static str, &str)],
) -> ApiError {
    if !error.is_about_input() {
        return error;
    }
    let mut left_out = HashSet::new();
    for check in 0..MAX_CHECKS {
        let before = left_out.len();
        for member in error.each().iter().filter_map(|fault| member_of(fault, &body)).collect::<HashSet<_>>() {
            if left_out.insert(member.clone()) {
                let stand_in = stand_ins.iter().find(|(known, _)| *known == member);
                match stand_in {
                    Some((_, value)) => body.insert(member, Value::from(*value)),
                    None => body.remove(&member),
                };
            }
        }
        if check > 0 && left_out.len() == before {
            break;
        }
        let rest = ApiCall { path: path.clone(), query: "dry_run=true".to_owned(), body: body.clone() };
        let Err(found) = request.call(route, rest).await else { break };
        // A fault of a field that was left out, or a refusal about no field, is not a fault of the typed values.
        let is_new = |fault: &ApiError| member_of(fault, &body).is_some_and(|member| !left_out.contains(&member));
        error = error.with_others(found.each().into_iter().filter(is_new).collect());
    }
    error
}

/// The member of the body that a fault is about.
fn member_of(fault: &ApiError, body: &Map<String, Value>) -> Option<String> {
    let named = fault.param().and_then(|param| param.split(['.', '[']).next());
    let member = if fault.code() == "already_exists" { named.or(Some("name")) } else { named };
    member.filter(|member| body.contains_key(*member)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_are_of_the_member_that_their_path_begins_with() {
        let body = json!({"ip_allow": ["x"], "price_limit": {"mode": "ceiling"}, "name": "a"}).as_object().unwrap().clone();
        let member = |error: ApiError| member_of(&error, &body);
        assert_eq!(member(ApiError::value("ip_allow[0]", "x")).as_deref(), Some("ip_allow"));
        assert_eq!(member(ApiError::value("price_limit.max_input", "x")).as_deref(), Some("price_limit"));
        assert_eq!(member(ApiError::conflict("already_exists", "x")).as_deref(), Some("name"));
        assert_eq!(member(ApiError::value("count", "x")), None);
        assert_eq!(member(ApiError::conflict("nothing_left", "x")), None);
    }
}
