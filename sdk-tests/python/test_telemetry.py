"""Traces and metrics, decoded by OpenTelemetry's own Python messages."""

import time

from conftest import KEY, Collector
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


def messages(path, kind):
    assert all(content_type == "application/x-protobuf" for _, content_type, _ in Collector.received)
    return [kind.FromString(body) for sent_to, _, body in list(Collector.received) if sent_to == path]


def wait_for(what, found):
    for _ in range(300):
        if value := found():
            return value
        time.sleep(0.1)
    raise AssertionError(f"no {what}")


def plain(attributes):
    """Attributes as a dictionary."""

    def value(any_value):
        kind = any_value.WhichOneof("value")
        if kind == "array_value":
            return [value(one) for one in any_value.array_value.values]
        return getattr(any_value, kind)

    found = {attribute.key: value(attribute.value) for attribute in attributes}
    assert len(found) == len(attributes), "no attribute occurs twice"
    return found


def spans():
    """Spans of the caller's trace, with their resource."""
    sent = messages("/v1/traces", ExportTraceServiceRequest)
    return [
        (resource.resource, span)
        for message in sent
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.trace_id.hex() == TRACE
    ]


def test_spans_of_a_chat_are_below_the_callers(chat, model):
    Collector.received.clear()
    answer = chat.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": "a-private-question"}],
        extra_headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
    )
    found = wait_for("spans", lambda: len(spans()) >= 2 and spans())
    (resource, request), (_, attempt) = found
    assert plain(resource.attributes)["service.name"] == "tollgate"
    assert (request.kind, attempt.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    assert request.parent_span_id.hex() == PARENT
    assert attempt.parent_span_id == request.span_id
    assert request.name == f"chat {model}"
    assert 0 < request.start_time_unix_nano <= attempt.start_time_unix_nano <= attempt.end_time_unix_nano <= request.end_time_unix_nano
    assert request.status.code == attempt.status.code == Status.STATUS_CODE_UNSET
    facts = plain(request.attributes)
    assert facts["gen_ai.request.model"] == model
    assert facts["tollgate.request.id"] == answer.headers["x-request-id"]
    usage = answer.parse().usage
    assert (facts["gen_ai.usage.input_tokens"], facts["gen_ai.usage.output_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
    operation = "generate_content" if model == "native-model" else "chat"
    assert plain(attempt.attributes)["gen_ai.operation.name"] == operation
    bodies = b"".join(body for _, _, body in Collector.received)
    for secret in (b"a-private-question", KEY.encode()):
        assert secret not in bodies


def test_metrics_are_cumulative(chat):
    chat.chat.completions.create(model="chat-model", messages=[{"role": "user", "content": "hello"}])

    def metric(name):
        sent = messages("/v1/metrics", ExportMetricsServiceRequest)
        scopes = [scope for message in sent for resource in message.resource_metrics for scope in resource.scope_metrics]
        found = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        return found[-1] if found else None

    requests = wait_for("requests", lambda: metric("tollgate_requests")).sum
    assert requests.is_monotonic and requests.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    assert sum(point.as_int for point in requests.data_points) >= 1
    duration = wait_for("durations", lambda: metric("gen_ai.client.inference.duration"))
    assert duration.unit == "s"
    for point in duration.histogram.data_points:
        assert sum(point.bucket_counts) == point.count >= 1
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert plain(point.attributes)["gen_ai.operation.name"] in ("chat", "generate_content")
