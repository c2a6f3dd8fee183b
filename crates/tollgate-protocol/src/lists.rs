//! Model lists and single models in the form of each protocol. The callers of this module decide which models are visible.

mod anthropic;

pub use anthropic::{anthropic_model, anthropic_models};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::Method;

pub const DEFAULT_PAGE_SIZE: usize = 50;
/// Largest page size of Gemini model lists; larger values are reduced to it.
pub const MAX_PAGE_SIZE: usize = 1000;

/// Creation time of every model, in Unix seconds. The catalog has no such date and the value must be stable; Anthropic's reference uses
/// the epoch for unknown dates.
const CREATED: i64 = 0;

/// Prefix of a page token before encoding; detects foreign texts.
const TOKEN_MARK: &str = "m1:";

/// A model as the lists of all protocols show it; each takes the fields that its form has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    pub name: String,
    /// Owner shown to callers: the product or the operator, never an upstream's account.
    pub owned_by: String,
    pub description: Option<String>,
    /// Context length in tokens.
    pub context: Option<u64>,
    /// Maximum number of output tokens.
    pub max_output: Option<u64>,
    /// Methods the model supports; only those with a Gemini verb are listed.
    pub methods: Vec<Method>,
}

/// The paging parameters of a list's query, decoded; empty means absent. [`PageParameters`] names those of each protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageQuery {
    pub size: Option<String>,
    /// End of the previous page: a token, or the name of its last model.
    pub after: Option<String>,
    /// The name of the model before which the page ends.
    pub before: Option<String>,
}

/// A protocol's names of the parameters in [`PageQuery`]; `None` where it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageParameters {
    pub size: Option<&'static str>,
    pub after: Option<&'static str>,
    pub before: Option<&'static str>,
}

impl PageParameters {
    /// The parameters of a query whose values `get` returns.
    pub fn read(self, get: impl Fn(&'static str) -> Option<String>) -> PageQuery {
        PageQuery { size: self.size.and_then(&get), after: self.after.and_then(&get), before: self.before.and_then(&get) }
    }
}

/// The form of a protocol's model list.
#[derive(Clone, Copy, Debug)]
pub struct ListFormat {
    pub parameters: PageParameters,
    /// Encodes the page that a query selects of models sorted by name (bytes).
    pub list: fn(&[ListedModel], &PageQuery) -> Result<Bytes, InvalidPageQuery>,
    pub model: fn(&ListedModel) -> Bytes,
}

pub(crate) const OPENAI: ListFormat = ListFormat {
    parameters: PageParameters { size: None, after: None, before: None },
    list: |models, _| Ok(openai_models(models)),
    model: openai_model,
};

pub(crate) const GEMINI: ListFormat = ListFormat {
    parameters: PageParameters { size: Some("pageSize"), after: Some("pageToken"), before: None },
    list: |models, query| page(models, query.size.as_deref(), query.after.as_deref()).map(|page| gemini_models(&page)),
    model: gemini_model,
};

pub(crate) const ANTHROPIC: ListFormat = ListFormat {
    parameters: PageParameters { size: Some("limit"), after: Some("after_id"), before: Some("before_id") },
    list: anthropic_models,
    model: anthropic_model,
};

/// A page of a sorted list of models; `more`: further models follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelPage<'a> {
    pub models: &'a [ListedModel],
    pub more: bool,
}

/// An invalid query of a model list (400 `INVALID_ARGUMENT`). The text is a whole sentence for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPageQuery {
    /// `pageSize` is not a non-negative whole number.
    #[error("Invalid value for 'pageSize': expected a whole number of 0 or more.")]
    Size,
    /// `pageToken` was not issued by this gateway.
    #[error("Invalid value for 'pageToken': send the nextPageToken of the page before, unchanged.")]
    Token,
    /// `limit` is not a whole number within the bounds.
    #[error("Invalid value for 'limit': expected a whole number from 1 to 1000.")]
    Limit,
}

impl InvalidPageQuery {
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Size => "pageSize",
            Self::Token => "pageToken",
            Self::Limit => "limit",
        }
    }
}

/// Selects a page of `models`, which are sorted by name (bytes). `size` and `token` are the decoded query values; empty means
/// absent. A token contains the name of the last model of the previous page, so it stays valid when models are added or removed.
pub fn page<'a>(models: &'a [ListedModel], size: Option<&str>, token: Option<&str>) -> Result<ModelPage<'a>, InvalidPageQuery> {
    let size = match size.filter(|size| !size.is_empty()) {
        None => DEFAULT_PAGE_SIZE,
        Some(size) if size.bytes().all(|byte| byte.is_ascii_digit()) => match size.parse() {
            Ok(0) => DEFAULT_PAGE_SIZE,
            Ok(size) => MAX_PAGE_SIZE.min(size),
            // All digits, but too large for a `usize`.
            Err(_) => MAX_PAGE_SIZE,
        },
        Some(_) => return Err(InvalidPageQuery::Size),
    };
    let from = match token.filter(|token| !token.is_empty()) {
        None => 0,
        Some(token) => {
            let last = last_of(token).ok_or(InvalidPageQuery::Token)?;
            models.partition_point(|model| model.name <= last)
        }
    };
    let rest = &models[from..];
    Ok(ModelPage { models: &rest[..size.min(rest.len())], more: rest.len() > size })
}

fn last_of(token: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let name = String::from_utf8(bytes).ok()?.strip_prefix(TOKEN_MARK)?.to_owned();
    Some(name).filter(|name| !name.is_empty())
}

impl ModelPage<'_> {
    pub fn next_token(&self) -> Option<String> {
        let last = self.models.last().filter(|_| self.more)?;
        Some(URL_SAFE_NO_PAD.encode(format!("{TOKEN_MARK}{}", last.name)))
    }
}

/// Encodes `GET /v1/models`, which is not paged.
pub fn openai_models(models: &[ListedModel]) -> Bytes {
    json!({"object": "list", "data": models.iter().map(openai_value).collect::<Value>()}).to_string().into()
}

/// Encodes `GET /v1/models/{id}`.
pub fn openai_model(model: &ListedModel) -> Bytes {
    openai_value(model).to_string().into()
}

fn openai_value(model: &ListedModel) -> Value {
    json!({"id": model.name, "object": "model", "created": CREATED, "owned_by": model.owned_by})
}

/// Encodes one page of `GET /v1beta/models`.
pub fn gemini_models(page: &ModelPage<'_>) -> Bytes {
    let mut list = json!({"models": page.models.iter().map(gemini_value).collect::<Value>()});
    if let Some(token) = page.next_token() {
        list["nextPageToken"] = token.into();
    }
    list.to_string().into()
}

/// Encodes `GET /v1beta/models/{model}`.
pub fn gemini_model(model: &ListedModel) -> Bytes {
    gemini_value(model).to_string().into()
}

fn gemini_value(model: &ListedModel) -> Value {
    let display_name = &model.name[..model.name.floor_char_boundary(128)];
    let mut value = json!({"name": format!("models/{}", model.name), "displayName": display_name});
    if let Some(description) = &model.description {
        value["description"] = description.as_str().into();
    }
    for (name, tokens) in [("inputTokenLimit", model.context), ("outputTokenLimit", model.max_output)] {
        if let Some(tokens) = tokens {
            // The fields are int32.
            value[name] = i32::try_from(tokens).unwrap_or(i32::MAX).into();
        }
    }
    value["supportedGenerationMethods"] = model.methods.iter().filter_map(|method| method.gemini_verb()).collect();
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> ListedModel {
        ListedModel {
            name: name.to_owned(),
            owned_by: "tollgate".to_owned(),
            description: None,
            context: None,
            max_output: None,
            methods: vec![Method::Chat, Method::Generate],
        }
    }

    fn models(count: usize) -> Vec<ListedModel> {
        (0..count).map(|index| model(&format!("m{index:05}"))).collect()
    }

    #[test]
    fn both_list_formats_are_encoded() {
        let mut one = model("a/b");
        assert_eq!(openai_model(&one), r#"{"id":"a/b","object":"model","created":0,"owned_by":"tollgate"}"#);
        assert_eq!(openai_models(&[]), r#"{"object":"list","data":[]}"#);
        one.description = Some("d".to_owned());
        (one.context, one.max_output) = (Some(1_048_576), Some(u64::MAX));
        assert_eq!(
            gemini_model(&one),
            r#"{"name":"models/a/b","displayName":"a/b","description":"d","inputTokenLimit":1048576,"outputTokenLimit":2147483647,"supportedGenerationMethods":["generateContent"]}"#
        );
        assert_eq!(gemini_models(&page(&[], None, None).unwrap()), r#"{"models":[]}"#);
    }

    #[test]
    fn pages_contain_every_model_once() {
        let all = models(7);
        let mut seen = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let page = page(&all, Some("3"), token.as_deref()).unwrap();
            seen.extend(page.models.iter().cloned());
            token = page.next_token();
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn page_size_has_a_default_and_a_maximum() {
        let all = models(1500);
        let length = |size| page(&all, size, None).map(|page| page.models.len());
        assert_eq!(length(None), Ok(50));
        assert_eq!((length(Some("")), length(Some("0"))), (Ok(50), Ok(50)));
        assert_eq!((length(Some("7")), length(Some("1000"))), (Ok(7), Ok(1000)));
        assert_eq!((length(Some("5000")), length(Some("99999999999999999999999"))), (Ok(1000), Ok(1000)));
        for bad in ["-1", "x", "1.5", "+3", " 3"] {
            assert_eq!(length(Some(bad)), Err(InvalidPageQuery::Size), "{bad}");
        }
    }

    #[test]
    fn page_token_survives_changes_of_the_list() {
        let mut all = models(6);
        let token = page(&all, Some("3"), None).unwrap().next_token().unwrap();
        all.remove(2);
        all.remove(3);
        let next = page(&all, Some("9"), Some(&token)).unwrap();
        assert_eq!((next.models[0].name.as_str(), next.models.len(), next.more), ("m00003", 2, false));
    }

    #[test]
    fn tokens_of_other_origin_are_refused() {
        let all = models(3);
        let foreign = URL_SAFE_NO_PAD.encode("other:m00001");
        let empty = URL_SAFE_NO_PAD.encode("m1:");
        for bad in ["x", "!!!!", "2", foreign.as_str(), empty.as_str(), "bTE6bTAwMDAx="] {
            assert_eq!(page(&all, None, Some(bad)), Err(InvalidPageQuery::Token), "{bad}");
        }
        assert_eq!(page(&all, None, Some("")).unwrap().models.len(), 3);
        assert_eq!(InvalidPageQuery::Token.parameter(), "pageToken");
    }
}
