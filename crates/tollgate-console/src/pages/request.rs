//! A request for a page as handlers see it, and the calls of the admin API that they make for its sender.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tollgate_store::{AdminScope, MemberPreferences};
use url::form_urlencoded::Serializer;

use super::{
    control::Pager,
    drawer::OPEN,
    form::{FormData, REVISION},
    layout::Layout,
    locale::Locale,
    page_cursors::{AFTER, BACK, CursorPairs, PageCursors},
    period::Period,
    preferences::Preferences,
};
use crate::{
    api::{self, route::Needs},
    api_error::ApiError,
    appearance::Appearance,
    dispatch::{self, ApiCall},
    identity::SignedIn,
    kept_answers::KEPT_FOR,
    principal::Principal,
    response::ApiResponse,
    state::{ConsoleState, RequestMeta},
};

#[derive(Debug)]
pub(crate) struct PageRequest {
    pub(crate) state: Arc<ConsoleState>,
    pub(crate) meta: RequestMeta,
    pub(crate) headers: HeaderMap,
    /// Path and query, without the console's own path.
    pub(crate) address: String,
    /// If a form was sent: the address of its page, which is shown when the answer is reloaded.
    pub(crate) page_of_form: Option<String>,
    pub(crate) path: HashMap<String, String>,
    pub(crate) query: FormData,
    /// The data of a sent form; empty otherwise.
    pub(crate) form: FormData,
    pub(crate) signed_in: Option<SignedIn>,
    pub(crate) preferences: Preferences,
    pub(crate) appearance: Appearance,
    /// Number of open alerts, for the navigation of operators; `None`: not known.
    pub(crate) open_alerts: Option<u64>,
}

impl PageRequest {
    pub(crate) const fn t(&self) -> Locale {
        self.preferences.locale
    }

    /// Whether an operator or an admin has signed in.
    pub(crate) fn is_operator(&self) -> bool {
        self.signed_in.as_ref().is_some_and(|signed_in| AdminScope::from(signed_in.member.role) >= AdminScope::Operator)
    }

    /// The stored preferences of the signed-in member.
    pub(crate) fn kept_preferences(&self) -> Option<&MemberPreferences> {
        self.signed_in.as_ref().map(|signed_in| &signed_in.member.login.preferences)
    }

    /// Whether the member who is signed in has a password, which is asked for again before a credential is made for others.
    pub(crate) fn has_password(&self) -> bool {
        self.signed_in.as_ref().is_some_and(|signed_in| signed_in.member.login.password.is_some())
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.signed_in.as_ref().is_some_and(|signed_in| AdminScope::from(signed_in.member.role) == AdminScope::Admin)
    }

    /// A path parameter; empty if the page has none of this name.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    /// The address of a path of the console, for links and redirects.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.state.identity.settings.base())
    }

    /// An address that a request asks to go to afterwards, if it is one of this console: below its own path, which is removed.
    pub(crate) fn local_path<'a>(&self, text: &'a str) -> Option<&'a str> {
        let path = text.strip_prefix(self.state.identity.settings.base()).filter(|rest| rest.starts_with('/')).unwrap_or(text);
        dispatch::is_local_path(path).then_some(path)
    }

    /// Whether htmx requests only the part of the page that changes.
    pub(crate) fn wants_part(&self) -> bool {
        self.headers.contains_key("hx-request") && !self.headers.contains_key("hx-history-restore-request")
    }

    pub(crate) fn layout(&self, title: impl Into<String>) -> Layout {
        Layout::of(self, title.into())
    }

    /// Calls a route of the admin API for the sender.
    pub(crate) async fn call(&self, id: &'static str, call: ApiCall) -> Result<ApiResponse, ApiError> {
        self.call_with(id, call, &[]).await
    }

    /// The same with further headers: `If-Match`, `Idempotency-Key`.
    pub(crate) async fn call_with(
        &self,
        id: &'static str,
        call: ApiCall,
        further: &[(&'static str, &str)],
    ) -> Result<ApiResponse, ApiError> {
        let Some(route) = api::route_of(id) else {
            tracing::error!(id, "a page calls an unknown route");
            return Err(ApiError::internal());
        };
        let principal = match &self.signed_in {
            _ if route.needs == Needs::Nothing => Principal::Anonymous,
            Some(signed_in) => Principal::Session(Box::new(signed_in.clone())),
            None => return Err(ApiError::no_session()),
        };
        let mut headers = self.headers.clone();
        for (name, value) in further {
            let value = HeaderValue::from_str(value).map_err(|_| ApiError::value(name, "expected visible characters"))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        dispatch::call(&self.state, route, (principal, &self.meta, &headers), call).await
    }

    /// The same for the revision that the sent form was loaded with: a row that was changed since is refused.
    pub(crate) async fn call_at_revision(&self, id: &'static str, call: ApiCall) -> Result<ApiResponse, ApiError> {
        self.call_with(id, call, &[("if-match", self.form.value(REVISION))]).await
    }

    /// The address of another page of the same list.
    pub(crate) fn at(&self, path: &str, cursors: &CursorPairs) -> String {
        self.with_query(path, &[AFTER, BACK, OPEN], cursors)
    }

    /// The address of the same list, with this row beside it or none.
    pub(crate) fn beside(&self, path: &str, row: Option<&str>) -> String {
        let row: Vec<_> = row.map(|row| (OPEN, row.to_owned())).into_iter().collect();
        self.with_query(path, &[OPEN], &row)
    }

    /// A path with the query of this request, without some of its parameters and with others.
    fn with_query(&self, path: &str, without: &[&str], with: &[(&'static str, String)]) -> String {
        let query = self.other_query(without, with);
        let mark = if query.is_empty() { "" } else { "?" };
        self.url(&format!("{path}{mark}{query}"))
    }

    /// The query of this request without some of its parameters and with others.
    pub(crate) fn other_query(&self, without: &[&str], with: &[(&'static str, String)]) -> String {
        let kept = self.query.pairs().filter(|(name, value)| !without.contains(name) && !value.is_empty());
        Serializer::new(String::new()).extend_pairs(kept).extend_pairs(with).finish()
    }

    /// The relative address of this page with another value of a parameter.
    pub(crate) fn with_value(&self, name: &'static str, value: &str) -> String {
        format!("?{}", self.other_query(&[name], &[(name, value.to_owned())]))
    }

    /// The footer of a list.
    pub(crate) fn pager(&self, path: &str, count: String, next: Option<&str>) -> Pager {
        Pager::of(&PageCursors::of(&self.query), count, next, |cursors| self.at(path, cursors))
    }

    /// The same, with these fields as the body.
    pub(crate) async fn send(&self, id: &'static str, fields: &[(&str, &str)]) -> Result<ApiResponse, ApiError> {
        let body: Map<String, Value> = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect();
        self.call(id, ApiCall { body, ..ApiCall::default() }).await
    }

    /// Calls a route of the admin API and parses the answer.
    pub(crate) async fn read<T: DeserializeOwned>(&self, id: &'static str, call: ApiCall) -> Result<T, ApiError> {
        read_answer(self.call(id, call).await?)
    }

    /// The same for sums over a period. Those over several days are cached for all operators ([`Period::sums_kept_for`]), so that many open
    /// pages cost as much as one.
    pub(crate) async fn read_sums<T: DeserializeOwned>(
        &self,
        period: &Period,
        id: &'static str,
        call: ApiCall,
    ) -> Result<T, ApiError> {
        match period.sums_kept_for(self.state.gateway.now()) {
            Some(kept_for) => self.read_kept_for(kept_for, id, call).await,
            None => self.read(id, call).await,
        }
    }

    /// The same with a short cache that is shared by operators, and one that is shared by admins. Answers for members are never
    /// shared.
    pub(crate) async fn read_kept<T: DeserializeOwned>(&self, id: &'static str, call: ApiCall) -> Result<T, ApiError> {
        self.read_kept_for(KEPT_FOR, id, call).await
    }

    async fn read_kept_for<T: DeserializeOwned>(&self, kept_for: Duration, id: &'static str, call: ApiCall) -> Result<T, ApiError> {
        let Some(signed_in) = self.signed_in.as_ref().filter(|_| self.is_operator()) else {
            return self.read(id, call).await;
        };
        let question = (id, AdminScope::from(signed_in.member.role), call.query.clone());
        // Boxed, because a page makes several such calls at the same time.
        let compute = Box::pin(async { Ok::<_, ApiError>(self.call(id, call).await?.into_parts().0) });
        let answer = self.state.kept_answers.get(question, kept_for, compute).await?;
        read_value(T::deserialize(&*answer))
    }
}

/// A page of rows as the admin API answers it.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiPage<T> {
    pub(crate) items: Vec<T>,
    /// Cursor of the next page.
    pub(crate) next: Option<String>,
}

impl<T> ApiPage<T> {
    pub(crate) const fn empty() -> Self {
        Self { items: Vec::new(), next: None }
    }
}

/// An answer of the admin API, read.
pub(crate) fn read_answer<T: DeserializeOwned>(answer: ApiResponse) -> Result<T, ApiError> {
    // Parsed by reference: the generated code for an owned value is several times as large, for each type.
    read_value(T::deserialize(&answer.into_parts().0))
}

fn read_value<T>(read: Result<T, serde_json::Error>) -> Result<T, ApiError> {
    read.map_err(|fault| {
        tracing::error!(%fault, "a page cannot read an answer of the admin API");
        ApiError::internal()
    })
}

/// A call that reads, with these parameters in its query.
pub(crate) fn get(pairs: &[(&str, &str)]) -> ApiCall {
    ApiCall { query: Serializer::new(String::new()).extend_pairs(pairs).finish(), ..ApiCall::default() }
}

/// Path parameters of a call.
pub(crate) fn path_of(values: &[(&str, &str)]) -> HashMap<String, String> {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
