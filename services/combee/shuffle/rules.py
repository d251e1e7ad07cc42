"""Rules for a line's batches: when a window closes, the size of a batch, and its settings."""

import math
from typing import get_args

from combee.adapters.ports import Clock
from combee.core.batching.limits import SPAN
from combee.core.batching.window import Close, Share, Window, due
from combee.core.playbook.budget import budget_of
from combee.core.playbook.trust import parts
from combee.process.settings.batch import BatchSettings
from combee.process.settings.methods import plan_settings
from combee.process.worker.views import Playbooks, View
from combee.shuffle.partition import REFLECTIONS, ShuffleState
from combee_schemas.control import BatchSize
from combee_schemas.plan import Branch, PlanSettings, Trust


class BatchRules:
    """The rules that follow from the settings, the controller's decisions and a branch's own settings."""

    def __init__(
        self,
        clock: Clock,
        settings: BatchSettings,
        *,
        budget_tokens: int,
        embeddings: str,
        playbooks: Playbooks,
        sizes: View[BatchSize],
    ) -> None:
        self.settings = settings
        self._clock = clock
        self.budget_tokens, self._embeddings = budget_tokens, embeddings
        self._postures = settings.postures
        self._planned = {
            trust: plan_settings(settings, budget_tokens, embeddings, trust) for trust in get_args(Trust)
        }
        """The settings written into manifests of playbooks, by posture; branches may have others."""
        self._playbooks = playbooks
        self._sizes = sizes

    def settings_of(self, line: str, branch: Branch | None) -> PlanSettings:
        """Return the settings written into a line's manifests; ``branch``: that of the line, None: a playbook."""
        trust = self._postures.of(line)
        configured = self.budget_tokens
        budget = budget_of(self._playbooks.latest(line), configured) if configured else 0
        if branch is None:
            return self._planned[trust].model_copy(update={"playbook_tokens": budget})
        settings = self.settings.model_copy(update=branch.settings.own())
        return plan_settings(settings, budget, self._embeddings, trust)

    def batch_size(self, state: ShuffleState, line: str) -> int:
        """Return how many reflections make a batch of a line."""
        branch = state.branches.get(line)
        if branch and branch.settings.batch_size:
            return branch.settings.batch_size
        decided = self._sizes.get(line)
        return decided.batch_size if decided else self.settings.batch_size

    def close(self, state: ShuffleState, line: str, window: Window) -> Close | None:
        """Return the batch that a line's window should close with now; None: it stays open."""
        return due(
            window,
            self.batch_size(state, line),
            max_wait_s=self.settings.max_wait_s,
            now=self._clock.monotonic(),
            newest_offset=state.seen[REFLECTIONS],
        )

    def lines_to_look_at(self, state: ShuffleState) -> list[str]:
        """Return the lines that have changed or whose first reflection is old, the oldest first."""
        return state.take_changed(
            seen_by=self._clock.monotonic() - self.settings.max_wait_s,
            before=state.seen[REFLECTIONS] - SPAN,
        )

    def due_in(self, state: ShuffleState) -> float:
        """Return in how many seconds a window may be due by time alone."""
        since = state.waiting_since
        if since is None:
            return math.inf
        return max(0.0, since + self.settings.max_wait_s - self._clock.monotonic())

    def share(self, state: ShuffleState, line: str) -> Share | None:
        """Return how much of a batch one source may fill where others wait; None: all of it."""
        if self._postures.of(line) == "lab":
            return None
        return Share(batch_size=self.batch_size(state, line), parts=parts(self._playbooks.latest(line)))
