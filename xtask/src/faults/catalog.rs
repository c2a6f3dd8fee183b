//! The catalog of the measured gateways.

/// The well-behaved key.
pub(crate) const GOOD_KEY: &str = "good-key-0123456789abcdefghijklmnop";
/// The hostile member's keys: without limits, with all of them, disabled.
pub(super) const HOSTILE_KEY: &str = "hostile-key-0123456789abcdefghijklm";
pub(super) const LIMITED_KEY: &str = "limited-key-0123456789abcdefghijklm";
pub(super) const DISABLED_KEY: &str = "disabled-key-0123456789abcdefghijkl";

/// One account for all models, because what a hostile key does to the account is part of what is measured.
pub(crate) fn text(upstream: &str) -> String {
    let serves =
        |model: &str| format!("[[channel.serves]]\nmodel = \"{model}\"\ncost = {{ input = \"0.25\", output = \"2.00\" }}\n");
    let model = |name: &str| {
        format!("[[model]]\nname = \"{name}\"\nmax_output = 1024\nprice = {{ input = \"0.30\", output = \"2.40\" }}\n")
    };
    let key = |name: &str, member: &str, secret: &str, more: &str| {
        format!("[[key]]\nname = \"{name}\"\nmember = \"{member}\"\ngroups = [\"default\"]\nsecret = \"{secret}\"\n{more}\n")
    };
    let channel = |name: &str, protocol: &str, version: &str, more: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nbase_url = \"http://{upstream}/{version}\"\n\
             private_network = true\n{more}\n[[channel.account]]\nname = \"{name}\"\ncredential = \"bench\"\n"
        )
    };
    let chat_models = ["bench-chat", "bench-large", "bench-silent"];
    [
        channel("chat", "openai", "v1", "first_byte_timeout_ms = 1000"),
        chat_models.map(serves).concat(),
        channel("native", "gemini", "v1beta", "fetch_media = true"),
        serves("bench-native"),
        chat_models.map(model).concat(),
        model("bench-native"),
        "[[group]]\nname = \"default\"\nchannels = [\"chat\", \"native\"]\n".to_owned(),
        "[[member]]\nname = \"good\"\n[[member]]\nname = \"hostile\"\n".to_owned(),
        key("good", "good", GOOD_KEY, ""),
        key("hostile", "hostile", HOSTILE_KEY, ""),
        key("limited", "hostile", LIMITED_KEY, "rpm = 1\nconcurrency = 1"),
        key("disabled", "hostile", DISABLED_KEY, "status = \"disabled\""),
    ]
    .concat()
}
