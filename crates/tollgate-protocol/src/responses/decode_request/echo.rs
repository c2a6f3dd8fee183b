//! Members of a request that its answer repeats: as the caller gave them, else their defaults (OpenAI API reference, "The response
//! object").

use super::tools::ToolNames;
use crate::{neutral::RequestEcho, tree::Tree};

/// Members that are repeated as they are, with their defaults.
const REPEATED: [(&str, &str); 7] = [
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("temperature", "null"),
    ("tool_choice", "\"auto\""),
    ("top_p", "null"),
    ("truncation", "\"disabled\""),
];

pub(super) fn of(body: &Tree<'_>, names: ToolNames) -> RequestEcho {
    let given = |name: &str| body.get(name).map(Tree::compact);
    let mut members = String::new();
    for (name, default) in REPEATED {
        let value = given(name).unwrap_or_else(|| default.to_owned());
        members.extend(["\"", name, "\":", &value, ","]);
    }
    members.extend(["\"reasoning\":", &reasoning(body), ",\"text\":", &text(body)]);
    RequestEcho {
        members,
        instructions: given("instructions").unwrap_or_else(|| "null".to_owned()),
        tools: given("tools").unwrap_or_else(|| "[]".to_owned()),
        namespaced: names.into_namespaced(),
    }
}

fn reasoning(body: &Tree<'_>) -> String {
    let given = |name: &str| {
        let value = body.get("reasoning").and_then(|reasoning| reasoning.get(name));
        value.map_or_else(|| "null".to_owned(), Tree::compact)
    };
    format!("{{\"effort\":{},\"summary\":{}}}", given("effort"), given("summary"))
}

fn text(body: &Tree<'_>) -> String {
    let given = |name: &str| body.get("text").and_then(|text| text.get(name)).map(Tree::compact);
    let format = given("format").unwrap_or_else(|| "{\"type\":\"text\"}".to_owned());
    let verbosity = given("verbosity").map_or_else(String::new, |word| format!(",\"verbosity\":{word}"));
    format!("{{\"format\":{format}{verbosity}}}")
}
