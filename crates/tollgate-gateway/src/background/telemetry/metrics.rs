//! Metrics as OTLP: the samples of the exposition text as cumulative sums, gauges and histograms.

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, metric::Data, number_data_point,
    },
};

use super::{
    attributes::text,
    exposition::{ExposedKind, ExposedMetric, Sample, parse},
};

/// Data points in one export.
pub(super) const MAX_POINTS: usize = 2_000;

/// The interval that cumulative values cover, in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Metrics that release 1.41 of the semantic conventions names differently; later releases leave out generative AI, whose conventions are
/// released separately. For each: its name now, its name in that release, and the value of `gen_ai.token.type` there.
const FORMER_NAMES: &[(&str, &str, Option<&str>)] = &[
    ("gen_ai.client.inference.duration", "gen_ai.client.operation.duration", None),
    ("gen_ai.client.embeddings.duration", "gen_ai.client.operation.duration", None),
    ("gen_ai.client.inference.operation.input_tokens", "gen_ai.client.token.usage", Some("input")),
    ("gen_ai.client.inference.operation.output_tokens", "gen_ai.client.token.usage", Some("output")),
    ("gen_ai.client.embeddings.operation.input_tokens", "gen_ai.client.token.usage", Some("input")),
];

/// The metrics of a text, in parts of at most [`MAX_POINTS`] data points. Metrics without a sample are left out.
pub(super) fn metrics_of(exposition: &str, interval: Interval) -> Vec<Vec<Metric>> {
    let exposed = parse(exposition);
    let mut metrics: Vec<Metric> = exposed.iter().map(|metric| metric_of(metric, interval)).collect();
    let former = under_former_names(&metrics);
    metrics.extend(former);
    in_parts(metrics)
}

fn metric_of(exposed: &ExposedMetric<'_>, interval: Interval) -> Metric {
    let number = |sample: &Sample<'_>, start| NumberDataPoint {
        attributes: attributes(sample),
        start_time_unix_nano: start,
        time_unix_nano: interval.end,
        value: number(sample.value),
        ..NumberDataPoint::default()
    };
    let data = match exposed.kind {
        ExposedKind::Counter => Data::Sum(Sum {
            data_points: exposed.samples.iter().map(|sample| number(sample, interval.start)).collect(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        ExposedKind::Gauge => Data::Gauge(Gauge { data_points: exposed.samples.iter().map(|sample| number(sample, 0)).collect() }),
        ExposedKind::Histogram => Data::Histogram(Histogram {
            data_points: histogram_points(&exposed.samples, interval),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        }),
    };
    // The name of an info metric ends in `_info` in every format.
    let suffix = exposed.samples.first().map_or("", |sample| sample.suffix);
    let name = format!("{}{}", exposed.name, if suffix == "_info" { suffix } else { "" });
    let unit = unit_of(&name).to_owned();
    Metric { name, description: exposed.help.to_owned(), unit, data: Some(data), ..Metric::default() }
}

fn unit_of(name: &str) -> &'static str {
    let is_gen_ai = name.starts_with("gen_ai.");
    match name {
        _ if is_gen_ai && name.ends_with("_tokens") => "{token}",
        _ if is_gen_ai || name.ends_with("_seconds") => "s",
        _ if name.ends_with("_bytes") => "By",
        _ => "",
    }
}

fn attributes(sample: &Sample<'_>) -> Vec<KeyValue> {
    sample.labels.iter().filter(|(name, _)| *name != "le").map(|(name, value)| text(name, value.clone())).collect()
}

/// An integer if the text has no fraction or exponent, otherwise a float.
fn number(value: &str) -> Option<number_data_point::Value> {
    let whole = value.parse().ok().map(number_data_point::Value::AsInt);
    whole.or_else(|| value.parse().ok().map(number_data_point::Value::AsDouble))
}

/// The encoder writes the sum of each series first, then its count and its buckets, which are cumulative.
fn histogram_points(samples: &[Sample<'_>], interval: Interval) -> Vec<HistogramDataPoint> {
    let mut points: Vec<HistogramDataPoint> = Vec::new();
    let mut below = 0;
    for sample in samples {
        if sample.suffix == "_sum" {
            below = 0;
            points.push(HistogramDataPoint {
                attributes: attributes(sample),
                start_time_unix_nano: interval.start,
                time_unix_nano: interval.end,
                sum: sample.value.parse().ok(),
                ..HistogramDataPoint::default()
            });
        } else if let Some(point) = points.last_mut() {
            let count: u64 = sample.value.parse().unwrap_or(0);
            if sample.suffix == "_count" {
                point.count = count;
            } else if let Some((_, bound)) = sample.labels.iter().find(|(name, _)| *name == "le") {
                point.bucket_counts.push(count.saturating_sub(below));
                below = count;
                point.explicit_bounds.extend(bound.parse::<f64>().ok().filter(|bound| bound.is_finite()));
            }
        }
    }
    points
}

/// Copies of the renamed metrics under their old names, grouped by name.
fn under_former_names(metrics: &[Metric]) -> Vec<Metric> {
    let mut renamed: Vec<Metric> = Vec::new();
    for metric in metrics {
        let Some((_, former, token_type)) = FORMER_NAMES.iter().find(|(name, ..)| *name == metric.name) else { continue };
        let Some(Data::Histogram(histogram)) = &metric.data else { continue };
        let mut histogram = histogram.clone();
        if let Some(token_type) = token_type {
            histogram.data_points.iter_mut().for_each(|point| point.attributes.push(text("gen_ai.token.type", *token_type)));
        }
        match renamed.iter_mut().find(|known| known.name == *former).and_then(|known| known.data.as_mut()) {
            Some(Data::Histogram(known)) => known.data_points.extend(histogram.data_points),
            Some(Data::Gauge(_) | Data::Sum(_) | Data::ExponentialHistogram(_) | Data::Summary(_)) | None => {
                renamed.push(Metric { name: (*former).to_owned(), data: Some(Data::Histogram(histogram)), ..metric.clone() });
            }
        }
    }
    renamed
}

/// Divides metrics so that no part has more than [`MAX_POINTS`] data points.
fn in_parts(metrics: Vec<Metric>) -> Vec<Vec<Metric>> {
    let mut parts: Vec<Vec<Metric>> = Vec::new();
    let mut space = 0;
    for mut metric in metrics {
        while points(&metric) > 0 {
            if space == 0 {
                parts.push(Vec::new());
                space = MAX_POINTS;
            }
            let rest = split_off(&mut metric, space);
            space -= points(&metric);
            if let Some(part) = parts.last_mut() {
                part.push(std::mem::replace(&mut metric, rest));
            }
        }
    }
    parts
}

fn points(metric: &Metric) -> usize {
    match &metric.data {
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        Some(Data::ExponentialHistogram(_) | Data::Summary(_)) | None => 0,
    }
}

/// Keeps the first `count` data points, and returns the same metric with the others.
fn split_off(metric: &mut Metric, count: usize) -> Metric {
    fn divide<P>(points: &mut Vec<P>, count: usize) -> Vec<P> {
        points.split_off(count.min(points.len()))
    }
    let data = match &mut metric.data {
        Some(Data::Sum(sum)) => Some(Data::Sum(Sum { data_points: divide(&mut sum.data_points, count), ..*sum })),
        Some(Data::Gauge(gauge)) => Some(Data::Gauge(Gauge { data_points: divide(&mut gauge.data_points, count) })),
        Some(Data::Histogram(histogram)) => {
            Some(Data::Histogram(Histogram { data_points: divide(&mut histogram.data_points, count), ..*histogram }))
        }
        Some(Data::ExponentialHistogram(_) | Data::Summary(_)) | None => None,
    };
    let Metric { name, description, unit, .. } = &*metric;
    Metric { name: name.clone(), description: description.clone(), unit: unit.clone(), data, ..Metric::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Interval = Interval { start: 5, end: 9 };
    const TEXT: &str = "# HELP tollgate_a Things.\n# TYPE tollgate_a counter\ntollgate_a_total{k=\"v\"} 3\n\
        # HELP tollgate_b_bytes B.\n# TYPE tollgate_b_bytes gauge\ntollgate_b_bytes 1.5\n\
        # HELP tollgate_none N.\n# TYPE tollgate_none counter\n\
        # HELP tollgate_build I.\n# TYPE tollgate_build info\ntollgate_build_info{version=\"1\"} 1\n\
        # HELP gen_ai.client.inference.operation.input_tokens T.\n# TYPE gen_ai.client.inference.operation.input_tokens histogram\n\
        gen_ai.client.inference.operation.input_tokens_sum{m=\"x\"} 7.5\n\
        gen_ai.client.inference.operation.input_tokens_count{m=\"x\"} 3\n\
        gen_ai.client.inference.operation.input_tokens_bucket{le=\"1.0\",m=\"x\"} 1\n\
        gen_ai.client.inference.operation.input_tokens_bucket{le=\"2.0\",m=\"x\"} 1\n\
        gen_ai.client.inference.operation.input_tokens_bucket{le=\"+Inf\",m=\"x\"} 3\n# EOF\n";

    #[test]
    fn samples_become_cumulative_points() {
        let [part] = metrics_of(TEXT, INTERVAL).try_into().unwrap();
        let names: Vec<_> = part.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(
            names,
            [
                ("tollgate_a", ""),
                ("tollgate_b_bytes", "By"),
                ("tollgate_build_info", ""),
                ("gen_ai.client.inference.operation.input_tokens", "{token}"),
                ("gen_ai.client.token.usage", "{token}"),
            ]
        );
        let Some(Data::Sum(sum)) = &part[0].data else { panic!("{:?}", part[0]) };
        assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));
        assert_eq!((point.value, &point.attributes), (Some(number_data_point::Value::AsInt(3)), &vec![text("k", "v")]));
        let Some(Data::Gauge(gauge)) = &part[1].data else { panic!("{:?}", part[1]) };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(1.5)));
        let Some(Data::Histogram(histogram)) = &part[3].data else { panic!("{:?}", part[3]) };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(7.5)));
        assert_eq!((&point.bucket_counts, &point.explicit_bounds), (&vec![1, 0, 2], &vec![1.0, 2.0]));
        assert_eq!(point.attributes, [text("m", "x")], "without the bound");
        let Some(Data::Histogram(former)) = &part[4].data else { panic!("{:?}", part[4]) };
        assert_eq!(former.data_points[0].attributes, [text("m", "x"), text("gen_ai.token.type", "input")]);
    }

    #[test]
    fn metrics_with_one_former_name_are_exported_as_one_metric() {
        let one = |name: &str| {
            format!(
                "# HELP {name} T.\n# TYPE {name} histogram\n{name}_sum{{m=\"{name}\"}} 1.0\n{name}_count{{m=\"{name}\"}} 1\n{name}_bucket{{le=\"+Inf\",m=\"{name}\"}} 1\n"
            )
        };
        let exposition = one("gen_ai.client.inference.duration") + &one("gen_ai.client.embeddings.duration");
        let [part] = metrics_of(&exposition, INTERVAL).try_into().unwrap();
        let former: Vec<_> = part.iter().filter(|metric| metric.name == "gen_ai.client.operation.duration").collect();
        assert_eq!((former.len(), points(former[0])), (1, 2));
    }

    #[test]
    fn large_metrics_are_split_into_parts() {
        let samples: Vec<String> = (0..=MAX_POINTS * 2).map(|index| format!("a_total{{i=\"{index}\"}} {index}\n")).collect();
        let exposition = format!("# HELP a A.\n# TYPE a counter\n{}# HELP b B.\n# TYPE b gauge\nb 1\n# EOF\n", samples.concat());
        let parts = metrics_of(&exposition, INTERVAL);
        let sizes: Vec<usize> = parts.iter().map(|part| part.iter().map(points).sum()).collect();
        assert_eq!(sizes, [MAX_POINTS, MAX_POINTS, 2]);
        assert_eq!(parts[2].iter().map(|metric| metric.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    }
}
