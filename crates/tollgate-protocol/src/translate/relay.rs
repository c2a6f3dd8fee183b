//! Streamed answers on their way back: bytes, events, meaning, the caller's events. Where the network cut the bytes does
//! not matter; what is kept is one event, the calls that are not whole, and a few facts per candidate.

use bytes::{Bytes, BytesMut};

use crate::{
    Codec, Problem, Protocol, Reading, StreamFault, StreamRelay, codec,
    neutral::{Event, Handover, ReplyContext, StreamDecoder, StreamEncoder},
    sse::SseParser,
};

/// A relay that puts a streamed answer of an upstream into the caller's protocol. Upstreams always stream events, whatever
/// framing the caller asked for.
#[must_use]
pub fn translating_relay(upstream: Protocol, caller: Protocol, context: &ReplyContext) -> Box<dyn StreamRelay> {
    let decoder = super::answers(upstream).stream_decoder();
    let marks_end = decoder.marks_end();
    Box::new(Translating {
        parser: SseParser::new(),
        steps: Steps {
            decoder,
            handover: Handover::new(context),
            encoder: super::answers(caller).stream_encoder(upstream, context),
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
    parser: SseParser,
    steps: Steps,
    caller: &'static dyn Codec,
    marks_end: bool,
    /// Something was appended for the caller.
    written: bool,
    /// The fault that ended the stream; it stays.
    broken: Option<StreamFault>,
}

/// The way of one event.
struct Steps {
    decoder: Box<dyn StreamDecoder>,
    handover: Handover,
    encoder: Box<dyn StreamEncoder>,
    decoded: Vec<Event>,
    handed: Vec<Event>,
    out: BytesMut,
}

impl Steps {
    fn data(&mut self, data: &[u8]) -> Result<(), StreamFault> {
        let read = self.decoder.push(data, &mut self.decoded);
        self.hand_on()?;
        read
    }

    /// Moves what was decoded on to the caller, up to a fault.
    fn hand_on(&mut self) -> Result<(), StreamFault> {
        let mut taken = Ok(());
        for event in self.decoded.drain(..) {
            if taken.is_ok() {
                taken = self.handover.take(event, &mut self.handed);
            }
        }
        for event in self.handed.drain(..) {
            self.encoder.push(event, &mut self.out);
        }
        taken
    }
}

impl Translating {
    /// Hands out what was written and remembers how it went.
    fn settle(&mut self, result: Result<(), StreamFault>, out: &mut Vec<Bytes>) -> Result<(), StreamFault> {
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
    fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), StreamFault> {
        if let Some(fault) = &self.broken {
            return Err(fault.clone());
        }
        let steps = &mut self.steps;
        let result = self.parser.push(chunk, |event| steps.data(event.data));
        self.settle(result, out)
    }

    fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), StreamFault> {
        if let Some(fault) = &self.broken {
            return Err(fault.clone());
        }
        let steps = &mut self.steps;
        let result = self.parser.finish(|event| steps.data(event.data)).and_then(|()| {
            steps.decoded.push(Event::End);
            steps.hand_on()
        });
        self.settle(result, out)
    }

    fn reading(&self) -> Reading {
        let reading = self.steps.handover.reading();
        // Content the caller is not shown (thoughts he did not ask for) has not reached him.
        Reading { content: reading.content && self.written, ..reading }
    }

    fn complete(&self) -> bool {
        let handover = &self.steps.handover;
        self.broken.is_none() && handover.finished() && (handover.ended() || !self.marks_end)
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
