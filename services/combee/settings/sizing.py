"""Settings of the controller."""

from typing import Any

from pydantic import Field, model_validator

from combee.core.sizing.policy import SizingPolicy
from combee.settings.batch import BATCH_SIZE, LARGEST_BATCH
from combee.settings.group import Group, SettingsError
from combee_schemas.control import SizingKind


class SizingSettings(Group):
    """How the controller chooses batch sizes."""

    batch_policy: SizingKind = Field(
        "keep-up",
        description="`keep-up` with what arrives, the paper's `plateau`, or `configured`: the default where"
        " COMBEE_BATCH_SIZE is set",
    )
    batch_size: int = Field(40, ge=1, le=LARGEST_BATCH, description=BATCH_SIZE)
    batch_candidates: str = Field(
        "5,10,20,40,80", pattern=r"^[1-9]\d{0,3}(,[1-9]\d{0,3})*$", description="batch sizes to profile"
    )
    batch_max: int = Field(200, ge=1, le=LARGEST_BATCH, description="no batch size is chosen above this")
    headroom: float = Field(
        1.5, ge=1, le=10, description="keep-up: times the arrival rate that batches should manage"
    )
    beyond_plateau: bool = Field(False, description="keep-up: let COMBEE_BATCH_MAX alone be the limit")
    max_inflight_batches: int = Field(1, ge=1, le=16, description="unpublished batches per playbook")

    @model_validator(mode="before")
    @classmethod
    def _set_size_is_fixed(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Take a batch size that is set, and no policy beside it, as fixed."""
        return {"batch_policy": "configured", **given} if "batch_size" in given else given

    @property
    def fixed_size(self) -> int | None:
        """The size of every batch; None where the controller chooses."""
        return self.batch_size if self.batch_policy == "configured" else None

    def policy(self) -> SizingPolicy:
        """Return the policy.

        Raises
        ------
        SettingsError
            If no candidate is at most the largest size allowed.
        """
        listed = sorted({int(size) for size in self.batch_candidates.split(",")})
        candidates = tuple(size for size in listed if size <= self.batch_max)
        if not candidates:
            raise SettingsError(
                f"COMBEE_BATCH_MAX is {self.batch_max}, and every one of COMBEE_BATCH_CANDIDATES"
                f" ({self.batch_candidates}) is larger: lower one or raise the other"
            )
        return SizingPolicy(
            kind=self.batch_policy,
            configured=self.batch_size,
            candidates=candidates,
            most=self.batch_max,
            headroom=self.headroom,
            beyond_plateau=self.beyond_plateau,
            in_flight=self.max_inflight_batches,
        )
