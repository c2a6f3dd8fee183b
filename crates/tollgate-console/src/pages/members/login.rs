//! An admin's changes of how a member signs in: address, link for a new password, codes, passkeys, the account of the
//! OpenID provider, sessions.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{form, member_page, of_member, read_member, refuse, to_member};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::check_typed_in,
        form::FormState,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of, read_answer},
        sessions::SessionEntry,
    },
};

pub(super) async fn make_link(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let form = &request.form;
    let proof = form.has(form::LINK_PASSWORD).then(|| ("password".to_owned(), Value::from(form.value(form::LINK_PASSWORD))));
    let call = ApiCall { body: proof.into_iter().collect(), ..of_member(&request) };
    match request.call(operations::MAKE_PASSWORD_LINK, call).await {
        Ok(answer) => {
            let made: Value = read_answer(answer)?;
            let link = made["link"].as_str().map(str::to_owned);
            member_page(&request, &member, &FormState::of(form::values(&member)), link).await
        }
        Err(error) => refuse(&request, &member, error).await,
    }
}

/// The address to sign in with; empty removes it.
pub(super) async fn change_email(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let email = request.form.filled("email").map_or(Value::Null, Value::from);
    let call = ApiCall { body: Map::from_iter([("email".to_owned(), email)]), ..of_member(&request) };
    match request.call(operations::CHANGE_LOGIN, call).await {
        Ok(_) => Ok(to_member(&request, &member, Toast::Saved)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

pub(super) async fn reset_codes(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let reset = match check_typed_in(form::CODES_NAME, &request.form, &member.name) {
        Ok(()) => request.call(operations::RESET_TOTP, of_member(&request)).await,
        Err(error) => Err(error),
    };
    match reset {
        Ok(_) => Ok(to_member(&request, &member, Toast::CodesOff)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

pub(super) async fn remove_passkeys(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let removed = match check_typed_in(form::PASSKEYS_NAME, &request.form, &member.name) {
        Ok(()) => request.call(operations::REMOVE_PASSKEYS, of_member(&request)).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(to_member(&request, &member, Toast::PasskeysRemoved)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

/// Unlinks the account of the OpenID provider. The member's sessions end.
pub(super) async fn unlink(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let call = ApiCall { body: Map::from_iter([("oidc".to_owned(), Value::from(false))]), ..of_member(&request) };
    let unlinked = match check_typed_in(form::UNLINK_NAME, &request.form, &member.name) {
        Ok(()) => request.call(operations::CHANGE_LOGIN, call).await,
        Err(error) => Err(error),
    };
    match unlinked {
        Ok(_) => Ok(to_member(&request, &member, Toast::LoginUnlinked)),
        Err(error) => refuse(&request, &member, error).await,
    }
}

/// Ends a session of the member. If it is the session of the request, the answer also removes its cookie.
pub(super) async fn end_session(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let member = read_member(&request).await?;
    let page = format!("/members/{}", member.id);
    let end = request.url(&format!("{page}/sessions/{}/end", request.path_param("session")));
    if !SessionEntry::of_member(&request, &member.id, &page).await?.iter().any(|session| session.end == end) {
        return Err(ApiError::not_found("session").into());
    }
    let path = path_of(&[("session", request.path_param("session"))]);
    let answer = request.call(operations::END_SESSION, ApiCall { path, ..ApiCall::default() }).await?;
    Ok(to_member(&request, &member, Toast::SessionEnded).cookies(answer.into_parts().1))
}
