//! Buttons of a channel: off and on, the end of cooling, and its removal.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::state::{call_of, path};
use crate::{
    dispatch::ApiCall,
    pages::{
        control::{TYPED_NAME, check_typed_name},
        form::FormState,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::PageRequest,
    },
};

fn back(request: &PageRequest) -> PageReply {
    PageReply::redirect(&request.url(&path(request.path_param("name"))))
}

/// Off, or on again.
pub(super) async fn switch(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let status = if request.form.value("status") == "off" { "off" } else { "on" };
    let body: Map<String, Value> = [("status".to_owned(), status.into())].into_iter().collect();
    request.call(operations::CHANGE_CHANNEL, ApiCall { body, ..call_of(&request) }).await?;
    Ok(match status {
        "off" => back(&request).toast_with_undo(Toast::ChannelOff, &[request.path_param("name")]),
        _ => back(&request).toast(Toast::ChannelOn),
    })
}

/// Ends the cooldowns, so that requests can use the accounts again.
pub(super) async fn end_cooling(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let account = request.form.filled("account").map(|account| ("account".to_owned(), Value::from(account)));
    let body: Map<String, Value> = account.into_iter().collect();
    request.call(operations::END_COOLING, ApiCall { body, ..call_of(&request) }).await?;
    Ok(back(&request).toast(Toast::CoolingEnded))
}

/// Removes a channel whose name was typed.
pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    if let Err(error) = check_typed_name(&request.form, request.path_param("name")) {
        let form = FormState::refused(request.t(), &request.form, &error, &[TYPED_NAME])?;
        return super::detail::page(&request, &form).await;
    }
    request.call(operations::REMOVE_CHANNEL, call_of(&request)).await?;
    Ok(PageReply::redirect(&request.url("/channels")).toast(Toast::Removed))
}
