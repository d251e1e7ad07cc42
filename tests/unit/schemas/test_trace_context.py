from combee_schemas.records import Outgoing
from combee_schemas.trace_context import (
    MAX_STATE_BYTES,
    TraceContext,
    parent_of_all,
    trace_context,
    with_trace_context,
)
from support.rows import each_row

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_context_is_read_as_it_is_written() -> None:
    context = TraceContext(PARENT, "a=b")
    assert trace_context(context.headers()) == context
    assert (context.trace_id, context.span_id, context.flags) == (TRACE, SPAN, 1)


@each_row(
    "parent",
    [
        b"",
        b"hello",
        PARENT.upper().encode(),
        f"{PARENT}-more".encode(),
        f" {PARENT}".encode(),
        f"{PARENT}\n".encode(),
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"01-{TRACE}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE[:-1]}-{SPAN}-01".encode(),
        b"\xff" * 55,
        None,
    ],
)
def test_what_is_no_context_of_version_00_is_none(parent: bytes | None) -> None:
    assert trace_context((("traceparent", parent),)) is None


@each_row("state", [b"a=" + b"b" * MAX_STATE_BYTES, b"a=\xff", b"a\nb", None])
def test_a_state_that_is_too_long_or_no_text_is_left_out(state: bytes | None) -> None:
    headers = (("traceparent", PARENT.encode()), ("tracestate", state))
    assert trace_context(headers) == TraceContext(PARENT)


def test_a_record_names_one_context_and_keeps_its_other_headers() -> None:
    sent = Outgoing(topic="t", value=b"", headers=(("traceparent", b"old"), ("attempt", b"1")))
    assert with_trace_context(sent, None) is sent
    headers = with_trace_context(sent, TraceContext(PARENT)).headers
    assert headers == (("attempt", b"1"), ("traceparent", PARENT.encode()))


def test_only_what_all_have_in_common_is_the_parent_of_what_they_led_to() -> None:
    one, same = TraceContext(PARENT), TraceContext(PARENT.replace(SPAN, "1" * 16))
    other = TraceContext(PARENT.replace(TRACE, "1" * 32))
    assert parent_of_all([]) is None
    assert parent_of_all([one, same]) == one
    assert parent_of_all([one, other]) is None
