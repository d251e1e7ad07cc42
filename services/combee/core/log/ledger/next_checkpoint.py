"""The checkpoint for the next reading."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from combee.core.log.fates import Fate
from combee.core.log.ledger.account import Ledger
from combee.core.log.ledger.carried import COMMAND, REFLECTION, TRACE
from combee.core.log.ledger.checkpoint import (
    MET_KEPT,
    Checkpoint,
    Evidence,
    Line,
    Offsets,
    Totals,
    mark,
    packed,
)
from combee.core.log.ledger.dead_letters import Key, Place
from combee_schemas import topics
from combee_schemas.base import playbook_of
from combee_schemas.records import Record

FINAL = frozenset({Fate.APPLIED, Fate.DROPPED})


@dataclass(slots=True)
class _Open:
    """Ids and records that are still open."""

    ids: dict[str, set[str]] = field(default_factory=dict)
    """Ids of open reflections, by playbook."""
    offsets: dict[str, dict[int, set[int]]] = field(default_factory=dict)

    def add(self, topic: str, places: Iterable[Place]) -> None:
        """Mark records to be read again."""
        for partition, offset in places:
            self.offsets.setdefault(topic, {}).setdefault(partition, set()).add(offset)


def checkpoint(
    ledger: Ledger, *, read: Offsets, last: dict[str, dict[int, Record]], now_ms: int
) -> Checkpoint:
    """Return the checkpoint for the next reading; the ledger must have reported, without a broken promise.

    ``read``: the ends up to which the topics were read; ``last``: the last record of each partition.
    """
    before = ledger.carried.checkpoint
    pending = _pending(ledger)
    closed = [record for record in ledger.read if not record.ids & pending.ids.get(record.playbook, set())]
    batches = set(_batches(ledger, pending))
    traces = {key for key, fate in ledger.traces.fates.items() if fate not in FINAL}
    traces |= ledger.traces.contents.conflicting
    conflicting = ledger.commands.conflicting
    _reopen(ledger, pending, batches, traces)
    fates = Counter(
        fate
        for line, fated in ledger.fates.items()
        for identity, fate in fated.items()
        if identity not in pending.ids.get(playbook_of(line), ())
    )
    traced = Counter(fate for key, fate in ledger.traces.fates.items() if key not in traces)
    trace_places = sum(1 for _, key in ledger.traces.places if key not in traces)
    spent = [cost for key, cost in ledger.updates.spent.items() if key not in batches]
    known = before.totals
    met = ledger.carried.marks[:]
    met.extend(
        {mark(REFLECTION, record.playbook, record_id) for record in closed for record_id in record.ids}
    )
    met.extend(mark(TRACE, *key) for key in ledger.traces.fates if key not in traces)
    met.extend({mark(COMMAND, *key) for _, key in ledger.asked if key not in conflicting})
    return Checkpoint(
        taken_at_ms=now_ms,
        first_retained={topic: dict(firsts) for topic, firsts in ledger.horizon.first_retained.items()},
        next={
            topic: {p: max(end, before.next.get(topic, {}).get(p, 0)) for p, end in ends.items()}
            for topic, ends in read.items()
        },
        last={
            topic: before.last.get(topic, {})
            | {p: Evidence.of(record) for p, record in last.get(topic, {}).items()}
            for topic in read
        },
        open={
            topic: {p: tuple(sorted(offsets)) for p, offsets in partitions.items()}
            for topic, partitions in pending.offsets.items()
        },
        lines={name: Line.model_validate(_line(ledger, name)) for name in sorted(_lines(ledger))},
        totals=Totals(
            applied=known.applied + fates[Fate.APPLIED],
            dropped=known.dropped + fates[Fate.DROPPED],
            duplicates=known.duplicates + len(closed) - len({record.key for record in closed}),
            traces_reflected=known.traces_reflected + traced[Fate.APPLIED],
            traces_dropped=known.traces_dropped + traced[Fate.DROPPED],
            traces_duplicates=known.traces_duplicates + trace_places - traced.total(),
            planned_calls=known.planned_calls + sum(planned for planned, _ in spent),
            usage=sum((usage for _, usage in spent), start=known.usage),
        ),
        met=packed(met[-MET_KEPT:]),
    )


def _pending(ledger: Ledger) -> _Open:
    """Return the ids whose fate may change, those with conflicting contents, and all their repeats."""
    pending = _Open()
    for line, fated in ledger.fates.items():
        undecided = {identity for identity, fate in fated.items() if fate not in FINAL}
        if undecided:
            pending.ids.setdefault(playbook_of(line), set()).update(undecided)
    for playbook, identity in ledger.contents.conflicting:
        pending.ids.setdefault(playbook, set()).add(identity)
    grows = bool(pending.ids)
    while grows:
        grows = False
        for record in ledger.read:
            ids = pending.ids.get(record.playbook, set())
            if record.ids & ids and not record.ids <= ids:
                ids |= record.ids
                grows = True
    return pending


def _batches(ledger: Ledger, pending: _Open) -> Iterator[tuple[str, int]]:
    """Yield batches without a version, and batches of reflections whose fate may change."""
    for name, sequence in ledger.batches.sizes:
        if sequence > ledger.versions.published.get(name, 0):
            yield name, sequence
    for line, fated in ledger.fates.items():
        for identity in pending.ids.get(playbook_of(line), set()) & fated.keys():
            for sequence in ledger.batches.sequences_of(line, identity):
                yield line, sequence


def _reopen(ledger: Ledger, pending: _Open, batches: set[tuple[str, int]], traces: set[Key]) -> None:
    """Mark all records of open ids to be read again."""
    reflections, traced, letters = topics.REFLECTIONS.name, topics.TRACES.name, topics.DEAD_LETTERS.name
    records = [record for record in ledger.read if record.ids & pending.ids.get(record.playbook, set())]
    places = {record.place for record in records}
    trace_places = {place for place, key in ledger.traces.places if key in traces}
    unread = {topic: set(places) for topic, places in ledger.unread.items()}
    named = {
        (line, identity)
        for line, fated in ledger.fates.items()
        for identity in pending.ids.get(playbook_of(line), set()) & fated.keys()
    }
    pending.add(reflections, places | unread.get(reflections, set()))
    pending.add(traced, trace_places | unread.get(traced, set()))
    letter_places = ledger.dead_letters.letters(places | unread.get(reflections, set()), named)
    letter_places |= ledger.traces.dead_letters.letters(trace_places | unread.get(traced, set()), traces)
    pending.add(letters, letter_places)
    pending.add(topics.BATCHES.name, (ledger.batches.places[batch] for batch in batches))
    effective = ledger.updates.effective
    pending.add(topics.UPDATES.name, (effective[batch] for batch in batches if batch in effective))
    conflicting = ledger.commands.conflicting
    pending.add(topics.COMMANDS.name, (place for place, key in ledger.asked if key in conflicting))


def _lines(ledger: Ledger) -> set[str]:
    return ledger.versions.lines() | ledger.batches.partition_of.keys() | ledger.decisions.lines()


def _line(ledger: Ledger, name: str) -> dict[str, object]:
    return {**ledger.versions.line(name), **ledger.batches.line(name), **ledger.decisions.line(name)}
