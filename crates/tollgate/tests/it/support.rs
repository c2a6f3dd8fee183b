//! Shared by all tests: the executable, catalogs, request bodies.

use serde_json::{Value, json};
use tollgate_testkit::{TestGateway, TestGatewayBuilder, Upstream};

/// The executable under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate");

/// A gateway that serves the built-in echo channel only.
pub(crate) fn echo() -> TestGateway {
    TestGateway::builder(PROGRAM).spawn()
}

/// A gateway in front of a scripted upstream: `chat-model` over chat completions, `native-model` over the native
/// protocol; failures never cool an account down.
pub(crate) fn gateway_for(upstream: &Upstream) -> TestGateway {
    builder(upstream, "cooling = false").spawn()
}

/// The same with these additional catalog lines in both channels.
pub(crate) fn builder(upstream: &Upstream, channel_lines: &str) -> TestGatewayBuilder {
    TestGateway::builder(PROGRAM).catalog(&catalog(upstream, channel_lines))
}

/// The catalog of [`gateway_for`].
pub(crate) fn catalog(upstream: &Upstream, channel_lines: &str) -> String {
    channel("chat", "openai", &upstream.openai_url(), "chat-model", channel_lines)
        + &channel("native", "gemini", &upstream.gemini_url(), "native-model", channel_lines)
        + &prices(&["chat-model", "native-model"])
        + &group(&["chat", "native"])
}

/// One channel with one account; the upstream name of its model is `upstream-model`.
pub(crate) fn channel(name: &str, protocol: &str, base_url: &str, model: &str, lines: &str) -> String {
    format!(
        "[[channel]]\nname = \"{name}\"\nprovider = \"compatible\"\nprotocol = \"{protocol}\"\nbase_url = \"{base_url}\"\n\
         private_network = true\n{lines}\n\
         [[channel.account]]\nname = \"{name}-account\"\ncredential = \"{{credential}}\"\n\
         [[channel.serves]]\nmodel = \"{model}\"\nupstream = \"upstream-model\"\ncost = {{ input = \"1\", output = \"2\" }}\n"
    )
}

/// Catalog rows that price models at 10 and 20 USD per million tokens.
pub(crate) fn prices(models: &[&str]) -> String {
    models.iter().map(|model| format!("[[model]]\nname = \"{model}\"\nprice = {{ input = \"10\", output = \"20\" }}\n")).collect()
}

/// The group `default` over channels, and its key.
pub(crate) fn group(channels: &[&str]) -> String {
    format!(
        "[[group]]\nname = \"default\"\nchannels = {channels:?}\n[[key]]\nname = \"caller\"\ngroups = [\"default\"]\nsecret = \"{{key}}\"\n"
    )
}

/// A chat body for `chat-model`.
pub(crate) fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "prompt-canary hello"}]})
}

/// The same, streamed.
pub(crate) fn chat_stream(model: &str) -> Value {
    let mut body = chat(model);
    body["stream"] = true.into();
    body
}

/// A native body.
pub(crate) fn native() -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": "prompt-canary hello"}]}]})
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// An amount of an answer, a decimal string in USD, in nano-USD.
pub(crate) fn nano_usd(amount: &Value) -> i64 {
    let text = amount.as_str().unwrap_or_else(|| panic!("no amount: {amount}"));
    tollgate_core::NanoUsd::parse(text).unwrap_or_else(|error| panic!("{error}")).0
}
