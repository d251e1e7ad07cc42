"""Echoes: an agent that repeats an entry it was shown is no evidence for it, and brings no removed entry back."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from combee.core.playbook.derived import once_per_version
from combee.core.playbook.operations import union
from combee.core.playbook.shown import words_since
from combee.core.text.similarity.lessons import Index
from combee_schemas.base import Shown
from combee_schemas.playbook import Playbook
from combee_schemas.reflection import Reflection
from combee_schemas.scan import Echo, Operation, OperationKind


def without_echoes(
    base: Playbook, reflections: Iterable[Reflection], operations: Sequence[Operation]
) -> tuple[tuple[Operation, ...], tuple[Echo, ...]]:
    """Return a group's operations without those that only repeat what their agents were shown.

    An operation that also rests on reflections that were not shown the entry keeps those. A correction has another
    content and is no echo.
    """
    shown = {reflection.reflection_id: reflection.shown for reflection in reflections if reflection.shown}
    if not shown:
        return tuple(operations), ()
    known = _known_by(base)
    news: list[Operation] = []
    echoes: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for operation in operations:
        fresh: list[str] = []
        saying = known.saying(operation)
        for reflection_id in operation.evidence:
            entry_id = known.shown(saying, shown.get(reflection_id))
            if entry_id:
                echoes[entry_id] = union(echoes[entry_id], (reflection_id,))
            else:
                fresh.append(reflection_id)
        if len(fresh) == len(operation.evidence):
            news.append(operation)
        elif fresh:
            news.append(operation.model_copy(update={"evidence": tuple(fresh)}))
    return tuple(news), tuple(Echo(entry_id=entry_id, evidence=ids) for entry_id, ids in echoes.items())


def echoed(base: Playbook, operation: Operation, shown: Shown | None) -> str:
    """Return the id of the entry that an agent was shown and an operation repeats; empty: there is none."""
    if shown is None:
        return ""
    known = _known_by(base)
    return known.shown(known.saying(operation), shown)


@once_per_version
def _known_by(base: Playbook) -> "_Known":
    return _Known(base)


def was_shown(entry_id: str, since: int, shown: Shown | None) -> bool:
    """Return whether an agent was shown an entry that exists ``since`` a version; an unknown version (0) counts."""
    return shown is not None and entry_id in shown.entry_ids and not 0 < shown.version < since


class _Known:
    """Contents of a playbook's entries, removed ones too, and since when they say or said their lessons."""

    def __init__(self, base: Playbook) -> None:
        self._index = Index()
        self._since = {**{former.entry_id: former.since for former in base.retired}, **words_since(base)}
        for former in base.retired:
            self._index.put(former.entry_id, former.content)
        for entry in base.entries:
            self._index.put(entry.id, entry.content)

    def saying(self, operation: Operation) -> tuple[str, ...]:
        """Return the ids of entries with an operation's content; for an UPDATE, only of the entry that it updates."""
        if operation.kind == OperationKind.ADD:
            return self._index.saying(operation.content)
        if operation.kind == OperationKind.UPDATE:
            return tuple(
                entry for entry in self._index.saying(operation.content) if entry in operation.entry_ids
            )
        return ()

    def shown(self, saying: Sequence[str], shown: Shown | None) -> str:
        """Return the id of the first of these entries that an agent was shown; empty: it was shown none."""
        echoed = (entry_id for entry_id in saying if was_shown(entry_id, self._since[entry_id], shown))
        return next(echoed, "")
