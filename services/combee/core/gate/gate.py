"""The gate of one playbook: one candidate at a time, the judges' verdicts, the conclusion; pure.

The whole state is two labels, ``production`` and ``candidate``. Every function returns the next gate; the caller
writes it in one transaction with the decision.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from combee.core.gate.judges import PERSON
from combee.core.gate.policy import Judges
from combee.core.playbook.sections import section_order
from combee.core.playbook.shown import shown
from combee_schemas.gate import Decided, Decision, Judge, Verdict
from combee_schemas.playbook import CANDIDATE, LATEST, NO_LABEL, PRODUCTION, Label, Playbook

Conclusion = Literal["accepted", "rejected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The two labels of a gated playbook."""

    production: Label
    candidate: Label | None = None

    @property
    def judges(self) -> Judges:
        """The judges that must accept a candidate."""
        return self.production.gate

    @property
    def verdicts(self) -> dict[Judge, Verdict]:
        """The judges' verdicts on the candidate to date."""
        return {verdict.judge: verdict for verdict in self.candidate.verdicts} if self.candidate else {}

    def waits_for(self, judge: Judge) -> bool:
        """Return whether a judge has not judged the candidate yet."""
        return self.candidate is not None and judge in self.judges and judge not in self.verdicts


def gate_of(labels: Mapping[str, Label]) -> Gate | None:
    """Return the gate described by a playbook's labels; None: it has none."""
    production = labels.get(PRODUCTION)
    if production is None or not production.gate:
        return None
    return Gate(production=production, candidate=labels.get(CANDIDATE))


def gates_of(labels: Iterable[Label]) -> dict[str, Gate]:
    """Return the gates described by labels, by playbook in order."""
    gates = {name: gate_of(known) for name, known in sorted(labels_by_playbook(labels).items())}
    return {name: gate for name, gate in gates.items() if gate is not None}


def labels_by_playbook(labels: Iterable[Label]) -> dict[str, dict[str, Label]]:
    """Return labels by playbook and name."""
    by_playbook: dict[str, dict[str, Label]] = {}
    for label in labels:
        by_playbook.setdefault(label.playbook, {})[label.label] = label
    return by_playbook


# ---- reading


def is_gated(production: Label | None, newest: Playbook | None) -> bool:
    """Return whether a playbook has a gate, by its label, or by its version if the label is not read yet."""
    if production is not None:
        return bool(production.gate)
    return newest is not None and newest.gated


def label_read(label: str, production: Label | None, newest: Playbook | None) -> str:
    """Return the label that a reader of ``label``, or of no label, gets; the only place that decides it.

    ``latest`` is always the newest version, judged or not.
    """
    if label != NO_LABEL:
        return label
    return PRODUCTION if is_gated(production, newest) else LATEST


# ---- opening


def opened(
    name: str, judges: Judges, known: Label | None, newest: Playbook | None, *, now_ms: int
) -> tuple[Gate, Decision]:
    """Return the first gate of a playbook.

    ``newest`` is the version that agents have read until now, and continue to read; None: nobody has read any. An
    existing label ``production`` (``known``) keeps its version, unless an earlier gate ended before it accepted any.
    """
    version = (known.version if known else 0) or (newest.version if newest else 0)
    production = (known or Label(playbook=name, label=PRODUCTION, version=version)).model_copy(
        update={"version": version, "gate": judges, "decided_through": version, "moved_at_ms": now_ms}
    )
    reason = f"the gate was turned on: agents read version {version}" if version else "a new playbook"
    gate = Gate(production=production)
    return gate, _decision(gate, "opened", version=version, reason=reason, decided_at_ms=now_ms)


def with_judges(gate: Gate, judges: Judges) -> Gate:
    """Return a gate with other judges; who remains of the former has judged. Without judges the gate ends."""
    if gate.judges == judges:
        return gate
    production = gate.production.model_copy(update={"gate": judges})
    candidate = gate.candidate if judges else None
    if candidate is not None:
        kept = tuple(verdict for verdict in candidate.verdicts if verdict.judge in judges)
        candidate = candidate.model_copy(update={"verdicts": kept})
    return Gate(production=production, candidate=candidate)


def with_candidate(gate: Gate, newest: Playbook, production: Playbook, *, now_ms: int) -> Gate:
    """Return a gate whose candidate is the newest version, if none is being judged and agents would notice it.

    ``production`` is the version that agents read.
    """
    is_news = newest.version > gate.production.decided_through and content(newest) != content(production)
    if gate.candidate is not None or not is_news or newest.origin == "delete":
        return gate
    label = Label(playbook=newest.name, label=CANDIDATE, version=newest.version, moved_at_ms=now_ms)
    return replace(gate, candidate=label)


def takes_back(production: Playbook, before: Playbook, version: Playbook) -> bool:
    """Return whether a version no longer shows what the one before it does and ``production`` does not."""
    kept = {entry.content for book in (production, version) for entry in shown(book).entries}
    return any(entry.content not in kept for entry in shown(before).entries)


def content(version: Playbook) -> tuple[object, ...]:
    """Return the part of a version that agents read."""
    entries = shown(version).entries
    texts = tuple((entry.id, entry.section, entry.content) for entry in entries)
    return version.holds, texts, section_order(version.sections, entries)


# ---- judging


def judged(gate: Gate, verdict: Verdict) -> Gate | None:
    """Return the gate with a verdict; None if the verdict does not count.

    It counts if it compares the candidate with today's production version, and is its judge's first. A person may
    always reject, even after approving.
    """
    candidate, before = gate.candidate, gate.verdicts.get(verdict.judge)
    if candidate is None:
        return None
    is_about_it = (verdict.candidate, verdict.production) == (candidate.version, gate.production.version)
    is_veto = verdict.judge == PERSON and not verdict.accepts
    is_asked = verdict.judge in gate.judges and before is None
    repeats = before is not None and before.accepts == verdict.accepts
    if not is_about_it or repeats or not (is_asked or is_veto):
        return None
    others = tuple(earlier for earlier in candidate.verdicts if earlier.judge != verdict.judge)
    return replace(gate, candidate=candidate.model_copy(update={"verdicts": (*others, verdict)}))


def not_judged(gate: Gate, verdict: Verdict) -> str:
    """Return why a verdict does not count."""
    name, candidate = verdict.playbook, gate.candidate
    if candidate is None:
        return f"{name} has no candidate"
    if verdict.candidate != candidate.version:
        return f"the candidate of {name} is version {candidate.version}, not {verdict.candidate}"
    if verdict.production != gate.production.version:
        shown = f"version {gate.production.version}" if gate.production.version else "no version"
        return f"agents read {shown} of {name} by now, not {verdict.production}: look at the difference again"
    if verdict.judge not in gate.judges:
        return f"the gate of {name} asks {', '.join(gate.judges)}: 'promote' moves the label past it"
    return f"{verdict.judge} has spoken about version {verdict.candidate} of {name} already"


def conclusion(gate: Gate) -> Conclusion | None:
    """Return the conclusion: one rejection closes, all judges together open; None: not yet."""
    verdicts = gate.verdicts
    if any(not verdict.accepts for verdict in verdicts.values()):
        return "rejected"
    return "accepted" if gate.candidate and verdicts.keys() >= set(gate.judges) else None


def decided(
    gate: Gate, outcome: Conclusion, *, now_ms: int, taken_back: int = 0, made: int = 0
) -> tuple[Gate, Decision]:
    """Return the gate after a decision about its candidate, and the decision's record.

    Raises
    ------
    ValueError
        If there is no candidate.
    """
    if gate.candidate is None:
        raise ValueError("there is no candidate to decide about")
    candidate, last = gate.candidate, gate.candidate.verdicts[-1]
    before = gate.production.version
    version = candidate.version if outcome == "accepted" else before
    production = gate.production.model_copy(
        update={
            "version": version,
            "decided_through": candidate.version,
            "moved_at_ms": now_ms,
            "issued_by": last.judged_by,
        }
    )
    decision = _decision(
        gate,
        outcome,
        version=version,
        reason=next((spoken.reason for spoken in candidate.verdicts if not spoken.accepts), last.reason),
        taken_back=taken_back,
        made=made,
        decided_by=last.judged_by,
        decided_at_ms=now_ms,
    )
    return Gate(production=production), decision


def moved(gate: Gate, label: Label, *, now_ms: int) -> tuple[Gate, Decision]:
    """Return the gate after a person moved ``production`` without the judges.

    An older or equal candidate is dropped; a newer one is judged anew against the version that agents then read.
    """
    candidate = gate.candidate
    through = max(gate.production.decided_through, label.version)
    if candidate is not None and candidate.version <= label.version:
        candidate = None
    if candidate is not None:
        candidate = candidate.model_copy(update={"verdicts": ()})
    update = {"gate": gate.judges, "decided_through": through, "moved_at_ms": now_ms}
    decision = _decision(
        gate, "moved", version=label.version, decided_by=label.issued_by, decided_at_ms=now_ms
    )
    return Gate(production=label.model_copy(update=update), candidate=candidate), decision


def _decision(gate: Gate, outcome: Decided, **fields: object) -> Decision:
    is_about_it = gate.candidate is not None and outcome != "moved"
    about = gate.candidate if is_about_it else None
    return Decision.model_validate(
        {
            "playbook": gate.production.playbook,
            "decided": outcome,
            "candidate": about.version if about else 0,
            "before": gate.production.version,
            "judges": gate.judges,
            "verdicts": about.verdicts if about else (),
            "since_ms": about.moved_at_ms if about else 0,
            **fields,
        }
    )
