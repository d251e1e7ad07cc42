"""The fold: outcomes, in offset order, become statistics per version and entry; pure.

A worker that starts at an offset first reads the ``HORIZON`` records before it, which are remembered but not counted:
each playbook's statistics record the offset up to which they count. So the same log gives the same statistics,
however often the work is interrupted.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from combee_schemas.base import LineName, playbook_of
from combee_schemas.outcome import (
    MAX_CALLER,
    MAX_ID,
    MAX_USED,
    EntryOutcomes,
    Figures,
    Measure,
    Outcome,
    OutcomeStatistics,
    VersionOutcomes,
)
from combee_schemas.trace import Trace

HORIZON = 10_000
"""Maximum distance in records between two outcomes of one run; a later one counts as another run's."""
MAX_VERSIONS, MAX_ENTRIES, MAX_MEASURES = 200, 500, 10
"""Maximum numbers kept per line."""
VERSION_BYTES, ENTRY_BYTES = 300 << 10, 560 << 10
"""Maximum bytes kept per line, so that its statistics fit a record even with long names."""
MAX_SHOWN = 500
NO_VERSION = 0
"""The version of runs that were shown no playbook, with which all others are compared."""
MAX_LINES, LINES_BYTES = 10_000, 3 << 20
"""Maximum lines per partition, and their bytes in records (in memory ten times as many). Beyond it an eighth is
dropped, fewest runs first: anybody can invent names."""
RUNS_BYTES = 3 << 20
"""Maximum bytes of the runs remembered per partition: beyond it the oldest are forgotten before the horizon."""

_LINE: TypeAdapter[str] = TypeAdapter(LineName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is known of one run; the first statement about each thing holds."""

    place: tuple[str, int] | None = None
    """The line and version that it was shown."""
    used: tuple[str, ...] = ()
    success: bool | None = None
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_scored(self) -> bool:
        """Whether its result is known."""
        return self.success is not None or bool(self.scores)

    def with_outcome(self, outcome: Outcome) -> "Run":
        """Return the run with one more outcome."""
        return Run(
            place=self.place or place_of(outcome),
            used=self.used or _ids(outcome.bullet_ids),
            success=outcome.success if self.success is None else self.success,
            scores={**outcome.score, **self.scores},
        )


def place_of(outcome: Outcome) -> tuple[str, int] | None:
    """Return the line and version that a run was shown; None if it names none of its playbook."""
    if outcome.shown is None:
        return None
    try:
        line = _LINE.validate_python(outcome.shown.line or outcome.playbook)
    except ValidationError:
        return None
    return (line, outcome.shown.version) if playbook_of(line) == outcome.playbook else None


def _ids(ids: Iterable[str]) -> tuple[str, ...]:
    usable = dict.fromkeys(entry_id for entry_id in ids if 0 < len(entry_id) <= MAX_ID)
    return tuple(usable)[:MAX_SHOWN]


def says_outcome(trace: Trace) -> bool:
    """Return whether a trace reports what it was shown or its result, and so counts as an outcome."""
    return trace.shown is not None or trace.success is not None or bool(trace.score)


def outcome_of(trace: Trace) -> Outcome:
    """Return the outcome in a trace; later outcomes name the trace's id."""
    shown = trace.shown
    bounded = {
        # The fold needs no digests, and only the first entries of very many.
        "shown": shown and shown.model_copy(update={"digests": (), "entry_ids": _ids(shown.entry_ids)}),
        "bullet_ids": _ids(trace.bullet_ids)[:MAX_USED],
    }
    return Outcome(
        run_id=trace.trace_id,
        caller=trace.agent[:MAX_CALLER],
        created_at_ms=trace.created_at_ms,
        **trace.passed_on | bounded,
    )


# ---- figures


def with_run(figures: Figures, before: Run | None, after: Run) -> Figures:
    """Return figures that include a run's new state; ``before``: its counted state, None: not counted yet."""
    known = before or Run()
    scores = {name: score for name, score in after.scores.items() if name not in known.scores}
    is_decided = after.success is not None and known.success is None
    unscored = (not after.is_scored) - (before is not None and not before.is_scored)
    return Figures(
        runs=figures.runs + (before is None),
        successes=figures.successes + (is_decided and after.success is True),
        failures=figures.failures + (is_decided and after.success is False),
        unscored=max(0, figures.unscored + unscored),
        scores=_with_scores(figures.scores, scores),
    )


def _with_scores(measures: Iterable[Measure], scores: Mapping[str, float]) -> tuple[Measure, ...]:
    known = {measure.name: measure for measure in measures}
    for name, score in scores.items():
        measure = known.get(name)
        if measure is None and len(known) < MAX_MEASURES:
            known[name] = Measure(name=name, n=1, mean=score)
        elif measure is not None:
            n = measure.n + 1
            mean = measure.mean + (score - measure.mean) / n
            m2 = measure.m2 + (score - measure.mean) * (score - mean)
            known[name] = Measure(name=name, n=n, mean=mean, m2=m2)
    return tuple(known.values())


def merged(first: Figures, second: Figures) -> Figures:
    """Return the combined figures of two sets of runs (Chan, Golub and LeVeque 1979)."""
    measures = {measure.name: measure for measure in first.scores}
    for added in second.scores:
        known = measures.get(added.name)
        if known is None:
            if len(measures) < MAX_MEASURES:
                measures[added.name] = added
            continue
        n, apart = known.n + added.n, added.mean - known.mean
        measures[added.name] = Measure(
            name=added.name,
            n=n,
            mean=known.mean + apart * added.n / n,
            m2=known.m2 + added.m2 + apart**2 * known.n * added.n / n,
        )
    return Figures(
        runs=first.runs + second.runs,
        successes=first.successes + second.successes,
        failures=first.failures + second.failures,
        unscored=first.unscored + second.unscored,
        scores=tuple(measures.values()),
    )


# ---- bounded memory

K = TypeVar("K")
V = TypeVar("V", VersionOutcomes, EntryOutcomes)


class _Kept(Generic[K, V]):
    """Outcomes by version or entry, newest last, with an upper bound of their bytes in a record."""

    def __init__(self, known: Iterable[tuple[K, V]] = ()) -> None:
        self.by_key: OrderedDict[K, V] = OrderedDict()
        self.bytes = 0
        for key, outcomes in known:
            self.put(key, outcomes)

    def put(self, key: K, outcomes: V) -> None:
        """Store the outcomes of a key."""
        self.pop(key)
        self.by_key[key] = outcomes
        self.bytes += _bytes(outcomes)

    def pop(self, key: K) -> V | None:
        """Remove and return the outcomes of a key."""
        known = self.by_key.pop(key, None)
        self.bytes -= _bytes(known) if known else 0
        return known


def _bytes(outcomes: VersionOutcomes | EntryOutcomes) -> int:
    if isinstance(outcomes, VersionOutcomes):
        return 50 + _figures_bytes(outcomes.figures)
    return 40 + len(outcomes.entry_id.encode()) + _figures_bytes(outcomes.used)


def _figures_bytes(figures: Figures) -> int:
    return 90 + sum(50 + len(measure.name.encode()) for measure in figures.scores)


# ---- one line


@dataclass(slots=True, kw_only=True)
class _Line:
    """Mutable statistics of a playbook or a branch."""

    name: str
    versions: _Kept[int, VersionOutcomes] = field(default_factory=_Kept)
    earlier: Figures = field(default_factory=Figures)
    entries: _Kept[str, EntryOutcomes] = field(default_factory=_Kept)
    unplaced: int = 0
    through: int = -1

    @property
    def bytes(self) -> int:
        """About how many bytes it takes in a record."""
        return self.versions.bytes + self.entries.bytes

    @property
    def weight(self) -> tuple[int, int]:
        """Number of runs, and the offset of the last outcome."""
        placed = sum(outcomes.figures.runs for outcomes in self.versions.by_key.values())
        return self.unplaced + self.earlier.runs + placed, self.through

    def count(self, version: int, before: Run | None, after: Run, at_ms: int) -> None:
        """Count a run that was shown a version, or its new state."""
        known = self.versions.pop(version)
        if known is None and len(self.versions.by_key) == MAX_VERSIONS:
            oldest = self._oldest()
            if NO_VERSION < version < oldest:
                self.earlier = with_run(self.earlier, before, after)
                return
            self._merge(oldest)
        figures = with_run(known.figures if known else Figures(), before, after)
        last_at_ms = max(at_ms, known.last_at_ms if known else 0)
        self.versions.put(version, VersionOutcomes(version=version, figures=figures, last_at_ms=last_at_ms))
        while self.versions.bytes > VERSION_BYTES:
            self._merge(self._oldest())

    def _oldest(self) -> int:
        """Return the version to merge next; the runs without a playbook stay apart, as long as there are others."""
        return min(self.versions.by_key.keys() - {NO_VERSION}, default=NO_VERSION)

    def _merge(self, oldest: int) -> None:
        """Merge a version into the earlier ones."""
        merges = self.versions.pop(oldest)
        self.earlier = merged(self.earlier, merges.figures) if merges else self.earlier

    def count_entries(self, shown: Iterable[str], before: Run | None, after: Run) -> None:
        """Count the entries that a run was shown, and the news about those it used."""
        for entry_id in shown:
            entry = self._entry(entry_id)
            self.entries.put(entry_id, entry.model_copy(update={"shown": entry.shown + 1}))
        for entry_id in after.used:
            entry = self._entry(entry_id)
            counted = before if before and entry_id in before.used and entry.used.runs else None
            self.entries.put(
                entry_id, entry.model_copy(update={"used": with_run(entry.used, counted, after)})
            )
        while len(self.entries.by_key) > MAX_ENTRIES or self.entries.bytes > ENTRY_BYTES:
            self.entries.pop(next(iter(self.entries.by_key)))

    def _entry(self, entry_id: str) -> EntryOutcomes:
        return self.entries.by_key.get(entry_id) or EntryOutcomes(entry_id=entry_id)

    def statistics(self, now_ms: int) -> OutcomeStatistics:
        return OutcomeStatistics(
            line=self.name,
            versions=tuple(self.versions.by_key[number] for number in sorted(self.versions.by_key)),
            earlier=self.earlier,
            entries=tuple(self.entries.by_key.values()),
            unplaced=self.unplaced,
            through_offset=self.through,
            updated_at_ms=now_ms,
        )


def _line(known: OutcomeStatistics) -> _Line:
    return _Line(
        name=known.line,
        versions=_Kept((outcomes.version, outcomes) for outcomes in known.versions),
        earlier=known.earlier,
        entries=_Kept((entry.entry_id, entry) for entry in known.entries),
        unplaced=known.unplaced,
        through=known.through_offset,
    )


# ---- the fold


class Fold:
    """Statistics of one partition's playbooks, and the runs mentioned last."""

    def __init__(self, known: Iterable[OutcomeStatistics] = (), *, horizon: int = HORIZON) -> None:
        self._lines = {statistics.line: _line(statistics) for statistics in known}
        self._through: dict[str, int] = {}
        for line in self._lines.values():
            playbook = playbook_of(line.name)
            self._through[playbook] = max(line.through, self._through.get(playbook, -1))
        self._bytes = sum(line.bytes for line in self._lines.values())
        self._horizon = horizon
        self._runs: OrderedDict[tuple[str, str], tuple[int, Run]] = OrderedDict()
        """Runs with the offset of their last outcome, oldest first."""
        self._runs_bytes = 0
        self._changed: set[str] = set()
        self._gone: set[str] = set()

    def add(self, offset: int, outcome: Outcome) -> None:
        """Fold in the outcome at an offset, unless the statistics already count it."""
        self._forget(offset - self._horizon)
        key = (outcome.playbook, outcome.run_id)
        _, before = self._runs.pop(key, (0, None))
        after = (before or Run()).with_outcome(outcome)
        self._runs[key] = offset, after
        self._runs_bytes += _run_bytes(key, after) - (_run_bytes(key, before) if before else 0)
        if offset <= self._through.get(outcome.playbook, -1):
            return
        self._through[outcome.playbook] = offset
        self._note(outcome.playbook, offset)
        if after != before:
            self._count(outcome, before, after, offset)
        if len(self._lines) > MAX_LINES or self._bytes > LINES_BYTES:
            self._shed(offset)

    def changed(self, now_ms: int) -> Iterator[OutcomeStatistics]:
        """Yield the statistics that changed since the last call, by name."""
        for name in sorted(self._changed):
            yield self._lines[name].statistics(now_ms)
        self._changed.clear()

    def gone(self) -> list[str]:
        """Return the lines dropped since the last call."""
        gone = sorted(self._gone - self._lines.keys())
        self._gone.clear()
        return gone

    def _shed(self, offset: int) -> None:
        """Drop lines with few runs, except those with an outcome at this offset: it may be the first of many."""
        old = (line for line in self._lines.values() if line.through != offset)
        for line in sorted(old, key=lambda line: line.weight):
            if len(self._lines) <= MAX_LINES * 7 // 8 and self._bytes <= LINES_BYTES * 7 // 8:
                break
            del self._lines[line.name]
            self._bytes -= line.bytes
            self._through.pop(line.name, None)
            self._gone.add(line.name)
        self._changed &= self._lines.keys()

    def _forget(self, before: int) -> None:
        while self._runs:
            key, (offset, run) = next(iter(self._runs.items()))
            if offset >= before and self._runs_bytes <= RUNS_BYTES:
                break
            del self._runs[key]
            self._runs_bytes -= _run_bytes(key, run)

    def _note(self, name: str, offset: int) -> _Line:
        line = self._lines.setdefault(name, _Line(name=name))
        line.through = offset
        self._changed.add(name)
        return line

    def _count(self, outcome: Outcome, before: Run | None, after: Run, offset: int) -> None:
        playbook = self._lines[outcome.playbook]
        was_placed = before is not None and before.place is not None
        if after.place is None:
            playbook.unplaced += before is None
            return
        if before is not None and not was_placed:
            playbook.unplaced = max(0, playbook.unplaced - 1)
        name, version = after.place
        line = self._note(name, offset)
        known, was = before if was_placed else None, line.bytes
        line.count(version, known, after, outcome.created_at_ms)
        shown = outcome.shown.entry_ids if outcome.shown and not was_placed else ()
        line.count_entries(_ids(shown), known, after)
        self._bytes += line.bytes - was


def _run_bytes(key: tuple[str, str], run: Run) -> int:
    """Return about how many bytes of memory a run's names take."""
    names = (*key, *run.used, *run.scores)
    return sum(64 + len(name) * (1 if name.isascii() else 4) for name in names)
