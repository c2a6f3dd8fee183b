//! Seeds and a dictionary for the fuzz targets, derived from the golden fixtures. The first bytes of a seed select the case,
//! as each target's module doc says; the rest are bytes of the wire format.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::Value;

/// Protocols in the order of their numbers in inputs (`tollgate_fuzz::PROTOCOLS`).
const PROTOCOLS: [&str; 4] = ["openai", "gemini", "anthropic", "responses"];

/// Longest dictionary entry, in bytes.
const MAX_WORD: usize = 48;

/// Writes seeds to `<home>/seeds/<target>/` and a dictionary to `<home>/words.dict`, and returns the path of the latter.
pub(crate) fn write(fixtures: &Path, home: &Path) -> Result<PathBuf> {
    let mut seeds = Seeds { home: home.join("seeds"), number: 0, words: BTreeSet::new() };
    let _ = fs::remove_dir_all(&seeds.home);
    for target in super::TARGETS {
        fs::create_dir_all(seeds.home.join(target))?;
    }
    for path in files(&fixtures.join("golden"), "jsonl")? {
        let text = fs::read_to_string(&path)?;
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).with_context(|| path.display().to_string())?;
            seeds.golden(&case)?;
        }
    }
    for path in
        files(&fixtures.join("schemas/samples"), "json")?.into_iter().chain(files(&fixtures.join("schemas/samples"), "sse")?)
    {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        seeds.sample(&name, &fs::read(&path)?)?;
    }
    let dictionary = home.join("words.dict");
    fs::write(&dictionary, seeds.dictionary())?;
    Ok(dictionary)
}

/// The seeds in a target's folder, as libFuzzer reads lists of files.
pub(crate) fn list(folder: &Path) -> Result<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        found.push(entry?.path().display().to_string());
    }
    found.sort();
    Ok(found.join(","))
}

/// The files of a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

struct Seeds {
    home: PathBuf,
    number: usize,
    words: BTreeSet<String>,
}

impl Seeds {
    /// Adds the seeds of one golden case.
    fn golden(&mut self, case: &Value) -> Result<()> {
        let input = &case["input"];
        let stream = case["ctx"]["stream"] == true;
        self.add_words(input);
        self.add_words(&case["expected"]);
        let direction = case["direction"].as_str().unwrap_or_default();
        let Some((caller, upstream)) = direction.split_once("_to_").and_then(|(from, to)| Some((index(from)?, index(to)?))) else {
            // A pass-through case: raw text of one protocol.
            let Some(protocol) = case["ctx"]["protocol"].as_str().and_then(index) else { return Ok(()) };
            let text = input.as_str().unwrap_or_default().as_bytes();
            return match case["kind"].as_str() {
                Some("stream") => self.stream(protocol, protocol, text),
                Some("request") => self.request(protocol, stream, text),
                _ => self.answer(protocol, text),
            };
        };
        match case["kind"].as_str() {
            Some("stream") => self.stream(upstream, caller, framed(upstream, input).as_bytes()),
            Some("response") => self.answer(upstream, input.to_string().as_bytes()),
            _ if input.get("upstream_status").is_some() => self.answer(upstream, input["upstream_body"].to_string().as_bytes()),
            _ => self.request(caller, stream, input.to_string().as_bytes()),
        }
    }

    /// Adds the seeds of one schema sample.
    fn sample(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let Some(protocol) = protocol_of(name) else { return Ok(()) };
        if let Ok(value) = serde_json::from_slice(bytes) {
            self.add_words(&value);
        }
        if Path::new(name).extension().is_some_and(|extension| extension == "sse") {
            return (0..PROTOCOLS.len()).try_for_each(|caller| self.stream(protocol, caller, bytes));
        }
        // Numbers of methods and response kinds as in the targets.
        let method = match name {
            _ if name.contains("batch-embed") => 4,
            _ if name.contains("embed-content") => 3,
            _ if name.contains("count-tokens") => {
                if protocol == 1 {
                    2
                } else {
                    1
                }
            }
            _ => 0,
        };
        if name.contains("-request") {
            return self.request_of(protocol, method, bytes);
        }
        let kind = match name {
            _ if name.contains("count-tokens") => 1,
            _ if name.contains("embed") => 2,
            _ => 0,
        };
        self.put("translate", &[1, number(protocol), kind, 0, 0], bytes)
    }

    fn request(&mut self, protocol: usize, stream: bool, body: &[u8]) -> Result<()> {
        self.request_of(protocol, u8::from(stream && protocol == 1), body)
    }

    fn request_of(&mut self, protocol: usize, method: u8, body: &[u8]) -> Result<()> {
        let target = ["openai_request", "gemini_request", "anthropic_request", "responses_request"][protocol];
        self.put(target, &[method], body)?;
        // Cycle through the models of the upstream.
        let model = u8::try_from(self.number % 8).unwrap_or(0);
        self.put("translate", &[0, number(protocol), method, 0, model], body)
    }

    fn answer(&mut self, protocol: usize, body: &[u8]) -> Result<()> {
        self.put("translate", &[1, number(protocol), 0, 0b0001_1000, 0], body)
    }

    fn stream(&mut self, upstream: usize, caller: usize, bytes: &[u8]) -> Result<()> {
        let flags = 0b0001_1101;
        self.put("sse", &[2], bytes)?;
        self.put("stream_cuts", &[number(upstream * PROTOCOLS.len() + caller), 2, flags], bytes)?;
        self.put("translate", &[2, number(upstream), 0, flags, 0], bytes)
    }

    fn put(&mut self, target: &str, choices: &[u8], bytes: &[u8]) -> Result<()> {
        self.number += 1;
        let path = self.home.join(target).join(format!("{:04}", self.number));
        fs::write(&path, [choices, bytes].concat()).with_context(|| path.display().to_string())
    }

    /// Adds member names and short strings to the dictionary, as encoded in JSON.
    fn add_words(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    self.words.insert(format!("{}:", Value::from(name.as_str())));
                    self.add_words(value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_words(item)),
            Value::String(text) if text.len() < MAX_WORD => {
                self.words.insert(value.to_string());
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The dictionary in libFuzzer's format.
    fn dictionary(&self) -> String {
        let framing = ["data: ", "event: ", "\n\n", "\r\n\r\n", "data: [DONE]\n\n", "__sig1_", "tg1.a.", "dGcxLm"];
        let words = framing.into_iter().chain(self.words.iter().map(String::as_str));
        let lines = words.filter(|word| word.len() <= MAX_WORD).map(|word| {
            let escaped: String = word.bytes().map(escape).collect();
            format!("\"{escaped}\"\n")
        });
        lines.collect()
    }
}

fn escape(byte: u8) -> String {
    match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        0x20..0x7F => char::from(byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    }
}

/// The protocol of a schema sample, by its name. Those of the Responses API begin with the name of its vendor.
fn protocol_of(name: &str) -> Option<usize> {
    if name.starts_with("openai-responses-") {
        index("responses")
    } else {
        PROTOCOLS.iter().position(|protocol| name.starts_with(protocol))
    }
}

fn index(protocol: &str) -> Option<usize> {
    PROTOCOLS.iter().position(|known| *known == protocol)
}

fn number(index: usize) -> u8 {
    u8::try_from(index).expect("there are few protocols")
}

/// A stream with the framing of an upstream.
fn framed(upstream: usize, events: &Value) -> String {
    let framed = events.as_array().into_iter().flatten().map(|event| {
        let name = match PROTOCOLS[upstream] {
            "anthropic" | "responses" => format!("event: {}\n", event["type"].as_str().unwrap_or("message")),
            _ => String::new(),
        };
        let data = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
        format!("{name}data: {data}\n\n")
    });
    framed.collect()
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn every_target_has_seeds() {
        let home = crate::shell::target_dir().join(format!("seeds-{}", process::id()));
        let dictionary = write(&crate::shell::root().join("crates/tollgate-protocol/fixtures"), &home).unwrap();
        for target in super::super::TARGETS {
            let seeds = fs::read_dir(home.join("seeds").join(target)).unwrap().count();
            assert!(seeds >= 5, "{target} has {seeds} seeds");
        }
        let words = fs::read_to_string(dictionary).unwrap();
        assert!(words.contains("\"\\\"finishReason\\\":\"\n"));
        assert!(words.contains("\"\\x0A\\x0A\"\n"));
        fs::remove_dir_all(home).unwrap();
    }
}
