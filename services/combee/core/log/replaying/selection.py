"""Selection of reflections: by source, id, content, or the time their batch closed."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from combee.core.names.identity import is_sent_as
from combee.core.names.sources import UNPROVEN, is_from
from combee.core.text.forms import comparable
from combee_schemas.base import Source, SourceNames
from combee_schemas.reflection import LESSON_FIELDS, Reflection

Kind = Literal["source", "id", "text", "since", "until", "between"]
TIMED = frozenset({"since", "until", "between"})
"""Rules about times."""
FORMS = (
    "source:NAME, id:ID (of a reflection or a trace), text:WORDS, since:TIME, until:TIME or between:TIME/TIME"
)

_TIME = TypeAdapter(AwareDatetime)


def time_ms(text: str) -> int:
    """Read a time such as 2026-01-31 or 2026-01-31T15:00; UTC is the default.

    Raises
    ------
    ValueError
        If the text is not a time.
    """
    whole = text if "T" in text else f"{text}T00:00"
    if re.match(r"\d{4}-\d\d-\d\d", text):
        for zoned in (whole, f"{whole}Z"):
            try:
                return int(_TIME.validate_python(zoned).timestamp() * 1000)
            except ValidationError:
                continue
    raise ValueError(f"{text!r} is not a time: write it as 2026-01-31 or 2026-01-31T15:00")


@dataclass(frozen=True, slots=True)
class Selection:
    """One rule; ``source:NAME`` also selects records without a name (``source:unproven``)."""

    kind: Kind
    value: str

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """Read ``source:NAME``, ``id:ID`` (of a reflection or its trace), ``text:WORDS``, or a time range.

        Times are those at which the reflections' batches closed; the end of a range is excluded.

        Raises
        ------
        ValueError
            If the text is none of these.
        """
        kind, _, value = text.partition(":")
        if kind == "source" and value:
            return cls("source", value)
        if kind == "id" and value:
            return cls("id", value)
        if kind == "text" and value.strip():
            return cls("text", value)
        if kind == "since" and value:
            return _timed(cls("since", value))
        if kind == "until" and value:
            return _timed(cls("until", value))
        if kind == "between" and "/" in value:
            return _timed(cls("between", value))
        raise ValueError(f"{text!r} selects nothing: {FORMS}")

    def __str__(self) -> str:
        """Return the rule in its written form."""
        return f"{self.kind}:{self.value}"

    @property
    def is_open_ended(self) -> bool:
        """Whether it also selects future reflections, which a rule about a named source does."""
        return self.kind == "source" and self.value != UNPROVEN

    @property
    def times_ms(self) -> tuple[float, float]:
        """The selected time range; unlimited for other rules."""
        first, _, last = self.value.partition("/")
        match self.kind:
            case "since":
                return time_ms(first), float("inf")
            case "until":
                return 0, time_ms(first)
            case "between":
                return time_ms(first), time_ms(last)
        return 0, float("inf")

    def matches(self, reflection: Reflection, at_ms: int, names: SourceNames = "declared") -> bool:
        """Return whether a reflection whose time is ``at_ms`` is selected; ``names``: which source names count.

        Words are searched in its lesson in any spelling.
        """
        match self.kind:
            case "id":
                return self.value == reflection.trace_id or is_sent_as(reflection.reflection_id, self.value)
            case "text":
                texts = (
                    *(getattr(reflection, name) for name in LESSON_FIELDS),
                    *reflection.side_info.values(),
                )
                wanted = comparable(self.value)
                return any(wanted in comparable(text) for text in texts)
        return self.lists(reflection.source, at_ms, names)

    def lists(self, source: Source | None, at_ms: int, names: SourceNames = "declared") -> bool:
        """Return whether a rule about sources or times selects a record by its source and time."""
        if self.kind == "source":
            return is_from(source, self.value, names)
        return self.means_time(at_ms)

    def means_time(self, at_ms: int) -> bool:
        """Return whether a time is in the selected range."""
        first, last = self.times_ms
        return first <= at_ms < last


def check_apart(rules: Collection[Selection]) -> None:
    """Refuse a beginning and an end that are meant as one range: each selects by itself, both together everything.

    Raises
    ------
    ValueError
        If there are such rules.
    """
    for begin in rules:
        for end in rules:
            kinds = begin.kind, end.kind
            if kinds == ("since", "until") and begin.times_ms[0] < end.times_ms[1]:
                between = f"between:{begin.value}/{end.value}"
                raise ValueError(f"'{begin}' and '{end}' together select everything: write {between}")


def _timed(rule: Selection) -> Selection:
    first, last = rule.times_ms
    if first >= last:
        raise ValueError(f"'{rule}' selects nothing: its end is not after its beginning")
    return rule
