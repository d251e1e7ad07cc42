"""The gate: the production version, the candidate, verdicts and decisions; pure."""

from collections.abc import Collection

from combee.adapters.clock import moment
from combee.core.gate.gate import Gate
from combee.core.gate.judges import PERSON
from combee_schemas.base import Value
from combee_schemas.gate import Judge, Verdict


class GateReport(Value):
    """A playbook's gate."""

    judges: tuple[Judge, ...]
    production: int
    """The version that agents read; 0: none has passed yet."""
    candidate: int | None
    """The candidate; None: there is none."""
    since_ms: int | None
    waits_for: tuple[Judge, ...]
    """Judges without a verdict on it."""

    @property
    def text(self) -> str:
        """The same in words."""
        production = f"version {self.production}" if self.production else "no version yet"
        reads = f"agents read {production} (gate: {', '.join(self.judges)})"
        if self.candidate is None:
            return f"{reads}; nothing waits"
        since = f" since {moment(self.since_ms)} UTC" if self.since_ms else ""
        return (
            f"{reads}; version {self.candidate} waits for {', '.join(self.waits_for) or 'a decision'}{since}"
        )


def gate_report(gate: Gate) -> GateReport:
    """Return the report on a gate."""
    candidate = gate.candidate
    return GateReport(
        judges=gate.judges,
        production=gate.production.version,
        candidate=candidate.version if candidate else None,
        since_ms=candidate.moved_at_ms if candidate else None,
        waits_for=tuple(judge for judge in gate.judges if gate.waits_for(judge)),
    )


def said(verdict: Verdict) -> str:
    """Return a verdict in a word or two."""
    if verdict.undecided:
        return "is undecided"
    return "accepts" if verdict.accepts else "rejects"


def verdict_text(verdict: Verdict) -> str:
    """Return a verdict in words, with its reason and figures."""
    about = "; ".join(part for part in (verdict.reason, verdict_figures(verdict)) if part)
    on = " about" if verdict.undecided else ""
    return f"{verdict.judge} {said(verdict)}{on} version {verdict.candidate}: {about}"


def verdict_figures(verdict: Verdict) -> str:
    """Return the numbers behind a verdict."""
    return ", ".join(f"{key} {value:g}" for key, value in verdict.figures.items())


def judgement_text(
    candidate: int, production: int, waited_for: Collection[Judge], *, accepts: bool, in_part: bool = False
) -> str:
    """Return in words the result of a person's approval or rejection of a candidate.

    ``production`` is the version that agents read afterwards, ``waited_for`` the judges without a verdict before.
    """
    if in_part:
        rest = "the rest of it is the next candidate"
        return f"version {candidate} is rejected in part, {rest}; agents go on reading version {production}"
    if not accepts:
        return f"version {candidate} is rejected, agents go on reading version {production}"
    if production == candidate:
        return f"agents read version {candidate} from now on"
    waits = ", ".join(judge for judge in waited_for if judge != PERSON)
    return f"version {candidate} is approved, and waits for {waits}"
