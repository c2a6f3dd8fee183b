//! Errors about several rows.

use super::*;

#[test]
fn error_shared_by_all_rows_is_reported_as_one_error() {
    let fault = |name: &str| (name.to_owned(), ApiError::value("weight", "it is too small"));
    assert!(ApiError::check_rows(Vec::new(), 2).is_ok());
    let all = ApiError::check_rows(vec![fault("a"), fault("b")], 2).unwrap_err();
    assert_eq!((all.param(), all.rows().len()), (Some("weight"), 0));
    let some = ApiError::check_rows(vec![fault("a"), fault("b")], 3).unwrap_err();
    assert_eq!((some.code(), some.rows().len()), ("rows_refused", 2));
    assert!(some.message().starts_with("Nothing was changed. a: Invalid value for 'weight'"), "{}", some.message());
}

#[test]
fn summary_above_a_bound_names_the_parameter_to_change() {
    let groups = ApiError::store(&StoreError::TooManyGroups { max: 7 }, None);
    assert_eq!((groups.code(), groups.param()), ("invalid_value", Some("by")));
    assert!(groups.message().contains("more than 7 groups; group by one thing less, or filter by"), "{}", groups.message());
    let records = ApiError::store(&StoreError::TooManyRecords { records: 9, max: 8 }, None);
    assert_eq!((records.code(), records.param()), ("invalid_value", Some("since")));
    assert!(records.message().contains("has 9; at most 8 are read"), "{}", records.message());
}
