"""Spans come in pieces, children first: they wait until the span that they all are below has come."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from combee.core.spans.span import AGENTS, Span
from combee_schemas.trace_context import TRACEPARENT, TraceContext, trace_context

Owner = TypeVar("Owner", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRun:
    """The spans of one run of an agent."""

    root: Span | None
    """The agent's own; None: there is none, and these are the calls that were made."""
    above: tuple[Span, ...]
    """The spans around it, from the inside out."""
    spans: tuple[Span, ...]
    """The root and all below, in the order in which they began."""
    id: str
    """Made of the trace and the span; the same run has the same id."""

    @property
    def context(self) -> TraceContext | None:
        """The span that what is made of the run comes from."""
        span = self.root or self.spans[0]
        return trace_context(((TRACEPARENT, f"00-{span.trace_id}-{span.span_id}-01".encode()),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Generic[Owner]):
    """Spans that nothing is missing of, or that have waited long enough."""

    owner: Owner
    trace_id: str
    spans: tuple[Span, ...]

    def runs(self) -> list[SpanRun]:
        """Return the runs in it: that of each outermost agent, else one of all its calls."""
        below, known = _children(self.spans), {span.span_id for span in self.spans}
        tops = sorted((span for span in self.spans if span.parent_id not in known), key=_began)
        agents = (agent for top in tops for agent in _agents(top, below))
        roots = sorted(agents, key=lambda agent: _began(agent[0]))
        if roots:
            return [self._run(root, above, below) for root, above in roots]
        if not any(span.is_telling for span in self.spans):
            return []
        first = tops[0] if tops else self.spans[0]
        place = first.span_id if first.is_entry else first.parent_id
        ordered = tuple(sorted(self.spans, key=_began))
        return [SpanRun(root=None, above=tuple(tops), spans=ordered, id=f"otel-{self.trace_id}-{place}")]

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
    """Yield a span and all below it, once each: parents may name each other in a circle."""
    waiting, seen = [root], {root.span_id}
    while waiting:
        span = waiting.pop()
        yield span
        new = [child for child in below.get(span.span_id, ()) if child.span_id not in seen]
        seen |= {child.span_id for child in new}
        waiting += new


def _agents(top: Span, below: Mapping[str, Sequence[Span]]) -> Iterator[tuple[Span, tuple[Span, ...]]]:
    """Yield the outermost agents at or below a span, each with what is around it."""
    waiting: list[tuple[Span, tuple[Span, ...]]] = [(top, ())]
    seen = {top.span_id}
    while waiting:
        span, around = waiting.pop()
        if span.operation in AGENTS:
            yield span, around
            continue
        for child in below.get(span.span_id, ()):
            if child.span_id not in seen:
                seen.add(child.span_id)
                waiting.append((child, (span, *around)))


@dataclass(slots=True)
class _Waiting:
    """What has come of one trace."""

    spans: dict[str, Span] = field(default_factory=dict)
    last_ms: int = 0


class Gathering(Generic[Owner]):
    """The spans of all traces that are not complete, by whoever sent them; no sender adds to another's."""

    def __init__(self, *, most_bytes: int, wait_ms: int) -> None:
        self._most_bytes = most_bytes
        self._wait_ms = wait_ms
        self._traces: dict[tuple[Owner, str], _Waiting] = {}
        self._bytes: defaultdict[Owner, int] = defaultdict(int)

    def __len__(self) -> int:
        return sum(len(waiting.spans) for waiting in self._traces.values())

    def add(self, owner: Owner, spans: Sequence[Span], now_ms: int) -> bool:
        """Take spans in, a repeated one once; False: there is no room for all, and none was taken.

        Whoever waits with nothing always gets room: what one request may hold is bounded elsewhere. For what
        completes a trace there is twice the room: it makes some.
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
                self._bytes[owner] += span.bytes
        return True

    def complete(self, owner: Owner, trace_ids: Iterable[str]) -> list[Group[Owner]]:
        """Return what is complete of these traces: each entry that has come, with all below it."""
        groups = []
        for trace_id in dict.fromkeys(trace_ids):
            waiting = self._traces.get((owner, trace_id), _Waiting())
            below = _children(waiting.spans.values())
            for entry in waiting.spans.values():
                if entry.is_entry:
                    spans = tuple(_descent(entry, below))
                    groups.append(Group(owner=owner, trace_id=trace_id, spans=spans))
        return groups

    def expired(self, now_ms: int) -> list[Group[Owner]]:
        """Return the traces of which nothing has come for long; what is missing will not come."""
        return [
            Group(owner=owner, trace_id=trace_id, spans=tuple(waiting.spans.values()))
            for (owner, trace_id), waiting in self._traces.items()
            if now_ms - waiting.last_ms >= self._wait_ms
        ]

    def forget(self, group: Group[Owner]) -> None:
        """Drop what was made a run of, or never will be."""
        waiting = self._traces.get((group.owner, group.trace_id), _Waiting())
        for span in group.spans:
            if waiting.spans.pop(span.span_id, None) is not None:
                self._bytes[group.owner] -= span.bytes
        if not waiting.spans:
            self._traces.pop((group.owner, group.trace_id), None)
        if not self._bytes[group.owner]:
            self._bytes.pop(group.owner, None)
