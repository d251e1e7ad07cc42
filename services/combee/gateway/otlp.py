"""OTLP over HTTP: requests with spans, as protobuf or JSON, and the answers to them.

It loads opentelemetry-proto and protobuf, which only the extra ``otel`` installs: import it on demand.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import accumulate, chain, islice
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from pydantic_core import from_json, to_json

from combee.core.spans.span import LINK_BYTES, OWN, Event, Span
from combee.gateway.problems import Refusal
from combee.gateway.values import has_more_values
from combee_schemas.trace_context import SCOPE

PROTOBUF, JSON = "application/x-protobuf", "application/json"
IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
ID_BYTES: Final = {"trace_id": 16, "span_id": 8}
HAS_REMOTE = trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
IS_REMOTE = trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
MAX_SPANS, MAX_JSON_VALUES, MAX_FIELDS = 50_000, 300_000, 700_000
"""Maximum numbers of spans (with resources and scopes), of values in JSON and of fields in protobuf: exporters
send fewer in the largest body. The smallest take two bytes in a body, and hundreds in memory."""
MAX_VARINT_BYTES, CONTINUED = 10, 0x80
VARINT, SIZED = 0, 2
FIXED_BYTES = {1: 8, 5: 4}
"""Types of fields in protobuf's encoding."""
VALUE_BYTES = 200
"""Estimated bytes of a value in memory, without its text."""
GZIP = 16 + zlib.MAX_WBITS


def inflated(body: bytes, encoding: str, most: int) -> bytes:
    """Return a decompressed body of at most ``most`` bytes.

    Raises
    ------
    Refusal
        If it is too large, broken, or compressed by another method.
    """
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send gzip or no compression")
    unpacking = zlib.decompressobj(GZIP)
    try:
        plain = unpacking.decompress(body, most + 1)
    except zlib.error as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"not gzip: {error}") from error
    if len(plain) > most:
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} bytes, uncompressed")
    if not unpacking.eof or unpacking.unused_data:
        raise Refusal(HTTPStatus.BAD_REQUEST, "not one whole gzip stream")
    return plain


def decoded(body: bytes, media: str) -> tuple[list[Span], int]:
    """Return the spans of a request, and the number without valid ids.

    Raises
    ------
    Refusal
        If it is no request of OTLP.
    """
    request = ExportTraceServiceRequest()
    try:
        if media == JSON:
            given = from_json(body)
            if not isinstance(given, dict):
                raise DecodeError("not an object")  # noqa: TRY301 - as protobuf's own
            if has_more_values(given, MAX_JSON_VALUES):
                raise _too_many_values(MAX_JSON_VALUES)
            json_format.ParseDict(_with_base64(given), request, ignore_unknown_fields=True)
        else:
            if has_more_fields(body, MAX_FIELDS):
                raise _too_many_values(MAX_FIELDS)
            request.ParseFromString(body)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError, binascii.Error) as error:
        what = f"not an ExportTraceServiceRequest as {media}: {type(error).__name__}"
        raise Refusal(HTTPStatus.BAD_REQUEST, what) from error
    if _has_too_many_spans(request):
        raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_SPANS} spans, resources and scopes")
    spans_given = [
        (span, ours)
        for resource in request.resource_spans
        for ours in [_ours(resource.resource.attributes)]
        for scope in resource.scope_spans
        if scope.scope.name != SCOPE  # spans of Combee's services: it would learn from its own calls for ever
        for span in scope.spans
    ]
    spans = [_span(span, ours) for span, ours in spans_given if _is_valid(span)]
    return spans, len(spans_given) - len(spans)


def _too_many_values(most: int) -> Refusal:
    return Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} values")


def has_more_fields(body: bytes, most: int) -> bool:
    """Return whether a request in protobuf has more than ``most`` fields; it stops counting there.

    Fields of a group, which OTLP does not use, are counted like those around it.
    """
    count, waiting = 0, [(0, len(body), ExportTraceServiceRequest.DESCRIPTOR)]
    while waiting and count <= most:
        at, end, message = waiting.pop()
        while at < end and count <= most:
            count += 1
            tag, at = _varint(body, at)
            kind = tag & 7
            if kind == VARINT:
                _, at = _varint(body, at)
            elif kind in FIXED_BYTES:
                at += FIXED_BYTES[kind]
            elif kind == SIZED:
                size, at = _varint(body, at)
                field = message.fields_by_number.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    waiting.append((at, min(at + size, end), field.message_type))
                at += size
    return count > most


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it."""
    number = shift = 0
    for place in range(at, min(at + MAX_VARINT_BYTES, len(body))):
        byte = body[place]
        number |= (byte & CONTINUED - 1) << shift
        if byte < CONTINUED:
            return number, place + 1
        shift += 7
    return number, at + MAX_VARINT_BYTES


def _has_too_many_spans(request: ExportTraceServiceRequest) -> bool:
    counts = chain.from_iterable(
        (
            1,
            len(resource.scope_spans),
            *(len(scope.spans) for scope in islice(resource.scope_spans, MAX_SPANS)),
        )
        for resource in islice(request.resource_spans, MAX_SPANS + 1)
    )
    return any(total > MAX_SPANS for total in accumulate(counts))


def answer(media: str, rejected: int, message: str) -> bytes:
    """Return the answer to a request; ``rejected`` spans would be rejected again."""
    if media == JSON:
        partial = {"rejectedSpans": str(rejected), "errorMessage": message}
        return to_json({"partialSuccess": partial} if message else {})
    response = ExportTraceServiceResponse()
    if message:
        response.partial_success.rejected_spans = rejected
        response.partial_success.error_message = message
    written: bytes = response.SerializeToString()
    return written


def _with_base64(value: Any) -> Any:
    """Return JSON with base64 ids, as protobuf's JSON needs; OTLP's JSON has hexadecimal ids."""
    if isinstance(value, list):
        return [_with_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(item)).decode()
        if name in IDS and isinstance(item, str)
        else _with_base64(item)
        for name, item in value.items()
    }


def _is_valid(span: trace_pb2.Span) -> bool:
    return all(
        len(getattr(span, name)) == size and any(getattr(span, name)) for name, size in ID_BYTES.items()
    )


def _ours(resource: Iterable[KeyValue]) -> Mapping[str, Any]:
    """Return a resource's attributes for all its spans."""
    return dict(_attributes(pair for pair in resource if pair.key in OWN))


def _span(span: trace_pb2.Span, ours: Mapping[str, Any]) -> Span:
    attributes = {**ours, **dict(_attributes(span.attributes))}
    events = tuple(
        Event(name=event.name, attributes=dict(_attributes(event.attributes))) for event in span.events
    )
    is_remote = bool(span.flags & HAS_REMOTE and span.flags & IS_REMOTE)
    made = Span(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        is_entry=is_remote or not span.parent_span_id,
        name=span.name,
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        attributes=attributes,
        events=events,
        error=_error(span, attributes, events),
        bytes=LINK_BYTES
        + span.ByteSize()
        + sum(len(str(value)) for value in ours.values())
        + VALUE_BYTES * (_count(attributes) + sum(1 + _count(event.attributes) for event in events)),
    )
    return made if made.is_telling else made.only_link()


def _count(value: Any) -> int:
    """Return the number of values in an attribute."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return len(parts) + sum(map(_count, parts))


def _error(span: trace_pb2.Span, attributes: Mapping[str, Any], events: Iterable[Event]) -> str | None:
    """Return a failed span's error text, None for a span without an error."""
    if span.status.code != trace_pb2.Status.STATUS_CODE_ERROR and "error.type" not in attributes:
        return None
    raised = [event.attributes for event in events if event.name == "exception"]
    kind = next((exception.get("exception.type") for exception in raised), None) or attributes.get(
        "error.type"
    )
    text = next((exception.get("exception.message") for exception in raised), None) or span.status.message
    return ": ".join(str(part) for part in (kind, text) if part) or "no reason is given"


def _attributes(pairs: Iterable[KeyValue]) -> Iterator[tuple[str, Any]]:
    for pair in pairs:
        yield pair.key, _plain(pair.value)


def _plain(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return dict(_attributes(value.kvlist_value.values))
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case None:
            return None
        case kind:
            return getattr(value, kind)
