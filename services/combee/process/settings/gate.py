"""Settings of the gate: the judges that decide which version agents read."""

from typing import Annotated

from pydantic import AfterValidator, Field

from combee.core.gate.judges import JUDGES
from combee.core.gate.policy import CanaryPolicy, GatePolicy, judges_in
from combee.process.settings.group import SettingsGroup


def _checked(text: str) -> str:
    judges_in(text)
    return text


_NAMES = ", ".join(f"`{name}`" for name in JUDGES)
JudgesText = Annotated[str, AfterValidator(_checked)]


class GateSettings(SettingsGroup):
    """The gate between new versions and agents."""

    gate: JudgesText | None = Field(
        None,
        description=f"judges that must accept a new version before agents read it: `off`, or {_NAMES},"
        " separated by commas; the same for all services; unset: no new gate, and existing gates stay",
    )
    gates: dict[str, JudgesText] = Field(
        default_factory=dict,
        description='judges per playbook, in `combee.toml`: `[gates]` with `"support/*" = "evaluate,approve"`; the'
        " longest matching pattern wins",
    )
    gate_margin: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="evaluate, canary: maximum drop in score at which a candidate is still accepted",
    )
    canary_share: float = Field(
        0.1,
        gt=0,
        le=0.5,
        description="canary: share of named callers that get the candidate; a larger share decides sooner",
    )

    def policy(self, salt: str = "") -> GatePolicy:
        """Return the judges of every playbook; without ``salt`` nobody can predict a canary's callers."""
        by_pattern = {pattern: judges_in(text) for pattern, text in self.gates.items()}
        canary = CanaryPolicy(share=self.canary_share, margin=self.gate_margin, salt=salt)
        judges = None if self.gate is None else judges_in(self.gate)
        return GatePolicy(judges=judges, by_pattern=by_pattern, canary=canary)
