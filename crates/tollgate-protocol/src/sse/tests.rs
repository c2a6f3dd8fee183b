//! Events do not depend on chunk boundaries.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// Name, data and forwardable bytes of every event.
type ParsedEvents = Vec<(String, Vec<u8>, Option<Bytes>)>;

fn read(pieces: &[&[u8]], limit: usize) -> Result<ParsedEvents, StreamError> {
    let mut parser = SseParser::with_limit(limit);
    let mut seen = Vec::new();
    let mut note = |event: SseEvent<'_>| {
        seen.push((String::from_utf8_lossy(event.name).into_owned(), event.data.to_vec(), event.as_sent()));
        Ok::<(), StreamError>(())
    };
    for piece in pieces {
        parser.push(&Bytes::copy_from_slice(piece), &mut note)?;
    }
    parser.finish(&mut note)?;
    Ok(seen)
}

fn data(stream: &[u8]) -> Vec<String> {
    let seen = read(&[stream], EVENT_LIMIT).unwrap();
    seen.into_iter().map(|(_, data, _)| String::from_utf8(data).unwrap()).collect()
}

/// Every framing the format allows, in one stream.
const MIXED: &[u8] = "\u{feff}data: bom\n\ndata: plain\n\ndata:tight\n\n: hello\n\n: hello\ndata: behind a comment\n\n\
    event: named\r\ndata: crlf \u{1f600}\r\n\r\ndata: cr\r\rdata: one\ndata: two\ndata:\ndata: four\n\n\n\n\
    id: 7\ndata: id\nretry: 5\n\nevent: ping\n\ndata: \n\ndata\n\ndatax: no\n\ndata:  two spaces\n\ndata: [DONE]"
    .as_bytes();

#[test]
fn every_framing_is_parsed() {
    let expected =
        ["bom", "plain", "tight", "behind a comment", "crlf \u{1f600}", "cr", "one\ntwo\n\nfour", "id", " two spaces", "[DONE]"];
    assert_eq!(data(MIXED), expected);
}

#[test]
fn only_the_canonical_form_is_forwarded_as_sent() {
    let seen = read(&[MIXED], EVENT_LIMIT).unwrap();
    let sent: Vec<_> = seen.iter().filter_map(|(_, _, sent)| sent.as_deref()).collect();
    let expected: [&[u8]; 4] = [b"data: plain\n\n", b"data:tight\n\n", b"data: behind a comment\n\n", b"data:  two spaces\n\n"];
    assert_eq!(sent, expected);
    assert_eq!(seen[4].0, "named");
}

#[test]
fn named_events_are_forwarded_as_sent_only_in_the_canonical_form() {
    let sent = |stream: &'static [u8]| {
        let chunk = Bytes::from_static(stream);
        let mut found = Vec::new();
        SseParser::new()
            .push(&chunk, |event| {
                assert_eq!(event.as_sent_named().is_some(), event.named_range_in(&chunk).is_some());
                found.push((event.as_sent(), event.as_sent_named()));
                Ok::<(), StreamError>(())
            })
            .unwrap();
        assert_eq!(found.len(), 1);
        found.remove(0)
    };
    let canonical: &[u8] = b"event: a\ndata: b\n\n";
    assert_eq!(sent(canonical), (None, Some(Bytes::from_static(canonical))));
    // Lines before the event that callers do not need are not part of it.
    for before in [&b": comment\n\nevent: a\ndata: b\n\n"[..], b"id: 1\nevent: a\ndata: b\n\n"] {
        assert_eq!(sent(before), (None, Some(Bytes::from_static(canonical))));
    }
    for other in [
        &b"event:a\ndata: b\n\n"[..],
        b"event: a\ndata:b\n\n",
        b"event: \ndata: b\n\n",
        b"event: a\r\ndata: b\n\n",
        b"data: b\nevent: a\n\n",
        b"event: a\nid: 1\ndata: b\n\n",
        b"event: a\nevent: b\ndata: b\n\n",
        b"event: a\ndata: b\ndata: c\n\n",
    ] {
        assert_eq!(sent(other), (None, None), "{}", String::from_utf8_lossy(other));
    }
}

#[test]
fn event_inside_one_chunk_is_not_copied() {
    let chunk = Bytes::from_static(b"data: a\n\ndata: b\n\n");
    let mut slices = Vec::new();
    SseParser::new()
        .push(&chunk, |event| {
            slices.push((event.as_sent().unwrap(), event.range_in(&chunk)));
            Ok::<(), StreamError>(())
        })
        .unwrap();
    assert_eq!(slices[1].0.as_ptr(), chunk[9..].as_ptr());
    assert_eq!(slices[1].1, Some(9..18));
}

#[test]
fn events_do_not_depend_on_chunk_boundaries() {
    let whole = read(&[MIXED], EVENT_LIMIT).unwrap();
    for cut in 0..=MIXED.len() {
        let (left, right) = MIXED.split_at(cut);
        assert_eq!(read(&[left, right], EVENT_LIMIT).unwrap(), whole, "cut at {cut}");
        assert_eq!(read(&[left, b"", right], EVENT_LIMIT).unwrap(), whole, "cut at {cut}, empty chunk between");
    }
    let single: Vec<&[u8]> = MIXED.chunks(1).collect();
    assert_eq!(read(&single, EVENT_LIMIT).unwrap(), whole);
}

#[test]
fn endless_line_is_rejected_at_the_limit() {
    let piece = [b'x'; 1000];
    let mut parser = SseParser::with_limit(10_000);
    let mut pushed = 0;
    let fault = loop {
        match parser.push(&Bytes::copy_from_slice(&piece), |_| Ok::<(), StreamError>(())) {
            Ok(()) => pushed += piece.len(),
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault, TOO_LARGE);
    assert_eq!(pushed, 10_000);
}

#[test]
fn event_above_the_limit_is_an_error_at_any_boundary() {
    let stream = [b"data: ".as_slice(), &[b'x'; 60], b"\n\n"].concat();
    for cut in 0..stream.len() {
        let (left, right) = stream.split_at(cut);
        assert_eq!(read(&[left, right], 50), Err(TOO_LARGE), "cut at {cut}");
        assert!(read(&[left, right], 80).is_ok(), "cut at {cut}");
    }
}

#[test]
fn endless_comments_use_constant_memory() {
    let mut parser = SseParser::with_limit(100);
    for chunk in [&b": keep-alive\n"[..], b": keep", b"-alive\n", b"id: 1\n: x\n"].iter().cycle().take(10_000) {
        parser.push(&Bytes::from_static(chunk), |_| Err(StreamError::Truncated)).unwrap();
    }
    assert!(parser.carry.capacity() < 200, "{}", parser.carry.capacity());
}

#[test]
fn first_error_of_the_callback_ends_the_push() {
    let mut seen = 0;
    let result = SseParser::new().push(&Bytes::from_static(b"data: a\n\ndata: b\n\n"), |_| {
        seen += 1;
        Err(StreamError::Truncated)
    });
    assert_eq!((result, seen), (Err(StreamError::Truncated), 1));
}

#[test]
fn written_events_parse_back() {
    assert_eq!(event(b"{}"), "data: {}\n\n");
    assert_eq!(data(&event(b"{\"a\":1}")), ["{\"a\":1}"]);
}

proptest! {
    #[test]
    fn random_bytes_cut_at_random_give_the_same_events(
        bytes in proptest::collection::vec(prop_oneof![
            Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), Just(b'x'), any::<u8>(),
        ], 0..80),
        lines in proptest::collection::vec(0_usize..8, 0..30),
        cuts in proptest::collection::vec(0_usize..400, 0..12),
    ) {
        const PIECES: [&[u8]; 8] = [b"data: a", b"data:b", b"\n", b"\r\n", b"\r", b": c", b"event: e", b"\n\n"];
        let mut stream = bytes;
        for line in lines {
            stream.extend_from_slice(PIECES[line]);
        }
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.sort_unstable();
        let mut pieces: Vec<&[u8]> = Vec::new();
        let mut from = 0;
        for cut in cuts {
            pieces.push(&stream[from..cut]);
            from = cut;
        }
        pieces.push(&stream[from..]);
        prop_assert_eq!(read(&pieces, EVENT_LIMIT), read(&[&stream], EVENT_LIMIT));
    }
}
