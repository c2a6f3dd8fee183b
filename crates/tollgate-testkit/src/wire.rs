//! HTTP/1.1 message parsing for the scripted upstream and the client: heads, content lengths, chunks.

use std::io::{self, BufRead};

/// A message head: first line, and headers with names in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) first_line: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a head; `None` when the peer closed before its first byte.
pub(crate) fn read_head(from: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut head = Head::default();
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    line.trim_end().clone_into(&mut head.first_line);
    loop {
        line.clear();
        if from.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = line.trim_end();
        if text.is_empty() {
            return Ok(Some(head));
        }
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads one chunk of a chunked body; `None` at the last one.
pub(crate) fn read_chunk(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let size = usize::from_str_radix(line.trim().split(';').next().unwrap_or_default(), 16).map_err(io::Error::other)?;
    let mut data = vec![0; size];
    from.read_exact(&mut data)?;
    line.clear();
    from.read_line(&mut line)?;
    Ok((size > 0).then_some(data))
}

/// Reads the body that a head announces; empty without a length.
pub(crate) fn read_body(head: &Head, from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if head.get("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        while let Some(chunk) = read_chunk(from)? {
            body.extend_from_slice(&chunk);
        }
    } else if let Some(length) = head.get("content-length").and_then(|value| value.parse::<usize>().ok()) {
        body.resize(length, 0);
        from.read_exact(&mut body)?;
    }
    Ok(body)
}
