"""Shortening: a long text loses its middle, because the beginning and end of a run say most."""

from collections.abc import Iterator, Mapping, Sequence

from combee_schemas.playbook import Entry
from combee_schemas.reflection import LESSON_FIELDS, Reflection
from combee_schemas.trace import Trace

TRACE_TEXTS = ("trajectory", "task", "answer", "feedback", "target")

LONGEST_WORD = 300
"""Maximum characters at a cut within which a broken word is left out completely."""

EXCERPT_BYTES = 400

ROOM = 100
"""Bytes reserved for the note about the removed part."""

MIN_BYTES = 1_000
"""Minimum bytes of a prompt's input: nothing can be learned from less."""


def size(text: str | None) -> int:
    """Return a text's size in UTF-8 bytes."""
    return len((text or "").encode(errors="replace"))


def cut(text: str, most_bytes: int) -> str:
    """Return a text of at most ``most_bytes`` (UTF-8) without its middle, with a note of the removed size."""
    raw = text.encode(errors="replace")
    if len(raw) <= most_bytes:
        return text
    half = max(0, most_bytes - ROOM) // 2
    head = _whole_words(raw[:half].decode(errors="ignore"))
    tail = _whole_words(raw[len(raw) - half :].decode(errors="ignore")[::-1])[::-1]
    cut_bytes = len(raw) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {cut_bytes} bytes cut from the middle …]\n{tail}"


def _whole_words(text: str) -> str:
    """Return a text without its last, perhaps broken word: half a key would not be recognised as one."""
    at = max(text.rfind(" ", -LONGEST_WORD), text.rfind("\n", -LONGEST_WORD))
    return text if at < 0 else text[: at + 1]


def cut_all(texts: Mapping[str, str], room: int) -> dict[str, str]:
    """Return texts of about ``room`` bytes together: the longest are cut to one length, short ones stay whole."""
    limit = _level(sorted(map(size, texts.values())), room)
    return {name: cut(text, limit) for name, text in texts.items()}


def _level(sizes: Sequence[int], room: int) -> int:
    """Return the length to which the longest are cut, so that all together have room."""
    for at, length in enumerate(sizes):
        share = max(0, room) // (len(sizes) - at)
        if length > share:
            return share
        room -= length
    return max(sizes, default=0)


def within(trace: Trace, room: int) -> Trace:
    """Return a trace with texts of about ``room`` bytes together; cut texts have a note."""
    texts = {name: text for name in TRACE_TEXTS if (text := getattr(trace, name))}
    return trace.model_copy(update=cut_all(texts, room)) if sum(map(size, texts.values())) > room else trace


def task_excerpt(trace: Trace) -> str:
    """Return a one-line excerpt of a task, which its reflection carries for the curator."""
    return " ".join(cut(trace.task, EXCERPT_BYTES).split())


# ---- prompts that a model refused as too long


def shorter_trace(trace: Trace, shown: Sequence[Entry]) -> Iterator[tuple[Trace, Sequence[Entry]]]:
    """Yield ever shorter inputs of a reflector's prompt, see `shorter`."""
    texts = {name: text for name in TRACE_TEXTS if (text := getattr(trace, name))}
    for cut_texts, entries in shorter(texts, shown):
        yield trace.model_copy(update=cut_texts), entries


def shorter_reflection(
    reflection: Reflection, entries: Sequence[Entry]
) -> Iterator[tuple[Reflection, Sequence[Entry]]]:
    """Yield ever shorter inputs of a curator's prompt about one reflection, see `shorter`."""
    lesson_texts = {name: getattr(reflection, name) for name in LESSON_FIELDS}
    side_texts = {f"side_info {name}": text for name, text in reflection.side_info.items()}
    for texts, left in shorter(lesson_texts | side_texts, entries):
        side_info = {name: texts[f"side_info {name}"] for name in reflection.side_info}
        lesson = {name: texts[name] for name in LESSON_FIELDS}
        yield reflection.model_copy(update={**lesson, "side_info": side_info}), left


def shorter(
    texts: Mapping[str, str], entries: Sequence[Entry]
) -> Iterator[tuple[dict[str, str], Sequence[Entry]]]:
    """Yield ever shorter inputs of one prompt, each with half the room of the one before.

    No tokenizer is used: asking again finds out how much fits a model's window. Texts lose their middle first, until
    they have half of the room; then entries are left out, the longest first, so that most of them stay.
    """
    weights = {entry.id: size(entry.content) for entry in entries}
    room = sum(map(size, texts.values())) + sum(weights.values())
    while (room := room // 2) >= MIN_BYTES:
        cut_texts = cut_all(texts, max(room - sum(weights.values()), room // 2))
        left = room - sum(map(size, cut_texts.values()))
        fitting = set()
        for entry_id in sorted(weights, key=weights.__getitem__):
            left -= weights[entry_id]
            if left < 0:
                break
            fitting.add(entry_id)
        yield cut_texts, tuple(entry for entry in entries if entry.id in fitting)
