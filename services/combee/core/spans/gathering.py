"""Gathering of spans, which come in pieces, children first: they wait until their topmost span has come."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from combee.core.spans.span import AGENTS, Span
from combee_schemas.trace_context import TRACEPARENT, TraceContext, trace_context

Owner = TypeVar("Owner", bound=Hashable)

MAX_SPANS = 10_000
"""Maximum number of waiting spans per trace."""
MAX_ABOVE = 100
"""Maximum number of enclosing spans examined per agent: each agent has its own way up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRun:
    """The spans of one run of an agent."""

    root: Span | None
    """The agent's own span; None: there is none, and the run consists of the calls."""
    above: tuple[Span, ...]
    """The nearest enclosing spans, from the inside out."""
    spans: tuple[Span, ...]
    """The root and its descendants, in the order in which they began."""
    id: str
    """Hash of the trace and the span; the same run has the same id."""

    @property
    def context(self) -> TraceContext | None:
        """The parent span of results derived from the run."""
        span = self.root or self.spans[0]
        return trace_context(((TRACEPARENT, f"00-{span.trace_id}-{span.span_id}-01".encode()),))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanGroup(Generic[Owner]):
    """Spans that are complete, or that have waited long enough."""

    owner: Owner
    trace_id: str
    spans: tuple[Span, ...]
    above: tuple[Span, ...] = ()
    """The nearest enclosing spans, from the inside out, as far as they also wait."""

    def runs(self) -> list[SpanRun]:
        """Return the runs in the group: one per outermost agent, otherwise one of all its calls."""
        below, known = _children(self.spans), {span.span_id: span for span in self.spans}
        tops = sorted((span for span in self.spans if span.parent_id not in known), key=_began)
        roots = sorted((agent for top in tops for agent in _agents(top, below)), key=_began)
        if roots:
            return [self._run(root, (*_above(root, known), *self.above)[:MAX_ABOVE], below) for root in roots]
        if not any(span.is_telling for span in self.spans):
            return []
        first = tops[0] if tops else self.spans[0]
        place = first.span_id if first.is_entry else first.parent_id
        ordered = tuple(sorted(self.spans, key=_began))
        return [
            SpanRun(root=None, above=(*tops, *self.above), spans=ordered, id=f"otel-{self.trace_id}-{place}")
        ]

    def _run(self, root: Span, above: tuple[Span, ...], below: Mapping[str, Sequence[Span]]) -> SpanRun:
        spans = tuple(sorted(_descent(root, below), key=_began))
        return SpanRun(root=root, above=above, spans=spans, id=f"otel-{self.trace_id}-{root.span_id}")


def _began(span: Span) -> tuple[int, int]:
    return span.started_ns, -span.ended_ns


def _children(spans: Iterable[Span]) -> Mapping[str, Sequence[Span]]:
    below: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        below[span.parent_id].append(span)
    return below


def _descent(root: Span, below: Mapping[str, Sequence[Span]]) -> Iterator[Span]:
    """Yield a span and its descendants, once each: parents may form a circle."""
    waiting, seen = [root], {root.span_id}
    while waiting:
        span = waiting.pop()
        yield span
        new = [child for child in below.get(span.span_id, ()) if child.span_id not in seen]
        seen |= {child.span_id for child in new}
        waiting += new


def _agents(top: Span, below: Mapping[str, Sequence[Span]]) -> Iterator[Span]:
    """Yield the outermost agents at or below a topmost span."""
    waiting = [top]
    while waiting:
        span = waiting.pop()
        if span.operation in AGENTS:
            yield span
        else:
            waiting += below.get(span.span_id, ())


def _above(root: Span, known: Mapping[str, Span]) -> tuple[Span, ...]:
    """Return the enclosing spans, the nearest first, with a limit that ends a circle of parents."""
    above: list[Span] = []
    span = known.get(root.parent_id)
    while span is not None and len(above) < MAX_ABOVE:
        above.append(span)
        span = known.get(span.parent_id)
    return tuple(above)


@dataclass(slots=True)
class _Waiting:
    """The waiting spans of one trace."""

    spans: dict[str, Span] = field(default_factory=dict)
    last_ms: int = 0
    entries: int = 0
    """Number of spans that begin the trace, or its part in a process."""


_NOTHING = _Waiting()


class Gathering(Generic[Owner]):
    """The spans of all incomplete traces by sender; no sender adds to another's traces."""

    def __init__(self, *, most_bytes: int, wait_ms: int) -> None:
        self._most_bytes = most_bytes
        self._wait_ms = wait_ms
        self._traces: dict[tuple[Owner, str], _Waiting] = {}
        self._bytes: defaultdict[Owner, int] = defaultdict(int)

    def __len__(self) -> int:
        return sum(len(waiting.spans) for waiting in self._traces.values())

    def fitting(self, owner: Owner, spans: Iterable[Span]) -> list[Span]:
        """Return the spans that their traces have room for; spans that complete a trace have twice the room."""
        new: defaultdict[str, set[str]] = defaultdict(set)
        fitting = []
        for span in spans:
            waiting = self._traces.get((owner, span.trace_id), _NOTHING).spans
            added = new[span.trace_id]
            is_new = span.span_id not in waiting and span.span_id not in added
            if is_new and len(waiting) + len(added) >= MAX_SPANS * (2 if span.is_entry else 1):
                continue
            if is_new:
                added.add(span.span_id)
            fitting.append(span)
        return fitting

    def add(self, owner: Owner, spans: Sequence[Span], now_ms: int) -> bool:
        """Add spans, repeated ones once; return False if there is no room for all, and none was added.

        A sender without waiting spans always gets room, since the size of a request is limited elsewhere. Spans that
        complete a trace have twice the room, because they free some.
        """
        size = sum(span.bytes for span in spans)
        most_bytes = self._most_bytes * (2 if any(span.is_entry for span in spans) else 1)
        if self._bytes.get(owner) and self._bytes[owner] + size > most_bytes:
            return False
        for span in spans:
            waiting = self._traces.setdefault((owner, span.trace_id), _Waiting())
            waiting.last_ms = now_ms
            if span.span_id not in waiting.spans:
                waiting.spans[span.span_id] = span
                waiting.entries += span.is_entry
                self._bytes[owner] += span.bytes
        return True

    def complete(self, owner: Owner, trace_ids: Iterable[str]) -> list[SpanGroup[Owner]]:
        """Return the complete parts of these traces: each entry span with its descendants up to the next entry."""
        groups = []
        for trace_id in dict.fromkeys(trace_ids):
            waiting = self._traces.get((owner, trace_id), _NOTHING)
            if not waiting.entries:
                continue
            below = _children(span for span in waiting.spans.values() if not span.is_entry)
            groups += [
                SpanGroup(
                    owner=owner,
                    trace_id=trace_id,
                    spans=tuple(_descent(entry, below)),
                    above=_above(entry, waiting.spans),
                )
                for entry in waiting.spans.values()
                if entry.is_entry
            ]
        return groups

    def expired(self, now_ms: int) -> list[SpanGroup[Owner]]:
        """Return traces without news for long; their missing spans will not come."""
        return [
            SpanGroup(owner=owner, trace_id=trace_id, spans=tuple(waiting.spans.values()))
            for (owner, trace_id), waiting in self._traces.items()
            if now_ms - waiting.last_ms >= self._wait_ms
        ]

    def forget(self, group: SpanGroup[Owner]) -> None:
        """Drop spans that became a run, or never will."""
        waiting = self._traces.get((group.owner, group.trace_id), _NOTHING)
        for span in group.spans:
            if waiting.spans.pop(span.span_id, None) is not None:
                self._bytes[group.owner] -= span.bytes
                waiting.entries -= span.is_entry
        if not waiting.spans:
            self._traces.pop((group.owner, group.trace_id), None)
        if not self._bytes[group.owner]:
            self._bytes.pop(group.owner, None)
