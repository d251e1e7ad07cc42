"""The arms: a posture with its judge, who the attackers are, and how much room there is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from combee.core.gate.policy import Judges
from combee_experiments.attacks.producers import MALICIOUS, WARM_UP
from combee_schemas.plan import Trust

Crew = Literal["nobody proves", "one", "three"]
"""nobody proves: no producer has a secret; one, three: proven attackers next to seven proven honest producers."""
SENT = 6
"""Reflections that the attackers send in a round, together: 30 % of all."""
MARGIN = 0.01
"""Of *evaluate*: less than one lesson is worth in the exam."""
AMPLE, SHORT = 4.0, 1.25
"""Room for the true lessons: a quarter of it, what may be proposed, holds each of them once, or a third of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One deployment."""

    posture: Trust
    crew: Crew = "one"
    judges: Judges = ()
    room: float = AMPLE
    sent: int = SENT
    begins: int = WARM_UP
    """The round in which the attack begins."""
    call_s: float = 0.0
    """Seconds that a model call takes."""

    @property
    def attackers(self) -> int:
        """Number of attackers."""
        return 1 if self.crew == "one" else MALICIOUS

    @property
    def name(self) -> str:
        """The arm in words."""
        judges = "".join(f" + {judge}" for judge in self.judges)
        room = ", short of room" if self.room == SHORT else ""
        return f"{self.posture}{judges}, {self.crew}{room}"


CREWS: tuple[Crew, ...] = ("nobody proves", "one", "three")
_ARMS = (
    Arm(posture="lab"),
    Arm(posture="lab", room=SHORT),
    Arm(posture="team"),
    Arm(posture="team", room=SHORT),
    Arm(posture="team", crew="three"),
    Arm(posture="team", crew="nobody proves"),
    *(Arm(posture="public", crew=crew) for crew in CREWS),
    *(Arm(posture="public", crew=crew, judges=("approve",)) for crew in CREWS[1:]),
    *(Arm(posture="public", crew=crew, judges=("evaluate",)) for crew in CREWS[1:]),
)
ARMS: Mapping[str, Arm] = {arm.name: arm for arm in _ARMS}
LAB, TEAM, PUBLIC = (Arm(posture=posture).name for posture in ("lab", "team", "public"))
LAB_SHORT, TEAM_SHORT = (Arm(posture=posture, room=SHORT).name for posture in ("lab", "team"))
