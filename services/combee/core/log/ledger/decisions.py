"""The gates' part of the ledger: one decision per candidate, decisions follow from each other, labels agree."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from combee.core.log.ledger.checkpoint import KnownDecision, Line
from combee.core.log.ledger.report import Findings
from combee_schemas.gate import Decision
from combee_schemas.playbook import PRODUCTION, Label


@dataclass(slots=True, kw_only=True)
class Decisions:
    """Decisions in order, and the labels' last moves; ``close`` compares them."""

    findings: Findings
    _known: dict[str, list[KnownDecision]] = field(default_factory=dict)
    """Per playbook, the last decision before the checkpoint, and all later ones."""
    _labels: dict[str, tuple[str, Label]] = field(default_factory=dict)

    def restore(self, name: str, line: Line) -> None:
        """Continue a playbook from a checkpoint."""
        if line.decided is not None:
            self._known[name] = [line.decided]

    def line(self, name: str) -> Mapping[str, object]:
        """Return a playbook's part of a checkpoint."""
        known = self._known.get(name)
        return {"decided": known[-1]} if known else {}

    def lines(self) -> set[str]:
        """Return the playbooks with decisions."""
        return set(self._known)

    def add(self, where: str, decision: Decision) -> None:
        """Add a record of ``decisions``."""
        name, known = decision.playbook, self._known.setdefault(decision.playbook, [])
        last = known[-1] if known else None
        through = last.through if last else 0
        if decision.candidate and decision.candidate <= through:
            text = f"{where} decides about version {decision.candidate} of {name}, and {through} was decided before"
            self.findings.add("decision", text)
        if decision.decided != "opened" and decision.before != (last.version if last else 0):
            text = f"{where} says that agents read version {decision.before} of {name}"
            self.findings.add("decision", f"{text}: it was {last.version if last else 'none'}")
        known.append(
            KnownDecision(
                through=max(through, decision.candidate),
                version=decision.version,
                decided_at_ms=decision.decided_at_ms,
            )
        )

    def label(self, where: str, label: Label) -> None:
        """Add a record of ``labels``; only gates matter here."""
        if label.label == PRODUCTION:
            self._labels[label.playbook] = where, label

    def close(self) -> None:
        """Compare labels with the decisions of their time; a later decision may have moved the label since."""
        for name, (where, label) in self._labels.items():
            if not label.gate:
                continue
            known = self._known.get(name, ())
            until = [decision for decision in known if decision.decided_at_ms <= label.moved_at_ms]
            if not until:
                self.findings.add("decision", f"{where}: no decision let {name} have this label")
            elif until[-1].version != label.version:
                text = f"{where} shows version {label.version} of {name}: {until[-1].version} was decided"
                self.findings.add("decision", text)
