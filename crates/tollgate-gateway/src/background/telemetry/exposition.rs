//! Parses the text of `/metrics`, so that the exported metrics are the same and need no second list. Only the forms that the
//! gateway's own encoder writes are supported: no timestamps, no exemplars.

/// A metric with all its samples.
#[derive(Debug, PartialEq)]
pub(super) struct ExposedMetric<'a> {
    pub(super) name: &'a str,
    pub(super) help: &'a str,
    pub(super) kind: ExposedKind,
    pub(super) samples: Vec<Sample<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExposedKind {
    Counter,
    /// A gauge, or an info, whose value is always 1.
    Gauge,
    Histogram,
}

#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// The suffix after the metric's name: `_total`, `_sum`, `_count`, `_bucket`, `_info` or nothing.
    pub(super) suffix: &'a str,
    pub(super) labels: Vec<(&'a str, String)>,
    pub(super) value: &'a str,
}

/// The metrics of a text, in its order. Lines that the encoder would not write are skipped.
pub(super) fn parse(text: &str) -> Vec<ExposedMetric<'_>> {
    let mut metrics: Vec<ExposedMetric<'_>> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            // The encoder ends the text with a full stop.
            help = described.split_once(' ').map_or("", |(_, help)| help.trim_end_matches('.'));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            if let Some(kind) = kind_of(kind) {
                metrics.push(ExposedMetric { name, help, kind, samples: Vec::new() });
            }
        } else if !line.starts_with('#')
            && let Some(metric) = metrics.last_mut()
            && let Some(sample) = line.strip_prefix(metric.name).and_then(parse_sample)
        {
            metric.samples.push(sample);
        }
    }
    metrics
}

fn kind_of(word: &str) -> Option<ExposedKind> {
    match word {
        "counter" => Some(ExposedKind::Counter),
        "gauge" | "info" => Some(ExposedKind::Gauge),
        "histogram" => Some(ExposedKind::Histogram),
        _ => None,
    }
}

/// Parses `SUFFIX{LABELS} VALUE`; the braces may be missing.
fn parse_sample(rest: &str) -> Option<Sample<'_>> {
    let end = rest.find(['{', ' '])?;
    let (suffix, mut rest) = rest.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (name, value) = rest.trim_start_matches(',').split_once("=\"")?;
            let (value, behind) = quoted(value)?;
            labels.push((name, value));
            rest = behind;
        }
        rest = &rest[1..];
    }
    Some(Sample { suffix, labels, value: rest.trim() })
}

/// A label's value up to its closing quote, unescaped, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::metrics::Metrics;

    #[test]
    fn every_metric_of_the_gateway_is_read() {
        let metrics = Metrics::new("1.2.3").with_gen_ai();
        metrics.refused("E10");
        metrics.journal(12, Duration::from_millis(1_500));
        metrics.account_usable("a \"quoted\"\\name\nof two lines, {odd}", "a", true);
        for text in [metrics.render(), metrics.render_gen_ai()] {
            let parsed = parse(&text);
            assert_eq!(parsed.len(), text.lines().filter(|line| line.starts_with("# TYPE ")).count());
            let samples = parsed.iter().map(|metric| metric.samples.len()).sum::<usize>();
            // The label above has an escaped line end.
            assert_eq!(samples, text.lines().filter(|line| !line.starts_with('#')).count(), "{text}");
        }
        let text = metrics.render();
        let parsed = parse(&text);
        let find = |name: &str| parsed.iter().find(|metric| metric.name == name).unwrap();
        let refusals = find("tollgate_refusals");
        assert_eq!((refusals.kind, refusals.help), (ExposedKind::Counter, "Requests refused by the gateway, by error id"));
        assert_eq!(refusals.samples, [Sample { suffix: "_total", labels: vec![("error", "E10".to_owned())], value: "1" }]);
        assert_eq!(find("tollgate_journal_oldest_seconds").samples[0].value, "1.5");
        assert_eq!(find("tollgate_account_usable").samples[0].labels[0].1, "a \"quoted\"\\name\nof two lines, {odd}");
        let duration = find("tollgate_request_duration_seconds");
        assert_eq!(
            (duration.kind, duration.samples[0].suffix, duration.samples[1].suffix),
            (ExposedKind::Histogram, "_sum", "_count")
        );
        assert_eq!(duration.samples.last().unwrap().labels, [("le", "+Inf".to_owned())]);
        assert_eq!(find("tollgate_build").samples[0].suffix, "_info");
    }

    #[test]
    fn malformed_exposition_lines_are_skipped() {
        let text = "x 1\n# TYPE a counter\na_total{b=\"c} 1\na_total{b} 1\nb_total 1\na_total 2\n# TYPE s summary\ns 1\n# EOF\n";
        let parsed = parse(text);
        assert_eq!(parsed.len(), 1);
        assert_eq!(parsed[0].samples, [Sample { suffix: "_total", labels: Vec::new(), value: "2" }]);
    }
}
