"""Settings of the controller."""

from typing import Any

from pydantic import Field, model_validator

from combee.core.batching.sizing.policy import SizingPolicy
from combee.process.settings.batch import InFlight, StartSize
from combee.process.settings.group import SettingsGroup
from combee_schemas.control import SizingKind


class SizingSettings(SettingsGroup):
    """How the controller chooses batch sizes."""

    batch_policy: SizingKind = Field(
        "keep-up",
        description="how batch sizes are chosen: `keep-up` with arrivals, the paper's `plateau`, or"
        " `configured` (the default if COMBEE_BATCH_SIZE is set)",
    )
    batch_size: StartSize = 40
    max_inflight_batches: InFlight = 1

    @model_validator(mode="before")
    @classmethod
    def _set_size_is_fixed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Treat a batch size as fixed if it is set without a policy."""
        return {"batch_policy": "configured", **given} if "batch_size" in given else given

    @property
    def fixed_size(self) -> int | None:
        """Size of every batch; None: the controller chooses."""
        return self.batch_size if self.batch_policy == "configured" else None

    def policy(self) -> SizingPolicy:
        """Return the policy."""
        return SizingPolicy(
            kind=self.batch_policy, configured=self.batch_size, in_flight=self.max_inflight_batches
        )
