//! Streamed answers on their way back: bytes, events, meaning, the caller's events. Where the network cut the bytes does
//! not matter; what is kept is one event, the calls that are not whole, and a few facts per candidate.

use bytes::{Bytes, BytesMut};

use crate::{
    Codec, Problem, Protocol, ReplySummary, StreamError, StreamRelay, codec,
    neutral::{AnswerPipeline, Event, ReplyContext, StreamDecoder, StreamEncoder},
    passthrough::{self, BodyKind},
    sse::{SseEvent, SseParser},
};

/// A relay that puts a streamed answer of an upstream into the caller's protocol. Upstreams always stream events, whatever
/// framing the caller asked for.
#[must_use]
pub fn translating_relay(upstream: Protocol, caller: Protocol, context: &ReplyContext) -> Box<dyn StreamRelay> {
    let decoder = upstream.spec().reply_codec.stream_decoder();
    let marks_end = decoder.marks_end();
    Box::new(Translating {
        opening: BodyKind::default(),
        parser: SseParser::new(),
        steps: Steps {
            upstream: codec(upstream),
            decoder,
            pipeline: AnswerPipeline::new(context, caller.spec().carries_media),
            encoder: caller.spec().reply_codec.stream_encoder(upstream, context),
            decoded: Vec::new(),
            handed: Vec::new(),
            out: BytesMut::new(),
        },
        caller: codec(caller),
        marks_end,
        written: false,
        broken: None,
    })
}

struct Translating {
    /// Whether the body is a stream at all.
    opening: BodyKind,
    parser: SseParser,
    steps: Steps,
    caller: &'static dyn Codec,
    marks_end: bool,
    /// Something was appended for the caller.
    written: bool,
    /// The fault that ended the stream; it stays.
    broken: Option<StreamError>,
}

/// The way of one event.
struct Steps {
    upstream: &'static dyn Codec,
    decoder: Box<dyn StreamDecoder>,
    pipeline: AnswerPipeline,
    encoder: Box<dyn StreamEncoder>,
    decoded: Vec<Event>,
    handed: Vec<Event>,
    out: BytesMut,
}

impl Steps {
    fn event(&mut self, event: &SseEvent<'_>) -> Result<(), StreamError> {
        if self.pipeline.ended() {
            return Ok(());
        }
        if event.name == b"error" {
            return Err(StreamError::Problem(Box::new(self.upstream.decode_problem(200, event.data))));
        }
        let read = self.decoder.push(event.data, &mut self.decoded);
        self.hand_on()?;
        read
    }

    fn end(&mut self) -> Result<(), StreamError> {
        self.decoded.push(Event::End);
        self.hand_on()
    }

    /// Moves what was decoded on to the caller, up to a fault.
    fn hand_on(&mut self) -> Result<(), StreamError> {
        let mut taken = Ok(());
        for event in self.decoded.drain(..) {
            if taken.is_ok() {
                taken = self.pipeline.take(event, &mut self.handed);
            }
        }
        for event in self.handed.drain(..) {
            self.encoder.push(event, &mut self.out);
        }
        taken
    }
}

impl Translating {
    fn take(&mut self, chunk: &Bytes) -> Result<(), StreamError> {
        self.opening.inspect(chunk)?;
        if matches!(self.opening, BodyKind::Array) {
            // Google's front end wraps error objects in an array.
            self.opening = BodyKind::Document(Vec::new());
            self.opening.inspect(chunk)?;
        }
        if matches!(self.opening, BodyKind::Document(_)) {
            return Ok(());
        }
        let steps = &mut self.steps;
        self.parser.push(chunk, |event| steps.event(&event))
    }

    fn take_end(&mut self) -> Result<(), StreamError> {
        let steps = &mut self.steps;
        if let BodyKind::Document(body) = &self.opening {
            return Err(passthrough::document_error(body, |status, body| steps.upstream.decode_problem(status, body)));
        }
        let tail = self.parser.finish(|event| steps.event(&event));
        if steps.pipeline.ended() {
            return Ok(());
        }
        passthrough::check_stream_end(tail, steps.pipeline.finished())?;
        steps.end()
    }

    /// Hands out what was written and remembers how it went.
    fn settle(&mut self, result: Result<(), StreamError>, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if !self.steps.out.is_empty() {
            self.written = true;
            out.push(self.steps.out.split().freeze());
        }
        if let Err(fault) = &result {
            self.broken = Some(fault.clone());
        }
        result
    }
}

impl StreamRelay for Translating {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if let Some(fault) = &self.broken {
            return Err(fault.clone());
        }
        if self.steps.pipeline.ended() {
            return Ok(());
        }
        let result = self.take(chunk);
        self.settle(result, out)
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if let Some(fault) = &self.broken {
            return Err(fault.clone());
        }
        if self.steps.pipeline.ended() {
            return Ok(());
        }
        let result = self.take_end();
        self.settle(result, out)
    }

    fn summary(&self) -> ReplySummary {
        let summary = self.steps.pipeline.summary();
        // Content the caller is not shown (thoughts he did not ask for) has not reached him.
        ReplySummary { content: summary.content && self.written, ..summary }
    }

    fn complete(&self) -> bool {
        let pipeline = &self.steps.pipeline;
        self.broken.is_none() && pipeline.finished() && (pipeline.ended() || !self.marks_end)
    }

    fn awaiting_end_marker(&self) -> bool {
        let pipeline = &self.steps.pipeline;
        self.broken.is_none() && pipeline.finished() && pipeline.summary().usage.is_some()
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        let mut out = BytesMut::new();
        self.steps.encoder.problem(&self.caller.encode_problem(problem), &mut out);
        out.freeze()
    }

    fn keep_alive(&self) -> &'static [u8] {
        self.steps.encoder.keep_alive()
    }
}
