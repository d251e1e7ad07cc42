"""The gate of one playbook: one candidate at a time, what its judges say, what follows; pure.

Its whole state is two labels, ``production`` and ``candidate``. Every function returns the gate as it is to be; who
writes it writes the decision in the same transaction.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from combee.core.formats.render import section_order
from combee.core.gate.policy import Judges
from combee.core.playbook.probation import shown
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
        """Those that must accept a candidate."""
        return self.production.gate

    @property
    def said(self) -> dict[Judge, Verdict]:
        """What judges said of the candidate so far."""
        return {verdict.judge: verdict for verdict in self.candidate.verdicts} if self.candidate else {}

    def waits_for(self, judge: Judge) -> bool:
        """Return whether a judge has still to speak about the candidate."""
        return self.candidate is not None and judge in self.judges and judge not in self.said


def gate_of(labels: Mapping[str, Label]) -> Gate | None:
    """Return the gate that a playbook's labels, by name, describe; None: it has none."""
    production = labels.get(PRODUCTION)
    if production is None or not production.gate:
        return None
    return Gate(production=production, candidate=labels.get(CANDIDATE))


def gates_of(labels: Iterable[Label]) -> dict[str, Gate]:
    """Return the gates that labels of any playbooks describe, by playbook in order."""
    by_playbook: dict[str, dict[str, Label]] = {}
    for label in labels:
        by_playbook.setdefault(label.playbook, {})[label.label] = label
    gates = {name: gate_of(known) for name, known in sorted(by_playbook.items())}
    return {name: gate for name, gate in gates.items() if gate is not None}


# ---- reading


def is_gated(production: Label | None, newest: Playbook | None) -> bool:
    """Return whether a playbook has a gate: by its label, where a reader has not seen that yet by its version."""
    if production is not None:
        return bool(production.gate)
    return newest is not None and newest.gated


def label_read(label: str, production: Label | None, newest: Playbook | None) -> str:
    """Return the label that a reader gets who asks for ``label``, or for none: the one place that decides it.

    Whoever asks for ``latest`` by name gets the newest version, judged or not.
    """
    if label != NO_LABEL:
        return label
    return PRODUCTION if is_gated(production, newest) else LATEST


# ---- opening


def opened(
    name: str, judges: Judges, known: Label | None, newest: Playbook | None, *, now_ms: int
) -> tuple[Gate, Decision]:
    """Return the gate of a playbook that had none.

    ``newest`` is the version that agents have read until now, and go on reading; None: nobody has read any. A label
    ``production`` that was there (``known``) stays where it points.
    """
    version = known.version if known else newest.version if newest else 0
    production = (known or Label(playbook=name, label=PRODUCTION, version=version)).model_copy(
        update={"gate": judges, "decided_through": version, "moved_at_ms": now_ms}
    )
    reason = "the gate was turned on: agents go on reading what they read" if version else "a new playbook"
    gate = Gate(production=production)
    return gate, _decision(gate, "opened", version=version, reason=reason, decided_at_ms=now_ms)


def with_judges(gate: Gate, judges: Judges) -> Gate:
    """Return a gate with other judges, which judge the candidate anew; without any it is no gate any more."""
    if gate.judges == judges:
        return gate
    production = gate.production.model_copy(update={"gate": judges})
    candidate = gate.candidate.model_copy(update={"verdicts": ()}) if gate.candidate and judges else None
    return Gate(production=production, candidate=candidate)


def with_candidate(gate: Gate, newest: Playbook, production: Playbook, *, now_ms: int) -> Gate:
    """Return a gate whose candidate is the newest version, if none is being judged and agents would notice it.

    ``production`` is the version that they read.
    """
    is_news = newest.version > gate.production.decided_through and content(newest) != content(production)
    if gate.candidate is not None or not is_news or newest.origin == "delete":
        return gate
    label = Label(playbook=newest.name, label=CANDIDATE, version=newest.version, moved_at_ms=now_ms)
    return replace(gate, candidate=label)


def content(version: Playbook) -> tuple[object, ...]:
    """Return what agents read of a version."""
    entries = shown(version).entries
    said = tuple((entry.id, entry.section, entry.content) for entry in entries)
    return version.holds, said, section_order(version.sections, entries)


# ---- judging


def judged(gate: Gate, verdict: Verdict) -> Gate | None:
    """Return the gate with a verdict; None if the verdict does not count.

    It counts if it is about the candidate beside today's production version, and the first word of a judge that is
    asked. A person may always reject, also after having approved.
    """
    candidate, before = gate.candidate, gate.said.get(verdict.judge)
    if candidate is None:
        return None
    is_about_it = (verdict.candidate, verdict.production) == (candidate.version, gate.production.version)
    is_veto = verdict.judge == "approve" and not verdict.accepts
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
    """Return what follows from the verdicts: one rejection closes, all judges together open; None: not yet."""
    said = gate.said
    if any(not verdict.accepts for verdict in said.values()):
        return "rejected"
    return "accepted" if gate.candidate and said.keys() >= set(gate.judges) else None


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
    """Return the gate after a person let ``production`` point elsewhere, past the judges.

    A candidate that is not newer is judged no longer; a newer one is judged anew, beside what agents read then.
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
