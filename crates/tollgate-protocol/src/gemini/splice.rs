//! A native body for an upstream of the same protocol: the caller's bytes with a few ranges changed (translation
//! reference, section 1.3). The model stands in the path; only where the protocol repeats it inside a body, and wants both
//! to be equal, is it changed here too.

mod clean;

use std::ops::Range;

use bytes::Bytes;

use crate::{
    Method, Outline, RequestEdits,
    scan::{Fault, Kind, Scanner, Value, whole},
    splice::{Splices, first_member, json_string},
    survey::lenient_object,
};

/// Applies the edits; the same buffer where nothing has to change.
pub(super) fn forward_request(body: &Bytes, outline: &Outline, edits: &RequestEdits<'_>) -> Bytes {
    let mut splices = Splices::default();
    if let Some(limit) = edits.max_output
        && outline.method.generates()
    {
        limit_output(body, outline, limit, &mut splices);
    }
    if let Some(name) = edits.upstream_model
        && name != outline.model
        && matches!(outline.method, Method::BatchEmbedContents | Method::CountTokens)
    {
        adopt(&mut splices, |splices| rename(body, name, splices));
    }
    if outline.splices.markers {
        adopt(&mut splices, |splices| clean::clean(body, splices));
    }
    splices.apply(body)
}

/// Takes over the changes of a second scan. The body has been scanned before, so that it fails for nobody; should it, the
/// body goes on as it is.
fn adopt(splices: &mut Splices<'static>, scan: impl FnOnce(&mut Splices<'static>) -> Result<(), Fault>) {
    let mut found = Splices::default();
    if scan(&mut found).is_ok() {
        splices.append(found);
    }
}

/// Writes an output limit where none or a larger one stands.
fn limit_output(body: &Bytes, outline: &Outline, limit: u64, splices: &mut Splices<'static>) {
    let points = &outline.splices;
    let mut bound = false;
    for range in &points.max_output {
        let given = text(body, range);
        let asked = whole(given.trim_matches('"'));
        if asked.is_none_or(|asked| asked > limit) {
            splices.replace(range.clone(), limit.to_string());
        }
        bound = true;
    }
    if bound {
        return;
    }
    let value = limit.to_string();
    if let Some(at) = points.config_open {
        splices.insert(at, first_member(body, at, "maxOutputTokens", &value));
    } else if let Ok(Some(null)) = null_config(body) {
        splices.replace(null, format!("{{\"maxOutputTokens\":{value}}}"));
    } else {
        let config = format!("{{\"maxOutputTokens\":{value}}}");
        splices.insert(points.body_open, first_member(body, points.body_open, "generationConfig", &config));
    }
}

/// The place of a `generationConfig` that is `null`: behind an added member it might take the limit away again.
fn null_config(body: &[u8]) -> Result<Option<Range<usize>>, Fault> {
    let mut found = None;
    Scanner::new(body)?.object(|scanner, name| {
        let (value, range) = scanner.value()?;
        if value == Value::Null && matches!(&*name.decode(), "generationConfig" | "generation_config") {
            found = Some(range);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Puts the upstream's name of the model in the places where a body repeats the path's: each request of a batch, and the
/// request whose tokens are counted.
fn rename(body: &[u8], name: &str, splices: &mut Splices<'static>) -> Result<(), Fault> {
    let resource = if name.contains('/') { name.to_owned() } else { format!("models/{name}") };
    let resource = json_string(&resource);
    let mut request = |scanner: &mut Scanner<'_>| {
        lenient_object(scanner, |scanner, name| {
            let (value, range) = scanner.value()?;
            if name.decode() == "model" && matches!(value, Value::Text(_)) {
                splices.replace(range, resource.clone());
            }
            Ok(())
        })
    };
    Scanner::new(body)?.object(|scanner, name| match &*name.decode() {
        "requests" if scanner.peek() == Kind::Array => scanner.array(|scanner, _| request(scanner)).map(drop),
        "generateContentRequest" | "generate_content_request" => request(scanner),
        _ => scanner.skip().map(drop),
    })?;
    Ok(())
}

fn text<'a>(body: &'a [u8], range: &Range<usize>) -> &'a str {
    body.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
