//! Anthropic's model lists (Anthropic API reference, "List Models").

use bytes::Bytes;
use serde_json::{Value, json};

use super::{InvalidPageQuery, ListedModel, MAX_PAGE_SIZE, PageQuery};

const DEFAULT_LIMIT: usize = 20;
/// [`super::CREATED`] as RFC 3339.
const CREATED_AT: &str = "1970-01-01T00:00:00Z";

/// Encodes one page of `GET /v1/models`. A page after or before an unknown id is empty.
pub fn anthropic_models(models: &[ListedModel], query: &PageQuery) -> Result<Bytes, InvalidPageQuery> {
    let limit = limit(query.size.as_deref())?;
    let position = |name: &str| models.iter().position(|model| model.name == name);
    let given = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
    let (page, has_more) = match (given(&query.after), given(&query.before)) {
        (Some(after), _) => first_of(position(&after).map_or(&[], |at| &models[at + 1..]), limit),
        (None, Some(before)) => last_of(position(&before).map_or(&[], |at| &models[..at]), limit),
        (None, None) => first_of(models, limit),
    };
    let list = json!({
        "data": page.iter().map(value).collect::<Value>(),
        "has_more": has_more,
        "first_id": page.first().map(|model| &model.name),
        "last_id": page.last().map(|model| &model.name),
    });
    Ok(list.to_string().into())
}

fn limit(given: Option<&str>) -> Result<usize, InvalidPageQuery> {
    match given.filter(|given| !given.is_empty()) {
        None => Ok(DEFAULT_LIMIT),
        Some(digits) => {
            let limit = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
            limit.filter(|limit| (1..=MAX_PAGE_SIZE).contains(limit)).ok_or(InvalidPageQuery::Limit)
        }
    }
}

fn first_of(models: &[ListedModel], limit: usize) -> (&[ListedModel], bool) {
    (&models[..limit.min(models.len())], models.len() > limit)
}

fn last_of(models: &[ListedModel], limit: usize) -> (&[ListedModel], bool) {
    (&models[models.len().saturating_sub(limit)..], models.len() > limit)
}

/// Encodes `GET /v1/models/{id}`.
pub fn anthropic_model(model: &ListedModel) -> Bytes {
    value(model).to_string().into()
}

fn value(model: &ListedModel) -> Value {
    let mut value = json!({"type": "model", "id": model.name, "display_name": model.name, "created_at": CREATED_AT});
    for (name, tokens) in [("max_input_tokens", model.context), ("max_tokens", model.max_output)] {
        if let Some(tokens) = tokens {
            value[name] = tokens.into();
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(count: usize) -> Vec<ListedModel> {
        let model = |index: usize| ListedModel {
            name: format!("m{index:02}"),
            owned_by: "tollgate".to_owned(),
            description: None,
            context: None,
            max_output: None,
            methods: Vec::new(),
        };
        (0..count).map(model).collect()
    }

    fn listed(models: &[ListedModel], query: &PageQuery) -> (Vec<String>, bool, Value, Value) {
        let list: Value = serde_json::from_slice(&anthropic_models(models, query).unwrap()).unwrap();
        let names = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned());
        (names.collect(), list["has_more"] == true, list["first_id"].clone(), list["last_id"].clone())
    }

    #[test]
    fn pages_go_forward_and_backward() {
        let all = models(5);
        let query = |size: &str, after: Option<&str>, before: Option<&str>| PageQuery {
            size: Some(size.to_owned()),
            after: after.map(str::to_owned),
            before: before.map(str::to_owned),
        };
        let names = |query| {
            let (names, more, first, last) = listed(&all, &query);
            assert_eq!((first.as_str(), last.as_str()), (names.first().map(String::as_str), names.last().map(String::as_str)));
            (names.join(" "), more)
        };
        assert_eq!(names(query("2", None, None)), ("m00 m01".to_owned(), true));
        assert_eq!(names(query("2", Some("m01"), None)), ("m02 m03".to_owned(), true));
        assert_eq!(names(query("2", Some("m03"), None)), ("m04".to_owned(), false));
        assert_eq!(names(query("2", None, Some("m03"))), ("m01 m02".to_owned(), true));
        assert_eq!(names(query("2", None, Some("m02"))), ("m00 m01".to_owned(), false));
        assert_eq!(names(query("2", Some("other"), None)), (String::new(), false));
        assert_eq!(names(PageQuery::default()).0, "m00 m01 m02 m03 m04");
        assert_eq!(listed(&[], &PageQuery::default()), (Vec::new(), false, Value::Null, Value::Null));
    }

    #[test]
    fn limit_is_a_number_from_one_to_a_thousand() {
        assert_eq!([None, Some(""), Some("7"), Some("1000")].map(|it| limit(it).unwrap()), [20, 20, 7, 1000]);
        for bad in ["0", "-1", "+1", "x", "1.5", "1001", "99999999999999999999999"] {
            assert_eq!(limit(Some(bad)), Err(InvalidPageQuery::Limit), "{bad}");
        }
    }

    #[test]
    fn model_has_a_date_and_its_limits() {
        let mut one = models(1).remove(0);
        (one.context, one.max_output) = (Some(200_000), Some(64_000));
        assert_eq!(
            anthropic_model(&one),
            r#"{"type":"model","id":"m00","display_name":"m00","created_at":"1970-01-01T00:00:00Z","max_input_tokens":200000,"max_tokens":64000}"#
        );
    }
}
