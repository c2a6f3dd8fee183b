//! How clients use a key: lines to copy for each.

/// What to copy for one client.
#[derive(Debug)]
pub(super) struct Snippet {
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    pub(super) text: String,
}

/// A text in quotes as JSON, Python and JavaScript write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A text in single quotes for a shell. A quote ends the text and is written outside of it.
fn shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The same in quotes in which a variable is replaced, for the name of one.
fn shell_key(key: &str) -> String {
    if key.starts_with('$') { format!("\"{key}\"") } else { shell(key) }
}

/// Lines for each client. `key` is the key itself, or the name of a variable.
pub(super) fn snippets(base: &str, key: &str, model: &str) -> Vec<Snippet> {
    let chat = format!("{base}/v1");
    let body = serde_json::json!({"model": model, "messages": [{"role": "user", "content": "Say hello."}]}).to_string();
    let (name, code_key, url) = (quoted(model), code_key(key), quoted(&chat));
    let bearer = if key.starts_with('$') {
        format!("\"Authorization: Bearer {key}\"")
    } else {
        shell(&format!("Authorization: Bearer {key}"))
    };
    let python = format!(
        "import os\nfrom openai import OpenAI\n\nclient = OpenAI(\n    base_url={url},\n    api_key={code_key},\n)\n\
         answer = client.chat.completions.create(\n    model={name},\n    messages=[{{\"role\": \"user\", \"content\": \"Say hello.\"}}],\n)\n\
         print(answer.choices[0].message.content)"
    );
    let node_key = key.strip_prefix('$').map_or_else(|| quoted(key), |variable| format!("process.env.{variable}"));
    let node = format!(
        "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{\n  baseURL: {url},\n  apiKey: {node_key},\n}});\n\
         const answer = await client.chat.completions.create({{\n  model: {name},\n  messages: [{{ role: \"user\", content: \"Say hello.\" }}],\n}});\n\
         console.log(answer.choices[0].message.content);"
    );
    let genai = format!(
        "import os\nfrom google import genai\n\nclient = genai.Client(\n    api_key={code_key},\n    http_options={{\"base_url\": {}}},\n)\n\
         answer = client.models.generate_content(model={name}, contents=\"Say hello.\")\nprint(answer.text)",
        quoted(base)
    );
    let langchain = format!(
        "import os\nfrom langchain_openai import ChatOpenAI\n\nmodel = ChatOpenAI(model={name}, base_url={url}, api_key={code_key})\n\
         print(model.invoke(\"Say hello.\").content)"
    );
    let settings =
        |lines: &[(&str, &str)]| lines.iter().map(|(label, value)| format!("{label}: {value}")).collect::<Vec<_>>().join("\n");
    vec![
        Snippet {
            id: "curl",
            label: "curl",
            text: format!(
                "curl {} \\\n  -H {bearer} \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
                shell(&format!("{chat}/chat/completions")),
                shell(&body)
            ),
        },
        Snippet { id: "python", label: "Python", text: python },
        Snippet { id: "node", label: "Node", text: node },
        Snippet { id: "genai", label: "Gemini SDK", text: genai },
        Snippet { id: "langchain", label: "LangChain", text: langchain },
        Snippet {
            id: "env",
            label: "Codex, aider, …",
            text: format!("export OPENAI_BASE_URL={}\nexport OPENAI_API_KEY={}", shell(&chat), shell_key(key)),
        },
        Snippet {
            id: "gemini-cli",
            label: "Gemini CLI",
            text: format!("export GOOGLE_GEMINI_BASE_URL={}\nexport GEMINI_API_KEY={}", shell(base), shell_key(key)),
        },
        Snippet {
            id: "apps",
            label: "Cherry Studio, Lobe, NextChat",
            text: settings(&[("Provider", "OpenAI"), ("API host", base), ("API key", key), ("Model", model)]),
        },
        Snippet {
            id: "editors",
            label: "Cursor, Cline, Open WebUI",
            text: settings(&[("Provider", "OpenAI compatible"), ("Base URL", &chat), ("API key", key), ("Model", model)]),
        },
    ]
}

/// The key in Python: the text itself, or the variable of the environment.
fn code_key(key: &str) -> String {
    match key.strip_prefix('$') {
        Some(variable) => format!("os.environ[{}]", quoted(variable)),
        None => quoted(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_in_names_end_no_text() {
        for snippet in snippets("https://gate.example.com", "sk-tg-abc", "a'; rm -rf / #\"") {
            match snippet.id {
                "curl" => assert!(snippet.text.contains(r#""model":"a'\''; rm -rf / #\"""#), "{}", snippet.text),
                "python" | "node" | "genai" | "langchain" => {
                    assert!(snippet.text.contains(r#"a'; rm -rf / #\""#), "{}", snippet.text);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn key_is_a_variable_until_it_is_shown() {
        for snippet in snippets("https://gate.example.com", "$TOLLGATE_KEY", "m") {
            assert!(snippet.text.contains("TOLLGATE_KEY"), "{}", snippet.text);
        }
        let shown = snippets("https://gate.example.com", "sk-tg-abc", "m");
        assert!(shown.iter().all(|snippet| snippet.text.contains("sk-tg-abc") && !snippet.text.contains("TOLLGATE_KEY")));
        let mut ids: Vec<&str> = shown.iter().map(|snippet| snippet.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), shown.len());
    }
}
