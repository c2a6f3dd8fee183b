//! The corpus and its encoding to bytes.

use std::io::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::GzEncoder};
use serde::Deserialize;

use crate::http2;

/// One input.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    pub(crate) id: String,
    pub(crate) class: String,
    /// `h2`: raw HTTP/2 frames.
    #[serde(default)]
    pub(crate) proto: String,
    /// The HTTP method, where an answer's shape depends on it.
    #[serde(default)]
    pub(crate) method: String,
    pub(crate) req: Parts,
    pub(crate) expect: Expect,
}

/// The parts of a request, in order.
#[derive(Debug, Deserialize)]
pub(crate) struct Parts {
    #[serde(default)]
    head: Vec<Segment>,
    #[serde(default)]
    body: Vec<Segment>,
    #[serde(default)]
    tail: Vec<Segment>,
}

/// Expectations of the response.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Expect {
    pub(crate) status: Vec<[u16; 2]>,
    pub(crate) status2: Option<Vec<[u16; 2]>>,
    pub(crate) body: Option<String>,
    pub(crate) close_ok: bool,
    pub(crate) silence_ok: bool,
    pub(crate) max_responses: usize,
    pub(crate) must_close: bool,
    pub(crate) max_seconds: Option<f64>,
    pub(crate) must_not: Vec<String>,
    pub(crate) no_html: Option<String>,
    pub(crate) key_echo_ok: bool,
    pub(crate) settle: f64,
    pub(crate) timeout: f64,
}

impl Default for Expect {
    fn default() -> Self {
        Self {
            status: vec![[400, 499]],
            status2: None,
            body: None,
            close_ok: false,
            silence_ok: false,
            max_responses: 1,
            must_close: false,
            max_seconds: None,
            must_not: Vec::new(),
            no_html: None,
            key_echo_ok: false,
            settle: 0.4,
            timeout: 10.0,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Segment {
    Text {
        t: String,
    },
    Base64 {
        b: String,
    },
    Repeat {
        r: (String, usize),
    },
    Count {
        seq: (String, usize),
    },
    Gzip {
        gz: (String, String, usize, String),
    },
    Wait {
        wait: f64,
    },
    Shut {
        #[expect(dead_code, reason = "only distinguishes the segments")]
        shut: u8,
    },
    Preface {
        #[expect(dead_code, reason = "only distinguishes the segments")]
        h2pre: u8,
    },
    Frame {
        h2f: http2::Frame,
    },
    Headers {
        h2h: http2::Headers,
    },
    Loop {
        h2loop: http2::Loop,
    },
}

/// A step of an exchange.
#[derive(Debug)]
pub(crate) enum Action {
    Send(Vec<u8>),
    Wait(f64),
    Shut,
}

/// Values of the placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) host: String,
    pub(crate) key: &'static str,
    pub(crate) canary: String,
}

impl Names {
    /// Fills in the placeholders of a text; `length` is the body's.
    pub(crate) fn fill(&self, text: &str, length: usize) -> String {
        if !text.contains("{{") {
            return text.to_owned();
        }
        [
            ("{{R:chat}}", "/v1/chat/completions"),
            ("{{R:native_list}}", "/v1beta/models"),
            ("{{R:native}}", "/v1beta/models/echo:generateContent"),
            ("{{HOST}}", &self.host),
            ("{{KEY}}", self.key),
            ("{{CANARY}}", &self.canary),
            ("{{NMODEL}}", "echo"),
            ("{{MODEL}}", "echo"),
            ("{{CL}}", &length.to_string()),
        ]
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// The text as bytes. One character is one byte.
    pub(crate) fn bytes(&self, text: &str, length: usize) -> Vec<u8> {
        self.fill(text, length).chars().map(|c| u8::try_from(u32::from(c)).expect("corpus texts are latin-1")).collect()
    }
}

/// All inputs.
pub(crate) fn all() -> Vec<Input> {
    let lines = include_str!("corpus.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault} in {line:.200}"))).collect()
}

/// The inputs of a class.
pub(crate) fn of_class(class: &str) -> Vec<Input> {
    all().into_iter().filter(|input| input.class == class).collect()
}

impl Input {
    /// The steps of the exchange, in order.
    pub(crate) fn actions(&self, names: &Names) -> Vec<Action> {
        let body = actions(&self.req.body, names, 0);
        let length = body
            .iter()
            .map(|action| match action {
                Action::Send(bytes) => bytes.len(),
                Action::Wait(_) | Action::Shut => 0,
            })
            .sum();
        let mut all = actions(&self.req.head, names, length);
        all.extend(body);
        all.extend(actions(&self.req.tail, names, length));
        all
    }
}

fn actions(segments: &[Segment], names: &Names, length: usize) -> Vec<Action> {
    segments.iter().map(|segment| segment.action(names, length)).collect()
}

impl Segment {
    fn action(&self, names: &Names, length: usize) -> Action {
        if let Self::Wait { wait } = self {
            return Action::Wait(*wait);
        }
        if matches!(self, Self::Shut { .. }) { Action::Shut } else { Action::Send(self.bytes(names, length, 0)) }
    }

    /// The bytes of a segment; `stream` is the counter of a loop.
    pub(crate) fn bytes(&self, names: &Names, length: usize, stream: u32) -> Vec<u8> {
        match self {
            Self::Text { t } => names.bytes(t, length),
            Self::Base64 { b } => STANDARD.decode(b).expect("the corpus is base64"),
            Self::Repeat { r: (text, times) } => names.bytes(text, length).repeat(*times),
            Self::Count { seq: (text, times) } => {
                let counted = (0..*times).map(|n| text.replace("%d", &n.to_string())).collect::<String>();
                names.bytes(&counted, length)
            }
            Self::Gzip { gz: (before, filling, times, after) } => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
                let block = filling.repeat(65_536);
                encoder.write_all(&names.bytes(before, 0)).expect("memory takes everything");
                (0..times / 65_536).for_each(|_| encoder.write_all(block.as_bytes()).expect("memory takes everything"));
                encoder.write_all(&names.bytes(after, 0)).expect("memory takes everything");
                encoder.finish().expect("memory takes everything")
            }
            Self::Preface { .. } => http2::preface(),
            Self::Frame { h2f } => h2f.bytes(names, stream),
            Self::Headers { h2h } => h2h.bytes(names, stream),
            Self::Loop { h2loop } => h2loop.bytes(names),
            Self::Wait { .. } | Self::Shut { .. } => Vec::new(),
        }
    }
}
