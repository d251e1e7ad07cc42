"""The ledger's report: counts, problems with their places, and the horizon."""

from dataclasses import dataclass, field

from pydantic import computed_field

from combee_schemas.base import Usage, Value
from combee_schemas.erasure import Erasure

SHOWN_PER_KIND = 20


class Horizon(Value):
    """The first retained offset of each topic's partitions; earlier records have expired and were not judged."""

    first_retained: dict[str, dict[int, int]]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def note(self) -> str:
        """The horizon in words."""
        expired = {
            topic: sum(1 for at in firsts.values() if at) for topic, firsts in self.first_retained.items()
        }
        cut = [f"{topic} ({count} partitions)" for topic, count in expired.items() if count]
        if not cut:
            return "nothing has expired: every record ever written was judged"
        return f"records before the first retained offsets were not judged: {', '.join(cut)}"


class TraceCounts(Value):
    """``acknowledged`` = ``reflected`` + ``pending`` + ``dead_lettered`` + ``duplicates`` + ``lost``.

    Only retained records count. ``duplicates`` are records whose id their playbook already had.
    """

    acknowledged: int = 0
    reflected: int = 0
    pending: int = 0
    dead_lettered: int = 0
    duplicates: int = 0
    lost: int = 0

    def __add__(self, other: "TraceCounts") -> "TraceCounts":
        return TraceCounts(**{name: count + getattr(other, name) for name, count in self})


class Calls(Value):
    """Model calls of batches: ``planned`` nodes, calls made, and the reasons for the difference."""

    planned: int
    made: int
    skips: int
    splits: int
    re_asks: int
    checks: int
    hedges: int
    left_out: int

    @classmethod
    def of(cls, used: Usage, planned: int) -> "Calls":
        """Return the calls used, with the planned number."""
        return cls.model_validate({**dict(used), "planned": planned, "made": used.calls})

    @property
    def text(self) -> str:
        """The calls in words."""
        why = {
            "skipped": self.skips,
            "split": self.splits,
            "asked again": self.re_asks,
            "checks of results": self.checks,
            "repeats of slow ones": self.hedges,
            "left out, estimated": self.left_out,
        }
        reasons = ", ".join(f"{count} {name}" for name, count in why.items() if count)
        return f"model calls: {self.made} made, {self.planned} planned{f' ({reasons})' if reasons else ''}"


class LedgerReport(Value):
    """``reflections`` = ``applied`` + ``pending`` + ``dead_lettered`` + ``lost``; ``double`` is part of applied.

    ``dropped`` is part of dead-lettered: an operator dropped these. ``duplicates`` are additional records of those
    ids.
    """

    reflections: int
    applied: int
    pending: int
    dead_lettered: int
    dropped: int = 0
    lost: int
    double: int
    duplicates: int = 0
    traces: TraceCounts = TraceCounts()
    conflicts: tuple[str, ...] = ()
    """Duplicates whose content differs from the first record of their id."""
    violations: tuple[str, ...]
    model_calls: Calls
    """Model calls of batches with an update."""
    erasures: tuple[Erasure, ...] = ()
    """Time and issuer of each erasure; erased records are not counted elsewhere."""
    continued_from_ms: int | None = None
    """Time of the checkpoint that this reading began with; None: everything was read."""
    horizon: Horizon

    @computed_field  # type: ignore[prop-decorator]
    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        return not (self.violations or self.lost or self.double)


@dataclass(slots=True)
class Findings:
    """Violations by kind; the first of each kind are listed, the rest counted."""

    _texts: dict[str, list[str]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        """Add one violation; ids of producers in it may have line ends."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        texts = self._texts.setdefault(kind, [])
        if len(texts) < SHOWN_PER_KIND:
            texts.append(" ".join(f"{kind}: {text}".split()))

    def texts(self) -> tuple[str, ...]:
        """Return the violations, by first appearance of each kind."""
        lines: list[str] = []
        for kind, texts in self._texts.items():
            lines += texts
            left = self._counts[kind] - len(texts)
            lines += [f"{kind}: and {left} more"] if left else []
        return tuple(lines)
