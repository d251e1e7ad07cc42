"""The canaries that are under way: their terms, as the candidates' labels have them, and the verdicts that follow."""

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
    """What control knows of candidates; ``labels`` runs beside it."""

    def __init__(self, log: Log, clock: Clock, on_canary: OnCanary = lambda _playbook, _report: None) -> None:
        self.labels = View(log, topics.LABELS)
        self._clock = clock
        self._on_canary = on_canary
        self._said: dict[str, Label] = {}
        """By playbook: the label as it was when a verdict was written."""
        self._shown: set[str] = set()

    def _candidate(self, playbook: str) -> Label | None:
        return self.labels.get(label_key(playbook, CANDIDATE))

    def terms(self, playbook: str) -> CanaryTerms | None:
        """Return the terms of the playbook's canary; None: there is none."""
        return terms_of(self._candidate(playbook))

    def playbooks(self) -> list[str]:
        """Return the playbooks that have one, by name."""
        candidates = [label for label in self.labels.all().values() if terms_of(label)]
        return sorted(label.playbook for label in candidates)

    def verdict(self, canary: Canary) -> Verdict | None:
        """Return what is to be said of a candidate now; None: nothing yet, or it was said."""
        playbook, label = canary.playbook, self._candidate(canary.playbook)
        is_said = label is None or self._said.get(playbook) == label
        if is_said or any(verdict.judge == "canary" for verdict in (label.verdicts if label else ())):
            return None
        return verdict_on(canary, self._clock.now_ms())

    def said(self, verdict: Verdict) -> None:
        """Note that a verdict is written: the label as it is now gets no other one."""
        label = self._candidate(verdict.playbook)
        if label is not None:
            self._said[verdict.playbook] = label
        logger.info(
            "canary",
            playbook=verdict.playbook,
            candidate=verdict.candidate,
            accepts=verdict.accepts,
            undecided=verdict.undecided,
            reason=verdict.reason,
        )

    def show(self, canary: Canary) -> None:
        """Tell how far a canary is."""
        self._on_canary(canary.playbook, canary_report(canary, self._clock.now_ms()))
        self._shown.add(canary.playbook)

    def show_ended(self) -> None:
        """Tell no longer of those that are over."""
        for playbook in sorted(self._shown.difference(self.playbooks())):
            self._on_canary(playbook, None)
            self._shown.discard(playbook)
