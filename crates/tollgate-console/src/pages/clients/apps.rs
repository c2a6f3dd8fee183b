//! Programs that are configured in their own settings: where, and the value of each field, in the program's own words.

use tollgate_protocol::Protocol;

use super::Lines;

/// The page of the program's settings, and its fields.
fn settings(place: &str, fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().map(|(label, value)| format!("{label}: {value}"));
    [format!("# {place}")].into_iter().chain(fields).collect::<Vec<_>>().join("\n")
}

impl Lines<'_> {
    /// It adds the version to the address.
    pub(super) fn cherry_studio(&self) -> String {
        let kind = match self.protocol {
            Protocol::OpenAi => "OpenAI",
            Protocol::Gemini => "Gemini",
            Protocol::Anthropic => "Anthropic",
            Protocol::Responses => "OpenAI-Response",
        };
        let fields = [
            ("Provider Type", kind),
            ("API Key", self.access.key),
            ("API Host", self.access.address),
            ("Model ID", self.access.model),
        ];
        settings("Settings > Model Provider > Add", &fields)
    }

    pub(super) fn lobe_chat(&self) -> String {
        let fields = [("API Key", self.access.key), ("API Proxy URL", self.base.as_str()), ("Model List", self.access.model)];
        settings("Settings > AI Service Provider > OpenAI", &fields)
    }

    /// It adds the version to the address.
    pub(super) fn next_chat(&self) -> String {
        let fields = [
            ("Model Provider", "OpenAI"),
            ("OpenAI Endpoint", self.access.address),
            ("OpenAI API Key", self.access.key),
            ("Custom Models", self.access.model),
        ];
        settings("Settings > Custom Endpoint", &fields)
    }

    pub(super) fn open_webui(&self) -> String {
        let fields = [("URL", self.base.as_str()), ("Key", self.access.key), ("Model IDs", self.access.model)];
        settings("Admin Settings > Connections > OpenAI API > Add Connection", &fields)
    }

    /// Its requests come from its own servers.
    pub(super) fn cursor(&self) -> String {
        let fields = [
            ("OpenAI API Key", self.access.key),
            ("Override OpenAI Base URL", self.base.as_str()),
            ("Add Custom Model", self.access.model),
        ];
        settings("Settings > Models. Cursor's servers send the requests, so they must reach this address.", &fields)
    }

    pub(super) fn cline(&self) -> String {
        let place = "Settings > API Configuration";
        if self.protocol == Protocol::Anthropic {
            let fields = [
                ("API Provider", "Anthropic"),
                ("Anthropic API Key", self.access.key),
                ("Use custom base URL", self.base.as_str()),
                ("Model", self.access.model),
            ];
            return settings(place, &fields);
        }
        let fields = [
            ("API Provider", "OpenAI Compatible"),
            ("Base URL", self.base.as_str()),
            ("API Key", self.access.key),
            ("Model ID", self.access.model),
        ];
        settings(place, &fields)
    }
}
