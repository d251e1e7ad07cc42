"""Canaries under way: their terms, read from the candidates' labels, and their verdicts."""

from collections.abc import Callable

import structlog

from combee.adapters.ports import Clock, Log
from combee.core.gate.canary import terms_of
from combee.core.gate.canary_fold import Canary
from combee.core.gate.canary_verdict import CanaryReport, canary_report, verdict_on
from combee.process.worker.views import View
from combee_schemas import topics
from combee_schemas.canary import CanaryTerms
from combee_schemas.gate import Verdict
from combee_schemas.playbook import CANDIDATE, Label, label_key

logger = structlog.get_logger()

OnCanary = Callable[[str, CanaryReport | None], None]


class Canaries:
    """Control's view of candidates; ``labels`` must run at the same time."""

    def __init__(self, log: Log, clock: Clock, on_canary: OnCanary = lambda _playbook, _report: None) -> None:
        self.labels = View(log, topics.LABELS)
        self._clock = clock
        self._on_canary = on_canary
        self._verdict_written: dict[str, Label] = {}
        """By playbook: the label for which a verdict was written."""
        self._shown: set[str] = set()

    def _candidate(self, playbook: str) -> Label | None:
        return self.labels.get(label_key(playbook, CANDIDATE))

    def terms(self, playbook: str) -> CanaryTerms | None:
        """Return the terms of the playbook's canary; None: there is none."""
        return terms_of(self._candidate(playbook))

    def playbooks(self) -> list[str]:
        """Return the playbooks with a canary, by name."""
        candidates = [label for label in self.labels.all().values() if terms_of(label)]
        return sorted(label.playbook for label in candidates)

    def verdict(self, canary: Canary) -> Verdict | None:
        """Return the verdict on a candidate; None: there is none yet, or it was written before."""
        playbook, label = canary.playbook, self._candidate(canary.playbook)
        is_written = label is None or self._verdict_written.get(playbook) == label
        if is_written or any(verdict.judge == "canary" for verdict in (label.verdicts if label else ())):
            return None
        return verdict_on(canary, self._clock.now_ms())

    def written(self, verdict: Verdict) -> None:
        """Record that a verdict is written: the label in its present state gets no second one."""
        label = self._candidate(verdict.playbook)
        terms = terms_of(label)
        # Another canary may have begun while it was written.
        if label and terms and (terms.candidate, terms.control) == (verdict.candidate, verdict.production):
            self._verdict_written[verdict.playbook] = label
        logger.info(
            "canary",
            playbook=verdict.playbook,
            candidate=verdict.candidate,
            accepts=verdict.accepts,
            undecided=verdict.undecided,
            reason=verdict.reason,
        )

    def show(self, canary: Canary) -> None:
        """Report the progress of a canary."""
        self._on_canary(canary.playbook, canary_report(canary, self._clock.now_ms()))
        self._shown.add(canary.playbook)

    def show_ended(self) -> None:
        """Stop reporting canaries that are over."""
        for playbook in sorted(self._shown.difference(self.playbooks())):
            self._on_canary(playbook, None)
            self._shown.discard(playbook)
