"""BatchSize: how many original reflections a batch of a playbook takes, and why."""

from typing import ClassVar, Literal

from pydantic import Field

from combee_schemas.base import LineName, Message, Value
from combee_schemas.marks import Text, Word

SizingKind = Literal["configured", "plateau", "keep-up"]
Phase = Literal["configured", "profiling", "settled"]


class Observation(Value):
    """The delay of one full batch of a candidate size, from its closing to its version."""

    batch_size: int = Field(ge=1)
    delay_s: float = Field(gt=0)


class BatchSize(Message):
    """The controller's decision, and all that it needs to make the next one; key: playbook."""

    type: ClassVar[str] = "batch-size"

    playbook: LineName
    batch_size: int = Field(ge=1)
    reason: Text = ""
    numbers: dict[Word, float] = Field(default_factory=dict)
    """What the reason rests on, such as ``A``, ``alpha``, ``r_squared``, ``tau``, ``plateau``."""
    decided_at_ms: int = 0
    """When size or phase last changed."""
    policy: SizingKind = "configured"
    phase: Phase = "configured"
    sequence: int = 0
    """The last batch taken into account."""
    candidates: tuple[int, ...] = ()
    observations: tuple[Observation, ...] = ()
    unfilled: int = 0
    """Batches of the candidate being profiled, in a row, that were no fair measurement."""
    settled_for: int = 0
    """Batches since the profile ended."""
    slowness: float = 1.0
    """By how much delays since then exceed the fit: a factor, smoothed."""
    arrivals_per_s: float = 0.0
    """Reflections that arrive per second; 0: not known yet."""
    remembered: int = 0
    """How many arrivals that estimate rests on."""
    measured_at_ms: int = 0
    """Up to when arrivals have been measured."""
    arrived: int = 0
    """Arrivals since then."""
    waiting: int = 0
    """Reflections left in the window when the last batch closed."""
    calm: int = 0
    """Batches in a row for which much less would have done."""
