//! The thresholds of the member's budgets and balance for notices, and whether notices are mailed.

use std::sync::Arc;

use serde_json::{Map, Value};
use tollgate_store::MemberPreferences;

use super::profile_page;
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::Control,
        form::{FormData, FormState},
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::PageRequest,
    },
};

/// The form of the profile.
#[derive(Debug)]
pub(super) struct NoticesView {
    pub(super) percents: Control,
    pub(super) balance: Control,
    pub(super) mail: Control,
    /// Why no mail is sent even if the member asks for it.
    pub(super) no_mail: Option<&'static str>,
}

impl NoticesView {
    pub(super) fn of(request: &PageRequest, form: &FormState, has_email: bool) -> Self {
        let (t, kept) = (request.t(), request.kept_preferences().cloned().unwrap_or_default());
        let percents = kept.effective_percents().iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let balance = kept.effective_balance().to_usd_string();
        let mail = if kept.notice_mail { "true" } else { "" };
        let kept =
            FormState::of(FormData::of(&[("notice_percents", &percents), ("notice_balance", &balance), ("notice_mail", mail)]));
        let form = if form.has("notice_percents") { form } else { &kept };
        let no_mail = match (sends_mails(request), has_email) {
            (false, _) => Some(t.say("notices.no_mails")),
            (true, false) => Some(t.say("notices.no_address")),
            (true, true) => None,
        };
        Self {
            percents: form.text("notice_percents", t.say("notices.percents")).hint(t.say("notices.percents_hint")).max(100),
            balance: form.number("notice_balance", t.say("notices.balance_below")).hint(t.say("notices.balance_hint")),
            mail: form.check("notice_mail", t.say("notices.by_mail")),
            no_mail,
        }
    }
}

/// Whether the gateway sends mails to members.
fn sends_mails(request: &PageRequest) -> bool {
    let settings = request.state.gateway.settings();
    let set = settings.iter().find(|setting| setting.name == "alerts.member_mail");
    set.and_then(|setting| setting.value.as_deref()).is_some_and(|name| !name.is_empty())
}

/// The percentages of a text such as `50, 80, 100`.
fn percents(text: &str) -> Result<Vec<u32>, ApiError> {
    let parts = text.split([',', ' ', '%', '，', '、']).filter(|part| !part.is_empty());
    let numbers: Result<Vec<u32>, _> = parts.map(str::parse).collect();
    numbers.map_err(|_| ApiError::value("notice_percents", "expected whole numbers separated by commas").because("percents"))
}

pub(super) async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    match store(&request).await {
        Ok(()) => Ok(PageReply::redirect(&request.url("/profile")).toast(Toast::Saved)),
        Err(error) => {
            let param = error.param().unwrap_or_default().to_owned();
            let error = match param.split(['.', '[']).next() {
                Some("notice_percents") => error.about("notice_percents").because("percents"),
                Some("notice_balance") => error.because("amount"),
                _ => error,
            };
            let form = FormState::refused(request.t(), &request.form, &error, &["notice_percents", "notice_balance"])?;
            profile_page(&request, &form).await
        }
    }
}

/// A value that equals the default is left unset, so that it follows later changes of the default.
async fn store(request: &PageRequest) -> Result<(), ApiError> {
    let form = &request.form;
    let percents = percents(form.value("notice_percents"))?;
    let percents = if percents == MemberPreferences::NOTICE_PERCENTS { Value::Null } else { percents.into() };
    let balance = form.filled("notice_balance").unwrap_or("0");
    let balance = if balance == "1" || balance == "1.00" { Value::Null } else { balance.into() };
    let mut body = Map::from_iter([("notice_percents".to_owned(), percents), ("notice_balance".to_owned(), balance)]);
    body.insert("notice_mail".to_owned(), (form.value("notice_mail") == "true").into());
    request.call(operations::CHANGE_PREFERENCES, ApiCall { body, ..ApiCall::default() }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_as_people_type_them() {
        assert_eq!(percents("50, 80,100").unwrap(), [50, 80, 100]);
        assert_eq!(percents("80 % 100%").unwrap(), [80, 100]);
        assert_eq!(percents("50，80").unwrap(), [50, 80]);
        assert!(percents(" ").unwrap().is_empty());
        assert!(percents("half").is_err() && percents("-5").is_err() && percents("1.5").is_err());
    }
}
