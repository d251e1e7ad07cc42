"""Citations: the entries that an agent's answer names, as in ``[calc-00003]`` or ``"bullet_ids": ["calc-00003"]``."""

import re
from collections.abc import Iterable

from combee.core.formats.render import ace_id
from combee_schemas.playbook import Entry
from combee_schemas.trace import Trace

_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
_BETWEEN = re.compile(r"[\s,;]+")
_QUOTES = "\"'`*_"


def cited(text: str, entry_ids: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``entry_ids`` that a text cites in brackets, alone or in a list, in the order of the text."""
    known = {ace_id(entry_id): entry_id for entry_id in entry_ids}
    words = (word.strip(_QUOTES) for part in _BRACKETS.findall(text) for word in _BETWEEN.split(part))
    return tuple(dict.fromkeys(known[word] for word in words if word in known))


def with_citations(trace: Trace, newest: Iterable[Entry]) -> Trace:
    """Return a trace that names the entries which its answer cites, unless its agent reports them itself.

    Entries that the agent was not shown are not counted. Without a report of what it was shown, those of the newest
    version are.
    """
    if trace.bullet_ids or not trace.answer:
        return trace
    shown = trace.shown.entry_ids if trace.shown else (entry.id for entry in newest)
    return trace.model_copy(update={"bullet_ids": cited(trace.answer, shown)})
