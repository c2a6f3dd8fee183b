//! How clients use a key: lines to copy for each, by protocol. The protocols, their paths, headers and smallest requests are those of the
//! table of protocols.

mod apps;
mod go;

use tollgate_protocol::{Protocol, minimal_body};
use url::{Url, form_urlencoded::Serializer};

use super::{
    highlight::{self, Token},
    locale::Locale,
    models::path_of_name,
    protocols,
};

const TEXT: &str = "Say hello.";
/// The label of the variables of the environment alone.
const ENVIRONMENT: &str = "export";

/// Address, key and model for a client's configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// Address of model requests.
    pub(crate) address: &'a str,
    /// The key itself, or the name of a variable with `$`.
    pub(crate) key: &'a str,
    pub(crate) model: &'a str,
}

/// The lines of a protocol.
#[derive(Debug)]
pub(crate) struct ProtocolLines {
    pub(crate) word: &'static str,
    pub(crate) label: &'static str,
    /// Base URL for its clients.
    pub(crate) base: String,
    pub(crate) clients: Vec<Snippet>,
}

/// Text to copy for one client.
#[derive(Debug)]
pub(crate) struct Snippet {
    pub(crate) label: &'static str,
    pub(crate) text: String,
    /// Address with which CC Switch adds this gateway to the client; only with a key that is shown.
    pub(crate) import: Option<String>,
}

impl Snippet {
    /// The text in pieces with the classes of their colours.
    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        highlight::tokens(&self.text)
    }
}

/// The parts of the lines.
struct Lines<'a> {
    access: Access<'a>,
    protocol: Protocol,
    base: String,
}

/// Lines for every client of these protocols.
pub(crate) fn by_protocol(t: Locale, access: Access<'_>, offered: impl Fn(Protocol) -> bool) -> Vec<ProtocolLines> {
    let of = |protocol: Protocol| {
        let lines = Lines { access, protocol, base: protocols::client_base(protocol, access.address) };
        ProtocolLines {
            word: protocol.as_str(),
            label: protocols::label(t, protocol.as_str()),
            clients: lines.clients(),
            base: lines.base,
        }
    };
    self::offered(offered).map(of).collect()
}

/// The protocols of callers that are offered, in their order.
pub(crate) fn offered(offered: impl Fn(Protocol) -> bool) -> impl Iterator<Item = Protocol> {
    protocols::of_callers().map(|(protocol, _)| protocol).filter(move |protocol| offered(*protocol))
}

/// Address and body of the smallest request for a browser.
pub(crate) fn smallest_request(address: &str, protocol: Protocol, model: &str) -> (String, String) {
    // A model's name may need escapes in a path.
    let in_path = path_of_name(model);
    let lines = Lines { access: Access { address, key: "", model: &in_path }, protocol, base: String::new() };
    let body = serde_json::Value::Object(minimal_body(protocol, model, TEXT)).to_string();
    (format!("{address}{}", lines.path()), body)
}

/// A request over the first protocol, for a shell.
pub(crate) fn curl(address: &str, model: &str) -> String {
    let protocol = Protocol::ALL[0];
    let access = Access { address, key: "$TOLLGATE_KEY", model };
    Lines { access, protocol, base: protocols::client_base(protocol, address) }.curl()
}

/// A request with this body, for a shell.
pub(crate) fn curl_of_body(address: &str, protocol: Protocol, model: &str, is_stream: bool, body: &str) -> String {
    let lines = Lines { access: Access { address, key: "$TOLLGATE_KEY", model }, protocol, base: String::new() };
    let path = match lines.path() {
        path if is_stream && protocol == Protocol::Gemini => path.replace(":generateContent", ":streamGenerateContent?alt=sse"),
        path => path,
    };
    lines.curl_to(&path, body)
}

/// A request for embeddings.
pub(crate) fn embedding_curl(address: &str, model: &str) -> String {
    let body = serde_json::json!({"model": model, "input": "Hello"});
    curl_of(&format!("{address}/v1/embeddings"), &[("Authorization", "Bearer $TOLLGATE_KEY")], &body.to_string())
}

/// A text in quotes as JSON, Python and JavaScript write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text in single quotes for a shell. A quote ends the text and is written outside of it.
pub(super) fn shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A header for a shell; a variable in it is replaced.
fn shell_header(name: &str, value: &str) -> String {
    let header = format!("{name}: {value}");
    if value.contains('$') { format!("\"{header}\"") } else { shell(&header) }
}

fn curl_of(url: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut lines = vec![format!("curl {}", shell(url))];
    lines.extend(headers.iter().map(|(name, value)| format!("  -H {}", shell_header(name, value))));
    lines.extend(["  -H 'Content-Type: application/json'".to_owned(), format!("  -d {}", shell(body))]);
    lines.join(" \\\n")
}

impl Lines<'_> {
    /// Its clients; those for a first try come first.
    fn clients(&self) -> Vec<Snippet> {
        let clients = match self.protocol {
            Protocol::OpenAi => vec![
                ("curl", self.curl()),
                ("Python", self.openai_python()),
                ("Node", self.openai_node()),
                ("Go", self.openai_go()),
                (ENVIRONMENT, self.openai_environment()),
                ("LangChain", self.langchain()),
                ("aider", self.aider()),
                ("Cherry Studio", self.cherry_studio()),
                ("LobeChat", self.lobe_chat()),
                ("NextChat", self.next_chat()),
                ("Open WebUI", self.open_webui()),
                ("Cursor", self.cursor()),
                ("Cline", self.cline()),
            ],
            Protocol::Gemini => vec![
                ("curl", self.curl()),
                ("Gemini SDK, Python", self.genai_python()),
                ("Gemini SDK, Node", self.genai_node()),
                ("Gemini SDK, Go", self.genai_go()),
                (ENVIRONMENT, self.gemini_environment()),
                ("Gemini CLI", self.gemini_cli()),
                ("Cherry Studio", self.cherry_studio()),
            ],
            Protocol::Anthropic => vec![
                ("curl", self.curl()),
                ("Claude Code", self.claude_code()),
                ("Python", self.anthropic_python()),
                ("Node", self.anthropic_node()),
                (ENVIRONMENT, self.anthropic_environment()),
                ("Cline", self.cline()),
                ("Cherry Studio", self.cherry_studio()),
            ],
            Protocol::Responses => vec![
                ("curl", self.curl()),
                ("Codex", self.codex()),
                ("Python", self.responses_python()),
                ("Node", self.responses_node()),
                (ENVIRONMENT, self.openai_environment()),
                ("Cherry Studio", self.cherry_studio()),
            ],
        };
        clients.into_iter().map(|(label, text)| Snippet { import: self.import(label), label, text }).collect()
    }

    /// The link that CC Switch opens for the clients that it manages.
    fn import(&self, client: &str) -> Option<String> {
        let app = match client {
            "Claude Code" => "claude",
            "Codex" => "codex",
            "Gemini CLI" => "gemini",
            _ => return None,
        };
        if self.access.key.starts_with('$') {
            return None;
        }
        let name = Url::parse(self.access.address).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
        let pairs = [
            ("resource", "provider"),
            ("app", app),
            ("name", &name),
            ("homepage", self.access.address),
            ("endpoint", &self.base),
            ("apiKey", self.access.key),
            ("model", self.access.model),
        ];
        Some(format!("ccswitch://v1/import?{}", Serializer::new(String::new()).extend_pairs(pairs).finish()))
    }

    fn path(&self) -> String {
        let Some(surface) = self.protocol.spec().caller else { return String::new() };
        match surface.generation.first() {
            Some(path) if path.starts_with('/') => (*path).to_owned(),
            Some(verb) => format!("{}/{}:{verb}", surface.model_list_path, self.access.model),
            None => String::new(),
        }
    }

    fn curl(&self) -> String {
        let body = serde_json::Value::Object(minimal_body(self.protocol, self.access.model, TEXT)).to_string();
        self.curl_to(&self.path(), &body)
    }

    fn curl_to(&self, path: &str, body: &str) -> String {
        let spec = self.protocol.spec();
        let credential = format!("{}{}", spec.credential.prefix, self.access.key);
        let mut headers = vec![(spec.credential.name, credential.as_str())];
        headers.extend(spec.fixed_headers.iter().copied());
        curl_of(&format!("{}{path}", self.access.address), &headers, body)
    }

    /// The key in Python: the text itself, or the variable of the environment.
    fn python_key(&self) -> String {
        match self.access.key.strip_prefix('$') {
            Some(variable) => format!("os.environ[{}]", quoted(variable)),
            None => quoted(self.access.key),
        }
    }

    fn node_key(&self) -> String {
        self.access.key.strip_prefix('$').map_or_else(|| quoted(self.access.key), |variable| format!("process.env.{variable}"))
    }

    /// The key in a shell.
    fn shell_key(&self) -> String {
        if self.access.key.starts_with('$') { format!("\"{}\"", self.access.key) } else { shell(self.access.key) }
    }

    fn openai_python(&self) -> String {
        let (base, key, model) = (quoted(&self.base), self.python_key(), quoted(self.access.model));
        format!(
            "import os\nfrom openai import OpenAI\n\nclient = OpenAI(\n    base_url={base},\n    api_key={key},\n)\n\
             answer = client.chat.completions.create(\n    model={model},\n    \
             messages=[{{\"role\": \"user\", \"content\": \"{TEXT}\"}}],\n)\nprint(answer.choices[0].message.content)"
        )
    }

    fn openai_node(&self) -> String {
        let (base, key, model) = (quoted(&self.base), self.node_key(), quoted(self.access.model));
        format!(
            "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{\n  baseURL: {base},\n  apiKey: {key},\n}});\n\
             const answer = await client.chat.completions.create({{\n  model: {model},\n  \
             messages: [{{ role: \"user\", content: \"{TEXT}\" }}],\n}});\nconsole.log(answer.choices[0].message.content);"
        )
    }

    fn langchain(&self) -> String {
        format!(
            "import os\nfrom langchain_openai import ChatOpenAI\n\nmodel = ChatOpenAI(model={}, base_url={}, api_key={})\n\
             print(model.invoke(\"{TEXT}\").content)",
            quoted(self.access.model),
            quoted(&self.base),
            self.python_key()
        )
    }

    /// The variables that programs read: those of the address and of the key.
    fn environment(&self, address: &str, key: &str) -> String {
        format!("export {address}={}\nexport {key}={}", shell(&self.base), self.shell_key())
    }

    fn openai_environment(&self) -> String {
        self.environment("OPENAI_BASE_URL", "OPENAI_API_KEY")
    }

    fn gemini_environment(&self) -> String {
        self.environment("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY")
    }

    fn anthropic_environment(&self) -> String {
        self.environment("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
    }

    fn aider(&self) -> String {
        let model = shell(&format!("openai/{}", self.access.model));
        format!("{}\naider --model {model}", self.environment("OPENAI_API_BASE", "OPENAI_API_KEY"))
    }

    fn genai_python(&self) -> String {
        format!(
            "import os\nfrom google import genai\n\nclient = genai.Client(\n    api_key={},\n    http_options={{\"base_url\": {}}},\n)\n\
             answer = client.models.generate_content(model={}, contents=\"{TEXT}\")\nprint(answer.text)",
            self.python_key(),
            quoted(&self.base),
            quoted(self.access.model)
        )
    }

    fn genai_node(&self) -> String {
        format!(
            "import {{ GoogleGenAI }} from \"@google/genai\";\n\nconst client = new GoogleGenAI({{\n  apiKey: {},\n  \
             httpOptions: {{ baseUrl: {} }},\n}});\n\
             const answer = await client.models.generateContent({{ model: {}, contents: \"{TEXT}\" }});\nconsole.log(answer.text);",
            self.node_key(),
            quoted(&self.base),
            quoted(self.access.model)
        )
    }

    fn gemini_cli(&self) -> String {
        format!("{}\ngemini --model {}", self.gemini_environment(), shell(self.access.model))
    }

    fn claude_code(&self) -> String {
        format!(
            "export ANTHROPIC_BASE_URL={}\nexport ANTHROPIC_AUTH_TOKEN={}\nexport ANTHROPIC_MODEL={}\nexport \
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\nclaude",
            shell(&self.base),
            self.shell_key(),
            shell(self.access.model)
        )
    }

    fn anthropic_python(&self) -> String {
        format!(
            "import os\nfrom anthropic import Anthropic\n\nclient = Anthropic(\n    base_url={},\n    api_key={},\n)\n\
             answer = client.messages.create(\n    model={},\n    max_tokens=1024,\n    \
             messages=[{{\"role\": \"user\", \"content\": \"{TEXT}\"}}],\n)\nprint(answer.content[0].text)",
            quoted(&self.base),
            self.python_key(),
            quoted(self.access.model)
        )
    }

    fn anthropic_node(&self) -> String {
        format!(
            "import Anthropic from \"@anthropic-ai/sdk\";\n\nconst client = new Anthropic({{\n  baseURL: {},\n  apiKey: {},\n}});\n\
             const answer = await client.messages.create({{\n  model: {},\n  max_tokens: 1024,\n  \
             messages: [{{ role: \"user\", content: \"{TEXT}\" }}],\n}});\nconsole.log(answer.content[0].text);",
            quoted(&self.base),
            self.node_key(),
            quoted(self.access.model)
        )
    }

    fn codex(&self) -> String {
        format!(
            "export OPENAI_API_KEY={}\n\n# ~/.codex/config.toml\nmodel = {}\nmodel_provider = \"tollgate\"\n\n\
             [model_providers.tollgate]\nname = \"tollgate\"\nbase_url = {}\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"",
            self.shell_key(),
            quoted(self.access.model),
            quoted(&self.base)
        )
    }

    fn responses_python(&self) -> String {
        let (base, key, model) = (quoted(&self.base), self.python_key(), quoted(self.access.model));
        format!(
            "import os\nfrom openai import OpenAI\n\nclient = OpenAI(\n    base_url={base},\n    api_key={key},\n)\n\
             answer = client.responses.create(model={model}, input=\"{TEXT}\")\nprint(answer.output_text)"
        )
    }

    fn responses_node(&self) -> String {
        let (base, key, model) = (quoted(&self.base), self.node_key(), quoted(self.access.model));
        format!(
            "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{\n  baseURL: {base},\n  apiKey: {key},\n}});\n\
             const answer = await client.responses.create({{ model: {model}, input: \"{TEXT}\" }});\nconsole.log(answer.output_text);"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(key: &str, model: &str) -> Vec<(&'static str, Snippet)> {
        let found = by_protocol(Locale::EN, Access { address: "https://gate.example.com", key, model }, |_| true);
        found.into_iter().flat_map(|lines| lines.clients.into_iter().map(move |client| (lines.word, client))).collect()
    }

    #[test]
    fn quotes_in_names_are_escaped_in_snippets() {
        for (_, Snippet { label, text, .. }) in all("sk-tg-abc", "a'; rm -rf / #\"") {
            match label {
                "curl" => assert!(text.contains(r"a'\''; rm -rf / #"), "{text}"),
                label if ["Python", "Node", "Go", "LangChain"].iter().any(|code| label.ends_with(code)) => {
                    assert!(text.contains(r#"a'; rm -rf / #\""#), "{text}");
                }
                "Claude Code" | "Gemini CLI" => assert!(text.contains(r#"'a'\''; rm -rf / #"'"#), "{text}"),
                _ => {}
            }
        }
    }

    #[test]
    fn snippets_use_a_variable_until_the_key_is_shown() {
        for (_, snippet) in all("$TOLLGATE_KEY", "m") {
            assert!(snippet.text.contains("TOLLGATE_KEY"), "{}", snippet.text);
        }
        for (_, snippet) in all("sk-tg-abc", "m") {
            assert!(snippet.text.contains("sk-tg-abc") && !snippet.text.contains("TOLLGATE_KEY"), "{}", snippet.text);
        }
    }

    #[test]
    fn go_imports_what_it_uses() {
        for (key, imports) in [("$TOLLGATE_KEY", true), ("sk-tg-abc", false)] {
            let lines = all(key, "m").into_iter().filter(|(_, client)| client.label.ends_with("Go"));
            let texts: Vec<String> = lines.map(|(_, client)| client.text).collect();
            assert_eq!(texts.len(), 2);
            assert!(
                texts.iter().all(|text| text.contains("\t\"os\"\n") == imports && text.contains("os.Getenv") == imports),
                "{texts:?}"
            );
        }
    }

    #[test]
    fn programs_get_the_address_with_or_without_the_version() {
        let clients = all("sk-tg-abc", "m");
        let line = |client: &str, field: &str| {
            let (_, snippet) = clients.iter().find(|(word, found)| *word == "openai" && found.label == client).unwrap();
            snippet.text.lines().find_map(|line| Some(line.strip_prefix(field)?.trim_matches('\'').to_owned())).unwrap()
        };
        let (address, base) = ("https://gate.example.com", "https://gate.example.com/v1");
        assert_eq!([line("Cherry Studio", "API Host: "), line("NextChat", "OpenAI Endpoint: ")], [address; 2]);
        let with_version = [
            line("LobeChat", "API Proxy URL: "),
            line("Open WebUI", "URL: "),
            line("Cursor", "Override OpenAI Base URL: "),
            line("Cline", "Base URL: "),
            line("export", "export OPENAI_BASE_URL="),
            line("aider", "export OPENAI_API_BASE="),
        ];
        assert_eq!(with_version, [base; 6]);
        assert_eq!(line("aider", "aider --model "), "openai/m");
    }

    #[test]
    fn shown_key_has_import_links() {
        assert!(all("$TOLLGATE_KEY", "m").iter().all(|(_, client)| client.import.is_none()));
        let clients = all("sk-tg-a&b", "m");
        let links: Vec<&str> = clients.iter().filter_map(|(_, client)| client.import.as_deref()).collect();
        assert_eq!(links.len(), 3, "{links:?}");
        assert!(
            links.iter().all(|link| link.contains("&name=gate.example.com&") && link.contains("&apiKey=sk-tg-a%26b&")),
            "{links:?}"
        );
        assert!(
            links.iter().any(|link| link.contains("app=codex") && link.contains("endpoint=https%3A%2F%2Fgate.example.com%2Fv1&"))
        );
    }

    #[test]
    fn every_protocol_has_a_complete_curl_request() {
        for (protocol, surface) in protocols::of_callers() {
            let curl =
                all("$TOLLGATE_KEY", "m").into_iter().find(|(word, client)| *word == protocol.as_str() && client.label == "curl");
            let text = curl.unwrap().1.text;
            let credential = protocol.spec().credential;
            assert!(text.contains(&format!("\"{}: {}$TOLLGATE_KEY\"", credential.name, credential.prefix)), "{text}");
            assert!(text.contains(surface.generation[0]) && text.contains(TEXT), "{text}");
            let clients = all("$TOLLGATE_KEY", "m").iter().filter(|(word, _)| *word == protocol.as_str()).count();
            assert!(clients <= 14, "the style sheet has fourteen tabs");
        }
    }
}
