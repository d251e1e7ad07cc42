"""Settings of the gate: who decides about which version agents read."""

from typing import Annotated

from pydantic import AfterValidator, Field

from combee.core.gate.judges import JUDGES
from combee.core.gate.policy import CanaryPolicy, GatePolicy, judges_in
from combee.settings.group import Group


def _checked(text: str) -> str:
    judges_in(text)
    return text


_NAMES = ", ".join(f"`{name}`" for name in JUDGES)
JudgesText = Annotated[str, AfterValidator(_checked)]


class GateSettings(Group):
    """The gate between what is learned and what agents read."""

    gate: JudgesText | None = Field(
        None,
        description=f"who must accept a new version before agents read it: `off`, or {_NAMES},"
        " several with commas; one setting for all services; unset: no new gate, and those that are there stay",
    )
    gates: dict[str, JudgesText] = Field(
        default_factory=dict,
        description='the same per playbook, in `combee.toml`: `[gates]` with `"support/*" = "evaluate,approve"`; the'
        " longest pattern that matches goes first",
    )
    gate_margin: float = Field(
        0.05,
        ge=0,
        le=1,
        description="evaluate: a candidate whose score is lower by more than this is rejected",
    )
    canary_share: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="canary: of the callers that name themselves, those shown the candidate",
    )
    canary_margin: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="canary: a candidate whose score is lower by so much is not to be accepted",
    )
    canary_alpha: float = Field(
        0.05, gt=0, lt=0.5, description="canary: how often one decision may be wrong, in either direction"
    )
    canary_runs: int = Field(
        1, ge=1, le=1_000, description="canary: a caller counts, once, when so many of its runs are scored"
    )
    canary_score: str = Field(
        "score", max_length=40, description="canary: the score, in [0, 1], of runs that do not say `success`"
    )
    canary_deadline_s: float = Field(
        14 * 24 * 3600, gt=0, description="canary: a candidate that is not accepted by then stays closed (s)"
    )

    def policy(self, salt: str = "") -> GatePolicy:
        """Return the judges of every playbook; who does not know ``salt`` foresees no canary's callers."""
        by_pattern = {pattern: judges_in(text) for pattern, text in self.gates.items()}
        canary = CanaryPolicy(
            share=self.canary_share,
            margin=self.canary_margin,
            alpha=self.canary_alpha,
            runs=self.canary_runs,
            score=self.canary_score,
            within_ms=round(self.canary_deadline_s * 1000),
            salt=salt,
        )
        judges = None if self.gate is None else judges_in(self.gate)
        return GatePolicy(judges=judges, by_pattern=by_pattern, canary=canary)
