//! Collects the summary of a request body, for all caller protocols: validation errors, field names, input sizes, and the hash
//! that keeps a conversation on one account.

use crate::{
    ErrorStyle, FieldPath, MAX_METADATA, Malformed, Method, PriceEffect, RequestExtras, RequestSummary, ServiceTier, SplicePoints,
    fingerprint::Fingerprint,
    scan::{JsonStr, Name, Scanner, SyntaxError, Value, ValueKind},
    validation::{JsonPath, ValidationErrors},
};

/// Maximum number of messages or contents in one body.
pub(crate) const MAX_TURNS: usize = 100_000;
/// Maximum number of tools (Gemini: function declarations) in one body.
pub(crate) const MAX_TOOLS: usize = 1_024;

/// Longest name and longest value of the entries of `metadata` that a summary has, in bytes as they are written.
const MAX_METADATA_BYTES: usize = 1_200;

/// Role of a turn, for the affinity hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnRole {
    System,
    User,
    Other,
}

/// Members of one object read so far. A duplicate is rejected, because the gateway might validate and price another value than the one
/// that the upstream reads.
#[derive(Debug, Default)]
pub(crate) struct SeenMembers(u32);

impl SeenMembers {
    pub(crate) fn check_unique(&mut self, member: UniqueMember, name: &Name<'_>) -> Result<(), SyntaxError> {
        if self.0 & (1 << member.bit) != 0 {
            return Err(SyntaxError::duplicate_member(name.quote(), member.name));
        }
        self.0 |= 1 << member.bit;
        Ok(())
    }
}

/// A member that may appear once in its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UniqueMember {
    bit: u8,
    name: &'static str,
}

impl UniqueMember {
    /// `number` is below 32 and different for all members of an object.
    pub(crate) const fn new(number: u8, name: &'static str) -> Self {
        Self { bit: number, name }
    }
}

/// The charge of a provider for a tool that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolCharge {
    /// The tokens that the tool adds, and nothing for its use.
    Tokens,
    Search,
    /// A tool that may have a price of its own.
    Other,
}

impl ToolCharge {
    /// The charge for a tool or plugin of a chat request, by its type.
    pub(crate) fn of_chat_tool(kind: &str) -> Self {
        let kind = kind.to_ascii_lowercase();
        if kind == "web" || (kind.contains("search") && !kind.contains("file")) { Self::Search } else { Self::Other }
    }
}

#[derive(Debug)]
pub(crate) struct SummaryBuilder {
    pub(crate) errors: ValidationErrors,
    pub(crate) fields: Vec<FieldPath>,
    /// Output limit requested, in tokens.
    pub(crate) max_output: Option<u64>,
    pub(crate) candidates: u32,
    pub(crate) splices: SplicePoints,
    text_bytes: u64,
    turns: u32,
    images: u32,
    audio_bytes: u64,
    document_bytes: u64,
    tools: usize,
    pub(crate) extras: RequestExtras,
    pub(crate) offered_searches: Vec<FieldPath>,
    pub(crate) max_searches: Option<u64>,
    /// True if the conversation adds a search tool, to which limits in `tools` do not apply.
    pub(crate) adds_searches: bool,
    first_file: Option<FieldPath>,
    metadata: Vec<(String, String)>,
    pub(crate) members: SeenMembers,
    cache_key: Option<u64>,
    system: Fingerprint,
    tool_text: Fingerprint,
    first_user: Option<u64>,
    turn: Option<Fingerprint>,
}

impl SummaryBuilder {
    pub(crate) fn new(style: ErrorStyle) -> Self {
        Self {
            errors: ValidationErrors::new(style),
            fields: Vec::with_capacity(8),
            max_output: None,
            candidates: 1,
            splices: SplicePoints::default(),
            text_bytes: 0,
            turns: 0,
            images: 0,
            audio_bytes: 0,
            document_bytes: 0,
            tools: 0,
            extras: RequestExtras::default(),
            offered_searches: Vec::new(),
            max_searches: None,
            adds_searches: false,
            first_file: None,
            metadata: Vec::new(),
            members: SeenMembers::default(),
            cache_key: None,
            system: Fingerprint::new(),
            tool_text: Fingerprint::new(),
            first_user: None,
            turn: None,
        }
    }

    /// Reads a request nested in another body. Its members are checked for duplicates on their own and its fields are not
    /// listed.
    pub(crate) fn nested_request<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let fields = self.fields.len();
        let outside = std::mem::take(&mut self.members);
        let result = read(self);
        self.members = outside;
        self.fields.truncate(fields);
        result
    }

    pub(crate) fn field(&mut self, path: &JsonPath<'_>) {
        self.fields.push(match path {
            JsonPath::Member(JsonPath::Root, name) => (*name).to_owned(),
            JsonPath::Root | JsonPath::Member(..) | JsonPath::Element(..) => path.to_string(),
        });
    }

    // --- sizes ---

    /// Text of a message, a part or an instruction.
    pub(crate) fn text(&mut self, text: &JsonStr<'_>) {
        self.text_bytes += text.decoded_bytes();
        self.remember(text.raw());
    }

    /// Input that is not a JSON string: raw JSON, token ids.
    pub(crate) fn text_of(&mut self, raw: &str) {
        self.text_bytes += raw.len() as u64;
        self.remember(raw);
    }

    pub(crate) fn base64(&mut self, mime: &str, data: &JsonStr<'_>) {
        self.remember(data.raw());
        self.inline(mime, decoded_base64(data.decoded_bytes(), data.raw()));
    }

    /// Media at `path`, in a `data:` URL or at a remote one. `fallback` is the mime type where the URL has none.
    pub(crate) fn url(&mut self, fallback: &str, url: &JsonStr<'_>, path: &JsonPath<'_>) {
        self.remember(url.raw());
        let raw = url.raw();
        let (Some(rest), Some(comma)) = (raw.strip_prefix("data:"), memchr::memchr(b',', raw.as_bytes())) else {
            return self.media_of_unknown_size(fallback, path);
        };
        // Some serialisers write "image\/png".
        let header = rest[..comma - "data:".len()].replace("\\/", "/");
        let size = url.decoded_bytes().saturating_sub(("data:,".len() + header.len()) as u64);
        let (mime, parameters) = header.split_once(';').unwrap_or((&header, ""));
        let size = if parameters.ends_with("base64") { decoded_base64(size, raw) } else { size };
        self.inline(if mime.is_empty() { fallback } else { mime }, size);
    }

    /// Media by address or id at `path`. An image is as many tokens as one in the body; anything else may fill the context.
    pub(crate) fn media_of_unknown_size(&mut self, mime: &str, path: &JsonPath<'_>) {
        let images = self.images;
        self.inline(mime, 0);
        if self.images == images {
            self.kept_content(path);
        }
    }

    /// Content at `path` that the body only refers to. It may fill the context.
    pub(crate) fn kept_content(&mut self, path: &JsonPath<'_>) {
        self.extras.unseen.files = true;
        self.first_file.get_or_insert_with(|| path.to_string());
    }

    fn inline(&mut self, mime: &str, bytes: u64) {
        match mime.split_once('/').map(|(kind, _)| kind) {
            Some(kind) if kind.eq_ignore_ascii_case("image") => self.images = self.images.saturating_add(1),
            Some(kind) if kind.eq_ignore_ascii_case("audio") => self.audio_bytes += bytes,
            _ => self.document_bytes += bytes,
        }
    }

    /// The value of a service tier field.
    pub(crate) fn service_tier(&mut self, value: &Value<'_>) {
        self.extras.tier = match value {
            Value::Null => ServiceTier::Standard,
            Value::Text(name) => ServiceTier::named(&name.decode()),
            Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => ServiceTier::Other,
        };
    }

    /// A tool that the provider runs itself. Its findings become input.
    pub(crate) fn server_tool(&mut self, charge: ToolCharge) {
        match charge {
            ToolCharge::Tokens => {}
            ToolCharge::Search => self.extras.web_search = true,
            ToolCharge::Other => self.extras.server_tools = true,
        }
        self.extras.unseen.tools = true;
    }

    /// Reads a list of modalities of the answer. Text costs nothing more.
    pub(crate) fn modalities(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        let is_text = |value: &Value<'_>| match value {
            Value::Text(name) => {
                let name = name.decode().to_ascii_lowercase();
                matches!(&*name.replace("modality_", ""), "text" | "unspecified")
            }
            // Values of Google's enumeration.
            Value::Number(number) => matches!(crate::scan::whole(number), Some(0 | 1)),
            Value::Null => true,
            Value::Bool(_) | Value::Array | Value::Object => false,
        };
        let mut is_only_text = true;
        if scanner.peek() == ValueKind::Array {
            scanner.array(|scanner, _| {
                is_only_text &= is_text(&scanner.value()?.0);
                Ok(())
            })?;
        } else {
            is_only_text = is_text(&scanner.value()?.0);
        }
        self.extras.output_media |= !is_only_text;
        Ok(())
    }

    /// Reads a field that affects the price by being present. Empty lists and objects and `standard` have no effect.
    pub(crate) fn costly_option(&mut self, scanner: &mut Scanner<'_>, effects: &[PriceEffect]) -> Result<(), SyntaxError> {
        let range = scanner.skip()?;
        let value = scanner.slice(range);
        let is_empty = value.trim_matches(['[', ']', '{', '}', ' ', '\t', '\r', '\n']).is_empty();
        if is_empty || matches!(value, "null" | "false" | "\"standard\"") {
            return Ok(());
        }
        for effect in effects {
            match effect {
                PriceEffect::WebSearch => self.extras.web_search = true,
                PriceEffect::ServerTools => self.extras.server_tools = true,
                PriceEffect::OutputMedia => self.extras.output_media = true,
                PriceEffect::CachedContent => self.extras.unseen.cached_content = true,
                PriceEffect::FoundInput => self.extras.unseen.tools = true,
                PriceEffect::Compaction => self.extras.unseen.compaction = true,
                PriceEffect::OtherRoutes => self.extras.other_routes = true,
                PriceEffect::Surcharge => self.extras.surcharge = true,
                PriceEffect::ServiceTier => self.extras.tier = ServiceTier::Other,
            }
        }
        Ok(())
    }

    pub(crate) fn cached_content(&mut self, value: ValueKind) {
        self.extras.unseen.cached_content |= value != ValueKind::Null;
    }

    /// A search tool at `path` that only upstreams of the caller's protocol get.
    pub(crate) fn own_search(&mut self, path: &JsonPath<'_>) {
        self.extras.own_search = true;
        self.offered_searches.push(path.to_string());
    }

    /// Number of tools so far.
    pub(crate) const fn tool_count(&self) -> usize {
        self.tools
    }

    /// Tool definitions: their number and JSON, which counts as text.
    pub(crate) fn tools(&mut self, count: usize, raw: &str) {
        self.tools = self.tools.saturating_add(count);
        self.text_bytes += raw.len() as u64;
        self.tool_text.add(raw.as_bytes());
    }

    /// An entry of the caller's `metadata`. Long ones, and values that are not texts, are left to the upstream.
    pub(crate) fn metadata(&mut self, name: &str, value: &Value<'_>) {
        if let Value::Text(text) = value
            && self.metadata.len() < MAX_METADATA
            && name.len().max(text.raw().len()) <= MAX_METADATA_BYTES
        {
            self.metadata.push((name.to_owned(), text.decode().into_owned()));
        }
    }

    // --- affinity ---

    /// The caller's own name for the conversation.
    pub(crate) fn cache_key(&mut self, key: &JsonStr<'_>) {
        if !key.is_blank() {
            let mut fingerprint = Fingerprint::new();
            fingerprint.add(b"key");
            fingerprint.add(key.decode().as_bytes());
            self.cache_key = Some(fingerprint.finish());
        }
    }

    /// Begins a turn. Only instructions and the first user turn are hashed.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = self.first_user.is_none().then(Fingerprint::new);
    }

    /// Begins an instruction outside of the conversation, which may come after it.
    pub(crate) fn begin_instruction(&mut self) {
        self.turn = Some(Fingerprint::new());
    }

    /// Ends a turn; its role may be its last member.
    pub(crate) fn end_turn(&mut self, speaker: TurnRole) {
        self.turns = self.turns.saturating_add(1);
        let Some(turn) = self.turn.take() else { return };
        match speaker {
            TurnRole::User if self.first_user.is_none() => self.first_user = Some(turn.finish()),
            TurnRole::System => self.system.add(&turn.finish().to_le_bytes()),
            TurnRole::User | TurnRole::Other => {}
        }
    }

    fn remember(&mut self, raw: &str) {
        if let Some(turn) = &mut self.turn {
            turn.add(raw.as_bytes());
        }
    }

    fn affinity(&self, method: Method) -> Option<u64> {
        if !method.generates() {
            return None;
        }
        if self.cache_key.is_some() {
            return self.cache_key;
        }
        if self.first_user.is_none() && self.system == Fingerprint::new() {
            return None;
        }
        // Combined in a fixed order, so that the order of the body's members does not matter.
        let mut all = Fingerprint::new();
        for part in [self.system.finish(), self.tool_text.finish(), self.first_user.unwrap_or_default()] {
            all.add(&part.to_le_bytes());
        }
        Some(all.finish())
    }

    pub(crate) fn build(
        self,
        model: String,
        method: Method,
        stream: bool,
        include_usage: bool,
    ) -> Result<RequestSummary, Malformed> {
        let affinity = self.affinity(method);
        self.errors.into_result()?;
        Ok(RequestSummary {
            model,
            method,
            stream,
            include_usage,
            max_output: self.max_output,
            candidates: self.candidates,
            fields: self.fields,
            text_bytes: self.text_bytes,
            turns: self.turns,
            images: self.images,
            audio_bytes: self.audio_bytes,
            document_bytes: self.document_bytes,
            tools: u32::try_from(self.tools).unwrap_or(u32::MAX),
            extras: self.extras,
            offered_searches: self.offered_searches,
            max_searches: self.max_searches.filter(|_| !self.adds_searches),
            first_file: self.first_file,
            metadata: self.metadata,
            affinity,
            splices: self.splices,
        })
    }

    // --- values with a check ---

    /// Reads an array and calls `each` for the elements up to `limit`. A longer array or another type is a validation error.
    /// Returns the number of elements and the array's JSON.
    pub(crate) fn list<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        path: &JsonPath<'_>,
        limit: usize,
        mut each: impl FnMut(&mut Self, &mut Scanner<'a>, &JsonPath<'_>) -> Result<(), SyntaxError>,
    ) -> Result<(usize, &'a str), SyntaxError> {
        if scanner.peek() != ValueKind::Array {
            self.errors.wrong_type(path, "an array");
            scanner.skip()?;
            return Ok((0, ""));
        }
        let mut count = 0;
        let range = scanner.array(|scanner, index| {
            count = index + 1;
            if index < limit { each(self, scanner, &path.element(index)) } else { scanner.skip().map(drop) }
        })?;
        if count > limit {
            self.errors.invalid(path, &format!("must have at most {limit} elements"));
        }
        Ok((count, scanner.slice(range)))
    }

    /// Reads a list that may not be absent (`null`) or empty.
    pub(crate) fn required_list<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        path: &JsonPath<'_>,
        each: impl FnMut(&mut Self, &mut Scanner<'a>, &JsonPath<'_>) -> Result<(), SyntaxError>,
    ) -> Result<(), SyntaxError> {
        match scanner.peek() {
            ValueKind::Null => {
                self.errors.missing(path);
                scanner.skip()?;
            }
            ValueKind::Array => {
                if self.list(scanner, path, MAX_TURNS, each)?.0 == 0 {
                    self.errors.invalid(path, "must not be empty");
                }
            }
            ValueKind::Bool | ValueKind::Number | ValueKind::Text | ValueKind::Object => {
                self.errors.wrong_type(path, "an array");
                scanner.skip()?;
            }
        }
        Ok(())
    }

    /// Reads a string or `null`; another type is a validation error.
    pub(crate) fn string<'a>(
        &mut self,
        scanner: &mut Scanner<'a>,
        path: &JsonPath<'_>,
    ) -> Result<Option<JsonStr<'a>>, SyntaxError> {
        match scanner.value()?.0 {
            Value::Text(text) => Ok(Some(text)),
            Value::Null => Ok(None),
            Value::Bool(_) | Value::Number(_) | Value::Array | Value::Object => {
                self.errors.wrong_type(path, "a string");
                Ok(None)
            }
        }
    }

    pub(crate) fn any_text(&mut self, scanner: &mut Scanner<'_>) -> Result<(), SyntaxError> {
        if let (Value::Text(text), _) = scanner.value()? {
            self.text(&text);
        }
        Ok(())
    }
}

/// The number of candidates requested. Anything but a whole number of at least 1 counts as 1 and is left to the upstream.
pub(crate) fn candidates_of(value: &Value<'_>) -> u32 {
    let requested = match value {
        Value::Number(number) => crate::scan::whole(number),
        Value::Text(text) => crate::scan::whole(text.raw()),
        Value::Null | Value::Bool(_) | Value::Array | Value::Object => None,
    };
    requested.map_or(1, |requested| u32::try_from(requested).unwrap_or(u32::MAX)).max(1)
}

/// Decoded size of base64 with this many characters, less the padding at its end.
fn decoded_base64(characters: u64, raw: &str) -> u64 {
    let padding = raw.bytes().rev().take(2).take_while(|byte| *byte == b'=').count() as u64;
    characters.saturating_sub(padding) * 3 / 4
}
