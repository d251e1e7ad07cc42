"""Traces that are too long for a record lose their middle."""

from combee.core.shortening import TRACE_TEXTS, cut_all, size
from combee.sdk.outbox import weight
from combee.sdk.transport import Sent
from combee_schemas.codec import CodecError, encode
from combee_schemas.trace import Trace


def fitted(trace: Trace, most_bytes: int = Trace.max_bytes) -> Trace:
    """Return a trace whose record fits into ``most_bytes``; ``original_bytes`` says what its texts had (UTF-8).

    Raises
    ------
    CodecError
        If it does not fit however its texts are cut.
    """
    texts = {name: text for name in TRACE_TEXTS if (text := getattr(trace, name))}
    original = sum(map(size, texts.values()))
    if original <= most_bytes - 4096 and _fits(trace, most_bytes):
        return trace
    room = most_bytes - 4096 - sum(size(name) + size(text) for name, text in trace.metadata.items())
    shorter = trace.model_copy(
        update={**cut_all(texts, room), "original_bytes": trace.original_bytes or original}
    )
    if not _fits(shorter, most_bytes):
        raise CodecError(f"a trace whose texts are cut to {room} bytes still exceeds {most_bytes}")
    return shorter


def bounded(message: Sent) -> Sent:
    """Return a message about as large as it may be: what is huge is cut before it is kept or looked through."""
    if not isinstance(message, Trace) or weight(message) <= Trace.max_bytes:
        return message
    try:
        return fitted(message)
    except CodecError:
        return message  # whoever sends it drops it and says so


def _fits(trace: Trace, most_bytes: int) -> bool:
    try:
        return len(encode(trace)) <= most_bytes
    except CodecError:
        return False
