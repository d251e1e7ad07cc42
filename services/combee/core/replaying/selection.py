"""Which reflections are meant: by source, by id, or by what they say."""

from dataclasses import dataclass
from typing import Literal

from combee_schemas.reflection import LESSON_FIELDS, Reflection

Kind = Literal["source", "id", "text"]
UNPROVEN = "unproven"
"""All reflections that name no source are one."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One rule; ``source:NAME`` also stands for what names none (``source:unproven``)."""

    kind: Kind
    value: str

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """Read ``source:NAME``, ``id:ID`` (of a reflection or its trace) or ``text:WORDS``.

        Raises
        ------
        ValueError
            If it is none of these.
        """
        kind, _, value = text.partition(":")
        if kind == "source" and value:
            return cls("source", value)
        if kind == "id" and value:
            return cls("id", value)
        if kind == "text" and value.strip():
            return cls("text", value)
        raise ValueError(
            f"{text!r} selects nothing: source:NAME, id:ID (of a reflection or a trace) or text:WORDS"
        )

    def matches(self, reflection: Reflection) -> bool:
        """Return whether a reflection is meant; words are looked for in its lesson, whatever their case."""
        if self.kind == "source":
            return (reflection.source.name if reflection.source else UNPROVEN) == self.value
        if self.kind == "id":
            return self.value in {reflection.reflection_id, reflection.trace_id}
        texts = (*(getattr(reflection, name) for name in LESSON_FIELDS), *reflection.side_info.values())
        return any(self.value.casefold() in text.casefold() for text in texts)
