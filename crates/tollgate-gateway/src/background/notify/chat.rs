//! Messages to group chats, each in the form of its service:
//!
//! - Slack, incoming webhooks: <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>
//! - Feishu, custom bots: <https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot>
//! - DingTalk, custom robots, and how they are signed:
//!   <https://open.dingtalk.com/document/robots/custom-robot-access> and
//!   <https://open.dingtalk.com/document/robots/customize-robot-security-settings>
//! - WeCom, group robots: <https://developer.work.weixin.qq.com/document/path/91770>
//! - Telegram, `sendMessage`: <https://core.telegram.org/bots/api#sendmessage>
//!
//! Feishu, DingTalk and WeCom answer a refused message with the status 200 and a code.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tollgate_core::Timestamp;
use tollgate_store::AlertDestination;
use url::Url;

use super::{Notification, Notifier, address, mac};

/// Longest text of WeCom, in bytes.
const WECOM_BYTES: usize = 2_048;
/// Longest text of Telegram: 4,096 characters, each of which has at least one byte.
const TELEGRAM_BYTES: usize = 4_096;

impl Notifier {
    pub(super) async fn slack(&self, destination: &AlertDestination, message: &Notification) -> Result<(), String> {
        // Slack reads `<…>` as links and mentions, so these characters are escaped.
        let text = message.line().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.post_json(destination, &address(destination)?, &json!({"text": text})).await.map(drop)
    }

    pub(super) async fn feishu(
        &self,
        destination: &AlertDestination,
        message: &Notification,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut body = json!({"msg_type": "text", "content": {"text": message.line().replace('<', "＜")}});
        if let Some(secret) = &destination.secrets.secret {
            let time = now.seconds().to_string();
            // Feishu signs an empty message, with time and secret as the key.
            body["sign"] = STANDARD.encode(mac(format!("{time}\n{secret}").as_bytes(), b"")).into();
            body["timestamp"] = time.into();
        }
        let answer = self.post_json(destination, &address(destination)?, &body).await?;
        accepted(&answer, "code", "Feishu")
    }

    /// The signature is in the query: HMAC-SHA256 of the time in milliseconds and the secret, under the secret.
    pub(super) async fn dingtalk(
        &self,
        destination: &AlertDestination,
        message: &Notification,
        now: Timestamp,
    ) -> Result<(), String> {
        let mut url = address(destination)?;
        if let Some(secret) = &destination.secrets.secret {
            let time = now.0.div_euclid(1_000).to_string();
            let sign = STANDARD.encode(mac(secret.as_bytes(), format!("{time}\n{secret}").as_bytes()));
            url.query_pairs_mut().append_pair("timestamp", &time).append_pair("sign", &sign);
        }
        let body = json!({"msgtype": "text", "text": {"content": message.line()}});
        accepted(&self.post_json(destination, &url, &body).await?, "errcode", "DingTalk")
    }

    pub(super) async fn wecom(&self, destination: &AlertDestination, message: &Notification) -> Result<(), String> {
        let body = json!({"msgtype": "text", "text": {"content": cut(&message.line(), WECOM_BYTES)}});
        accepted(&self.post_json(destination, &address(destination)?, &body).await?, "errcode", "WeCom")
    }

    /// The address is that of the server; its path has the bot's token, which is the secret.
    pub(super) async fn telegram(&self, destination: &AlertDestination, message: &Notification) -> Result<(), String> {
        let mut url = address(destination)?;
        let token = destination.secrets.secret.as_deref().ok_or("the token of the bot is missing")?;
        url.set_path(&format!("/bot{token}/sendMessage"));
        let chat = destination.spec.to.first().ok_or("the chat is missing")?;
        let body = json!({"chat_id": chat, "text": cut(&message.line(), TELEGRAM_BYTES)});
        let answer = self.post_json(destination, &url, &body).await?;
        match serde_json::from_slice::<Value>(&answer).ok().and_then(|answer| answer["ok"].as_bool()) {
            Some(true) => Ok(()),
            Some(false) => Err("Telegram refused it".to_owned()),
            None => Err("the answer is not that of Telegram".to_owned()),
        }
    }

    async fn post_json(&self, destination: &AlertDestination, url: &Url, body: &Value) -> Result<bytes::Bytes, String> {
        self.post(destination, url, http::HeaderMap::new(), body.to_string().into()).await
    }
}

/// Whether the code of an answer is 0.
fn accepted(answer: &[u8], code: &str, service: &str) -> Result<(), String> {
    match serde_json::from_slice::<Value>(answer).ok().and_then(|answer| answer[code].as_i64()) {
        Some(0) => Ok(()),
        Some(code) => Err(format!("{service} refused it with the code {code}")),
        None => Err(format!("the answer is not that of {service}")),
    }
}

/// The beginning of a text that is too long, with an ellipsis.
fn cut(text: &str, max_bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    format!("{}{ELLIPSIS}", &text[..text.floor_char_boundary(max_bytes - ELLIPSIS.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("abcdef", 5), "ab…");
        let long = "渠".repeat(1_000);
        let cut = cut(&long, WECOM_BYTES);
        assert!(cut.len() <= WECOM_BYTES && cut.ends_with("渠…"), "{}", cut.len());
    }

    #[test]
    fn answer_without_the_code_of_the_service_is_an_error() {
        assert_eq!(accepted(br#"{"errcode":0,"errmsg":"ok"}"#, "errcode", "WeCom"), Ok(()));
        let refused = accepted(br#"{"errcode":93000,"errmsg":"invalid webhook url"}"#, "errcode", "WeCom");
        assert_eq!(refused, Err("WeCom refused it with the code 93000".to_owned()));
        assert_eq!(accepted(b"<html>", "errcode", "WeCom"), Err("the answer is not that of WeCom".to_owned()));
    }
}
