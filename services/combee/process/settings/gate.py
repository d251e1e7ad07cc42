"""Settings of the gate: who decides about which version agents read."""

from typing import Annotated

from pydantic import AfterValidator, Field

from combee.core.gate.judges import JUDGES
from combee.core.gate.policy import CanaryPolicy, GatePolicy, judges_in
from combee.process.settings.group import Group


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
        gt=0,
        lt=1,
        description="evaluate, canary: a candidate whose score is lower by more than this is not accepted",
    )
    canary_share: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="canary: of the callers that name themselves, those shown the candidate; more decide sooner",
    )

    def policy(self, salt: str = "") -> GatePolicy:
        """Return the judges of every playbook; who does not know ``salt`` foresees no canary's callers."""
        by_pattern = {pattern: judges_in(text) for pattern, text in self.gates.items()}
        canary = CanaryPolicy(share=self.canary_share, margin=self.gate_margin, salt=salt)
        judges = None if self.gate is None else judges_in(self.gate)
        return GatePolicy(judges=judges, by_pattern=by_pattern, canary=canary)
