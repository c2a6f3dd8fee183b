//! Translates streamed answers: upstream bytes are parsed into events, decoded, passed through the [`AnswerPipeline`] and
//! encoded for the caller. Chunk boundaries do not matter. Memory is bounded by one event, the open calls, and a few facts
//! per candidate.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::{
    Codec, Problem, Protocol, ReplySummary, StreamError, StreamRelay, codec,
    json_text::take_written,
    neutral::{AnswerPipeline, Event, ReplyContext, StreamDecoder, StreamEncoder},
    passthrough::{self, BodyKind},
    shared_pieces::{Piece, SharedPieces},
    sse::{SseEvent, SseParser},
};

/// A relay that translates an upstream's stream to the caller's protocol. Upstreams always stream events, whichever framing
/// the caller requested.
pub fn translating_relay(upstream: Protocol, caller: Protocol, context: &ReplyContext) -> Box<dyn StreamRelay> {
    let decoder = upstream.spec().reply_codec.stream_decoder();
    let marks_end = decoder.marks_end();
    Box::new(TranslatingRelay {
        body_kind: BodyKind::default(),
        parser: SseParser::new(),
        translator: EventTranslator {
            upstream: codec(upstream),
            decoder,
            pipeline: AnswerPipeline::new(context, caller.spec().carries_media),
            encoder: caller.spec().reply_codec.stream_encoder(upstream, context),
            decoded: Vec::new(),
            processed: Vec::new(),
            out: BytesMut::new(),
        },
        caller: codec(caller),
        marks_end,
        written: false,
        waiting: VecDeque::new(),
        error: None,
    })
}

struct TranslatingRelay {
    body_kind: BodyKind,
    parser: SseParser,
    translator: EventTranslator,
    caller: &'static dyn Codec,
    marks_end: bool,
    written: bool,
    /// Output that shares memory with the encoder and was not taken yet. Later output waits behind it.
    waiting: VecDeque<Piece>,
    /// The error that ended the stream; later calls return it again.
    error: Option<StreamError>,
}

struct EventTranslator {
    upstream: &'static dyn Codec,
    decoder: Box<dyn StreamDecoder>,
    pipeline: AnswerPipeline,
    encoder: Box<dyn StreamEncoder>,
    decoded: Vec<Event>,
    processed: Vec<Event>,
    out: BytesMut,
}

impl EventTranslator {
    fn event(&mut self, event: &SseEvent<'_>) -> Result<(), StreamError> {
        if self.pipeline.ended() {
            return Ok(());
        }
        if event.name == b"error" {
            return Err(StreamError::Problem(Box::new(self.upstream.decode_problem(200, event.data))));
        }
        let decoded = self.decoder.push(event.data, &mut self.decoded);
        self.forward_decoded()?;
        decoded
    }

    fn end(&mut self) -> Result<(), StreamError> {
        let decoded = self.decoder.end(&mut self.decoded);
        if decoded.is_ok() {
            self.decoded.push(Event::End);
        }
        self.forward_decoded()?;
        decoded
    }

    /// Encodes the decoded events for the caller, up to the first error.
    fn forward_decoded(&mut self) -> Result<(), StreamError> {
        let mut result = Ok(());
        for event in self.decoded.drain(..) {
            if result.is_ok() {
                result = self.pipeline.push(event, &mut self.processed);
            }
        }
        for event in self.processed.drain(..) {
            self.encoder.push(event, &mut self.out);
        }
        result
    }
}

impl TranslatingRelay {
    fn read_chunk(&mut self, chunk: &Bytes) -> Result<(), StreamError> {
        self.body_kind.inspect(chunk)?;
        if matches!(self.body_kind, BodyKind::Array) {
            // Gemini wraps error objects in an array.
            self.body_kind = BodyKind::Document(Vec::new());
            self.body_kind.inspect(chunk)?;
        }
        if matches!(self.body_kind, BodyKind::Document(_)) {
            return Ok(());
        }
        let translator = &mut self.translator;
        self.parser.push(chunk, |event| translator.event(&event))
    }

    fn read_end(&mut self) -> Result<(), StreamError> {
        let translator = &mut self.translator;
        if let BodyKind::Document(body) = &self.body_kind {
            return Err(passthrough::document_error(body, |status, body| translator.upstream.decode_problem(status, body)));
        }
        let harmless = translator.decoder.harmless_tail();
        let tail = passthrough::finish_events(&mut self.parser, harmless, |event| translator.event(event));
        let pipeline = &translator.pipeline;
        if pipeline.ended() {
            return Ok(());
        }
        // Some upstreams omit the end marker. But if content followed a finish reason, only the marker shows that the stream is complete.
        let unmarked = self.marks_end && pipeline.continued();
        passthrough::check_stream_end(tail, pipeline.finished() && !unmarked)?;
        translator.end()
    }

    /// Moves the encoded bytes to `out` and records an error.
    fn flush(&mut self, result: Result<(), StreamError>, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        self.written |= self.take_output(out);
        if let Err(error) = &result {
            self.error = Some(error.clone());
        }
        result
    }
}

impl TranslatingRelay {
    /// Moves the encoded bytes to `out`, or to `waiting` from the first shared piece on. Returns whether there were any.
    fn take_output(&mut self, out: &mut Vec<Bytes>) -> bool {
        let EventTranslator { encoder, out: buffer, .. } = &mut self.translator;
        let pieces = encoder.take_pieces();
        let any = !pieces.is_empty() || !buffer.is_empty();
        self.waiting.extend(pieces);
        if buffer.is_empty() {
            return any;
        }
        let rest = take_written(buffer).freeze();
        if self.waiting.is_empty() {
            out.push(rest);
        } else {
            self.waiting.push_back(Piece::Own(rest));
        }
        any
    }
}

impl StreamRelay for TranslatingRelay {
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.translator.pipeline.ended() {
            return Ok(());
        }
        let result = self.read_chunk(chunk);
        self.flush(result, out)
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        if self.translator.pipeline.ended() {
            return Ok(());
        }
        let result = self.read_end();
        self.flush(result, out)
    }

    fn summary(&self) -> ReplySummary {
        let summary = self.translator.pipeline.summary();
        // Content that the caller does not get does not count as delivered: thoughts it did not request, an unfinished call.
        let text_bytes = summary.text_bytes.saturating_sub(self.translator.encoder.unwritten_output_bytes() as u64);
        ReplySummary { content: summary.content && self.written, text_bytes, ..summary }
    }

    fn received_content_bytes(&self) -> u64 {
        let EventTranslator { decoder, pipeline, .. } = &self.translator;
        pipeline.summary().text_bytes + decoder.withheld_bytes() as u64
    }

    fn held_bytes(&self) -> usize {
        let EventTranslator { decoder, pipeline, encoder, .. } = &self.translator;
        let translator = decoder.held_bytes() + pipeline.held_bytes() + encoder.held_bytes();
        // Memory of shared pieces is counted by the encoder.
        let waiting = self.waiting.iter().map(Piece::own_bytes).sum::<usize>();
        self.body_kind.held_bytes() + self.parser.held_bytes() + translator + waiting
    }

    fn reads_document(&self) -> bool {
        matches!(self.body_kind, BodyKind::Document(_))
    }

    fn open(&mut self, out: &mut Vec<Bytes>) {
        let translator = &mut self.translator;
        translator.encoder.open(&mut translator.out);
        // The beginning is not content, so `written` stays unchanged.
        self.take_output(out);
    }

    fn next_shared(&mut self) -> Option<Bytes> {
        self.waiting.pop_front().map(Piece::into_bytes)
    }

    fn complete(&self) -> bool {
        self.error.is_none() && self.translator.pipeline.ended()
    }

    fn may_end_unmarked(&self, candidates: u32) -> bool {
        self.translator.pipeline.finished_for_good(candidates)
    }

    fn awaiting_end_marker(&self) -> bool {
        let pipeline = &self.translator.pipeline;
        let finished = pipeline.finished() && !pipeline.continued();
        self.marks_end && self.error.is_none() && finished && pipeline.summary().usage.is_some()
    }

    fn problem(&mut self, problem: &Problem) -> Bytes {
        let mut out = BytesMut::new();
        let encoder = &mut self.translator.encoder;
        encoder.problem(&self.caller.encode_problem(problem), &mut out);
        SharedPieces::new(encoder.take_pieces(), out).into_bytes()
    }

    fn keep_alive(&self) -> &'static [u8] {
        self.translator.encoder.keep_alive()
    }
}
