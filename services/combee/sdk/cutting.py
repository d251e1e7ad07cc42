"""Traces that are too long lose their middle; where a run began and how it ended says most."""

from combee.sdk.outbox import weight
from combee.sdk.transport import Sent
from combee_schemas.codec import CodecError, encode
from combee_schemas.trace import Trace

CUTTABLE = ("trajectory", "task", "answer", "feedback", "target")
"""What loses its middle, the longest first."""

LONGEST_WORD = 300
"""Characters at a cut in which its word must end, if it is to be left out whole."""

ROOM = 100
"""Bytes for the note about what is gone."""


def fitted(trace: Trace, most_bytes: int = Trace.max_bytes) -> Trace:
    """Return a trace whose record fits into ``most_bytes``; ``original_bytes`` says what its texts had (UTF-8).

    Raises
    ------
    CodecError
        If it does not fit however its texts are cut.
    """
    sizes = {name: _size(getattr(trace, name)) for name in CUTTABLE}
    if sum(sizes.values()) <= most_bytes - 4096 and _fits(trace, most_bytes):
        return trace
    original = sum(sizes.values())
    room = most_bytes - 4096 - sum(_size(name) + _size(text) for name, text in trace.metadata.items())
    limit = _level(sorted(sizes.values()), room)
    texts = {name: cut(getattr(trace, name), limit) for name, size in sizes.items() if size > limit}
    shorter = trace.model_copy(update={**texts, "original_bytes": trace.original_bytes or original})
    if not _fits(shorter, most_bytes):
        raise CodecError(f"a trace whose texts are cut to {limit} bytes each still exceeds {most_bytes}")
    return shorter


def bounded(message: Sent) -> Sent:
    """Return a message about as large as it may be: what is huge is cut before it is kept or looked through."""
    if not isinstance(message, Trace) or weight(message) <= Trace.max_bytes:
        return message
    try:
        return fitted(message)
    except CodecError:
        return message  # whoever sends it drops it and says so


def _level(sizes: list[int], room: int) -> int:
    """Return the length to which the longest texts are cut, so that all together have room: short ones stay whole."""
    for at, size in enumerate(sizes):
        share = max(0, room) // (len(sizes) - at)
        if size > share:
            return share
        room -= size
    return sizes[-1]


def _size(text: str | None) -> int:
    return len((text or "").encode(errors="replace"))


def _fits(trace: Trace, most_bytes: int) -> bool:
    try:
        return len(encode(trace)) <= most_bytes
    except CodecError:
        return False


def _whole_words(text: str) -> str:
    """Return a text without the last, perhaps broken word: half a key would not be known for one."""
    at = max(text.rfind(" ", -LONGEST_WORD), text.rfind("\n", -LONGEST_WORD))
    return text if at < 0 else text[: at + 1]


def cut(text: str, most_bytes: int) -> str:
    """Return a text of at most ``most_bytes`` (UTF-8) without its middle, and a note of how much is gone."""
    raw = text.encode(errors="replace")
    if len(raw) <= most_bytes:
        return text
    half = max(0, most_bytes - ROOM) // 2
    head = _whole_words(raw[:half].decode(errors="ignore"))
    tail = _whole_words(raw[len(raw) - half :].decode(errors="ignore")[::-1])[::-1]
    gone = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {gone} bytes cut from the middle …]\n{tail}"
